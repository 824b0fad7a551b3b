// 16 lanes on AVX-512: the primitives that the files in kernel/lanes are written in.
//
//   vf   16 floats           vi   16 int32
//   vb   64 bytes of codes, 4 columns of 16 rows              vd   16 sums of products of codes
#ifndef SETUN_KERNEL_X86_LANES_AVX512_H
#define SETUN_KERNEL_X86_LANES_AVX512_H

#include "kernel/layout.h"
#include "kernel/numbers.h"

#include <immintrin.h>

#define LANES_INLINE static inline __attribute__((always_inline))

enum {
  LANES_TILE = 8,         // tokens interleaved in an input
  LANES_FLOAT_TOKENS = 8, // tokens of a tile whose float32 sums fit into registers
  LANES_HEADS = 6,        // queries whose sums of 16 columns fit into registers
  LANES_WIDE = 6,         // those whose sums of LANES_SLAB times as many do
  LANES_SLAB = 4,
  LANES_CODES = 6, // queries whose sums of codes do
  LANES_STATE = 8  // vectors of columns of a state whose two sums do
};

typedef __m512 vf;
typedef __m512i vi, vb, vd;

LANES_INLINE __mmask16 lanes_mask(size_t n) {
  return (__mmask16)((1u << n) - 1);
}

// The first n lanes (below 16), followed by zeros.
LANES_INLINE vf vf_load(const float *p) {
  return _mm512_loadu_ps(p);
}
LANES_INLINE vf vf_load_n(const float *p, size_t n) {
  return _mm512_maskz_loadu_ps(lanes_mask(n), p);
}
LANES_INLINE void vf_store(float *p, vf v) {
  _mm512_storeu_ps(p, v);
}
LANES_INLINE void vf_store_n(float *p, vf v, size_t n) {
  _mm512_mask_storeu_ps(p, lanes_mask(n), v);
}
LANES_INLINE vf vf_half(const void *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
LANES_INLINE vf vf_half_n(const void *p, size_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes_mask(n), p));
}
LANES_INLINE vf vf_bf16(const void *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
LANES_INLINE void vf_store_half(uint16_t *p, vf v) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
LANES_INLINE void vf_store_half_n(uint16_t *p, vf v, size_t n) {
  _mm256_mask_storeu_epi16(p, lanes_mask(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

LANES_INLINE vf vf_set(float x) {
  return _mm512_set1_ps(x);
}
LANES_INLINE vf vf_add(vf a, vf b) {
  return _mm512_add_ps(a, b);
}
LANES_INLINE vf vf_sub(vf a, vf b) {
  return _mm512_sub_ps(a, b);
}
LANES_INLINE vf vf_mul(vf a, vf b) {
  return _mm512_mul_ps(a, b);
}
LANES_INLINE vf vf_div(vf a, vf b) {
  return _mm512_div_ps(a, b);
}
LANES_INLINE vf vf_fma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}
// a * *b, and a * *b + c, with the number as the instruction's own operand: the compiler would load it by itself.
LANES_INLINE vf vf_mul_by(vf a, const float *b) {
  vf v;
  __asm__("vmulps %2%{1to16%}, %1, %0" : "=v"(v) : "v"(a), "m"(*b));
  return v;
}
LANES_INLINE vf vf_fma_by(vf a, const float *b, vf c) {
  __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(a), "m"(*b));
  return c;
}
// a * 2^n, rounded once; n is the integer that ST_ROUNDER was added to.
LANES_INLINE vf vf_scale(vf a, vf shifted) {
  return _mm512_scalef_ps(a, _mm512_sub_ps(shifted, _mm512_set1_ps(ST_ROUNDER)));
}
LANES_INLINE vf vf_max(vf a, vf b) {
  return _mm512_max_ps(a, b);
} // a > b ? a : b
LANES_INLINE vf vf_min(vf a, vf b) {
  return _mm512_min_ps(a, b);
} // a < b ? a : b
LANES_INLINE vf vf_abs(vf a) {
  return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
LANES_INLINE float vf_first(vf a) {
  return _mm512_cvtss_f32(a);
}
LANES_INLINE float vf_most(vf a) {
  return _mm512_reduce_max_ps(a);
}

// Lane l receives the value of lane l ^ distance; distance is 1, 2, 4 or 8.
LANES_INLINE vf vf_swap(vf a, int distance) {
  if (distance == 8) return _mm512_shuffle_f32x4(a, a, 0x4E);
  if (distance == 4) return _mm512_shuffle_f32x4(a, a, 0xB1);
  return distance == 2 ? _mm512_permute_ps(a, 0x4E) : _mm512_permute_ps(a, 0xB1);
}

// a < b ? yes : no
LANES_INLINE vf vf_choose(vf a, vf b, vf yes, vf no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
// Bit l: whether lane l is above zero.
LANES_INLINE unsigned vf_positive(vf a) {
  return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ);
}

// Lane l with l + 8, then 4, 2, 1 apart.
LANES_INLINE float vf_sum(vf v) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

// Lane j is vf_most(v[j]). Each step joins halves, quarters, ... of two vectors and
// keeps both results in one.
LANES_INLINE vf vf_mosts(vf v[16]) {
  for (int i = 0; i < 8; i++) { // 8 of v[i], 8 of v[i + 8]
    v[i] = vf_max(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44), _mm512_shuffle_f32x4(v[i], v[i + 8], 0xEE));
  }
  for (int i = 0; i < 4; i++) { // quarters: v[i], v[i + 8], v[i + 4], v[i + 12]
    v[i] = vf_max(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x88), _mm512_shuffle_f32x4(v[i], v[i + 4], 0xDD));
  }
  for (int i = 0; i < 2; i++) { // pairs within each quarter: v[i + q], v[i + 2 + q]
    v[i] = vf_max(_mm512_shuffle_ps(v[i], v[i + 2], 0x44), _mm512_shuffle_ps(v[i], v[i + 2], 0xEE));
  }
  // Quarter q holds the pairs of rows q' = 0, 8, 4, 12: lanes v[0]: (q', q' + 2), v[1]: (q' + 1, q' + 3).
  v[0] = vf_max(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xDD));
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return _mm512_permutexvar_ps(order, v[0]);
}

