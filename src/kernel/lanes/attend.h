// Attention in 16 lanes. A query is one head of one token. Keys and values are read once for several queries; each
// query's sums are its own, in the order of its keys.
//
// Scores: a tile of 16 sums, of some queries times some keys, stays in registers, and its lanes are added up together.
// Many queries share keys that became float32 once. Values: a slab of columns of a few queries' outputs stays in
// registers for a run of keys, whose values then are in the nearest cache for the next slab and the next queries.
#ifndef SETUN_KERNEL_LANES_ATTEND_H
#define SETUN_KERNEL_LANES_ATTEND_H

#include "kernel/lanes/misc.h"
#include "kernel/ref/ref.h"

#include <math.h>

enum {
  LANES_DIM = 256,    // larger heads are left to the scalar function
  LANES_QUERIES = 48, // that share a reading of keys and values
  VALUES_KEYS = 128,  // of a run; half as many for few queries, whose values come from memory
  FEW_QUERIES = 4     // keys are worth being kept as float32 for more than these
};

// Inner loops are kept apart, so that each has all registers to itself.
#define LANES_APART static __attribute__((noinline))

typedef struct {
  const float *q;
  float *scores, *out; // the score of key j stands at scores[j]
  size_t first, last;  // keys that it sees
  float inverse;       // 1 / sum of the softmax
} lanes_query;

LANES_INLINE size_t lanes_queries(const st_attend *a) {
  return a->n_q * (a->n_tokens ? a->n_tokens : 1);
}

LANES_INLINE lanes_query lanes_query_at(const st_attend *a, size_t i) {
  size_t token = i / a->n_q, at = token * a->token_stride + i % a->n_q * a->q_stride;
  return (lanes_query){.q = a->q + at,
                       .scores = a->scores + i * st_attend_row(a),
                       .out = a->out + at,
                       .first = st_attend_first(a, token),
                       .last = a->n_keys + token};
}

// Two prefetches a line as for weights, but farther ahead: there are more products for each byte, and they come in
// bursts.
LANES_INLINE void lanes_cache_prefetch(const uint8_t *p) {
  __builtin_prefetch(p + 2048, 0, 3);
  __builtin_prefetch(p + 16384, 0, 2);
}

LANES_INLINE size_t lanes_size(bool half) {
  return half ? 2 : 4;
}
LANES_INLINE vf lanes_cached_load(const void *p, bool half) {
  return half ? vf_half(p) : vf_load(p);
}
LANES_INLINE vf lanes_cached_load_n(const void *p, bool half, size_t n) {
  return half ? vf_half_n(p, n) : vf_load_n(p, n);
}

// Keys [first, first + 16) as float32 rows of `dim`; those from `n` on repeat the last one.
LANES_APART void lanes_load_keys(const uint8_t *k, size_t first, size_t n, size_t dim, bool half, float *out) {
  for (size_t i = 0; i < 16; i++, out += dim) {
    const uint8_t *p = k + (first + i < n ? first + i : n - 1) * dim * lanes_size(half);
    size_t d = 0;
    for (; d + 16 <= dim; d += 16) vf_store(out + d, lanes_cached_load(p + d * lanes_size(half), half));
    if (d < dim) vf_store_n(out + d, lanes_cached_load_n(p + d * lanes_size(half), half, dim - d), dim - d);
  }
}

// One step of 16 columns, or the last `part` of them, of queries [0, nq) times keys [0, nk).
LANES_INLINE void lanes_tile_step(size_t nq, size_t nk, const float *const *q, const uint8_t *keys, size_t dim,
                                  size_t d, size_t part, bool half, vf *sums) {
  vf x[4];
#pragma GCC unroll 16
  for (size_t i = 0; i < nq; i++) x[i] = part ? vf_load_n(q[i] + d, part) : vf_load(q[i] + d);
#pragma GCC unroll 16
  for (size_t j = 0; j < nk; j++) {
    const uint8_t *at = keys + (j * dim + d) * lanes_size(half);
    vf key = part ? lanes_cached_load_n(at, half, part) : lanes_cached_load(at, half);
#pragma GCC unroll 16
    for (size_t i = 0; i < nq; i++) sums[i * nk + j] = vf_fma(x[i], key, sums[i * nk + j]);
  }
}

