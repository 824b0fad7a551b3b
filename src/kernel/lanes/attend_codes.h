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

// Adds to the sums in turn the products of piece i of a step of keys with the query's codes of the step. For q8
// keys of 10 bits are multiplied with 16, for q4 keys of 6 with 8.
LANES_INLINE lanes_pairs lanes_wide_piece(const uint8_t *step, int i) {
  vi high = vi_load(step + st_kv_low_bytes(10) + 64 * (i / 4));
  int at = 2 * (i % 4);
  lanes_pairs p = lanes_pairs_of(vi_load(step + 64 * i));
  p.pair[0] = vi_insert(p.pair[0], lanes_move(high, 8 - at), vi_set(0x03000300));
  p.pair[1] = vi_insert(p.pair[1], lanes_move(high, -at), vi_set(0x03000300));
  return p;
}
LANES_INLINE vi lanes_byte_piece(const uint8_t *step, int i) {
  vi high = vi_load(step + st_kv_low_bytes(6) + 64 * (i / 4)), low = vi_load(step + 64 * (i / 2));
  low = vi_and(lanes_move(low, i % 2 ? -4 : 0), vi_set(0x0F0F0F0F));
  return vi_insert(low, lanes_move(high, 4 - 2 * (i % 4)), vi_set(0x30303030));
}

// ---- prefetching --------------------------------------------------------------------------------------------------

// A block that is prefetched into the second-level cache while another one is computed, a line for each step of the
// inner loop, since most of many prefetches at once are dropped. `lines` belong to each of the other's groups of sums.
typedef struct {
  const uint8_t *from; // NULL: none
  size_t bytes;
} lanes_block;
typedef struct {
  const uint8_t *block;
  size_t lines;
} lanes_ahead;

LANES_INLINE lanes_ahead lanes_ahead_of(lanes_block b, size_t groups) {
  return (lanes_ahead){b.from, (b.bytes / 64 + groups - 1) / groups};
}

// Those of group g.
LANES_INLINE const uint8_t *lanes_ahead_at(lanes_ahead a, size_t g) {
  return a.block ? a.block + 64 * g * a.lines : NULL;
}

// The lines that the `steps` of the inner loop have left.
LANES_INLINE void lanes_fetch_rest(lanes_ahead a, const uint8_t *at, size_t steps) {
  for (size_t i = steps; at && i < a.lines; i++) __builtin_prefetch(at + 64 * i, 0, 2);
}

// ---- keys ---------------------------------------------------------------------------------------------------------

// A block of keys, and queries.
typedef struct {
  const uint8_t *block, *next; // next: the block that is read next, to prefetch; or NULL
  lanes_ahead ahead;           // values
  size_t columns, first, last; // keys from a multiple of 16 on; 16 at a time
  uint32_t bits;
  const int8_t *codes[LANES_HEADS]; // int16 for 10 bits
  int32_t sums[LANES_HEADS];
  float scales[LANES_HEADS];
  float *out[LANES_HEADS]; // scores of the block's keys
} lanes_code_keys;

// Sums in turn for a query, since each addition waits for the one before.
LANES_INLINE size_t lanes_key_chains(size_t n, uint32_t bits) {
  return bits >= 8 || n > 2 ? LANES_PAIRS : 2 * LANES_PAIRS;
}