LANES_INLINE vi vf_bits(vf v) {
  return _mm512_castps_si512(v);
}
LANES_INLINE vf vi_as_floats(vi v) {
  return _mm512_castsi512_ps(v);
}
LANES_INLINE vf vi_to_floats(vi v) {
  return _mm512_cvtepi32_ps(v);
}
LANES_INLINE vi vi_zero(void) {
  return _mm512_setzero_si512();
}
LANES_INLINE vi vi_set(int32_t x) {
  return _mm512_set1_epi32(x);
}
LANES_INLINE vi vi_load(const void *p) {
  return _mm512_loadu_si512(p);
}
// 16 signed bytes.
LANES_INLINE vi vi_bytes(const void *p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
LANES_INLINE vi vi_add(vi a, vi b) {
  return _mm512_add_epi32(a, b);
}
LANES_INLINE vi vi_sub(vi a, vi b) {
  return _mm512_sub_epi32(a, b);
}
LANES_INLINE vi vi_and(vi a, vi b) {
  return _mm512_and_si512(a, b);
}
LANES_INLINE vi vi_left(vi a, unsigned n) {
  return _mm512_sllv_epi32(a, vi_set((int)n));
}
LANES_INLINE vi vi_right(vi a, unsigned n) {
  return _mm512_srav_epi32(a, vi_set((int)n));
} // with the sign
LANES_INLINE int32_t vi_sum(vi a) {
  return _mm512_reduce_add_epi32(a);
}

// Nearest integers, ties to even; NaN gives 0. Stored as bytes.
LANES_INLINE vi vf_round(vf v) {
  return _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
}
LANES_INLINE void vi_store_bytes(int8_t *p, vi v) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(v));
}

LANES_INLINE void vi_store_shorts(int16_t *p, vi v) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(v));
}
// a | b & mask
LANES_INLINE vi vi_insert(vi a, vi b, vi mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xF8);
}
// The odd bytes, each as 16 bits.
LANES_INLINE vi vi_odd_bytes(vi a) {
  return _mm512_srli_epi16(a, 8);
}
// Adds to each lane the products of its two numbers of 16 bits with those at x.
LANES_INLINE vi lanes_dot_pairs(vi sum, vi w, const void *x) {
  typedef const int32_t __attribute__((may_alias, aligned(2))) word;
  __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(word *)x));
  return sum;
}