// The sums of some queries times some keys, as many as registers hold.
LANES_INLINE void lanes_tile(size_t nq, size_t nk, const float *const *q, const uint8_t *keys, size_t dim, bool half,
                             vf *out, size_t stride) {
  vf sums[LANES_PAIRS];
  size_t d = 0;
#pragma GCC unroll 16
  for (size_t i = 0; i < nq * nk; i++) sums[i] = vf_set(0);
  for (; d + 16 <= dim; d += 16) lanes_tile_step(nq, nk, q, keys, dim, d, 0, half, sums);
  if (d < dim) lanes_tile_step(nq, nk, q, keys, dim, d, dim - d, half, sums);
#pragma GCC unroll 16
  for (size_t i = 0; i < nq * nk; i++) out[i / nk * stride + i % nk] = sums[i];
}

// The 16 sums of nq queries and 16 / nq keys, in as many tiles as it takes.
LANES_INLINE void lanes_tiles(size_t nq, const float *const *q, const uint8_t *keys, size_t dim, bool half, vf *sums) {
  const size_t nk = 16 / nq, tile_q = nq * nq <= LANES_PAIRS ? nq : LANES_PAIRS == 4 ? 2 : 4;
  const size_t tile_k = LANES_PAIRS / tile_q;
  for (size_t j = 0; j < nk; j += tile_k) {
    const uint8_t *at = keys + j * dim * lanes_size(half);
    for (size_t i = 0; i < nq; i += tile_q) lanes_tile(tile_q, tile_k, q + i, at, dim, half, sums + i * nk + j, nk);
  }
}

// Scores of `nq` queries (1, 2 or 4) for 16 keys, 16 / nq of them at a time.
#define LANES_SCORES(nq)                                                                                               \
  LANES_APART void lanes_tiles_##nq(const float *const *q, const uint8_t *keys, size_t dim, bool half, vf *sums) {     \
    if (half)                                                                                                          \
      lanes_tiles(nq, q, keys, dim, true, sums);                                                                       \
    else                                                                                                               \
      lanes_tiles(nq, q, keys, dim, false, sums);                                                                      \
  }                                                                                                                    \
  LANES_APART void lanes_scores_##nq(const float *const *q, const uint8_t *keys, size_t dim, bool half, float scale,   \
                                     float *const *out) {                                                              \
    const size_t nk = 16 / nq, key = dim * lanes_size(half);                                                           \
    for (size_t first = 0; first < 16; first += nk) {                                                                  \
      const uint8_t *at = keys + first * key;                                                                          \
      vf sums[16];                                                                                                     \
      float scores[16];                                                                                                \
      for (size_t i = 0; half && i < nk * key; i += 64) lanes_cache_prefetch(at + i);                                  \
      if (LANES_PAIRS < 16)                                                                                            \
        lanes_tiles_##nq(q, at, dim, half, sums);                                                                      \
      else if (half)                                                                                                   \
        lanes_tiles(nq, q, at, dim, true, sums);                                                                       \
      else                                                                                                             \
        lanes_tiles(nq, q, at, dim, false, sums);                                                                      \
      vf_store(scores, vf_mul(vf_sums(sums), vf_set(scale)));                                                          \
      for (size_t i = 0; i < nq; i++) __builtin_memcpy(out[i] + first, scores + i * nk, nk * sizeof *scores);          \
    }                                                                                                                  \
  }
LANES_SCORES(1)
LANES_SCORES(2)
LANES_SCORES(4)

// Scores of all queries for keys [j, j + 16), which stand at `keys`.
LANES_INLINE void lanes_scores_of(const st_attend *a, const lanes_query *queries, size_t n, size_t j,
                                  const uint8_t *keys, bool half) {
  for (size_t i = 0, count; i < n; i += count) {
    const float *q[4];
    float *out[4];
    count = n - i >= 4 ? 4 : n - i >= 2 ? 2 : 1;
    bool seen = false;
    for (size_t c = 0; c < count; c++) {
      const lanes_query *query = queries + i + c;
      q[c] = query->q, out[c] = query->scores + j;
      seen = seen || (j < query->last && j + 16 > query->first);
    }
    if (!seen) continue;
    switch (count) {
    case 1: lanes_scores_1(q, keys, a->head_dim, half, a->scale, out); break;
    case 2: lanes_scores_2(q, keys, a->head_dim, half, a->scale, out); break;
    default: lanes_scores_4(q, keys, a->head_dim, half, a->scale, out);
    }
  }
}

