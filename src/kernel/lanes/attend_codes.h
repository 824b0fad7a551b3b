// Attention over keys and values that are codes, in 16 lanes: sums of products of codes, which are exact in 32 bits,
// for several queries at a time. kernel/cache.h describes a block. Codes in a page exceed their
// values by an offset; this times the sum of a query's codes is subtracted from a sum at its end. Sums may wrap around
// meanwhile, which does no harm.
#ifndef SETUN_KERNEL_LANES_ATTEND_CODES_H
#define SETUN_KERNEL_LANES_ATTEND_CODES_H

#include "kernel/attend.h"

#include <math.h>

// Inner loops are separate functions, so that each can use all registers.
#define LANES_APART static __attribute__((noinline))

// Alternating sums, for the even and the odd bytes of a lane.
enum { LANES_PAIRS = 2 };

// Bytes of a piece as two numbers of 16 bits a lane: the even bytes and the odd ones.
typedef struct {
  vi pair[LANES_PAIRS];
} lanes_pairs;

LANES_INLINE lanes_pairs lanes_pairs_of(vi bytes) {
  return (lanes_pairs){{vi_and(bytes, vi_set(0x00FF00FF)), vi_odd_bytes(bytes)}};
}

// Left by n, which may be negative; what crosses to another byte is for the caller to mask.
LANES_INLINE vi lanes_move(vi v, int n) {
  return n > 0 ? vi_left(v, (unsigned)n) : n < 0 ? vi_right(v, (unsigned)-n) : v;
}

// Piece i of a step of keys.
LANES_INLINE lanes_pairs lanes_key_piece(const uint8_t *step, uint32_t bits, int i) {
  vi high = vi_load(step + st_kv_low_bytes(bits) + 64 * (i / 4));
  int at = 2 * (i % 4);
  if (bits < 8) {
    vi low = lanes_move(vi_load(step + 64 * (i / 2)), i % 2 ? -4 : 0);
    return lanes_pairs_of(vi_insert(vi_and(low, vi_set(0x0F0F0F0F)), lanes_move(high, 4 - at), vi_set(0x30303030)));
  }
  lanes_pairs p = lanes_pairs_of(vi_load(step + 64 * i));
  p.pair[0] = vi_insert(p.pair[0], lanes_move(high, 8 - at), vi_set(0x03000300));
  p.pair[1] = vi_insert(p.pair[1], lanes_move(high, -at), vi_set(0x03000300));
  return p;
}

// ---- prefetching --------------------------------------------------------------------------------------------------

// Blocks that are prefetched into the second-level cache, a few lines at a time, while others are computed: a part's
// values, then the next part's keys.
typedef struct {
  struct {
    const uint8_t *from; // the head's block in page 0
    const uint32_t *pages;
    size_t count, bytes; // of blocks, and of one
  } lists[2];
  size_t page_bytes, list, block, at; // the current place
  size_t lines;                       // at a time
} lanes_ahead;

LANES_INLINE void lanes_fetch(lanes_ahead *f) {
  if (!f) return;
  for (size_t left = f->lines; left && f->list < 2;) {
    if (f->block == f->lists[f->list].count) {
      f->list++, f->block = 0;
      continue;
    }
    size_t bytes = f->lists[f->list].bytes, lines = (bytes - f->at) / 64, n = lines < left ? lines : left;
    const uint8_t *p = f->lists[f->list].from + f->lists[f->list].pages[f->block] * f->page_bytes + f->at;
    for (size_t i = 0; i < n; i++) __builtin_prefetch(p + 64 * i, 0, 2);
    left -= n, f->at += 64 * n;
    if (f->at == bytes) f->at = 0, f->block++;
  }
}

// ---- keys ---------------------------------------------------------------------------------------------------------

// A block of keys, and queries.
typedef struct {
  const uint8_t *block, *next; // next: the block that is read next, to prefetch; or NULL
  lanes_ahead *ahead;          // or NULL
  size_t columns, first, last; // keys from a multiple of 16 on; 16 at a time
  uint32_t bits;
  const int16_t *codes[LANES_HEADS];
  int32_t sums[LANES_HEADS];
  float scales[LANES_HEADS];
  float *out[LANES_HEADS]; // scores of the block's keys
} lanes_code_keys;

