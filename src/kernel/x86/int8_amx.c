// AMX: inputs of int8 in tiles. Their products are in rows_amx.c and blocks_amx.c; those of fewer than 16 tokens are
// AVX-512's, and so are the forms that matrices have.
#include "kernel/x86/amx.h"
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

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
  k->peak_int8 = amx_peak_int8;
  st_amx_rows(k);
  st_amx_blocks(k);
}
