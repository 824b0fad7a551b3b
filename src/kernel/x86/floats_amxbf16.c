// AMX BF16: products of BF16 weights with float32 inputs, as exact as those of float32.
//
// A float32 is the sum of three BF16 numbers: its first 8 bits of mantissa, the next 8, and the last 8, cut off rather
// than rounded, so that nothing overflows. `prepare` keeps inputs a second time as three such planes, 6 bytes a number.
// The tile product multiplies BF16 numbers exactly and adds in float32, so a row's sum over each plane is what float32
// gives or better, three times as many products as one plane would take, and still several times what fused
// multiply-adds can do.
//
// A tile of weights is 16 pairs of columns x 16 rows, a step of a group with the columns of a pair put side by side.
// With up to 16 tokens a group of rows is read once, and each step is multiplied by all planes: three tiles of sums.
// With more the columns are split into pieces, as in int8_amx.c: two tiles of tokens and two groups of rows make four
// tiles of sums, plane by plane.
//
// Every sum is the same alone and in a batch: a plane's sum runs from step to step, and `(last + middle) + first` is
// the result. Subnormal operands and sums count as zero, which inputs below 2^-100 or so show.
#include "kernel/x86/amx.h"
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

enum {
  PLANES = 3,
  STEP = AMX_TILE,                      // bytes of a step's weights, before and after they are paired
  PIECE = AMX_PIECE / 2 / ST_STEP,      // steps of a group paired at once, 16 KB
  FEW_PIECE = 4,                        // where they go on to the tiles as they come
  PASS = AMX_PASS / 4 / (2 * AMX_SIDE), // pairs of tiles of tokens that go by at once, at most
  ROW = ST_STEP * 2,                    // bytes of a token in a tile
  A_STEP = PLANES * AMX_SIDE * ROW      // of a step of 16 tokens, all planes
};

// ---- inputs -------------------------------------------------------------------------------------------------------

// Tokens of a tile. The copy is [tiles][steps][PLANES][side][32]; missing tokens of the last tile are undefined, since
// they only affect sums that are not read.
static size_t side_of(size_t tokens) {
  return tokens && tokens < AMX_SIDE ? tokens : AMX_SIDE;
}

static size_t bf16_input_bytes(st_activation kind, size_t tokens, size_t columns) {
  if (kind != ST_ACT_F32) return st_amx_input_bytes(kind, tokens, columns);
  st_view v;
  size_t bytes = st_view_of(kind, tokens, columns, NULL, &v);
  return bytes + st_round_up(tokens, side_of(tokens)) * v.padded * PLANES * sizeof(uint16_t);
}

// After AVX-512's own.
static uint8_t *planes_of(const st_input *input) {
  st_view v;
  return (uint8_t *)input->data + st_view_of(input->kind, input->tokens, input->columns, NULL, &v);
}

// The first bits of x; NaN stays NaN, whichever bits encode it.
LANES_INLINE vi first_bits(vf x) {
  const vi quiet = vi_set(1 << 22), bits = vi_and(vf_bits(x), vi_set((int)0xFFFF0000));
  return _mm512_mask_or_epi32(bits, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, quiet);
}

// The rest of x without them; zero if x is not finite.
LANES_INLINE vf without(vf x, vi first) {
  vf rest = vf_sub(x, vi_as_floats(first));
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q), rest);
}

