// 16 lanes on AVX2: the primitives that the files in kernel/lanes are written in, in two halves of 8; with AVX-VNNI its
// instruction for products of bytes.
//
//   vf   16 floats           vi   16 int32
//   vb   64 bytes of codes, 4 columns of 16 rows              vd   32 or 16 sums of products of codes
#ifndef SETUN_KERNEL_X86_LANES_AVX2_H
#define SETUN_KERNEL_X86_LANES_AVX2_H

#include "kernel/layout.h"
#include "kernel/numbers.h"

#include <immintrin.h>

#define LANES_INLINE static inline __attribute__((always_inline))

enum {
  LANES_TILE = 6,         // tokens interleaved in an input
  LANES_FLOAT_TOKENS = 3, // tokens of a tile whose float32 sums fit into registers
  LANES_HEADS = 6,        // queries whose sums of 16 columns fit into registers
  LANES_WIDE = 2,         // those whose sums of LANES_SLAB times as many do
  LANES_SLAB = 2,
  LANES_CODES = 3, // queries whose sums of codes do
  LANES_STATE = 2  // vectors of columns of a state whose two sums do
};

typedef struct {
  __m256 a, b;
} vf;
typedef struct {
  __m256i a, b;
} vi;
typedef vi vb, vd;

// All ones in lanes below n.
LANES_INLINE vi lanes_mask(size_t n) {
  __m256i count = _mm256_set1_epi32((int)n), index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return (vi){_mm256_cmpgt_epi32(count, index),
              _mm256_cmpgt_epi32(_mm256_sub_epi32(count, _mm256_set1_epi32(8)), index)};
}

// The first n lanes (below 16), followed by zeros.
LANES_INLINE vf vf_load(const float *p) {
  return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LANES_INLINE vf vf_load_n(const float *p, size_t n) {
  vi m = lanes_mask(n);
  return (vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
LANES_INLINE void vf_store(float *p, vf v) {
  _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b);
}
LANES_INLINE void vf_store_n(float *p, vf v, size_t n) {
  vi m = lanes_mask(n);
  _mm256_maskstore_ps(p, m.a, v.a), _mm256_maskstore_ps(p + 8, m.b, v.b);
}
LANES_INLINE vf vf_half(const void *p) {
  const __m128i *h = p;
  return (vf){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
LANES_INLINE vf vf_half_n(const void *p, size_t n) {
  uint16_t part[16] = {0};
  __builtin_memcpy(part, p, 2 * n);
  return vf_half(part);
}
LANES_INLINE vf vf_bf16(const void *p) {
  const __m128i *h = p;
  return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), 16)),
              _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1)), 16))};
}
LANES_INLINE void vf_store_half(uint16_t *p, vf v) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
LANES_INLINE void vf_store_half_n(uint16_t *p, vf v, size_t n) {
  uint16_t part[16];
  vf_store_half(part, v);
  __builtin_memcpy(p, part, 2 * n);
}

