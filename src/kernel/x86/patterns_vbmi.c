// AVX-512 with VBMI: products of patterns with int8 tokens. One look-up gives the four codes of 64 patterns, as bit
// pairs.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

LANES_INLINE vb patterns(void) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)st_sherry_patterns));
}

// Pair p of the codes; the odd ones stay where they are in a half of their bytes, 4 times as large.
LANES_INLINE vb pair_of(vb four, int p) {
  return _mm512_and_si512(p < 2 ? four : _mm512_srli_epi16(four, 4), _mm512_set1_epi8(p % 2 ? 12 : 3));
}

// Adds the products of a step of 128 columns with the codes of n tokens. Few tokens take a sum a pair, so that sums do
// not wait for one another; many have one for the large pairs and one for the others.
LANES_INLINE void add_step(st_form form, vb table, const uint8_t *codes, const int8_t *x, size_t n, size_t chains,
                           vd *sums) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    vb four = _mm512_permutexvar_epi8(vb_codes(form, codes, i), table);
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
      vb w = pair_of(four, p);
      const int8_t *from = x + (size_t)(16 * (i / 4) + 4 * p + i % 4) * n * 4;
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) {
        vd *sum = &sums[t * chains + (size_t)p % chains];
        *sum = vd_dot(form, *sum, w, from + t * 4);
      }
    }
  }
}

// The integer products of a block of some steps.
LANES_INLINE void dot_block(st_form form, const uint8_t *codes, const int8_t *x, size_t steps, bool prefetch, size_t n,
                            vi *totals) {
  const size_t chains = n < 4 ? 4 : 2;
  const vb table = patterns();
  vd sums[2 * LANES_TILE];
  for (size_t i = 0; i < n * chains; i++) sums[i] = vd_zero();
  for (; steps; steps--, codes += ST_PATTERN_BYTES, x += ST_PATTERN_STEP * n) {
    for (int line = 0; prefetch && line < ST_PATTERN_BYTES; line += 64) lanes_prefetch(codes + line);
    add_step(form, table, codes, x, n, chains, sums);
  }
  for (size_t t = 0; t < n; t++) {
    const vd *s = sums + t * chains;
    vi once = s[0], four_times = s[1];
    if (chains == 4) once = vi_add(once, s[2]), four_times = vi_add(four_times, s[3]);
    totals[t] = vi_add(once, _mm512_srai_epi32(four_times, 2));
  }
}

// The integers of each block of columns times its scale, added up in order, then / s.
LANES_INLINE void tile(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first, size_t n,
                       vf *out) {
  const uint8_t *block = w->data + row / ST_GROUP * w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  const int32_t *block_sums = v->block_sum + first * v->blocks;
  const size_t each = w->block / ST_STEP, steps = w->block / ST_PATTERN_STEP;
  vf sums[LANES_TILE];
  for (size_t t = 0; t < n; t++) sums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b += each, block += st_pattern_block_bytes(w->block), x += w->block * n) {
    vi totals[LANES_TILE];
    int32_t offsets[LANES_TILE];
    // Later tokens find the group in the cache.
    dot_block(form, block + ST_SCALES, x, steps, !first, n, totals);
    vf d = vf_half(block);
    lanes_add_sums(block_sums + b * n, each, n, offsets);
    for (size_t t = 0; t < n; t++) sums[t] = vf_fma(d, vi_to_floats(vi_sub(totals[t], vi_set(offsets[t]))), sums[t]);
  }
  for (size_t t = 0; t < n; t++) out[t] = vf_div(sums[t], vf_set(v->scale[first + t]));
}

LANES_INLINE void multiply(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                           float *out, size_t stride) {
  st_view v = st_view_input(input);
  size_t block = lanes_token_block(input, LANES_TILE);
  for (size_t begin = 0; begin < input->tokens; begin += block) {
    size_t end = input->tokens - begin < block ? input->tokens : begin + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      for (size_t t = begin; t < end; t += LANES_TILE) {
        vf sums[LANES_TILE];
        size_t n = st_tile_tokens(end, t, LANES_TILE);
        LANES_SWITCH(n, LANES_TILE, tile, form, w, row, &v, t, N, sums)
        for (size_t i = 0; i < n; i++) lanes_output(form, w, row, last, sums[i], out + (t + i) * stride);
      }
    }
  }
}

#define MATMUL(form)                                                                                                   \
  static void matmul_##form(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,          \
                            size_t stride) {                                                                           \
    multiply(ST_FORM_##form, w, input, first, last, out, stride);                                                      \
  }
#define FORM(id, name, kind, ...) ST_IF_PATTERNS_##kind(MATMUL, id)
#include "kernel/forms.def"

void st_vbmi_patterns(st_kernels *k) {
#define FILL(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = matmul_##form, k->faster[ST_FORM_##form] = true;
#define FORM(id, name, kind, ...) ST_IF_PATTERNS_##kind(FILL, id)
#include "kernel/forms.def"
#undef FILL
}