// Adds to each lane the products of its four unsigned bytes, below 64, with the bytes at x.
LANES_INLINE vi lanes_dot_bytes(vi sum, vi w, const int8_t *x) {
  typedef const int32_t __attribute__((may_alias, aligned(1))) word;
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(word *)x));
  return sum;
}

// 32 codes in one store: two would keep the loads of whole rows waiting.
LANES_INLINE void lanes_store_row(int8_t *row, vi low, vi high) {
  __m256i v = _mm512_cvtepi16_epi8(_mm512_packs_epi32(low, high)); // by fours: low, high, low, ...
  v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  _mm256_storeu_si256((__m256i *)(void *)row, v);
}
// Rows 0 and 1 at p.
LANES_INLINE vi lanes_load_rows(const int8_t (*p)[32]) {
  const __m256i *rows = (const __m256i *)(const void *)p;
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(rows)), _mm256_loadu_si256(rows + 1), 1);
}
// Sums of neighbours: in each quarter two of a, then two of b.
LANES_INLINE vi lanes_add_pairs(vi a, vi b) {
  vf x = vi_as_floats(a), y = vi_as_floats(b);
  return vi_add(vf_bits(_mm512_shuffle_ps(x, y, 0x88)), vf_bits(_mm512_shuffle_ps(x, y, 0xDD)));
}
// Adds the 4 lanes of each quarter: lane l of quarter q of v[0] becomes the sum of quarter q of v[l], v[4] those of
// v[4 + l].
LANES_INLINE void lanes_join_lanes(vi v[8]) {
  for (int i = 0; i < 8; i += 2) v[i] = lanes_add_pairs(v[i], v[i + 1]);
  for (int i = 0; i < 8; i += 4) v[i] = lanes_add_pairs(v[i], v[i + 2]);
}

// v[i], sums of 4 codes, are of rows 2i and 2i + 1, two quarters each: lane r of *low and *high become those of row r.
LANES_INLINE void lanes_halves(vi v[8], vi *low, vi *high) {
  lanes_join_lanes(v);
  const __m512i at = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
  *low = _mm512_permutex2var_epi32(v[0], at, v[4]);
  *high = _mm512_permutex2var_epi32(v[0], vi_add(at, vi_set(4)), v[4]);
}

// 16 rows of 32 codes: lane r of *low is the sum of the first 16 of row r, of *high that of the last.
LANES_INLINE void lanes_row_sums(const int8_t (*rows)[32], vi *low, vi *high) {
  vi four[8];
  for (int i = 0; i < 8; i++)
    four[i] = _mm512_dpbusd_epi32(vi_zero(), _mm512_set1_epi8(1), lanes_load_rows(rows + 2 * i));
  lanes_halves(four, low, high);
}

// Interleaves 32 codes of each of LANES_TILE tokens every 4 codes.
LANES_INLINE void lanes_interleave(int8_t *out, const int8_t (*rows)[32]) {
  const vi low = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
  const vi high = vi_add(low, vi_set(4));
  vi a = lanes_load_rows(rows), b = lanes_load_rows(rows + 2);
  vi c = lanes_load_rows(rows + 4), d = lanes_load_rows(rows + 6);
  vi words[4] = {_mm512_permutex2var_epi32(a, low, b), _mm512_permutex2var_epi32(c, low, d),
                 _mm512_permutex2var_epi32(a, high, b), _mm512_permutex2var_epi32(c, high, d)};
  for (int i = 0; i < 2; i++) { // words 4i to 4i + 3 of the first 4 tokens, then of the last 4
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(out + 128 * i, _mm512_permutex2var_epi64(words[2 * i], first, words[2 * i + 1]));
    _mm512_storeu_si512(out + 128 * i + 64, _mm512_permutex2var_epi64(words[2 * i], second, words[2 * i + 1]));
  }
}