LANES_INLINE vf vf_set(float x) {
  return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LANES_INLINE vf vf_add(vf x, vf y) {
  return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
LANES_INLINE vf vf_sub(vf x, vf y) {
  return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
LANES_INLINE vf vf_mul(vf x, vf y) {
  return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
LANES_INLINE vf vf_div(vf x, vf y) {
  return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
LANES_INLINE vf vf_fma(vf x, vf y, vf z) {
  return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
// x * *y, and x * *y + z.
LANES_INLINE vf vf_mul_by(vf x, const float *y) {
  return vf_mul(x, vf_set(*y));
}
LANES_INLINE vf vf_fma_by(vf x, const float *y, vf z) {
  return vf_fma(x, vf_set(*y), z);
}
LANES_INLINE vf vf_max(vf x, vf y) {
  return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
} // x > y ? x : y
LANES_INLINE vf vf_min(vf x, vf y) {
  return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
} // x < y ? x : y
LANES_INLINE vf vf_abs(vf x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return (vf){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
// Lane l receives the value of lane l ^ distance; distance is 1, 2, 4 or 8.
LANES_INLINE vf vf_swap(vf x, int distance) {
  if (distance == 8) return (vf){x.b, x.a};
  if (distance == 4) return (vf){_mm256_permute2f128_ps(x.a, x.a, 1), _mm256_permute2f128_ps(x.b, x.b, 1)};
  if (distance == 2) return (vf){_mm256_permute_ps(x.a, 0x4E), _mm256_permute_ps(x.b, 0x4E)};
  return (vf){_mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1)};
}
// x < y ? yes : no
LANES_INLINE vf vf_choose(vf x, vf y, vf yes, vf no) {
  return (vf){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
              _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
// Bit l: whether lane l is above zero.
LANES_INLINE unsigned vf_positive(vf x) {
  const __m256 zero = _mm256_setzero_ps();
  return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.a, zero, _CMP_GT_OQ)) |
         (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.b, zero, _CMP_GT_OQ)) << 8;
}

// 8 lanes: l with l + 4, then 2, 1 apart.
LANES_INLINE float lanes_sum8(__m256 a) {
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// Lane l with l + 8, then 4, 2, 1 apart.
LANES_INLINE float vf_sum(vf v) {
  return lanes_sum8(_mm256_add_ps(v.a, v.b));
}
LANES_INLINE float vf_first(vf v) {
  return _mm256_cvtss_f32(v.a);
}
LANES_INLINE float vf_most(vf v) {
  __m256 a = _mm256_max_ps(v.a, v.b);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// Lane i is the largest of the 8 lanes of v[i]. Each step joins halves of two vectors and keeps both
// results in one.
LANES_INLINE __m256 lanes_mosts8(__m256 v[8]) {
  for (int i = 0; i < 4; i++) { // 4 of v[i], 4 of v[i + 4]
    v[i] = _mm256_max_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  }
  for (int i = 0; i < 2; i++) { // pairs of v[i], v[i + 2]; v[i + 4], v[i + 6]
    v[i] = _mm256_max_ps(_mm256_shuffle_ps(v[i], v[i + 2], 0x44), _mm256_shuffle_ps(v[i], v[i + 2], 0xEE));
  }
  // v[0] is now those of 0, 2, 1, 3, 4, 6, 5, 7
  v[0] = _mm256_max_ps(_mm256_shuffle_ps(v[0], v[1], 0x88), _mm256_shuffle_ps(v[0], v[1], 0xDD));
  return _mm256_permutevar8x32_ps(v[0], _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7));
}
// Lane j is vf_most(v[j]).
LANES_INLINE vf vf_mosts(vf v[16]) {
  __m256 low[8], high[8];
  for (int i = 0; i < 8; i++) low[i] = _mm256_max_ps(v[i].a, v[i].b), high[i] = _mm256_max_ps(v[i + 8].a, v[i + 8].b);
  return (vf){lanes_mosts8(low), lanes_mosts8(high)};
}

LANES_INLINE vi vf_bits(vf v) {
  return (vi){_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)};
}
LANES_INLINE vf vi_as_floats(vi v) {
  return (vf){_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)};
}
LANES_INLINE vf vi_to_floats(vi v) {
  return (vf){_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)};
}
LANES_INLINE vi vi_zero(void) {
  return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
LANES_INLINE vi vi_set(int32_t x) {
  return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
LANES_INLINE vi vi_load(const void *p) {
  const __m256i *v = p;
  return (vi){_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
// 16 signed bytes.
LANES_INLINE vi vi_bytes(const void *p) {
  __m128i v = _mm_loadu_si128((const __m128i *)p);
  return (vi){_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v))};
}
LANES_INLINE vi vi_add(vi x, vi y) {
  return (vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
LANES_INLINE vi vi_sub(vi x, vi y) {
  return (vi){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
LANES_INLINE vi vi_and(vi x, vi y) {
  return (vi){_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
LANES_INLINE vi vi_left(vi x, unsigned n) {
  __m256i count = _mm256_set1_epi32((int)n);
  return (vi){_mm256_sllv_epi32(x.a, count), _mm256_sllv_epi32(x.b, count)};
}
LANES_INLINE vi vi_right(vi x, unsigned n) { // with the sign
  __m256i count = _mm256_set1_epi32((int)n);
  return (vi){_mm256_srav_epi32(x.a, count), _mm256_srav_epi32(x.b, count)};
}
// a * 2^n, rounded once; n is the integer that ST_ROUNDER was added to.
LANES_INLINE vf vf_scale(vf a, vf shifted) {
  vi n = vi_sub(vf_bits(shifted), vi_set(ST_ROUNDER_BITS)), half = vi_right(n, 1), rest = vi_sub(n, half);
  a = vf_mul(a, vi_as_floats(vi_left(vi_add(half, vi_set(127)), 23)));
  return vf_mul(a, vi_as_floats(vi_left(vi_add(rest, vi_set(127)), 23)));
}
LANES_INLINE int32_t vi_sum(vi v) {
  __m256i a = _mm256_add_epi32(v.a, v.b);
  __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  b = _mm_add_epi32(b, _mm_unpackhi_epi64(b, b));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_srli_epi64(b, 32)));
}

// Nearest integers, ties to even; NaN gives 0. Stored as bytes.
LANES_INLINE vi vf_round(vf v) {
  v.a = _mm256_and_ps(v.a, _mm256_cmp_ps(v.a, v.a, _CMP_ORD_Q));
  v.b = _mm256_and_ps(v.b, _mm256_cmp_ps(v.b, v.b, _CMP_ORD_Q));
  return (vi){_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)};
}
LANES_INLINE void vi_store_bytes(int8_t *p, vi v) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xD8);
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128((__m128i *)p, bytes);
}

LANES_INLINE void vi_store_shorts(int16_t *p, vi v) {
  __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xD8);
  _mm256_storeu_si256((__m256i *)(void *)p, shorts);
}
// a | b & mask
LANES_INLINE vi vi_insert(vi a, vi b, vi mask) {
  b = vi_and(b, mask);
  return (vi){_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b)};
}
// The odd bytes, each as 16 bits.
LANES_INLINE vi vi_odd_bytes(vi v) {
  return (vi){_mm256_srli_epi16(v.a, 8), _mm256_srli_epi16(v.b, 8)};
}
// Adds to each lane the products of its two numbers of 16 bits with those at x. In one piece, as lanes_multiply_add.
LANES_INLINE __m256i lanes_add_product(__m256i sum, __m256i w, __m256i x) {
  __m256i product;
  __asm__("vpmaddwd %[x], %[w], %[p]\n\tvpaddd %[p], %[s], %[s]"
          : [s] "+x"(sum), [p] "=&x"(product)
          : [w] "x"(w), [x] "x"(x));
  return sum;
}
LANES_INLINE vi lanes_dot_pairs(vi sum, vi w, const void *x) {
  int32_t two;
  __builtin_memcpy(&two, x, sizeof two);
  __m256i pair = _mm256_set1_epi32(two);
  return (vi){lanes_add_product(sum.a, w.a, pair), lanes_add_product(sum.b, w.b, pair)};
}

// Adds to each lane the products of its four unsigned bytes, below 64, with the bytes at x.
LANES_INLINE vi lanes_dot_bytes(vi sum, vi w, const int8_t *x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  const __m256i v = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  return (vi){lanes_add_product(sum.a, _mm256_maddubs_epi16(w.a, v), ones),
              lanes_add_product(sum.b, _mm256_maddubs_epi16(w.b, v), ones)};
}

// 32 codes in one store: two would keep the load of the row waiting.
LANES_INLINE void lanes_store_row(int8_t *row, vi low, vi high) {
  __m256i v = _mm256_packs_epi16(_mm256_packs_epi32(low.a, low.b), _mm256_packs_epi32(high.a, high.b));
  v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); // fours were: low 0, 2, high 0, 2, ...
  _mm256_storeu_si256((__m256i *)(void *)row, v);
}
// 16 rows of 32 codes: lane r of *low is the sum of the first 16 of row r, of *high that of the last.
LANES_INLINE void lanes_row_sums(const int8_t (*rows)[32], vi *low, vi *high) {
  __m256i v[16];
  for (int i = 0; i < 16; i++) {
    v[i] = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256((const __m256i *)rows[i]));
  }
  for (int i = 0; i < 16; i += 2) v[i] = _mm256_hadd_epi16(v[i], v[i + 1]);
  for (int i = 0; i < 16; i += 4) v[i] = _mm256_hadd_epi16(v[i], v[i + 2]);
  for (int i = 0; i < 16; i += 8) v[i] = _mm256_hadd_epi16(v[i], v[i + 4]);
  *low = (vi){_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v[0])), _mm256_cvtepi16_epi32(_mm256_castsi256_si128(v[8]))};
  *high = (vi){_mm256_cvtepi16_epi32(_mm256_extracti128_si256(v[0], 1)),
               _mm256_cvtepi16_epi32(_mm256_extracti128_si256(v[8], 1))};
}

// 4 rows of 8 words: v[w] becomes words w, then w + 4, of each.
LANES_INLINE void lanes_transpose4(__m256i v[4]) {
  __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
  __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c), v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d), v[3] = _mm256_unpackhi_epi64(b, d);
}
// Interleaves 32 codes of each of LANES_TILE tokens every 4 codes.
LANES_INLINE void lanes_interleave(int8_t *out, const int8_t (*rows)[32]) {
  __m256i a[4], b[4]; // tokens 0 to 3; 4, 5 and nothing
  for (int i = 0; i < 4; i++) a[i] = _mm256_loadu_si256((const __m256i *)rows[i]);
  for (int i = 0; i < 4; i++) b[i] = i < 2 ? _mm256_loadu_si256((const __m256i *)rows[4 + i]) : _mm256_setzero_si256();
  lanes_transpose4(a), lanes_transpose4(b);
  for (int i = 0; i < 4; i++) {
    _mm_storeu_si128((__m128i *)(out + 24 * i), _mm256_castsi256_si128(a[i]));
    _mm_storel_epi64((__m128i *)(out + 24 * i + 16), _mm256_castsi256_si128(b[i]));
    _mm_storeu_si128((__m128i *)(out + 24 * i + 96), _mm256_extracti128_si256(a[i], 1));
    _mm_storel_epi64((__m128i *)(out + 24 * i + 112), _mm256_extracti128_si256(b[i], 1));
  }
}

