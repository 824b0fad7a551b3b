// AMX: products of T16 with many int8 tokens in tiles of 16 x 16 sums. Fewer than 16 tokens are AVX-512's.
//
// Operand A is a tile of activations, 16 tokens x 64 columns; operand B is a tile of weights, 16 quadruples of columns
// x 16 rows, which is what 4 blocks of T16 become when their bit pairs are spread. `prepare` keeps the activations a
// second time, in tiles of A:
//
//   [tokens / 16][columns / 64][16 tokens][64 codes], behind what AVX-512 wants
//
// Two tiles of tokens and two groups of rows make four tiles of sums. The columns come in blocks whose weights, once
// unpacked, stay in the first-level cache while all tokens go by; sums wait in memory between blocks.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

#include <string.h>

enum {
  SIDE = 16,           // tokens and rows of a tile
  DEPTH = 64,          // columns of a tile
  TILE = SIDE * DEPTH, // its bytes; also those of 16 x 16 sums
  BLOCK = 1024,        // columns unpacked at once: two groups take 32 KB
  PASS = 512           // tokens that go by at once: their sums take 64 KB
};

static size_t tiles_bytes(size_t tokens, size_t columns) {
  return st_round_up(tokens, SIDE) * st_round_up(columns, DEPTH);
}

static bool in_tiles(st_activation kind, size_t tokens) {
  return kind == ST_ACT_INT8_TOKEN && tokens >= SIDE;
}

static size_t amx_input_bytes(st_activation kind, size_t tokens, size_t columns) {
  st_view v;
  size_t bytes = st_view_of(kind, tokens, columns, NULL, &v);
  return in_tiles(kind, tokens) ? bytes + tiles_bytes(tokens, columns) : bytes;
}

static int8_t *tiles_of(const st_input *input) {
  st_view v;
  return (int8_t *)input->data + st_view_of(input->kind, input->tokens, input->columns, NULL, &v);
}

// Copies one token's codes from its tile of LANES_TILE tokens into tiles of A.
static void copy_token(const st_input *input, const st_view *v, size_t token) {
  size_t first = token - token % LANES_TILE, count = st_tile_tokens(input->tokens, first, LANES_TILE);
  size_t padded = st_round_up(input->columns, DEPTH);
  const int8_t *in = v->codes + first * v->padded + (token - first) * 4;
  int8_t *out = tiles_of(input) + token / SIDE * SIDE * padded + token % SIDE * DEPTH;
  for (size_t k = 0; k < padded; k += 4) {
    int8_t *to = out + k / DEPTH * TILE + k % DEPTH;
    if (k < v->padded)
      memcpy(to, in + k * count, 4);
    else
      memset(to, 0, 4);
  }
}

static void amx_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps,
                        size_t first, size_t last) {
  st_avx512_prepare(input, x, stride, norm, eps, first, last);
  if (!in_tiles(input->kind, input->tokens)) return;
  st_view v = st_view_input(input);
  for (size_t t = first; t < last; t++) copy_token(input, &v, t);
}

// All eight tiles have 16 rows of 64 bytes. Set for each call, since a thread has its own.
static void configure(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.row_bytes[i] = DEPTH, config.rows[i] = SIDE;
  _tile_loadconfig(&config);
}

// Spreads `columns` (a multiple of 16, at most BLOCK) of a group into tiles of B; what is left of the last one is zero.
static void unpack(const uint8_t *codes, size_t columns, uint8_t *out) {
  for (size_t k = 0; k < columns; k += 16, codes += 64, out += 256) {
    lanes_prefetch(codes);
    for (int pair = 0; pair < 4; pair++) {
      _mm512_storeu_si512(out + 64 * pair, vb_codes(ST_FORM_T16, codes, pair));
    }
  }
  if (columns % DEPTH) memset(out, 0, (DEPTH - columns % DEPTH) / 4 * 64);
}