LANES_INLINE void lanes_all_scores(const st_attend *a, const lanes_query *queries, size_t n) {
  _Alignas(64) float keys[16 * LANES_DIM];
  size_t most = queries[n - 1].last;
  for (size_t j = queries[0].first / 16 * 16; j < most; j += 16) {
    bool kept = n > FEW_QUERIES || j + 16 > most;
    if (kept) lanes_load_keys(a->k, j, most, a->head_dim, a->half, keys);
    const uint8_t *from = kept ? (const uint8_t *)keys : (const uint8_t *)a->k + j * a->head_dim * lanes_size(a->half);
    lanes_scores_of(a, queries, n, j, from, a->half && !kept);
  }
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
LANES_APART void lanes_softmax(lanes_query *q, const float *sink) {
  float *scores = q->scores + q->first;
  size_t n = q->last - q->first;
  float largest = lanes_largest(scores, n, sink ? *sink : -INFINITY);
  vf sum = vf_set(0), m = vf_set(largest);
  for (size_t j = 0; j < n; j += 16) {
    vf p = lanes_exp(vf_sub(vf_load(scores + j), m));
    vf_store(scores + j, p);
    sum = vf_add(sum, j + 16 <= n ? p : vf_load_n(scores + j, n - j));
  }
  float total = vf_sum(sum);
  if (sink) total += lanes_exp_of(*sink - largest);
  q->inverse = 1.0f / total;
}

// Adds the values of keys [first, last), from column d on `slab` * 16 of them, to the outputs of n queries. With `part`
// only that many columns of one vector.
LANES_INLINE void lanes_add_slab(const st_attend *a, const lanes_query *q, size_t n, size_t first, size_t last,
                                 size_t d, size_t slab, size_t part, bool half) {
  vf sums[LANES_HEADS][LANES_SLAB], v[LANES_SLAB];
#pragma GCC unroll 8
  for (size_t i = 0; i < n * slab; i++) {
    const float *out = q[i / slab].out + d + 16 * (i % slab);
    sums[i / slab][i % slab] = part ? vf_load_n(out, part) : vf_load(out);
  }
  for (size_t j = first; j < last; j++) {
    const uint8_t *value = (const uint8_t *)a->v + (j * a->head_dim + d) * lanes_size(half);
    for (size_t i = 0; n <= FEW_QUERIES && i < slab * 16 * lanes_size(half); i += 64) lanes_cache_prefetch(value + i);
#pragma GCC unroll 8
    for (size_t s = 0; s < slab; s++) {
      const uint8_t *at = value + s * 16 * lanes_size(half);
      v[s] = part ? lanes_cached_load_n(at, half, part) : lanes_cached_load(at, half);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) {
      vf p = vf_set(q[i].scores[j]);
#pragma GCC unroll 8
      for (size_t s = 0; s < slab; s++) sums[i][s] = vf_fma(p, v[s], sums[i][s]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < n * slab; i++) {
    float *out = q[i / slab].out + d + 16 * (i % slab);
    if (part)
      vf_store_n(out, sums[i / slab][i % slab], part);
    else
      vf_store(out, sums[i / slab][i % slab]);
  }
}

LANES_INLINE void lanes_sum_values(const st_attend *a, const lanes_query *q, size_t n, size_t first, size_t last,
                                   bool half) {
  size_t d = 0;
  for (; d + 16 * LANES_SLAB <= a->head_dim; d += 16 * LANES_SLAB) {
    lanes_add_slab(a, q, n, first, last, d, LANES_SLAB, 0, half);
  }
  for (; d + 16 <= a->head_dim; d += 16) lanes_add_slab(a, q, n, first, last, d, 1, 0, half);
  if (d < a->head_dim) lanes_add_slab(a, q, n, first, last, d, 1, a->head_dim - d, half);
}

#define LANES_SUM_VALUES(n)                                                                                            \
  LANES_APART void lanes_sum_values_##n(const st_attend *a, const lanes_query *q, size_t first, size_t last) {         \
    if (a->half)                                                                                                       \
      lanes_sum_values(a, q, n <= LANES_HEADS ? n : 1, first, last, true);                                             \
    else                                                                                                               \
      lanes_sum_values(a, q, n <= LANES_HEADS ? n : 1, first, last, false);                                            \
  }
LANES_SUM_VALUES(1)
LANES_SUM_VALUES(2)
LANES_SUM_VALUES(3)
LANES_SUM_VALUES(4)
LANES_SUM_VALUES(5)
LANES_SUM_VALUES(6)

LANES_INLINE void lanes_values_shared(const st_attend *a, const lanes_query *q, size_t n, size_t first, size_t last) {
  switch (n) {
  case 1: lanes_sum_values_1(a, q, first, last); break;
  case 2: lanes_sum_values_2(a, q, first, last); break;
  case 3: lanes_sum_values_3(a, q, first, last); break;
  case 4: lanes_sum_values_4(a, q, first, last); break;
  case 5: lanes_sum_values_5(a, q, first, last); break;
  default: lanes_sum_values_6(a, q, first, last);
  }
}

LANES_INLINE size_t lanes_least(size_t a, size_t b) {
  return a < b ? a : b;
}
LANES_INLINE size_t lanes_greatest(size_t a, size_t b) {
  return a > b ? a : b;
}

// Adds the values of keys [first, last) to n queries: those that all see for all at once, between those that only some
// see. Queries are in the order of their tokens: the last one's keys begin last, the first one's end first.
LANES_INLINE void lanes_add_values(const st_attend *a, const lanes_query *q, size_t n, size_t first, size_t last) {
  size_t begin = lanes_greatest(q[n - 1].first, first), end = lanes_least(q[0].last, last);
  if (begin >= end) begin = end = last;
  for (size_t i = 0; i < n; i++) {
    size_t from = lanes_greatest(q[i].first, first), to = lanes_least(q[i].last, begin);
    if (from < to) lanes_sum_values_1(a, q + i, from, to);
  }
  if (begin < end) lanes_values_shared(a, q, n, begin, end);
  for (size_t i = 0; i < n; i++) {
    size_t to = lanes_least(q[i].last, last);
    if (end < to) lanes_sum_values_1(a, q + i, end, to);
  }
}

// Queries [first, first + n), n at most LANES_QUERIES.
static void lanes_attend_queries(const st_attend *a, size_t first, size_t n) {
  lanes_query q[LANES_QUERIES];
  for (size_t i = 0; i < n; i++) q[i] = lanes_query_at(a, first + i);
  lanes_all_scores(a, q, n);
  for (size_t i = 0; i < n; i++) {
    lanes_softmax(&q[i], a->sinks ? &a->sinks[(first + i) % a->n_q] : NULL);
    for (size_t d = 0; d < a->head_dim; d++) q[i].out[d] = 0;
  }
  size_t groups = (n + LANES_HEADS - 1) / LANES_HEADS;
  size_t keys = n > FEW_QUERIES ? VALUES_KEYS : VALUES_KEYS / 2;
  for (size_t j = q[0].first; j < q[n - 1].last; j += keys) {
    for (size_t g = 0; g < groups; g++) {
      size_t from = n * g / groups, to = n * (g + 1) / groups;
      lanes_add_values(a, q + from, to - from, j, j + keys);
    }
  }
  for (size_t i = 0; i < n; i++) {
    for (size_t d = 0; d < a->head_dim; d++) q[i].out[d] *= q[i].inverse;
  }
}

static void lanes_attend(const st_attend *a) {
  if (a->head_dim > LANES_DIM) {
    st_ref_attend(a);
    return;
  }
  for (size_t i = 0, n = lanes_queries(a); i < n; i += LANES_QUERIES) {
    lanes_attend_queries(a, i, n - i < LANES_QUERIES ? n - i : LANES_QUERIES);
  }
}

#endif