LANES_INLINE void vi_opaque(vi *v) {
  __asm__ volatile("" : "+x"(v->a), "+x"(v->b));
}
// Sums of a tile do not stay in registers here, whatever the order.
LANES_INLINE void vf_opaque(vf *v) {
  (void)v;
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
LANES_INLINE __m256i lanes_shift(__m256i v, int by) {
  switch (by) {
  case -4: return _mm256_slli_epi16(v, 4);
  case -3: return _mm256_slli_epi16(v, 3);
  case -2: return _mm256_slli_epi16(v, 2);
  case -1: return _mm256_slli_epi16(v, 1);
  case 1: return _mm256_srli_epi16(v, 1);
  case 2: return _mm256_srli_epi16(v, 2);
  case 3: return _mm256_srli_epi16(v, 3);
  case 4: return _mm256_srli_epi16(v, 4);
  case 5: return _mm256_srli_epi16(v, 5);
  case 6: return _mm256_srli_epi16(v, 6);
  case 7: return _mm256_srli_epi16(v, 7);
  default: return v;
  }
}

// Part i of a plane of `bits` bits a code, moved up to bit `to`.
LANES_INLINE vb lanes_plane(const uint8_t *p, int bits, int i, int to) {
  vb v = vi_load(p + 64 * (i * bits / 8));
  const __m256i mask = _mm256_set1_epi8((char)(((1 << bits) - 1) << to));
  int by = i * bits % 8 - to;
  return (vb){_mm256_and_si256(lanes_shift(v.a, by), mask), _mm256_and_si256(lanes_shift(v.b, by), mask)};
}

#ifdef __AVXVNNI__
// Whether bytes have a sign.
LANES_INLINE bool vb_signed(st_form form) {
  return (void)form, false;
}

// The byte that vb_codes makes of a code, or of its value, less that code or value.
LANES_INLINE int vb_offset(st_form form) {
  const st_coding c = st_coding_of(form);
  return c.low == 8 ? 128 : c.offset;
}
#else
// Whether bytes have a sign: Q8's codes, and the values of IQ4_NL.
LANES_INLINE bool vb_signed(st_form form) {
  return st_coding_is_byte(st_coding_of(form));
}

// The byte that vb_codes makes of a code, or of its value, less that code or value.
LANES_INLINE int vb_offset(st_form form) {
  return vb_signed(form) ? 0 : st_coding_of(form).offset;
}
#endif

// Part i of 32 columns of which two of four are there, moved to their columns; 0 for the others.
LANES_INLINE __m256i lanes_scatter(__m256i codes, __m256i pair, int second) {
  const __m256i lane = _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C));
  __m256i moves = _mm256_loadu_si256((const __m256i *)st_sparse_moves);
  moves = _mm256_or_si256(moves, _mm256_set1_epi32(second ? 0x02020202 : 0)); // codes 2 and 3 of the four
  return _mm256_shuffle_epi8(codes, _mm256_or_si256(_mm256_permutevar8x32_epi32(moves, pair), lane));
}
// Its pairs of places, as the low three bits of a lane.
LANES_INLINE __m256i lanes_place_pairs(__m256i places, int i) {
  const __m256i mask = _mm256_set1_epi32(0x00030003);
  __m256i first = _mm256_srli_epi32(places, i / 2 * 2), next = _mm256_srli_epi32(places, i / 2 * 2 + 6);
  __m256i pairs = _mm256_or_si256(_mm256_and_si256(mask, first), _mm256_andnot_si256(mask, next));
  return i % 2 ? _mm256_srli_epi32(pairs, 16) : pairs;
}
LANES_INLINE vb lanes_sparse(const uint8_t *p, int i) {
  vb codes = lanes_plane(p, 4, i / 2, 0), places = vi_load(p + 128);
  return (vb){lanes_scatter(codes.a, lanes_place_pairs(places.a, i), i % 2),
              lanes_scatter(codes.b, lanes_place_pairs(places.b, i), i % 2)};
}