LANES_INLINE void vi_opaque(vi *v) {
  __asm__ volatile("" : "+v"(*v));
}
LANES_INLINE void vf_opaque(vf *v) {
  __asm__ volatile("" : "+v"(*v));
}
LANES_INLINE void vd_opaque(vd *v) {
  vi_opaque(v);
}

// One prefetch a line: another into the second level, 7 KiB ahead, makes products slower (docs/kernels.md).
LANES_INLINE void lanes_prefetch(const uint8_t *p) {
  _mm_prefetch((const char *)p + 4096, _MM_HINT_T0);
}

// Bits moved right by `by`, or left by -by: instructions take only constants. What crosses to another byte is for the
// caller to mask.
LANES_INLINE vb lanes_shift(vb v, int by) {
  switch (by) {
  case -4: return _mm512_slli_epi16(v, 4);
  case -3: return _mm512_slli_epi16(v, 3);
  case -2: return _mm512_slli_epi16(v, 2);
  case -1: return _mm512_slli_epi16(v, 1);
  case 1: return _mm512_srli_epi16(v, 1);
  case 2: return _mm512_srli_epi16(v, 2);
  case 3: return _mm512_srli_epi16(v, 3);
  case 4: return _mm512_srli_epi16(v, 4);
  case 5: return _mm512_srli_epi16(v, 5);
  case 6: return _mm512_srli_epi16(v, 6);
  case 7: return _mm512_srli_epi16(v, 7);
  default: return v;
  }
}

// Part i of a plane of `bits` bits a code, moved up to bit `to`.
LANES_INLINE vb lanes_plane(const uint8_t *p, int bits, int i, int to) {
  vb v = _mm512_loadu_si512(p + 64 * (i * bits / 8));
  if (bits == 2) __asm__("" : "+v"(v)); // loaded once for all its parts, rather than again by each
  return _mm512_and_si512(lanes_shift(v, i * bits % 8 - to), _mm512_set1_epi8((char)(((1 << bits) - 1) << to)));
}

// What codes with a table of values mean, plus vb_offset.
LANES_INLINE vb lanes_values_of(const int8_t *values, int offset) {
  __m128i v = _mm_add_epi8(_mm_loadu_si128((const __m128i *)values), _mm_set1_epi8((char)offset));
  return _mm512_broadcast_i32x4(v);
}

// The unsigned byte that vb_codes makes of a code, or of its value, less that code or value.
LANES_INLINE int vb_offset(st_form form) {
  const st_coding c = st_coding_of(form);
  return c.low == 8 ? 128 : c.offset;
}

// Part i of 32 columns of which two of four are there, moved to their columns; 0 for the others.
LANES_INLINE vb lanes_sparse(const uint8_t *p, int i) {
  const __m512i lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C));
  const __m256i moves = _mm256_loadu_si256((const __m256i *)st_sparse_moves);
  const __m256i second = _mm256_set1_epi32(i % 2 ? 0x02020202 : 0); // codes 2 and 3 of the four; the top bit stays
  vb codes = lanes_plane(p, 4, i / 2, 0), places = _mm512_loadu_si512(p + 128);
  vb first = _mm512_srli_epi32(places, (unsigned)i / 2 * 2), next = _mm512_srli_epi32(places, (unsigned)i / 2 * 2 + 6);
  vb pair = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x00030003), first, next, 0xCA); // the bits: first, else next
  if (i % 2) pair = _mm512_srli_epi32(pair, 16);
  __m512i table = _mm512_broadcast_i64x4(_mm256_or_si256(moves, second));
  return _mm512_shuffle_epi8(codes, _mm512_or_si512(_mm512_permutexvar_epi32(pair, table), lane));
}

// Of 4-bit codes of a sparse form, their values plus vb_offset. A signed integer's is the code with its top bit
// changed.
LANES_INLINE vb lanes_kept_values(st_form form, vb codes) {
  const st_coding c = st_coding_of(form);
  if (c.twos) return _mm512_xor_si512(codes, _mm512_set1_epi8(8));
  return _mm512_shuffle_epi8(lanes_values_of(c.values, vb_offset(form)), codes);
}

