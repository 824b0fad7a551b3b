// Attention in 16 lanes: scores of 16 keys at once, softmax, and sums of values for several queries at once. A query is
// one head of one token. Keys become float32 once for all queries; each query's sums are its own, in the order of keys.
#ifndef SETUN_KERNEL_LANES_ATTEND_H
#define SETUN_KERNEL_LANES_ATTEND_H

#include "kernel/lanes/misc.h"
#include "kernel/ref/ref.h"

#include <math.h>

enum { LANES_DIM = 256 }; // larger heads are left to the scalar function

// Inner loops are kept apart, so that each has all registers to itself.
#define LANES_APART static __attribute__((noinline))

typedef struct {
  const float *q;
  float *scores, *out;
  size_t n_keys; // that it sees
  float inverse; // 1 / sum of the softmax
} lanes_query;

LANES_INLINE size_t lanes_queries(const st_attend *a) {
  return a->n_q * (a->n_tokens ? a->n_tokens : 1);
}

LANES_INLINE lanes_query lanes_query_at(const st_attend *a, size_t i) {
  size_t token = i / a->n_q, head = i % a->n_q, tokens = a->n_tokens ? a->n_tokens : 1;
  size_t at = token * a->token_stride + head * a->q_stride;
  return (lanes_query){.q = a->q + at,
                       .scores = a->scores + i * st_round_up(a->n_keys + tokens - 1, 16),
                       .out = a->out + at,
                       .n_keys = a->n_keys + token};
}

LANES_INLINE const uint8_t *lanes_cached(const void *cache, bool half, size_t i) {
  return (const uint8_t *)cache + i * (half ? 2 : 4);
}
LANES_INLINE vf lanes_cached_load(const void *p, bool half) {
  return half ? vf_half(p) : vf_load(p);
}
LANES_INLINE vf lanes_cached_load_n(const void *p, bool half, size_t n) {
  return half ? vf_half_n(p, n) : vf_load_n(p, n);
}

// Keys [first, first + 16) as float32 rows of `width` (head_dim in whole lanes, zeros behind); those from n on repeat
// the last one.
LANES_INLINE void lanes_load_keys(const st_attend *a, size_t first, size_t n, bool half, size_t width, float *out) {
  for (size_t i = 0; i < 16; i++) {
    size_t key = first + i < n ? first + i : n - 1;
    const uint8_t *p = lanes_cached(a->k, half, key * a->head_dim);
    for (size_t d = 0; d < width; d += 16) {
      const uint8_t *at = p + d * (half ? 2 : 4);
      bool whole = d + 16 <= a->head_dim;
      vf_store(out + d * 16 + i * 16,
               whole ? lanes_cached_load(at, half) : lanes_cached_load_n(at, half, a->head_dim - d));
    }
  }
}

// Scores of one query for 16 keys.
LANES_APART vf lanes_scores(const st_attend *a, const float *q, const float *keys, size_t width) {
  vf sums[16];
#pragma GCC unroll 16
  for (size_t first = 0; first < 16; first += LANES_KEYS) {
    vf part[LANES_KEYS];
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES_KEYS; i++) part[i] = vf_set(0);
    for (size_t d = 0; d < width; d += 16) {
      vf v = d + 16 <= a->head_dim ? vf_load(q + d) : vf_load_n(q + d, a->head_dim - d);
#pragma GCC unroll 16
      for (size_t i = 0; i < LANES_KEYS; i++) part[i] = vf_fma(v, vf_load(keys + d * 16 + (first + i) * 16), part[i]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES_KEYS; i++) sums[first + i] = part[i];
  }
  return vf_mul(vf_sums(sums), vf_set(a->scale));
}

// The largest of n scores and `least`; a NaN is passed over.
LANES_INLINE float lanes_largest(const float *scores, size_t n, float least) {
  vf m = vf_set(least);
  size_t j = 0;
  for (; j + 16 <= n; j += 16) m = vf_max(vf_load(scores + j), m);
  float largest = vf_most(m);
  for (; j < n; j++) largest = scores[j] > largest ? scores[j] : largest;
  return largest;
}

// Scores in place become e^(score - largest).
LANES_INLINE void lanes_softmax(lanes_query *q, const float *sink) {
  float largest = lanes_largest(q->scores, q->n_keys, sink ? *sink : -INFINITY);
  vf sum = vf_set(0), m = vf_set(largest);
  for (size_t j = 0; j < q->n_keys; j += 16) {
    vf p = lanes_exp(vf_sub(vf_load(q->scores + j), m));
    vf_store(q->scores + j, p);
    sum = vf_add(sum, j + 16 <= q->n_keys ? p : vf_load_n(q->scores + j, q->n_keys - j));
  }
  float total = vf_sum(sum);
  if (sink) total += lanes_exp_of(*sink - largest);
  q->inverse = 1.0f / total;
}