// sums[token tile 0, 1][group 0, 1] += products of `steps` tiles of columns.
static void multiply(const int8_t *a0, const int8_t *a1, const uint8_t *b0, const uint8_t *b1, size_t steps, bool fresh,
                     int32_t *sums) {
  // The tile instructions do not tell the compiler that they read memory: what was written must be there by now.
  __asm__ volatile("" ::: "memory");
  enum { SUMS = SIDE * SIDE };
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, DEPTH);
    _tile_loadd(1, sums + SUMS, DEPTH);
    _tile_loadd(2, sums + 2 * SUMS, DEPTH);
    _tile_loadd(3, sums + 3 * SUMS, DEPTH);
  }
  for (size_t s = 0; s < steps; s++) {
    _tile_loadd(4, a0 + s * TILE, DEPTH);
    _tile_loadd(6, b0 + s * TILE, DEPTH);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, b1 + s * TILE, DEPTH);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, a1 + s * TILE, DEPTH);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_stored(0, sums, DEPTH);
  _tile_stored(1, sums + SUMS, DEPTH);
  _tile_stored(2, sums + 2 * SUMS, DEPTH);
  _tile_stored(3, sums + 3 * SUMS, DEPTH);
}

// The floats of tokens [first, end) and of up to 32 rows.
static void finish(const st_matrix *w, const st_view *v, size_t first, size_t end, size_t row, size_t last,
                   const int32_t *sums, float *out, size_t stride) {
  for (size_t t = first; t < end; t++) {
    size_t i = t - first;
    for (size_t group = 0; group < 2 && row + group * ST_GROUP < last; group++) {
      const int32_t *from = sums + (i / SIDE * 2 + group) * SIDE * SIDE + i % SIDE * SIDE;
      vi total = vi_sub(vi_load(from), vi_set(v->sum[t]));
      vf y = vf_div(vi_to_floats(total), vf_set(v->scale[t]));
      lanes_output(ST_FORM_T16, w, row + group * ST_GROUP, last, y, out + t * stride);
    }
  }
}

// Two groups of rows (the second may lie past `last`: then it repeats the first) with tokens [first, end).
static void two_groups(const st_matrix *w, const st_input *input, const st_view *v, size_t first, size_t end,
                       size_t row, size_t last, float *out, size_t stride) {
  _Alignas(64) uint8_t weights[2][BLOCK * ST_GROUP];
  _Alignas(64) int32_t sums[PASS * 2 * ST_GROUP];
  const uint8_t *group = w->data + row / ST_GROUP * w->group_bytes;
  const uint8_t *other = row + ST_GROUP < last ? group + w->group_bytes : group;
  size_t padded = st_round_up(input->columns, DEPTH);
  for (size_t k = 0; k < v->padded; k += BLOCK) {
    size_t columns = v->padded - k < BLOCK ? v->padded - k : BLOCK, steps = (columns + DEPTH - 1) / DEPTH;
    unpack(group + k * 4, columns, weights[0]);
    unpack(other + k * 4, columns, weights[1]);
    for (size_t t = first; t < end; t += 2 * SIDE) {
      const int8_t *a = tiles_of(input) + t * padded + k * SIDE;
      const int8_t *b = t + SIDE < end ? a + SIDE * padded : a;
      multiply(a, b, weights[0], weights[1], steps, k == 0, sums + (t - first) * 2 * ST_GROUP);
    }
  }
  finish(w, v, first, end, row, last, sums, out, stride);
}

static void amx_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                       size_t stride) {
  if (!in_tiles(input->kind, input->tokens)) {
    st_avx512_token_t16(w, input, first, last, out, stride);
    return;
  }
  st_view v = st_view_input(input);
  configure();
  for (size_t t = 0; t < input->tokens; t += PASS) {
    size_t end = input->tokens - t < PASS ? input->tokens : t + PASS;
    for (size_t row = first; row < last; row += 2 * ST_GROUP) {
      two_groups(w, input, &v, t, end, row, last, out, stride);
    }
  }
  _tile_release();
}

// Multiply-adds of tiles that stay in registers.
static uint64_t amx_peak_int8(uint64_t n) {
  enum { EACH = SIDE * SIDE * DEPTH };
  _Alignas(64) static const uint8_t ones[TILE] = {1, 2, 1};
  uint64_t rounds = n / (4 * EACH) + 1;
  configure();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, DEPTH);
  _tile_loadd(5, ones, DEPTH);
  _tile_loadd(6, ones, DEPTH);
  _tile_loadd(7, ones, DEPTH);
  for (uint64_t r = 0; r < rounds; r++) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_release();
  return rounds * 4 * EACH;
}

void st_amx_int8(st_kernels *k) {
  k->five = false; // tiles take T16
  k->input_bytes = amx_input_bytes;
  k->prepare = amx_prepare;
  k->matmul[ST_FORM_T16][ST_ACT_INT8_TOKEN] = amx_matmul;
  k->peak_int8 = amx_peak_int8;
}
