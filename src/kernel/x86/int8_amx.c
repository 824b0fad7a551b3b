// AMX: inputs, and products of trits with a scale a row with many int8 tokens in tiles of 16 x 16 sums. Fewer than 16
// tokens are AVX-512's, and so are the forms that matrices have: five codes a byte where there is VBMI.
//
// Operand A is a tile of activations, 16 tokens x 64 columns, as `prepare` keeps them a second time; operand B is a
// tile of weights, 16 quadruples of columns x 16 rows, which is what 4 blocks of 2-bit codes become when their bit
// pairs are spread.
//
// Two tiles of tokens and two groups of rows make four tiles of sums. The columns are split into pieces whose weights,
// once unpacked, stay in the first-level cache for all tokens; between pieces sums are in memory.
#include "kernel/x86/amx.h"
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

#include <string.h>

size_t st_amx_input_bytes(st_activation kind, size_t tokens, size_t columns) {
  st_view v;
  st_amx_view tiles;
  size_t bytes = st_view_of(kind, tokens, columns, NULL, &v);
  return st_amx_takes(kind, tokens) ? bytes + st_amx_view_of(kind, tokens, columns, NULL, &tiles) : bytes;
}

// Copies one token's codes from its tile of LANES_TILE tokens into tiles of A; zeros for a token that is missing.
static void copy_codes(const st_input *input, const st_view *v, const st_amx_view *tiles, size_t token) {
  size_t first = token - token % LANES_TILE, padded = st_round_up(input->columns, AMX_DEPTH);
  bool missing = token >= input->tokens;
  size_t count = missing ? 0 : st_tile_tokens(input->tokens, first, LANES_TILE);
  const int8_t *in = missing ? v->codes : v->codes + first * v->padded + (token - first) * 4;
  int8_t *out = tiles->codes + token / AMX_SIDE * AMX_SIDE * padded + token % AMX_SIDE * AMX_DEPTH;
  const vi words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const vi at = _mm512_mullo_epi32(words, vi_set((int)count));
  for (size_t k = 0; k < padded; k += AMX_DEPTH, in += AMX_DEPTH * count, out += AMX_TILE) {
    __mmask16 there = missing ? 0 : v->padded - k < AMX_DEPTH ? lanes_mask((v->padded - k) / 4) : 0xFFFF;
    _mm512_storeu_si512(out, _mm512_mask_i32gather_epi32(vi_zero(), there, at, in, 4));
  }
}

// Copies the scales of blocks of the tile of LANES_TILE tokens that begins at token `first`, `count` of which are
// there.
static void copy_scales(const float *from, float *to, size_t blocks, size_t first, size_t count) {
  __mmask8 there = (__mmask8)lanes_mask(count);
  from += first * blocks;
  to += first / AMX_SIDE * AMX_SIDE * blocks + first % AMX_SIDE;
  for (size_t i = 0; i < blocks; i++, from += count, to += AMX_SIDE) {
    _mm256_storeu_ps(to, _mm256_maskz_loadu_ps(there, from));
  }
}

// Copies the codes of a chunk's lists, which begins at token `first`.
static void copy_lists(const st_input *input, const st_view *v, const st_amx_view *tiles, size_t first) {
  const __m256i words = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (size_t b = 0; b < v->blocks; b++) {
    st_rest_list list = st_rest_list_of(v, input->tokens, LANES_TILE, first, b);
    const __m256i at = _mm256_mullo_epi32(words, _mm256_set1_epi32((int)list.width));
    for (size_t e = 0; e < v->rest_count[list.count_at]; e++) {
      size_t lane = e % list.width;
      const int *in = (const int *)(const void *)(v->rest + ST_STEP * (list.at + e - lane) + 4 * lane);
      __m256i *out = (__m256i *)(void *)(tiles->rest + ST_STEP * (list.at + e));
      _mm256_storeu_si256(out, _mm256_i32gather_epi32(in, at, 4));
    }
  }
}