// Of codes with a table of values, these plus vb_offset. A signed integer's is the code with its top bit changed.
LANES_INLINE vb lanes_kept_values(st_form form, vb v) {
  const st_coding c = st_coding_of(form);
  if (c.twos) {
    const __m256i top = _mm256_set1_epi8(8);
    return (vb){_mm256_xor_si256(v.a, top), _mm256_xor_si256(v.b, top)};
  }
  __m128i half = _mm_add_epi8(_mm_loadu_si128((const __m128i *)c.values), _mm_set1_epi8((char)vb_offset(form)));
  __m256i values = _mm256_broadcastsi128_si256(half);
  return (vb){_mm256_shuffle_epi8(values, v.a), _mm256_shuffle_epi8(values, v.b)};
}

// Of columns 8j to 8j + 7 of a sparse form, the 4 that are there: their values plus vb_offset, and their activations
// from the 8 at x.
LANES_INLINE vb vb_kept(st_form form, const uint8_t *p, int j) {
  return lanes_kept_values(form, lanes_plane(p, 4, j, 0));
}
LANES_INLINE __m256i lanes_gather(__m256i places, int j, __m256i eight) {
  places = _mm256_and_si256(_mm256_srli_epi32(places, 2 * j), _mm256_set1_epi8(3));
  return _mm256_shuffle_epi8(eight, _mm256_or_si256(places, _mm256_set1_epi32(0x04040000))); // of the next part
}
LANES_INLINE vb vb_gather(const uint8_t *p, int j, const int8_t *x) {
  long long eight;
  __builtin_memcpy(&eight, x, 8);
  vb places = vi_load(p + 128);
  __m256i all = _mm256_set1_epi64x(eight);
  return (vb){lanes_gather(places.a, j, all), lanes_gather(places.b, j, all)};
}
LANES_INLINE vb vb_set(int byte) {
  return (vb){_mm256_set1_epi8((char)byte), _mm256_set1_epi8((char)byte)};
}

