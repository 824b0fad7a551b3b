// 16 lanes on NEON: the primitives that the files in kernel/lanes are written in, in four quarters of 4.
//
//   vf   16 floats           vi   16 int32
//   vb   64 bytes of codes, 4 columns of 16 rows              vd   sums of products of codes
//
// With the dot product instructions a vd is 16 sums; without, 64 sums of 16 bits or, for wide codes, 32 of 32 bits.
#ifndef SETUN_KERNEL_ARM_LANES_NEON_H
#define SETUN_KERNEL_ARM_LANES_NEON_H

#include "kernel/layout.h"
#include "kernel/numbers.h"

#include <arm_neon.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

enum {
  LANES_TILE = 4,         // tokens interleaved in an input
  LANES_FLOAT_TOKENS = 2, // tokens of a tile whose float32 sums fit into registers
  LANES_HEADS = 6,        // queries whose sums of 16 columns fit into registers
  LANES_WIDE = 2,         // those whose sums of LANES_SLAB times as many do
  LANES_SLAB = 2,
  LANES_CODES = 2, // queries whose sums of codes do
  LANES_STATE = 2  // vectors of columns of a state whose two sums do
};

typedef struct {
  float32x4_t q[4];
} vf;
typedef struct {
  int32x4_t q[4];
} vi;
typedef struct {
  int8x16_t q[4];
} vb;

#define LANES_EACH for (int i = 0; i < 4; i++)

LANES_INLINE vf vf_load(const float *p) {
  vf v;
  LANES_EACH v.q[i] = vld1q_f32(p + 4 * i);
  return v;
}
LANES_INLINE void vf_store(float *p, vf v) {
  LANES_EACH vst1q_f32(p + 4 * i, v.q[i]);
}
// The first n lanes (below 16), followed by zeros.
LANES_INLINE vf vf_load_n(const float *p, size_t n) {
  float part[16] = {0};
  memcpy(part, p, n * sizeof *p);
  return vf_load(part);
}
LANES_INLINE void vf_store_n(float *p, vf v, size_t n) {
  float part[16];
  vf_store(part, v);
  memcpy(p, part, n * sizeof *p);
}
LANES_INLINE vf vf_half(const void *p) {
  vf v;
  LANES_EACH v.q[i] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p + 8 * i)));
  return v;
}
LANES_INLINE vf vf_half_n(const void *p, size_t n) {
  uint16_t part[16] = {0};
  memcpy(part, p, 2 * n);
  return vf_half(part);
}
LANES_INLINE vf vf_bf16(const void *p) {
  vf v;
  LANES_EACH v.q[i] = vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + 8 * i)), 16));
  return v;
}
LANES_INLINE void vf_store_half(uint16_t *p, vf v) {
  LANES_EACH vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.q[i])));
}
LANES_INLINE void vf_store_half_n(uint16_t *p, vf v, size_t n) {
  uint16_t part[16];
  vf_store_half(part, v);
  memcpy(p, part, 2 * n);
}

#define LANES_UNARY(type, name, expression)                                                                            \
  LANES_INLINE type name(type a) {                                                                                     \
    LANES_EACH a.q[i] = expression;                                                                                    \
    return a;                                                                                                          \
  }
#define LANES_BINARY(type, name, expression)                                                                           \
  LANES_INLINE type name(type a, type b) {                                                                             \
    LANES_EACH a.q[i] = expression;                                                                                    \
    return a;                                                                                                          \
  }
LANES_BINARY(vf, vf_add, vaddq_f32(a.q[i], b.q[i]))
LANES_BINARY(vf, vf_sub, vsubq_f32(a.q[i], b.q[i]))
LANES_BINARY(vf, vf_mul, vmulq_f32(a.q[i], b.q[i]))
LANES_BINARY(vf, vf_div, vdivq_f32(a.q[i], b.q[i]))
LANES_BINARY(vf, vf_max, vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])) // a > b ? a : b, also for NaN
LANES_BINARY(vf, vf_min, vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])) // a < b ? a : b
LANES_UNARY(vf, vf_abs, vabsq_f32(a.q[i]))
LANES_BINARY(vi, vi_add, vaddq_s32(a.q[i], b.q[i]))
LANES_BINARY(vi, vi_sub, vsubq_s32(a.q[i], b.q[i]))
LANES_BINARY(vi, vi_and, vandq_s32(a.q[i], b.q[i]))