// Adds to sums of `slab` * 16 values from column d on, for `n` queries, keys [first, last). With `part` only that many
// columns of one vector.
LANES_INLINE void lanes_add_values(const st_attend *a, const lanes_query *q, size_t n, size_t first, size_t last,
                                   size_t d, size_t slab, size_t part, bool half, vf (*sums)[LANES_SLAB]) {
  for (size_t j = first; j < last; j++) {
    const uint8_t *value = lanes_cached(a->v, half, j * a->head_dim + d);
#pragma GCC unroll 4
    for (size_t s = 0; s < slab; s++) {
      const uint8_t *at = value + s * 16 * (half ? 2 : 4);
      vf v = part ? lanes_cached_load_n(at, half, part) : lanes_cached_load(at, half);
#pragma GCC unroll 4
      for (size_t i = 0; i < n; i++) sums[i][s] = vf_fma(vf_set(q[i].scores[j]), v, sums[i][s]);
    }
  }
}

// A slab of the outputs of n queries: the keys that all see together, then the rest of each.
LANES_INLINE void lanes_values_slab(const st_attend *a, const lanes_query *q, size_t n, size_t d, size_t slab,
                                    size_t part, bool half) {
  vf sums[LANES_HEADS][LANES_SLAB];
  size_t shared = q[0].n_keys; // tokens are in order: the first query sees least
#pragma GCC unroll 4
  for (size_t i = 0; i < n; i++) {
#pragma GCC unroll 4
    for (size_t s = 0; s < slab; s++) sums[i][s] = vf_set(0);
  }
  lanes_add_values(a, q, n, 0, shared, d, slab, part, half, sums);
#pragma GCC unroll 4
  for (size_t i = 0; i < n; i++) {
    if (q[i].n_keys > shared) lanes_add_values(a, q + i, 1, shared, q[i].n_keys, d, slab, part, half, sums + i);
#pragma GCC unroll 4
    for (size_t s = 0; s < slab; s++) {
      vf v = vf_mul(sums[i][s], vf_set(q[i].inverse));
      if (part)
        vf_store_n(q[i].out + d, v, part);
      else
        vf_store(q[i].out + d + 16 * s, v);
    }
  }
}

LANES_INLINE void lanes_sum_values(const st_attend *a, const lanes_query *q, size_t n, bool half) {
  size_t d = 0;
  for (; d + 16 * LANES_SLAB <= a->head_dim; d += 16 * LANES_SLAB) lanes_values_slab(a, q, n, d, LANES_SLAB, 0, half);
  for (; d + 16 <= a->head_dim; d += 16) lanes_values_slab(a, q, n, d, 1, 0, half);
  if (d < a->head_dim) lanes_values_slab(a, q, n, d, 1, a->head_dim - d, half);
}

#define LANES_SUM_VALUES(n)                                                                                            \
  LANES_APART void lanes_sum_values_##n(const st_attend *a, const lanes_query *q, bool half) {                         \
    if (half)                                                                                                          \
      lanes_sum_values(a, q, n <= LANES_HEADS ? n : 1, true);                                                          \
    else                                                                                                               \
      lanes_sum_values(a, q, n <= LANES_HEADS ? n : 1, false);                                                         \
  }
LANES_SUM_VALUES(1)
LANES_SUM_VALUES(2)
LANES_SUM_VALUES(3)
LANES_SUM_VALUES(4)

LANES_INLINE void lanes_attend_as(const st_attend *a, bool half) {
  _Alignas(64) float keys[16 * LANES_DIM];
  size_t n = lanes_queries(a), width = st_round_up(a->head_dim, 16), most = lanes_query_at(a, n - 1).n_keys;
  for (size_t j = 0; j < most; j += 16) {
    lanes_load_keys(a, j, most, half, width, keys);
    for (size_t i = 0; i < n; i++) {
      lanes_query q = lanes_query_at(a, i);
      if (j < q.n_keys) vf_store(q.scores + j, lanes_scores(a, q.q, keys, width));
    }
  }
  for (size_t i = 0; i < n;) {
    lanes_query q[LANES_HEADS];
    size_t count = n - i < LANES_HEADS ? n - i : LANES_HEADS;
    for (size_t c = 0; c < count; c++) {
      q[c] = lanes_query_at(a, i + c);
      lanes_softmax(&q[c], a->sinks ? &a->sinks[(i + c) % a->n_q] : NULL);
    }
    switch (count) {
    case 1: lanes_sum_values_1(a, q, half); break;
    case 2: lanes_sum_values_2(a, q, half); break;
    case 3: lanes_sum_values_3(a, q, half); break;
    default: lanes_sum_values_4(a, q, half);
    }
    i += count;
  }
}

static void lanes_attend(const st_attend *a) {
  if (a->head_dim > LANES_DIM)
    st_ref_attend(a);
  else if (a->half)
    lanes_attend_as(a, true);
  else
    lanes_attend_as(a, false);
}

#endif