static void split_token(const st_input *input, const st_view *v, uint8_t *planes, size_t token) {
  const vi words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const vi upper = _mm512_add_epi32(_mm512_slli_epi32(words, 18), // 16-bit words 4i + 1 and 4i + 3 of two vectors
                                    _mm512_add_epi32(_mm512_slli_epi32(words, 2), vi_set(3 << 16 | 1)));
  size_t side = side_of(input->tokens), first = token - token % LANES_TILE;
  size_t count = st_tile_tokens(input->tokens, first, LANES_TILE);
  const vi at = _mm512_mullo_epi32(words, vi_set((int)count));
  const float *in = v->values + first * v->padded + (token - first);
  uint8_t *out = planes + token / side * v->blocks * PLANES * side * ROW + token % side * ROW;
  for (size_t step = 0; step < v->blocks; step++, in += ST_STEP * count) {
    vf a = _mm512_i32gather_ps(at, in, 4), b = _mm512_i32gather_ps(at, in + 16 * count, 4);
    for (int plane = 0; plane < PLANES; plane++, out += side * ROW) {
      vi first_a = first_bits(a), first_b = first_bits(b);
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first_a, upper, first_b));
      a = without(a, first_a);
      b = without(b, first_b);
    }
  }
}

static void bf16_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps,
                         size_t first, size_t last) {
  if (input->kind != ST_ACT_F32) {
    st_amx_prepare(input, x, stride, norm, eps, first, last);
    return;
  }
  st_avx512_prepare(input, x, stride, norm, eps, first, last);
  st_view v = st_view_input(input);
  uint8_t *planes = planes_of(input);
  for (size_t t = first; t < last; t++) split_token(input, &v, planes, t);
}

// ---- products -----------------------------------------------------------------------------------------------------

// What lies in st_input.scratch.
typedef struct {
  _Alignas(64) uint8_t weights[2][PIECE * STEP];
  _Alignas(64) float sums[PASS][PLANES][4 * AMX_SUMS];
} pair_scratch;
_Static_assert(sizeof(pair_scratch) <= AMX_SCRATCH, "what products of BF16 need");

// A product: groups of rows and tokens come one after the other.
typedef struct {
  const st_matrix *w;
  size_t tokens, steps;
  const uint8_t *planes;
  pair_scratch *scratch;
  float *out;
  size_t stride;
} job;

// Puts the two columns of a pair side by side for each row, over `steps` steps of a group.
static void pair(const uint8_t *weights, size_t steps, uint8_t *out) {
  const vi words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const vi both = _mm512_or_si512(words, _mm512_slli_epi32(vi_add(words, vi_set(16)), 16));
  for (size_t i = 0; i < steps * STEP; i += 64) {
    lanes_prefetch(weights + i);
    _mm512_store_si512(out + i, _mm512_permutexvar_epi16(both, _mm512_loadu_si512(weights + i)));
  }
}

// The results of a token and a group from its three sums, `apart` floats from one another.
LANES_INLINE void finish(const job *j, size_t token, size_t row, size_t last, const float *sums, size_t apart) {
  vf y = vf_add(vf_add(vf_load(sums + 2 * apart), vf_load(sums + apart)), vf_load(sums));
  lanes_store(row, last, y, j->out + token * j->stride);
}

// Up to 16 tokens, one group. The sums of planes are tiles 0, 1 and 2.
static void few_tokens(const job *j, size_t row, size_t last) {
  _Alignas(64) uint8_t weights[FEW_PIECE * STEP];
  _Alignas(64) float sums[PLANES * AMX_SUMS];
  const uint8_t *group = j->w->data + row / ST_GROUP * j->w->group_bytes, *a = j->planes;
  size_t plane = j->tokens * ROW;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  for (size_t step = 0; step < j->steps; step += FEW_PIECE) {
    size_t n = j->steps - step < FEW_PIECE ? j->steps - step : FEW_PIECE;
    pair(group + step * STEP, n, weights);
    st_amx_fence();
    for (size_t i = 0; i < n; i++, a += PLANES * plane) {
      _tile_loadd(6, weights + i * STEP, 64);
      _tile_loadd(4, a, ROW);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + plane, ROW);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(4, a + 2 * plane, ROW);
      _tile_dpbf16ps(2, 4, 6);
    }
    st_amx_fence();
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + AMX_SUMS, 64);
  _tile_stored(2, sums + 2 * AMX_SUMS, 64);
  for (size_t t = 0; t < j->tokens; t++) finish(j, t, row, last, sums + t * ST_GROUP, AMX_SUMS);
}