LANES_INLINE vf vf_set(float x) {
  vf v;
  LANES_EACH v.q[i] = vdupq_n_f32(x);
  return v;
}
LANES_INLINE vf vf_fma(vf a, vf b, vf c) {
  LANES_EACH c.q[i] = vfmaq_f32(c.q[i], a.q[i], b.q[i]);
  return c;
}
// a * *b, and a * *b + c.
LANES_INLINE vf vf_mul_by(vf a, const float *b) {
  return vf_mul(a, vf_set(*b));
}
LANES_INLINE vf vf_fma_by(vf a, const float *b, vf c) {
  return vf_fma(a, vf_set(*b), c);
}
// Lane l receives the value of lane l ^ distance; distance is 1, 2, 4 or 8.
LANES_INLINE vf vf_swap(vf v, int distance) {
  if (distance == 8) return (vf){{v.q[2], v.q[3], v.q[0], v.q[1]}};
  if (distance == 4) return (vf){{v.q[1], v.q[0], v.q[3], v.q[2]}};
  LANES_EACH v.q[i] = distance == 2 ? vextq_f32(v.q[i], v.q[i], 2) : vrev64q_f32(v.q[i]);
  return v;
}
LANES_INLINE float vf_first(vf v) {
  return vgetq_lane_f32(v.q[0], 0);
}
LANES_INLINE float vf_most(vf v) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.q[0], v.q[1]), vmaxq_f32(v.q[2], v.q[3])));
}

// a < b ? yes : no
LANES_INLINE vf vf_choose(vf a, vf b, vf yes, vf no) {
  LANES_EACH no.q[i] = vbslq_f32(vcltq_f32(a.q[i], b.q[i]), yes.q[i], no.q[i]);
  return no;
}
// Bit l: whether lane l is above zero.
LANES_INLINE unsigned vf_positive(vf a) {
  const uint32_t bits[4] = {1, 2, 4, 8};
  unsigned all = 0;
  LANES_EACH all |= vaddvq_u32(vandq_u32(vcgtq_f32(a.q[i], vdupq_n_f32(0)), vld1q_u32(bits))) << 4 * i;
  return all;
}

// Lane l with l + 8, then 4 apart.
LANES_INLINE float32x4_t lanes_sum4(vf v) {
  return vaddq_f32(vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3]));
}
// Two sums of 4: lane l with l + 2 of each.
LANES_INLINE float32x4_t lanes_sum2(float32x4_t a, float32x4_t b) {
  return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}
LANES_INLINE float vf_sum(vf v) {
  float32x4_t a = lanes_sum4(v), b = lanes_sum2(a, a);
  return vgetq_lane_f32(vpaddq_f32(b, b), 0);
}
LANES_INLINE float32x4_t lanes_most4(vf v) {
  return vmaxq_f32(vmaxq_f32(v.q[0], v.q[2]), vmaxq_f32(v.q[1], v.q[3]));
}
// Lane j is vf_most(v[j]).
LANES_INLINE vf vf_mosts(vf v[16]) {
  vf most;
  LANES_EACH {
    float32x4_t a = vpmaxq_f32(lanes_most4(v[4 * i]), lanes_most4(v[4 * i + 1]));
    float32x4_t b = vpmaxq_f32(lanes_most4(v[4 * i + 2]), lanes_most4(v[4 * i + 3]));
    most.q[i] = vpmaxq_f32(a, b);
  }
  return most;
}

