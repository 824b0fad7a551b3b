// Attention of one token in 16 lanes: scores of 16 keys at once, softmax, and sums of values for several heads at once.
#ifndef SETUN_KERNEL_LANES_ATTEND_H
#define SETUN_KERNEL_LANES_ATTEND_H

#include "kernel/lanes/misc.h"

LANES_INLINE const uint8_t *lanes_cached(const void *cache, bool half, size_t i) {
  return (const uint8_t *)cache + i * (half ? 2 : 4);
}

LANES_INLINE vf lanes_cached_load(const void *p, bool half) {
  return half ? vf_half(p) : vf_load(p);
}
LANES_INLINE vf lanes_cached_load_n(const void *p, bool half, size_t n) {
  return half ? vf_half_n(p, n) : vf_load_n(p, n);
}

// Scores of one head for keys [j, j + 16); those from n_keys on repeat the last key.
LANES_INLINE vf lanes_scores(const st_attend *a, const float *q, size_t j, bool half) {
  vf sums[16];
  const uint8_t *keys[16];
  for (size_t i = 0; i < 16; i++) {
    size_t key = j + i < a->n_keys ? j + i : a->n_keys - 1;
    keys[i] = lanes_cached(a->k, half, key * a->head_dim);
    sums[i] = vf_set(0);
  }
  size_t d = 0;
  for (; d + 16 <= a->head_dim; d += 16) {
    vf v = vf_load(q + d);
    for (size_t i = 0; i < 16; i++) sums[i] = vf_fma(v, lanes_cached_load(keys[i] + d * (half ? 2 : 4), half), sums[i]);
  }
  if (d < a->head_dim) {
    size_t n = a->head_dim - d;
    vf v = vf_load_n(q + d, n);
    for (size_t i = 0; i < 16; i++) {
      sums[i] = vf_fma(v, lanes_cached_load_n(keys[i] + d * (half ? 2 : 4), half, n), sums[i]);
    }
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

// Scores in place become e^(score - largest); returns their sum.
LANES_INLINE float lanes_softmax(float *scores, size_t n, float largest) {
  vf sum = vf_set(0), m = vf_set(largest);
  for (size_t j = 0; j < n; j += 16) {
    vf p = lanes_exp(vf_sub(vf_load(scores + j), m));
    vf_store(scores + j, p);
    sum = vf_add(sum, j + 16 <= n ? p : vf_load_n(scores + j, n - j));
  }
  return vf_sum(sum);
}

// Sums of `slab` * 16 values from column d on for `heads` heads; with `part` only that many columns of one vector.
LANES_INLINE void lanes_values_of(const st_attend *a, size_t head, size_t heads, size_t d, size_t slab, size_t part,
                                  const float *inverse, bool half) {
  vf sums[LANES_HEADS][LANES_SLAB];
  size_t row = st_round_up(a->n_keys, 16);
  const float *p = a->scores + head * row;
  for (size_t h = 0; h < heads; h++) {
    for (size_t s = 0; s < slab; s++) sums[h][s] = vf_set(0);
  }
  for (size_t j = 0; j < a->n_keys; j++) {
    const uint8_t *value = lanes_cached(a->v, half, j * a->head_dim + d);
    for (size_t s = 0; s < slab; s++) {
      const uint8_t *at = value + s * 16 * (half ? 2 : 4);
      vf v = part ? lanes_cached_load_n(at, half, part) : lanes_cached_load(at, half);
      for (size_t h = 0; h < heads; h++) sums[h][s] = vf_fma(vf_set(p[h * row + j]), v, sums[h][s]);
    }
  }
  for (size_t h = 0; h < heads; h++) {
    float *out = a->out + (head + h) * a->q_stride + d;
    for (size_t s = 0; s < slab; s++) {
      vf v = vf_mul(sums[h][s], vf_set(inverse[h]));
      if (part)
        vf_store_n(out, v, part);
      else
        vf_store(out + 16 * s, v);
    }
  }
}

LANES_INLINE void lanes_values_heads(const st_attend *a, size_t head, size_t heads, const float *inverse, bool half) {
  size_t d = 0;
  for (; d + 16 * LANES_SLAB <= a->head_dim; d += 16 * LANES_SLAB) {
    lanes_values_of(a, head, heads, d, LANES_SLAB, 0, inverse, half);
  }
  for (; d + 16 <= a->head_dim; d += 16) lanes_values_of(a, head, heads, d, 1, 0, inverse, half);
  if (d < a->head_dim) lanes_values_of(a, head, heads, d, 1, a->head_dim - d, inverse, half);
}

LANES_INLINE void lanes_attend_as(const st_attend *a, bool half) {
  size_t row = st_round_up(a->n_keys, 16);
  for (size_t j = 0; j < a->n_keys; j += 16) {
    for (size_t h = 0; h < a->n_q; h++) {
      vf_store(a->scores + h * row + j, lanes_scores(a, a->q + h * a->q_stride, j, half));
    }
  }
  for (size_t h = 0; h < a->n_q;) {
    float inverse[LANES_HEADS];
    size_t heads = a->n_q - h < LANES_HEADS ? a->n_q - h : LANES_HEADS;
    for (size_t i = 0; i < heads; i++) {
      float *scores = a->scores + (h + i) * row, largest = a->sinks ? a->sinks[h + i] : -INFINITY;
      largest = lanes_largest(scores, a->n_keys, largest);
      float sum = lanes_softmax(scores, a->n_keys, largest);
      if (a->sinks) sum += lanes_exp_of(a->sinks[h + i] - largest);
      inverse[i] = 1.0f / sum;
    }
    if (heads == 1)
      lanes_values_heads(a, h, 1, inverse, half);
    else if (heads == 2)
      lanes_values_heads(a, h, 2, inverse, half);
    else if (heads == 3)
      lanes_values_heads(a, h, 3, inverse, half);
    else
      lanes_values_heads(a, h, LANES_HEADS, inverse, half);
    h += heads;
  }
}

static void lanes_attend(const st_attend *a) {
  if (a->half)
    lanes_attend_as(a, true);
  else
    lanes_attend_as(a, false);
}

#endif