LANES_INLINE void lanes_key_group(const lanes_code_keys *a, size_t n, uint32_t bits, size_t key) {
  vi sums[LANES_HEADS][LANES_PAIRS];
  size_t bytes = st_kv_step_bytes(bits), steps = a->columns / ST_STEP,
         at = ST_KV_SCALES + key / ST_GROUP * steps * bytes;
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) sums[q][0] = sums[q][1] = vi_zero();
  for (size_t s = 0; s < steps; s++, at += bytes) {
#pragma GCC unroll 8
    for (int i = 0; i < ST_KEY_PIECES; i++) {
      lanes_pairs p = lanes_key_piece(a->block + at, bits, i);
      for (size_t b = 64 * (size_t)i; a->next && b < bytes; b += 64 * ST_KEY_PIECES) { // into the second-level cache
        __builtin_prefetch(a->next + at + b, 0, 2);
      }
#pragma GCC unroll 8
      for (size_t q = 0; q < n; q++) {
        const int16_t *x = a->codes[q] + s * ST_STEP + 4 * i;
        sums[q][0] = lanes_dot_pairs(sums[q][0], p.pair[0], x);
        sums[q][1] = lanes_dot_pairs(sums[q][1], p.pair[1], x + 2);
      }
    }
  }
  if (a->next) __builtin_prefetch(a->next + 2 * key, 0, 2);
  vf scales = vf_half(a->block + 2 * key);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) {
    vi excess = vi_set((int32_t)((uint32_t)a->sums[q] * (uint32_t)st_kv_offset(bits)));
    vi sum = vi_sub(vi_add(sums[q][0], sums[q][1]), excess);
    vf_store(a->out[q] + key, vf_mul(vi_to_floats(sum), vf_mul(scales, vf_set(a->scales[q]))));
  }
}

// ---- values -------------------------------------------------------------------------------------------------------

// A block of values, and factors of queries.
typedef struct {
  const uint8_t *block;
  lanes_ahead *ahead;           // as above
  size_t head_dim, first, last; // pieces of 4 values
  uint32_t bits;
  int32_t sums[LANES_HEADS];
  float scales[LANES_HEADS];
  float *out[LANES_HEADS]; // is added to
  int16_t codes[LANES_HEADS][ST_KEYS];
} lanes_code_values;

LANES_INLINE void lanes_add_sums_of_codes(const lanes_code_values *a, size_t q, size_t column, vi sum) {
  if (column >= a->head_dim) return;
  vi excess = vi_set((int32_t)((uint32_t)a->sums[q] * (uint32_t)st_kv_offset(a->bits)));
  vf x = vi_to_floats(vi_sub(sum, excess)), scale = vf_set(a->scales[q]);
  float *out = a->out[q] + column;
  if (a->head_dim - column >= 16)
    vf_store(out, vf_fma(x, scale, vf_load(out)));
  else
    vf_store_n(out, vf_fma(x, scale, vf_load_n(out, a->head_dim - column)), a->head_dim - column);
}