LANES_INLINE vi vi_set(int32_t x) {
  vi v;
  LANES_EACH v.q[i] = vdupq_n_s32(x);
  return v;
}
LANES_INLINE vi vi_zero(void) {
  return vi_set(0);
}
LANES_INLINE vi vi_load(const void *p) {
  vi v;
  LANES_EACH v.q[i] = vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
  return v;
}
// 16 signed bytes.
LANES_INLINE vi vi_bytes(const void *p) {
  int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return (vi){{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
               vmovl_s16(vget_high_s16(high))}};
}
LANES_INLINE vi vf_bits(vf v) {
  vi r;
  LANES_EACH r.q[i] = vreinterpretq_s32_f32(v.q[i]);
  return r;
}
LANES_INLINE vf vi_as_floats(vi v) {
  vf r;
  LANES_EACH r.q[i] = vreinterpretq_f32_s32(v.q[i]);
  return r;
}
LANES_INLINE vf vi_to_floats(vi v) {
  vf r;
  LANES_EACH r.q[i] = vcvtq_f32_s32(v.q[i]);
  return r;
}
LANES_INLINE vi vi_left(vi a, unsigned n) {
  LANES_EACH a.q[i] = vshlq_s32(a.q[i], vdupq_n_s32((int)n));
  return a;
}
LANES_INLINE vi vi_right(vi a, unsigned n) { // with the sign
  LANES_EACH a.q[i] = vshlq_s32(a.q[i], vdupq_n_s32(-(int)n));
  return a;
}
// a * 2^n, rounded once; n is the integer that ST_ROUNDER was added to.
LANES_INLINE vf vf_scale(vf a, vf shifted) {
  vi n = vi_sub(vf_bits(shifted), vi_set(ST_ROUNDER_BITS)), half = vi_right(n, 1), rest = vi_sub(n, half);
  a = vf_mul(a, vi_as_floats(vi_left(vi_add(half, vi_set(127)), 23)));
  return vf_mul(a, vi_as_floats(vi_left(vi_add(rest, vi_set(127)), 23)));
}
LANES_INLINE int32_t vi_sum(vi v) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(v.q[0], v.q[1]), vaddq_s32(v.q[2], v.q[3])));
}