// Of columns 8j to 8j + 7 of a sparse form, the 4 that are there: their values plus vb_offset, and their activations
// from the 8 at x.
LANES_INLINE vb vb_kept(st_form form, const uint8_t *p, int j) {
  return lanes_kept_values(form, lanes_plane(p, 4, j, 0));
}
LANES_INLINE vb vb_gather(const uint8_t *p, int j, const int8_t *x) {
  const __m512i two = _mm512_set1_epi8(3), second = _mm512_set1_epi32(0x04040000); // bytes 2 and 3: the next part's
  long long eight;
  __builtin_memcpy(&eight, x, 8);
  vb places = _mm512_srli_epi32(_mm512_loadu_si512(p + 128), 2 * (unsigned)j);
  return _mm512_shuffle_epi8(_mm512_set1_epi64(eight), _mm512_ternarylogic_epi32(places, two, second, 0xEA));
}
LANES_INLINE vb vb_set(int byte) {
  return _mm512_set1_epi8((char)byte);
}

// 64 unsigned bytes: part i (0 to 7) of 32 columns, from where the form's codes are; their values plus vb_offset.
LANES_INLINE vb vb_codes(st_form form, const uint8_t *p, int i) {
  const st_coding c = st_coding_of(form);
  if (c.low == 8) return _mm512_xor_si512(_mm512_loadu_si512(p + 64 * i), _mm512_set1_epi8(-128));
  if (c.sparse) return lanes_kept_values(form, lanes_sparse(p, i));
  vb v = lanes_plane(p, c.low, i, 0);
  if (c.high) v = _mm512_or_si512(v, lanes_plane(p + 64 * c.low, c.high, i, c.low));
  return c.values ? _mm512_shuffle_epi8(lanes_values_of(c.values, vb_offset(form)), v) : v;
}

// The 4 codes of a row as a 32-bit lane.
LANES_INLINE vi vb_words(vb v) {
  return v;
}

// Steps of 32 columns after which sums must be added up: those of codes moved up by 6 bits grow by 8 products of at most
// 127 * 192 a step.
LANES_INLINE size_t lanes_flush(size_t n) {
  return (void)n, 8192;
}

// Sums in turn, for each of a few tokens: an addition of products takes 4 cycles.
LANES_INLINE size_t lanes_chains(size_t n) {
  return n == LANES_TILE ? 1 : n <= 2 ? 4 : 2;
}
// By how many bits a chain's codes of two bits may be moved up.
LANES_INLINE unsigned lanes_chain_raised(size_t chain) {
  return 2 * (unsigned)chain;
}
// Part i of 32 columns' codes of two bits, moved up.
LANES_INLINE vb vb_raised(const uint8_t *p, int i, int up) {
  return lanes_plane(p, 2, i, up);
}

// Parts of a step that a vd holds.
LANES_INLINE size_t vd_parts(st_form form) {
  return (void)form, 8;
}

LANES_INLINE vd vd_zero(void) {
  return _mm512_setzero_si512();
}
LANES_INLINE vi vd_total(st_form form, vd v) {
  return (void)form, v;
}

// A sum and one of the same codes moved up.
LANES_INLINE vd vd_join(st_form form, vd sum, vd other, unsigned up) {
  return (void)form, vi_add(sum, vi_right(other, up));
}

// Sums that go on from *total, which the caller adds them to again, or begin with zero.
LANES_INLINE vd vd_begin(st_form form, vi *total) {
  vd sum = *total;
  *total = vi_zero();
  return (void)form, sum;
}

// Adds products with the 4 activations at x. They are the instruction's own operand, which the compiler does not do by
// itself.
LANES_INLINE vd vd_dot(st_form form, vd sum, vb w, const int8_t *x) {
  return (void)form, lanes_dot_bytes(sum, w, x);
}
// The same with activations of each row's own.
LANES_INLINE vd vd_dot_own(st_form form, vd sum, vb w, vb x) {
  return (void)form, _mm512_dpbusd_epi32(sum, w, x);
}
// vd_total of a - b.
LANES_INLINE vi vd_difference(st_form form, vd a, vd b) {
  return (void)form, _mm512_sub_epi32(a, b);
}

#endif