// 64 bytes: part i (0 to 7) of 32 columns, from where the form's codes are; their values plus vb_offset.
LANES_INLINE vb vb_codes(st_form form, const uint8_t *p, int i) {
  const st_coding c = st_coding_of(form);
  if (c.low == 8) {
    vb bytes = vi_load(p + 64 * i);
    const __m256i top = _mm256_set1_epi8(-128);
    return vb_signed(form) ? bytes : (vb){_mm256_xor_si256(bytes.a, top), _mm256_xor_si256(bytes.b, top)};
  }
  vb v = c.sparse ? lanes_sparse(p, i) : lanes_plane(p, c.low, i, 0);
  if (c.high && !c.sparse) {
    vb high = lanes_plane(p + 64 * c.low, c.high, i, c.low);
    v = (vb){_mm256_or_si256(v.a, high.a), _mm256_or_si256(v.b, high.b)};
  }
  return c.values ? lanes_kept_values(form, v) : v;
}

// Part i of 32 columns' codes of two bits, moved up.
LANES_INLINE vb vb_raised(const uint8_t *p, int i, int up) {
  return lanes_plane(p, 2, i, up);
}
// By how many bits a chain's codes of two bits may be moved up.
LANES_INLINE unsigned lanes_chain_raised(size_t chain) {
  return 2 * (unsigned)chain;
}