// Nearest integers, ties to even; NaN gives 0. Stored as bytes.
LANES_INLINE vi vf_round(vf v) {
  vi r;
  LANES_EACH r.q[i] = vcvtnq_s32_f32(v.q[i]);
  return r;
}
LANES_INLINE void vi_store_bytes(int8_t *p, vi v) {
  int16x8_t a = vcombine_s16(vmovn_s32(v.q[0]), vmovn_s32(v.q[1])),
            b = vcombine_s16(vmovn_s32(v.q[2]), vmovn_s32(v.q[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
}

LANES_INLINE void vi_store_shorts(int16_t *p, vi v) {
  vst1q_s16(p, vcombine_s16(vmovn_s32(v.q[0]), vmovn_s32(v.q[1])));
  vst1q_s16(p + 8, vcombine_s16(vmovn_s32(v.q[2]), vmovn_s32(v.q[3])));
}
// a | b & mask
LANES_INLINE vi vi_insert(vi a, vi b, vi mask) {
  LANES_EACH a.q[i] = vorrq_s32(a.q[i], vandq_s32(b.q[i], mask.q[i]));
  return a;
}
// The odd bytes, each as 16 bits.
LANES_INLINE vi vi_odd_bytes(vi v) {
  LANES_EACH v.q[i] = vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(v.q[i]), 8));
  return v;
}
// Adds to each lane the products of its two numbers of 16 bits with those at x.
LANES_INLINE vi lanes_dot_pairs(vi sum, vi w, const void *x) {
  int32_t two;
  memcpy(&two, x, sizeof two);
  int16x8_t pair = vreinterpretq_s16_s32(vdupq_n_s32(two));
  LANES_EACH {
    int16x8_t v = vreinterpretq_s16_s32(w.q[i]);
    int32x4_t low = vmull_s16(vget_low_s16(v), vget_low_s16(pair)), high = vmull_high_s16(v, pair);
    sum.q[i] = vaddq_s32(sum.q[i], vpaddq_s32(low, high));
  }
  return sum;
}
// Adds to each lane the products of its four unsigned bytes, below 64, with the bytes at x.
LANES_INLINE vi lanes_dot_bytes(vi sum, vi w, const int8_t *x) {
  int32_t word;
  memcpy(&word, x, sizeof word);
  int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(word));
  LANES_EACH {
    int8x16_t v = vreinterpretq_s8_s32(w.q[i]);
    int16x8_t low = vmull_s8(vget_low_s8(v), vget_low_s8(four)), high = vmull_high_s8(v, four);
    sum.q[i] = vaddq_s32(sum.q[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
  return sum;
}

LANES_INLINE void lanes_store_row(int8_t *row, vi low, vi high) {
  vi_store_bytes(row, low), vi_store_bytes(row + 16, high);
}
// Sums of 16 codes by fours, and of their squares.
LANES_INLINE int32x4_t lanes_sum16(const int8_t *codes) {
  return vpaddlq_s16(vpaddlq_s8(vld1q_s8(codes)));
}
LANES_INLINE int32x4_t lanes_add_lanes(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}
// 16 rows of 32 codes: lane r of *low is the sum of the first 16 of row r, of *high that of the last.
LANES_INLINE void lanes_row_sums(const int8_t (*rows)[32], vi *low, vi *high) {
  LANES_EACH {
    const int8_t *p = rows[4 * i];
    low->q[i] = lanes_add_lanes(lanes_sum16(p), lanes_sum16(p + 32), lanes_sum16(p + 64), lanes_sum16(p + 96));
    high->q[i] = lanes_add_lanes(lanes_sum16(p + 16), lanes_sum16(p + 48), lanes_sum16(p + 80), lanes_sum16(p + 112));
  }
}

// Interleaves 32 codes of each of LANES_TILE tokens every 4 codes.
LANES_INLINE void lanes_interleave(int8_t *out, const int8_t (*rows)[32]) {
  for (int i = 0; i < 2; i++) {
    int32x4x4_t words;
    for (int j = 0; j < 4; j++) words.val[j] = vreinterpretq_s32_s8(vld1q_s8(rows[j] + 16 * i));
    vst4q_s32((int32_t *)(void *)(out + 64 * i), words);
  }
}

LANES_INLINE void vi_opaque(vi *v) {
  __asm__ volatile("" : "+w"(v->q[0]), "+w"(v->q[1]), "+w"(v->q[2]), "+w"(v->q[3]));
}
// Sums of a tile do not stay in registers here, whatever the order.
LANES_INLINE void vf_opaque(vf *v) {
  (void)v;
}

// Two prefetches a line: one far ahead into the second level, one near into the first.
LANES_INLINE void lanes_prefetch(const uint8_t *p) {
  __builtin_prefetch(p + 2560, 0, 3);
  __builtin_prefetch(p + 7168, 0, 2);
}

// Quarter i of part j of a plane of `bits` bits a code, moved up to bit `to`.
LANES_INLINE uint8x16_t lanes_plane(const uint8_t *p, int bits, int j, int i, int to) {
  uint8x16_t v = vld1q_u8(p + 64 * (j * bits / 8) + 16 * i);
  v = vshlq_u8(v, vdupq_n_s8((int8_t)(to - j * bits % 8)));
  if (!to && j * bits % 8 + bits == 8) return v; // nothing is left above it
  return vandq_u8(v, vdupq_n_u8((uint8_t)(((1 << bits) - 1) << to)));
}

// A code minus its value; values have their sign.
LANES_INLINE int vb_offset(st_form form) {
  const st_coding c = st_coding_of(form);
  return c.values ? 0 : c.offset;
}

// Quarter i of part j of 32 columns of which two of four are there, moved to their columns; 0 for the others.
LANES_INLINE uint8x16_t lanes_sparse(const uint8_t *p, int j, int i) {
  static const uint8_t lane[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
  const uint8_t *moves = (const uint8_t *)(const void *)st_sparse_moves;
  uint8x16x2_t table = {{vld1q_u8(moves), vld1q_u8(moves + 16)}};
  uint32x4_t places = vreinterpretq_u32_u8(vld1q_u8(p + 128 + 16 * i)); // first + 4 * second
  uint32x4_t first = vshlq_u32(places, vdupq_n_s32(-(j % 2 * 16 + j / 2 * 2)));
  uint32x4_t next = vshlq_u32(places, vdupq_n_s32(-(j % 2 * 16 + j / 2 * 2 + 6)));
  uint32x4_t pair = vandq_u32(vbslq_u32(vdupq_n_u32(3), first, next), vdupq_n_u32(7));
  pair = vaddq_u32(vmulq_u32(pair, vdupq_n_u32(0x04040404)), vdupq_n_u32(0x03020100));
  uint8x16_t move = vqtbl2q_u8(table, vreinterpretq_u8_u32(pair));
  move = vorrq_u8(vorrq_u8(move, vdupq_n_u8(j % 2 ? 2 : 0)), vld1q_u8(lane)); // codes 2 and 3 of the four
  return vqtbl1q_u8(lanes_plane(p, 4, j / 2, i, 0), move);
}

// Of columns 8j to 8j + 7 of a sparse form, the 4 that are there: their values, and their activations from the 8 at x.
LANES_INLINE vb vb_kept(st_form form, const uint8_t *p, int j) {
  vb v;
  LANES_EACH v.q[i] = vqtbl1q_s8(vld1q_s8(st_coding_of(form).values), lanes_plane(p, 4, j, i, 0));
  return v;
}
LANES_INLINE vb vb_gather(const uint8_t *p, int j, const int8_t *x) {
  static const uint8_t second[16] = {0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4}; // of the next part
  int8x8_t eight = vld1_s8(x);
  int8x16_t table = vcombine_s8(eight, eight);
  vb v;
  LANES_EACH {
    uint8x16_t places = vshlq_u8(vld1q_u8(p + 128 + 16 * i), vdupq_n_s8((int8_t)(-2 * j)));
    v.q[i] = vqtbl1q_s8(table, vorrq_u8(vandq_u8(places, vdupq_n_u8(3)), vld1q_u8(second)));
  }
  return v;
}
LANES_INLINE vb vb_set(int byte) {
  vb v;
  LANES_EACH v.q[i] = vdupq_n_s8((int8_t)byte);
  return v;
}

// 64 signed bytes: part j (0 to 7) of 32 columns, from where the form's codes are; their values plus vb_offset.
LANES_INLINE vb vb_codes(st_form form, const uint8_t *p, int j) {
  const st_coding c = st_coding_of(form);
  vb v;
  LANES_EACH {
    uint8x16_t code = c.sparse ? lanes_sparse(p, j, i) : lanes_plane(p, c.low, j, i, 0);
    if (c.high && !c.sparse) code = vorrq_u8(code, lanes_plane(p + 64 * c.low, c.high, j, i, c.low));
    v.q[i] = c.values ? vqtbl1q_s8(vld1q_s8(c.values), code) : vreinterpretq_s8_u8(code);
  }
  return v;
}

// The 4 codes of a row as a 32-bit lane.
LANES_INLINE vi vb_words(vb v) {
  vi r;
  LANES_EACH r.q[i] = vreinterpretq_s32_s8(v.q[i]);
  return r;
}

// Part j of 32 columns' codes of two bits, moved up.
LANES_INLINE vb vb_raised(const uint8_t *p, int j, int up) {
  vb v;
  LANES_EACH v.q[i] = vreinterpretq_s8_u8(lanes_plane(p, 2, j, i, up));
  return v;
}

LANES_INLINE int8x16_t lanes_four(const int8_t *x) {
  int32_t four;
  memcpy(&four, x, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// Adds products with the 4 activations at x.
#ifdef __ARM_FEATURE_DOTPROD
typedef vi vd;
// Steps of 32 columns after which a vd must be added up: sums of codes moved up by 4 bits grow by 8 products of at most
// 127 * 48 a step.
LANES_INLINE size_t lanes_flush(size_t n) {
  return (void)n, 32768;
}
// Sums in turn for each token: 4 quarters are enough, so that these are for codes that are moved up. Moved up by 6 bits
// they would be negative.
LANES_INLINE size_t lanes_chains(size_t n) {
  return n == 1 ? 4 : 1;
}
LANES_INLINE unsigned lanes_chain_raised(size_t chain) {
  return chain == 3 ? 0 : 2 * (unsigned)chain;
}

// Parts of a step that a vd holds.
LANES_INLINE size_t vd_parts(st_form form) {
  return (void)form, 8;
}

LANES_INLINE void vd_opaque(vd *v) {
  vi_opaque(v);
}
LANES_INLINE vd vd_zero(void) {
  return vi_zero();
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
LANES_INLINE vd vd_dot(st_form form, vd sum, vb w, const int8_t *x) {
  int8x16_t v = lanes_four(x);
  (void)form;
  LANES_EACH sum.q[i] = vdotq_s32(sum.q[i], w.q[i], v);
  return sum;
}
// The same with activations of each row's own.
LANES_INLINE vd vd_dot_own(st_form form, vd sum, vb w, vb x) {
  (void)form;
  LANES_EACH sum.q[i] = vdotq_s32(sum.q[i], w.q[i], x.q[i]);
  return sum;
}
#else
typedef struct {
  int16x8_t q[8]; // 2 rows of 4 columns each; wide: int32, 2 rows of 2 sums
} vd;
// 64 products of at most 381: 24384. The others are added up after each step at the latest.
LANES_INLINE size_t lanes_flush(size_t n) {
  return (void)n, 8;
}
// Sums in turn for each token: 4 quarters are enough. Those of codes that are moved up would need more than 16 bits.
LANES_INLINE size_t lanes_chains(size_t n) {
  return (void)n, 1;
}
LANES_INLINE unsigned lanes_chain_raised(size_t chain) {
  return (void)chain, 0;
}

// Whether sums have 32 bits: what takes all of a byte.
LANES_INLINE bool vd_wide(st_form form) {
  return st_coding_is_byte(st_coding_of(form)) || st_coding_largest(st_coding_of(form)) > 63;
}
// Parts of a step that a vd holds: 8 products of at most 127 * 31 are 31496, 4 of at most 127 * 63 are 32004.
LANES_INLINE size_t vd_parts(st_form form) {
  return vd_wide(form) || st_coding_largest(st_coding_of(form)) <= 31 ? 8 : 4;
}

LANES_INLINE void vd_opaque(vd *v) {
  for (int i = 0; i < 8; i++) __asm__ volatile("" : "+w"(v->q[i]));
}
LANES_INLINE vd vd_zero(void) {
  vd v;
  for (int i = 0; i < 8; i++) v.q[i] = vdupq_n_s16(0);
  return v;
}
LANES_INLINE vi vd_total(st_form form, vd v) {
  vi r;
  int32x4_t pairs[8];
  for (int i = 0; i < 8; i++) pairs[i] = vd_wide(form) ? vreinterpretq_s32_s16(v.q[i]) : vpaddlq_s16(v.q[i]);
  LANES_EACH r.q[i] = vpaddq_s32(pairs[2 * i], pairs[2 * i + 1]);
  return r;
}
// There is one sum a token.
LANES_INLINE vd vd_join(st_form form, vd sum, vd other, unsigned up) {
  return (void)form, (void)other, (void)up, sum;
}
// Sums that go on from *total, which the caller adds them to again, or begin with zero.
LANES_INLINE vd vd_begin(st_form form, vi *total) {
  return (void)form, (void)total, vd_zero();
}
LANES_INLINE vd vd_dot(st_form form, vd sum, vb w, const int8_t *x) {
  int8x16_t v = lanes_four(x);
  LANES_EACH {
    int8x8_t low = vget_low_s8(w.q[i]), high = vget_high_s8(w.q[i]), four = vget_low_s8(v);
    if (vd_wide(form)) {
      sum.q[2 * i] = vreinterpretq_s16_s32(vpadalq_s16(vreinterpretq_s32_s16(sum.q[2 * i]), vmull_s8(low, four)));
      sum.q[2 * i + 1] =
          vreinterpretq_s16_s32(vpadalq_s16(vreinterpretq_s32_s16(sum.q[2 * i + 1]), vmull_s8(high, four)));
    } else {
      sum.q[2 * i] = vmlal_s8(sum.q[2 * i], low, four);
      sum.q[2 * i + 1] = vmlal_s8(sum.q[2 * i + 1], high, four);
    }
  }
  return sum;
}
// The same with activations of each row's own; not for wide sums.
LANES_INLINE vd vd_dot_own(st_form form, vd sum, vb w, vb x) {
  (void)form;
  LANES_EACH {
    sum.q[2 * i] = vmlal_s8(sum.q[2 * i], vget_low_s8(w.q[i]), vget_low_s8(x.q[i]));
    sum.q[2 * i + 1] = vmlal_s8(sum.q[2 * i + 1], vget_high_s8(w.q[i]), vget_high_s8(x.q[i]));
  }
  return sum;
}
#endif

// vd_total of a - b.
LANES_INLINE vi vd_difference(st_form form, vd a, vd b) {
  return vi_sub(vd_total(form, a), vd_total(form, b));
}

// Products of matrices of 2 rows x 8 columns, where there are such: a vp is the sums of 16 rows with two tokens, in
// each quarter of a pair of rows the first one's with both tokens and then the second one's.
#ifdef __ARM_FEATURE_MATMUL_INT8
#define LANES_MATRICES
typedef struct {
  int32x4_t q[8];
} vp;

LANES_INLINE void vp_opaque(vp *v) {
  for (int i = 0; i < 8; i++) __asm__ volatile("" : "+w"(v->q[i]));
}
LANES_INLINE vp vp_zero(void) {
  vp v;
  for (int i = 0; i < 8; i++) v.q[i] = vdupq_n_s32(0);
  return v;
}
// Adds products of two parts of 4 columns, `w` and `next`, with the activations of both tokens at x and at next_x.
LANES_INLINE vp vp_dot(vp sum, vb w, vb next, const int8_t *x, const int8_t *next_x) {
  int32x2_t a, b;
  memcpy(&a, x, sizeof a);
  memcpy(&b, next_x, sizeof b);
  int8x16_t v = vreinterpretq_s8_s32(vcombine_s32(vzip1_s32(a, b), vzip2_s32(a, b)));
  LANES_EACH {
    int32x4_t c = vreinterpretq_s32_s8(w.q[i]), d = vreinterpretq_s32_s8(next.q[i]);
    sum.q[2 * i] = vmmlaq_s32(sum.q[2 * i], vreinterpretq_s8_s32(vzip1q_s32(c, d)), v);
    sum.q[2 * i + 1] = vmmlaq_s32(sum.q[2 * i + 1], vreinterpretq_s8_s32(vzip2q_s32(c, d)), v);
  }
  return sum;
}
LANES_INLINE void vp_totals(vp v, vi *first, vi *second) {
  LANES_EACH {
    first->q[i] = vuzp1q_s32(v.q[2 * i], v.q[2 * i + 1]);
    second->q[i] = vuzp2q_s32(v.q[2 * i], v.q[2 * i + 1]);
  }
}
#endif

#endif