void st_amx_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                    size_t last) {
  st_avx512_prepare(input, x, stride, norm, eps, first, last);
  if (!st_amx_takes(input->kind, input->tokens)) return;
  st_view v = st_view_input(input);
  st_amx_view tiles = st_amx_view_input(input);
  if (last == input->tokens) last = st_round_up(last, AMX_SIDE); // and those that are missing
  for (size_t t = first; t < last; t++) copy_codes(input, &v, &tiles, t);
  if (input->kind != ST_ACT_INT8_BLOCK) return;
  for (size_t t = first; t < last; t += LANES_TILE) {
    size_t count = t < input->tokens ? st_tile_tokens(input->tokens, t, LANES_TILE) : 0;
    copy_scales(v.block_scale, tiles.block_scale, v.blocks, t, count);
    if (count && t % st_chunk_tokens(input->tokens, LANES_TILE) == 0) copy_lists(input, &v, &tiles, t);
  }
}

// Columns of a group that are spread at once: whole pieces of five codes a byte, and whole tiles.
LANES_INLINE size_t piece_of(st_form form) {
  enum { FIVES = 3 * 5 * AMX_DEPTH };
  return st_form_is(form, ST_KIND_FIVES) ? FIVES : AMX_PIECE;
}

// Spreads `columns` (a multiple of 16, at most a piece) of a group, from column k on, into tiles of B; what is left of
// the last one is zero. Five codes a byte end with the matrix's columns.
LANES_INLINE void unpack(st_form form, const st_matrix *w, const uint8_t *group, size_t k, size_t columns,
                         uint8_t *out) {
  if (st_form_is(form, ST_KIND_FIVES)) {
    size_t left = w->columns - k < columns ? w->columns - k : columns, written = st_round_up(left, 4);
    st_vbmi_unpack(group + k / ST_FIVE_COLUMNS * 64, left, 0, out);
    memset(out + written * ST_GROUP, 0, (st_round_up(columns, AMX_DEPTH) - written) * ST_GROUP);
    return;
  }
  const uint8_t *codes = group + k * 4;
  for (size_t at = 0; at < columns; at += 16, codes += 64, out += 256) {
    lanes_prefetch(codes);
    for (int pair = 0; pair < 4; pair++) {
      _mm512_storeu_si512(out + 64 * pair, vb_codes(form, codes, pair));
    }
  }
  if (columns % AMX_DEPTH) memset(out, 0, (AMX_DEPTH - columns % AMX_DEPTH) / 4 * 64);
}

// sums[token tile 0, 1][group 0, 1] += products of `steps` tiles of columns.
static void multiply(const int8_t *a0, const int8_t *a1, const uint8_t *b0, const uint8_t *b1, size_t steps, bool fresh,
                     int32_t *sums) {
  st_amx_load_sums(sums, fresh);
  for (size_t s = 0; s < steps; s++) {
    _tile_loadd(4, a0 + s * AMX_TILE, AMX_DEPTH);
    _tile_loadd(6, b0 + s * AMX_TILE, AMX_DEPTH);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, b1 + s * AMX_TILE, AMX_DEPTH);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, a1 + s * AMX_TILE, AMX_DEPTH);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  st_amx_store_sums(sums);
}

// The floats of tokens [first, end) and of up to 32 rows.
LANES_INLINE void finish(st_form form, const st_matrix *w, const st_view *v, size_t first, size_t end, size_t row,
                         size_t last, const int32_t *sums, float *out, size_t stride) {
  for (size_t t = first; t < end; t++) {
    size_t i = t - first;
    for (size_t group = 0; group < 2 && row + group * ST_GROUP < last; group++) {
      const int32_t *from = sums + (i / AMX_SIDE * 2 + group) * AMX_SIDE * AMX_SIDE + i % AMX_SIDE * AMX_SIDE;
      vi total = vi_sub(vi_load(from), vi_set(v->sum[t]));
      vf y = vf_div(vi_to_floats(total), vf_set(v->scale[t]));
      lanes_output(form, w, row + group * ST_GROUP, last, y, out + t * stride);
    }
  }
}

// What lies in st_input.scratch.
typedef struct {
  _Alignas(64) uint8_t weights[2][AMX_PIECE * ST_GROUP];
  _Alignas(64) int32_t sums[AMX_PASS * 2 * ST_GROUP];
} row_scratch;
_Static_assert(sizeof(row_scratch) <= AMX_SCRATCH, "what products by token need");

