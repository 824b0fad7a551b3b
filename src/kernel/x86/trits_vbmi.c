// AVX-512 with VBMI: products of T5 with int8 tokens. A byte's low 6 bits look four codes up at once, as four bit
// pairs; the bytes from 192 on have tables of their own, for these four and for the fifth.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

typedef struct {
  vb four, large_four, large_fifth;
} fives;

static uint8_t pairs_of(unsigned f) {
  return (uint8_t)(f % 3 | f / 3 % 3 << 2 | f / 9 % 3 << 4 | f / 27 << 6);
}

static void make_tables(uint8_t tables[3][64]) {
  for (unsigned i = 0; i < 64; i++) {
    unsigned large = i < 51 ? i : 0; // bytes 192 to 242
    tables[0][i] = pairs_of(i);
    tables[1][i] = pairs_of(64 + large % 17);
    tables[2][i] = (uint8_t)(large / 17);
  }
}

LANES_INLINE fives load_tables(const uint8_t tables[3][64]) {
  return (fives){_mm512_loadu_si512(tables[0]), _mm512_loadu_si512(tables[1]), _mm512_loadu_si512(tables[2])};
}

// The five parts of a piece, 64 codes each; the second and the fourth stay where they are in their bytes, 4 times as
// large.
LANES_INLINE void unpack(const fives *t, const uint8_t *piece, vb parts[5]) {
  const vb three = _mm512_set1_epi8(3), twelve = _mm512_set1_epi8(12);
  vb v = _mm512_loadu_si512(piece);
  __mmask64 large = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)192));
  vb four = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(v, t->four), large, v, t->large_four);
  vb high = _mm512_srli_epi16(four, 4), fifth = _mm512_and_si512(_mm512_srli_epi16(v, 6), three);
  parts[0] = _mm512_and_si512(four, three);
  parts[1] = _mm512_and_si512(four, twelve);
  parts[2] = _mm512_and_si512(high, three);
  parts[3] = _mm512_and_si512(high, twelve);
  parts[4] = _mm512_mask_permutexvar_epi8(fifth, large, v, t->large_fifth);
}

// One group of rows with the tile of n tokens from `first` on: integers over all columns, then / s, as for T16. Few
// tokens take a sum a part, so that sums do not wait for one another; many have one for the large parts and one for the
// others.
LANES_INLINE void tile(const fives *tables, const st_matrix *w, size_t row, const st_view *v, size_t first, size_t n,
                       vf *out) {
  const size_t chains = n < 4 ? 5 : 2;
  const uint8_t *piece = w->data + row / ST_GROUP * w->group_bytes, *end = piece + w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  vd sums[2 * LANES_TILE];
  for (size_t i = 0; i < n * chains; i++) sums[i] = vd_zero();
  for (; piece < end; piece += 64, x += ST_FIVE_COLUMNS * n) {
    vb parts[5];
    if (!first) lanes_prefetch(piece); // later tokens find the group in the cache
    unpack(tables, piece, parts);
#pragma GCC unroll 5
    for (size_t i = 0; i < 5; i++) {
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) {
        vd *sum = &sums[t * chains + (chains == 5 ? i : i % 2)];
        *sum = vd_dot(ST_FORM_T5, *sum, parts[i], x + (i * n + t) * 4);
      }
    }
  }
  for (size_t t = 0; t < n; t++) {
    const vd *s = sums + t * chains;
    vi once = chains == 5 ? vi_add(s[0], vi_add(s[2], s[4])) : s[0],
       four_times = chains == 5 ? vi_add(s[1], s[3]) : s[1];
    vi total = vi_sub(vi_add(once, _mm512_srai_epi32(four_times, 2)), vi_set(v->sum[first + t]));
    out[t] = vf_div(vi_to_floats(total), vf_set(v->scale[first + t]));
  }
}

static void matmul_t5(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out, size_t stride) {
  uint8_t bytes[3][64];
  make_tables(bytes);
  fives tables = load_tables(bytes);
  st_view v = st_view_input(input);
  size_t block = lanes_token_block(input, LANES_TILE);
  for (size_t begin = 0; begin < input->tokens; begin += block) {
    size_t end = input->tokens - begin < block ? input->tokens : begin + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      for (size_t t = begin; t < end; t += LANES_TILE) {
        vf sums[LANES_TILE];
        size_t n = st_tile_tokens(end, t, LANES_TILE);
        LANES_SWITCH(n, LANES_TILE, tile, &tables, w, row, &v, t, N, sums)
        for (size_t i = 0; i < n; i++) lanes_output(ST_FORM_T5, w, row, last, sums[i], out + (t + i) * stride);
      }
    }
  }
}

void st_vbmi_trits(st_kernels *k) {
  k->five = true;
  k->matmul[ST_FORM_T5][ST_ACT_INT8_TOKEN] = matmul_t5;
}