LANES_INLINE void lanes_key_group(const lanes_code_keys *a, size_t n, uint32_t bits, size_t key) {
  vi sums[LANES_HEADS][2 * LANES_PAIRS];
  const size_t chains = lanes_key_chains(n, bits);
  size_t bytes = st_kv_step_bytes(bits), steps = a->columns / ST_STEP,
         at = ST_KV_SCALES + key / ST_GROUP * steps * bytes;
  const size_t every = bits < 8 ? 2 : 1; // piece: about as many lines as values have
  const uint8_t *ahead = lanes_ahead_at(a->ahead, key / ST_GROUP);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) {
    sums[q][0] = vi_set(-(int32_t)((uint32_t)a->sums[q] * (uint32_t)st_kv_offset(bits)));
#pragma GCC unroll 8
    for (size_t c = 1; c < chains; c++) sums[q][c] = vi_zero();
  }
  for (size_t s = 0; s < steps; s++, at += bytes) {
#pragma GCC unroll 8
    for (int i = 0; i < ST_KEY_PIECES; i++) {
      for (size_t b = 64 * (size_t)i; a->next && b < bytes; b += 64 * ST_KEY_PIECES) { // into the second-level cache
        __builtin_prefetch(a->next + at + b, 0, 2);
      }
      if (ahead && (size_t)i % every == 0) {
        __builtin_prefetch(ahead + 64 * ((s * ST_KEY_PIECES + (size_t)i) / every), 0, 2);
      }
      if (bits < 8) {
        vi piece = lanes_byte_piece(a->block + at, i);
#pragma GCC unroll 8
        for (size_t q = 0; q < n; q++) {
          vi *sum = &sums[q][(size_t)i % chains];
          *sum = lanes_dot_bytes(*sum, piece, a->codes[q] + s * ST_STEP + 4 * i);
        }
        continue;
      }
      lanes_pairs p = lanes_wide_piece(a->block + at, i);
#pragma GCC unroll 8
      for (size_t q = 0; q < n; q++) {
        const int8_t *x = a->codes[q] + 2 * (s * ST_STEP + 4 * (size_t)i);
        sums[q][0] = lanes_dot_pairs(sums[q][0], p.pair[0], x);
        sums[q][1] = lanes_dot_pairs(sums[q][1], p.pair[1], x + 4);
      }
    }
  }
  if (a->next) __builtin_prefetch(a->next + 2 * key, 0, 2);
  lanes_fetch_rest(a->ahead, ahead, steps * ST_KEY_PIECES / every);
  vf scales = vf_half(a->block + 2 * key);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) {
    vi sum = vi_add(sums[q][0], sums[q][1]);
    if (chains > 2) sum = vi_add(sum, vi_add(sums[q][2], sums[q][3]));
    vf_store(a->out[q] + key, vf_mul(vi_to_floats(sum), vf_mul(scales, vf_set(a->scales[q]))));
  }
}

// ---- values -------------------------------------------------------------------------------------------------------

// The factors of a query for a block's keys become codes in their own place, the scores of the block: int16 or int8,
// followed by what this holds.
typedef struct {
  float scale; // NaN: a factor is not finite
  int32_t sum; // of the codes
} lanes_factor_codes;
enum { LANES_FACTORS_AT = ST_KEYS * 2 }; // bytes

// A block of values, and factors of queries.
typedef struct {
  const uint8_t *block;
  lanes_ahead ahead;            // keys of the next part
  size_t head_dim, first, last; // pieces of 4 values
  uint32_t bits;
  int32_t sums[LANES_HEADS];
  float scales[LANES_HEADS];
  float *out[LANES_HEADS];          // is added to
  const int8_t *codes[LANES_HEADS]; // int16 for 8 bits
} lanes_code_values;

LANES_INLINE void lanes_add_sums_of_codes(const lanes_code_values *a, size_t q, size_t column, vi sum) {
  if (column >= a->head_dim) return;
  vf x = vi_to_floats(sum), scale = vf_set(a->scales[q]);
  float *out = a->out[q] + column;
  if (a->head_dim - column >= 16)
    vf_store(out, vf_fma(x, scale, vf_load(out)));
  else
    vf_store_n(out, vf_fma(x, scale, vf_load_n(out, a->head_dim - column)), a->head_dim - column);
}

LANES_INLINE vi lanes_value_excess(const lanes_code_values *a, size_t q, uint32_t bits) {
  return vi_set(-(int32_t)((uint32_t)a->sums[q] * (uint32_t)st_kv_offset(bits)));
}

// 16 columns of 8 bits.
LANES_INLINE void lanes_wide_values(const lanes_code_values *a, size_t n, size_t column) {
  vi sums[LANES_HEADS][LANES_PAIRS];
  const uint8_t *from = a->block + ST_KV_SCALES + column / ST_GROUP * ST_VALUE_BYTES;
  const uint8_t *ahead = lanes_ahead_at(a->ahead, column / ST_GROUP);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) sums[q][0] = lanes_value_excess(a, q, 8), sums[q][1] = vi_zero();
  for (size_t i = a->first; i < a->last; i++) {
    if (ahead) __builtin_prefetch(ahead + 64 * i, 0, 2);
    lanes_pairs p = lanes_pairs_of(vi_load(from + 64 * i));
#pragma GCC unroll 8
    for (size_t q = 0; q < n; q++) {
      const int8_t *x = a->codes[q] + 8 * i;
      sums[q][0] = lanes_dot_pairs(sums[q][0], p.pair[0], x);
      sums[q][1] = lanes_dot_pairs(sums[q][1], p.pair[1], x + 4);
    }
  }
  lanes_fetch_rest(a->ahead, ahead, ST_VALUE_PIECES);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) lanes_add_sums_of_codes(a, q, column, vi_add(sums[q][0], sums[q][1]));
}