// Two groups of rows (the second may lie past `last`: then it repeats the first) with tokens [first, end).
LANES_INLINE void two_groups(st_form form, const st_matrix *w, const st_input *input, const st_view *v, size_t first,
                             size_t end, size_t row, size_t last, float *out, size_t stride) {
  row_scratch *s = input->scratch;
  const uint8_t *group = w->data + row / ST_GROUP * w->group_bytes;
  const uint8_t *other = row + ST_GROUP < last ? group + w->group_bytes : group;
  const st_amx_view tiles = st_amx_view_input(input);
  size_t padded = st_round_up(input->columns, AMX_DEPTH);
  const size_t piece = piece_of(form);
  for (size_t k = 0; k < v->padded; k += piece) {
    size_t columns = v->padded - k < piece ? v->padded - k : piece, steps = (columns + AMX_DEPTH - 1) / AMX_DEPTH;
    unpack(form, w, group, k, columns, s->weights[0]);
    unpack(form, w, other, k, columns, s->weights[1]);
    for (size_t t = first; t < end; t += 2 * AMX_SIDE) {
      const int8_t *a = tiles.codes + t * padded + k * AMX_SIDE;
      const int8_t *b = t + AMX_SIDE < end ? a + AMX_SIDE * padded : a;
      multiply(a, b, s->weights[0], s->weights[1], steps, k == 0, s->sums + (t - first) * 2 * ST_GROUP);
    }
  }
  finish(form, w, v, first, end, row, last, s->sums, out, stride);
}

LANES_INLINE void multiply_rows(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                                float *out, size_t stride) {
  if (!st_amx_takes(input->kind, input->tokens)) {
    bool fives = st_form_is(form, ST_KIND_FIVES);
    (fives ? st_vbmi_matmul(form) : st_avx512_int8_matmul(form, ST_ACT_INT8_TOKEN))(w, input, first, last, out, stride);
    return;
  }
  st_view v = st_view_input(input);
  st_amx_configure(AMX_SIDE, AMX_DEPTH);
  for (size_t t = 0; t < input->tokens; t += AMX_PASS) {
    size_t end = input->tokens - t < AMX_PASS ? input->tokens : t + AMX_PASS;
    for (size_t row = first; row < last; row += 2 * ST_GROUP) {
      two_groups(form, w, input, &v, t, end, row, last, out, stride);
    }
  }
  _tile_release();
}

#define MATMUL(form)                                                                                                   \
  static void amx_matmul_##form(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,      \
                                size_t stride) {                                                                       \
    multiply_rows(ST_FORM_##form, w, input, first, last, out, stride);                                                 \
  }
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(MATMUL, id) ST_IF_FIVES_##kind(MATMUL, id)
#include "kernel/forms.def"

// Multiply-adds of tiles that stay in registers.
static uint64_t amx_peak_int8(uint64_t n) {
  enum { EACH = AMX_SIDE * AMX_SIDE * AMX_DEPTH };
  _Alignas(64) static const uint8_t ones[AMX_TILE] = {1, 2, 1};
  uint64_t rounds = n / (4 * EACH) + 1;
  st_amx_configure(AMX_SIDE, AMX_DEPTH);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, AMX_DEPTH);
  _tile_loadd(5, ones, AMX_DEPTH);
  _tile_loadd(6, ones, AMX_DEPTH);
  _tile_loadd(7, ones, AMX_DEPTH);
  for (uint64_t r = 0; r < rounds; r++) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_release();
  return rounds * 4 * EACH;
}

void st_amx_init(st_kernels *k) {
  k->scratch_bytes = AMX_SCRATCH;
  k->input_bytes = st_amx_input_bytes;
  k->prepare = st_amx_prepare;
// Those with a scale a block are in blocks_amx.c.
#define FILL(id)                                                                                                       \
  if (!st_coding_of(ST_FORM_##id).by_block) k->matmul[ST_FORM_##id][ST_ACT_INT8_TOKEN] = amx_matmul_##id;
// Fives where there is VBMI, whose products few tokens take.
#define FILL_FIVES(id)                                                                                                 \
  if (k->faster[ST_FORM_##id] && !st_coding_of(ST_FORM_##id).by_block)                                                 \
    k->matmul[ST_FORM_##id][ST_ACT_INT8_TOKEN] = amx_matmul_##id;
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(FILL, id) ST_IF_FIVES_##kind(FILL_FIVES, id)
#include "kernel/forms.def"
#undef FILL
#undef FILL_FIVES
  k->peak_int8 = amx_peak_int8;
  st_amx_blocks(k);
}