// The 4 codes of a row as a 32-bit lane.
LANES_INLINE vi vb_words(vb v) {
  return v;
}

LANES_INLINE vd vd_zero(void) {
  return vi_zero();
}

#ifdef __AVXVNNI__
// Steps of 32 columns after which sums must be added up: those of codes moved up by 6 bits grow by 8 products of at most
// 127 * 192 a step.
LANES_INLINE size_t lanes_flush(size_t n) {
  return (void)n, 8192;
}

// Parts of a step that a vd holds.
LANES_INLINE size_t vd_parts(st_form form) {
  return (void)form, 8;
}

// Sums in turn, for each of a few tokens: an addition of products takes 4 or 5 cycles.
LANES_INLINE size_t lanes_chains(size_t n) {
  return n == 1 ? 4 : n <= 3 ? 2 : 1;
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

// Adds products with the 4 activations at x. Left to itself the compiler copies sums.
LANES_INLINE vd vd_dot(st_form form, vd sum, vb w, const int8_t *x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  __m256i v = _mm256_set1_epi32(four);
  (void)form;
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.a) : "x"(w.a), "x"(v));
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.b) : "x"(w.b), "x"(v));
  return sum;
}
// The same with activations of each row's own.
LANES_INLINE vd vd_dot_own(st_form form, vd sum, vb w, vb x) {
  (void)form;
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.a) : "x"(w.a), "x"(x.a));
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.b) : "x"(w.b), "x"(x.b));
  return sum;
}
// vd_total of a - b.
LANES_INLINE vi vd_difference(st_form form, vd a, vd b) {
  return (void)form, vi_sub(a, b);
}
#else
// Steps of 32 columns after which a vd must be added up. T16: its 16-bit sums grow by two products of at most 3 * 127
// at each of a step's 8 parts, to 24384; for one token, at each of a chain's 4 parts, of at most 12 * 127: to 24384 too.
// The others are added up after each step at the latest.
LANES_INLINE size_t lanes_flush(size_t n) {
  return n == 1 ? 2 : 4;
}