// sums[token tile 0, 1][group 0, 1] += products of `steps` steps of one plane.
static void multiply(const uint8_t *a0, const uint8_t *a1, const uint8_t *b0, const uint8_t *b1, size_t steps,
                     bool fresh, float *sums) {
  st_amx_load_sums(sums, fresh);
  for (size_t s = 0; s < steps; s++, a0 += A_STEP, a1 += A_STEP, b0 += STEP, b1 += STEP) {
    _tile_loadd(4, a0, ROW);
    _tile_loadd(6, b0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1, ROW);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  st_amx_store_sums(sums);
}

// Two groups of rows (the second may lie past `last`: then it repeats the first) with tokens [first, end).
static void two_groups(const job *j, size_t first, size_t end, size_t row, size_t last) {
  enum { SUMS = 4 * AMX_SUMS };
  uint8_t(*weights)[PIECE * STEP] = j->scratch->weights;
  float(*sums)[PLANES][SUMS] = j->scratch->sums;
  const uint8_t *group = j->w->data + row / ST_GROUP * j->w->group_bytes;
  const uint8_t *other = row + ST_GROUP < last ? group + j->w->group_bytes : group;
  for (size_t step = 0; step < j->steps; step += PIECE) {
    size_t n = j->steps - step < PIECE ? j->steps - step : PIECE;
    pair(group + step * STEP, n, weights[0]);
    pair(other + step * STEP, n, weights[1]);
    for (size_t t = first; t < end; t += 2 * AMX_SIDE) {
      const uint8_t *a = j->planes + (t / AMX_SIDE * j->steps + step) * A_STEP;
      const uint8_t *b = t + AMX_SIDE < end ? a + j->steps * A_STEP : a;
      for (size_t plane = 0; plane < PLANES; plane++, a += AMX_SIDE * ROW, b += AMX_SIDE * ROW) {
        multiply(a, b, weights[0], weights[1], n, step == 0, sums[(t - first) / (2 * AMX_SIDE)][plane]);
      }
    }
  }
  for (size_t t = first; t < end; t++) {
    size_t i = t - first, second = i % (2 * AMX_SIDE) / AMX_SIDE;
    const float *from = sums[i / (2 * AMX_SIDE)][0] + 2 * second * AMX_SUMS + i % AMX_SIDE * ST_GROUP;
    finish(j, t, row, last, from, SUMS);
    if (other != group) finish(j, t, row + ST_GROUP, last, from + AMX_SUMS, SUMS);
  }
}

static void bf16_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                        size_t stride) {
  enum { TOKENS = PASS * 2 * AMX_SIDE };
  st_view v = st_view_input(input);
  job j = {w, input->tokens, v.blocks, planes_of(input), input->scratch, out, stride};
  st_amx_configure(side_of(j.tokens), AMX_DEPTH);
  if (j.tokens <= AMX_SIDE) {
    for (size_t row = first; row < last; row += ST_GROUP) few_tokens(&j, row, last);
  }
  for (size_t t = 0; t < j.tokens && j.tokens > AMX_SIDE; t += TOKENS) {
    size_t end = j.tokens - t < TOKENS ? j.tokens : t + TOKENS;
    for (size_t row = first; row < last; row += 2 * ST_GROUP) two_groups(&j, t, end, row, last);
  }
  _tile_release();
}

void st_amxbf16_init(st_kernels *k) {
  k->input_bytes = bf16_input_bytes;
  k->prepare = bf16_prepare;
#define FILL(id)                                                                                                       \
  if (st_coding_of(ST_FORM_##id).number == ST_NUMBER_BF16) {                                                           \
    k->matmul[ST_FORM_##id][ST_ACT_F32] = bf16_matmul;                                                                 \
    k->own_order[ST_FORM_##id] = true;                                                                                 \
  }
#define FORM(id, name, kind, ...) ST_IF_FLOATS_##kind(FILL, id)
#include "kernel/forms.def"
#undef FILL
}