// 16 columns, or ST_STEP of 4 bits.
LANES_INLINE void lanes_value_columns(const lanes_code_values *a, size_t n, uint32_t bits, size_t column) {
  enum { HALVES = 2 };
  const size_t halves = bits < 8 ? HALVES : 1;
  vi sums[LANES_HEADS][HALVES][LANES_PAIRS];
  size_t at = ST_KV_SCALES + column / (ST_GROUP * halves) * ST_VALUE_BYTES;
#pragma GCC unroll 16
  for (size_t q = 0; q < n * halves * LANES_PAIRS; q++) {
    sums[q / (halves * LANES_PAIRS)][q / LANES_PAIRS % halves][q % LANES_PAIRS] = vi_zero();
  }
  for (size_t i = a->first; i < a->last; i++) {
    vi bytes = vi_load(a->block + at + 64 * i);
#pragma GCC unroll 2
    for (size_t h = 0; h < halves; h++) {
      lanes_pairs p = lanes_pairs_of(bits < 8 ? vi_and(lanes_move(bytes, h ? -4 : 0), vi_set(0x0F0F0F0F)) : bytes);
#pragma GCC unroll 8
      for (size_t q = 0; q < n; q++) {
        const int16_t *x = a->codes[q] + 4 * i;
        sums[q][h][0] = lanes_dot_pairs(sums[q][h][0], p.pair[0], x);
        sums[q][h][1] = lanes_dot_pairs(sums[q][h][1], p.pair[1], x + 2);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) {
#pragma GCC unroll 2
    for (size_t h = 0; h < halves; h++) {
      lanes_add_sums_of_codes(a, q, column + 16 * h, vi_add(sums[q][h][0], sums[q][h][1]));
    }
  }
}

// Factors of 16 keys from key `from` of a block on, times the keys' scales; zero for keys that are not in [first,
// last).
LANES_INLINE vf lanes_scaled_factors(const float *factors, const uint8_t *block, size_t from, size_t first,
                                     size_t last) {
  if (from >= first && from + 16 <= last) return vf_mul(vf_load(factors + from), vf_half(block + 2 * from));
  float part[16] = {0}, scales[16];
  vf_store(scales, vf_half(block + 2 * from));
  for (size_t i = 0; i < 16; i++) {
    if (from + i >= first && from + i < last) part[i] = factors[from + i] * scales[i];
  }
  return vf_load(part);
}

// The codes of query q's factors for the block's keys [first, last).
LANES_INLINE void lanes_quantize_factors(lanes_code_values *a, size_t q, const float *factors, size_t first,
                                         size_t last) {
  enum { VECTORS = ST_KEYS / 16 };
  vf v[VECTORS], most = vf_set(0), none = vf_set(1); // none: NaN where a factor is not finite
  vi sum = vi_zero();
  for (size_t i = 0; i < VECTORS; i++) {
    v[i] = lanes_scaled_factors(factors, a->block, 16 * i, first, last);
    most = vf_max(vf_abs(v[i]), most);
    none = vf_fma(v[i], vf_set(0), none);
  }
  float largest = vf_most(most);
  bool finite = vf_positive(none) == 0xFFFF;
  vf inverse = vf_set(finite && largest >= ST_FACTOR_LEAST ? ST_FACTOR_MOST / largest : 0);
  for (size_t i = 0; i < VECTORS; i++) {
    vi codes = vf_round(vf_mul(v[i], inverse));
    vi_store_shorts(a->codes[q] + 16 * i, codes);
    sum = vi_add(sum, codes);
  }
  a->sums[q] = vi_sum(sum);
  a->scales[q] = finite ? largest / ST_FACTOR_MOST : NAN;
}

// ---- of a constant number of queries ------------------------------------------------------------------------------

LANES_INLINE void lanes_key_groups(const lanes_code_keys *a, size_t n) {
  for (size_t key = a->first; key < a->last; key += ST_GROUP) {
    lanes_fetch(a->ahead);
    if (a->bits < 8)
      lanes_key_group(a, n, 6, key);
    else
      lanes_key_group(a, n, 10, key);
  }
}

LANES_INLINE void lanes_values_of_block(const lanes_code_values *a, size_t n) {
  const size_t step = a->bits < 8 ? ST_STEP : ST_GROUP;
  for (size_t c = 0; c < a->head_dim; c += step) {
    lanes_fetch(a->ahead);
    if (a->bits < 8)
      lanes_value_columns(a, n, 4, c);
    else
      lanes_value_columns(a, n, 8, c);
  }
}

// Separate functions, so that each can use all registers.
#define LANES_CODES_OF(n)                                                                                              \
  LANES_APART void lanes_code_keys_##n(const lanes_code_keys *a) {                                                     \
    lanes_key_groups(a, n <= LANES_CODES ? n : 1);                                                                     \
  }                                                                                                                    \
  LANES_APART void lanes_code_values_##n(const lanes_code_values *a) {                                                 \
    lanes_values_of_block(a, n <= LANES_CODES ? n : 1);                                                                \
  }
LANES_CODES_OF(1)
LANES_CODES_OF(2)
LANES_CODES_OF(3)
LANES_CODES_OF(4)
LANES_CODES_OF(5)
LANES_CODES_OF(6)

LANES_INLINE void lanes_all_code_keys(const lanes_code_keys *a, size_t n) {
  switch (n) {
  case 1: lanes_code_keys_1(a); break;
  case 2: lanes_code_keys_2(a); break;
  case 3: lanes_code_keys_3(a); break;
  case 4: lanes_code_keys_4(a); break;
  case 5: lanes_code_keys_5(a); break;
  default: lanes_code_keys_6(a);
  }
}

LANES_INLINE void lanes_all_code_values(const lanes_code_values *a, size_t n) {
  switch (n) {
  case 1: lanes_code_values_1(a); break;
  case 2: lanes_code_values_2(a); break;
  case 3: lanes_code_values_3(a); break;
  case 4: lanes_code_values_4(a); break;
  case 5: lanes_code_values_5(a); break;
  default: lanes_code_values_6(a);
  }
}

#endif