// Whether sums have 32 bits: two products alone may be more than 16 hold.
LANES_INLINE bool vd_wide(st_form form) {
  return vb_signed(form) || st_coding_largest(st_coding_of(form)) > 31;
}
// Parts of a step that a vd holds: two products of at most 127 * 15 a part, 8 times, are 30480; of 127 * 31, 4 times,
// 31496.
LANES_INLINE size_t vd_parts(st_form form) {
  return vd_wide(form) || st_coding_largest(st_coding_of(form)) <= 15 ? 8 : 4;
}

// Sums in turn for each token: an addition of products takes one cycle, so that two are for codes that are moved up.
LANES_INLINE size_t lanes_chains(size_t n) {
  return n == 1 ? 2 : 1;
}

LANES_INLINE vi vd_total(st_form form, vd v) {
  if (vd_wide(form)) return v;
  const __m256i ones = _mm256_set1_epi16(1);
  return (vi){_mm256_madd_epi16(v.a, ones), _mm256_madd_epi16(v.b, ones)};
}

// A sum and one of the same codes moved up.
LANES_INLINE vd vd_join(st_form form, vd sum, vd other, unsigned up) {
  if (vd_wide(form)) return vi_add(sum, vi_right(other, up));
  return (vd){_mm256_add_epi16(sum.a, _mm256_srai_epi16(other.a, (int)up)),
              _mm256_add_epi16(sum.b, _mm256_srai_epi16(other.b, (int)up))};
}

// Sums that go on from *total, which the caller adds them to again, or begin with zero.
LANES_INLINE vd vd_begin(st_form form, vi *total) {
  return (void)form, (void)total, vd_zero();
}

// *sum += w * x, in one piece: left to itself the compiler moves all multiplications ahead of all additions, and runs
// out of registers.
LANES_INLINE void lanes_multiply_add(__m256i *sum, __m256i w, __m256i x) {
  __m256i product;
  __asm__("vpmaddubsw %[x], %[w], %[p]\n\tvpaddw %[p], %[s], %[s]"
          : [s] "+x"(*sum), [p] "=&x"(product)
          : [w] "x"(w), [x] "x"(x));
}

// Adds products with the 4 activations at x. Of codes with a sign, |code| is the unsigned operand (128 fits) and the
// activation takes the code's sign: two products are at most 32512.
LANES_INLINE vd vd_dot(st_form form, vd sum, vb w, const int8_t *x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  __m256i v = _mm256_set1_epi32(four);
  if (vd_wide(form)) {
    const __m256i ones = _mm256_set1_epi16(1);
    bool sign = vb_signed(form);
    __m256i a =
        sign ? _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(v, w.a)) : _mm256_maddubs_epi16(w.a, v);
    __m256i b =
        sign ? _mm256_maddubs_epi16(_mm256_abs_epi8(w.b), _mm256_sign_epi8(v, w.b)) : _mm256_maddubs_epi16(w.b, v);
    return (vd){_mm256_add_epi32(sum.a, _mm256_madd_epi16(a, ones)),
                _mm256_add_epi32(sum.b, _mm256_madd_epi16(b, ones))};
  }
  lanes_multiply_add(&sum.a, w.a, v);
  lanes_multiply_add(&sum.b, w.b, v);
  return sum;
}
// The same with activations of each row's own; not for wide sums.
LANES_INLINE vd vd_dot_own(st_form form, vd sum, vb w, vb x) {
  (void)form;
  lanes_multiply_add(&sum.a, w.a, x.a);
  lanes_multiply_add(&sum.b, w.b, x.b);
  return sum;
}
// vd_total of a - b.
LANES_INLINE vi vd_difference(st_form form, vd a, vd b) {
  return vd_total(form, (vd){_mm256_sub_epi16(a.a, b.a), _mm256_sub_epi16(a.b, b.b)});
}
#endif

#endif