// ST_STEP columns of 4 bits.
LANES_INLINE void lanes_byte_values(const lanes_code_values *a, size_t n, size_t column) {
  vi sums[LANES_HEADS][LANES_PAIRS];
  const vi mask = vi_set(0x0F0F0F0F);
  const uint8_t *from = a->block + ST_KV_SCALES + column / ST_STEP * ST_VALUE_BYTES;
  const uint8_t *ahead = lanes_ahead_at(a->ahead, column / ST_STEP);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) sums[q][0] = sums[q][1] = lanes_value_excess(a, q, 4);
  for (size_t i = a->first; i < a->last; i++) {
    if (ahead) __builtin_prefetch(ahead + 64 * i, 0, 2);
    vi bytes = vi_load(from + 64 * i), low = vi_and(bytes, mask), high = vi_and(lanes_move(bytes, -4), mask);
#pragma GCC unroll 8
    for (size_t q = 0; q < n; q++) {
      sums[q][0] = lanes_dot_bytes(sums[q][0], low, a->codes[q] + 4 * i);
      sums[q][1] = lanes_dot_bytes(sums[q][1], high, a->codes[q] + 4 * i);
    }
  }
  lanes_fetch_rest(a->ahead, ahead, ST_VALUE_PIECES);
#pragma GCC unroll 8
  for (size_t q = 0; q < n; q++) {
    lanes_add_sums_of_codes(a, q, column, sums[q][0]), lanes_add_sums_of_codes(a, q, column + 16, sums[q][1]);
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

// A block's factors, for its keys [first, last), times the keys' scales, in place. Returns the largest, infinity where
// one is not finite.
LANES_INLINE float lanes_scale_factors(float *factors, const uint8_t *block, size_t first, size_t last) {
  enum { VECTORS = ST_KEYS / 16 };
  vf v[VECTORS], most = vf_set(0), none = vf_set(1); // none: NaN where a factor is not finite
  for (size_t i = 0; i < VECTORS; i++) {
    v[i] = lanes_scaled_factors(factors, block, 16 * i, first, last);
    most = vf_max(vf_abs(v[i]), most);
    none = vf_fma(v[i], vf_set(0), none);
  }
  for (size_t i = 0; i < VECTORS; i++) vf_store(factors + 16 * i, v[i]);
  float largest = vf_most(most);
  return vf_positive(none) == 0xFFFF ? largest : INFINITY;
}

// Their codes.
LANES_INLINE void lanes_code_factors(float *factors, bool bytes, float inverse, float scale) {
  enum { VECTORS = ST_KEYS / 16 };
  int8_t *codes = (int8_t *)factors;
  vi v[VECTORS], sum = vi_zero();
  for (size_t i = 0; i < VECTORS; i++) v[i] = vf_round(vf_mul(vf_load(factors + 16 * i), vf_set(inverse)));
  for (size_t i = 0; i < VECTORS; i++) {
    if (bytes)
      vi_store_bytes(codes + 16 * i, v[i]);
    else
      vi_store_shorts((int16_t *)(void *)(codes + 32 * i), v[i]);
    sum = vi_add(sum, v[i]);
  }
  lanes_factor_codes f = {.scale = scale, .sum = vi_sum(sum)};
  __builtin_memcpy(codes + LANES_FACTORS_AT, &f, sizeof f);
}

// ---- of a constant number of queries ------------------------------------------------------------------------------

LANES_INLINE void lanes_key_groups(const lanes_code_keys *a, size_t n) {
  for (size_t key = a->first; key < a->last; key += ST_GROUP) {
    if (a->bits < 8)
      lanes_key_group(a, n, 6, key);
    else
      lanes_key_group(a, n, 10, key);
  }
}

LANES_INLINE void lanes_values_of_block(const lanes_code_values *a, size_t n) {
  const size_t step = a->bits < 8 ? ST_STEP : ST_GROUP;
  for (size_t c = 0; c < a->head_dim; c += step) {
    if (a->bits < 8)
      lanes_byte_values(a, n, c);
    else
      lanes_wide_values(a, n, c);
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
