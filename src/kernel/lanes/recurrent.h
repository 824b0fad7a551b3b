// The causal convolution and the delta rule in 16 lanes, which are channels, and columns of a state. Included by one
// file an instruction set, after lanes/misc.h.
#ifndef SETUN_KERNEL_LANES_RECURRENT_H
#define SETUN_KERNEL_LANES_RECURRENT_H

#include "kernel/recurrent.h"

LANES_INLINE vf lanes_silu(vf x) {
  return vf_div(x, vf_add(vf_set(1), lanes_exp(vf_mul(vf_set(-1), x))));
}

static void lanes_convolve(const st_convolution *v, size_t n, float *out) {
  size_t c = 0;
  for (; c + 16 <= n; c += 16) {
    vf sum = vf_mul(vf_load(v->rows[0] + c), vf_load(v->taps + c));
    for (size_t j = 1; j < v->n_taps; j++) {
      sum = vf_fma(vf_load(v->rows[j] + c), vf_load(v->taps + j * v->stride + c), sum);
    }
    vf_store(out + c, lanes_silu(sum));
  }
  if (c == n) return;
  vf sum = vf_mul(vf_load_n(v->rows[0] + c, n - c), vf_load_n(v->taps + c, n - c));
  for (size_t j = 1; j < v->n_taps; j++) {
    sum = vf_fma(vf_load_n(v->rows[j] + c, n - c), vf_load_n(v->taps + j * v->stride + c, n - c), sum);
  }
  vf_store_n(out + c, lanes_silu(sum), n - c);
}

LANES_INLINE float lanes_dot(const float *x, const float *y, size_t n) {
  vf sum = vf_set(0);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) sum = vf_fma(vf_load(x + i), vf_load(y + i), sum);
  if (i < n) sum = vf_fma(vf_load_n(x + i, n - i), vf_load_n(y + i, n - i), sum);
  return vf_sum(sum);
}

// Columns [c, c + 16 * count): one pass through the state for both sums, and another, while it is in the first-level
// cache, to change it.
LANES_INLINE void lanes_delta_columns(const st_delta *d, float kq, size_t c, size_t count) {
  vf old[LANES_STATE], seen[LANES_STATE], decay = vf_set(d->decay), beta = vf_set(d->beta);
#define LANES_STEP _Pragma("GCC unroll 8") for (size_t j = 0; j < count; j++)
  LANES_STEP old[j] = seen[j] = vf_set(0);
  for (size_t i = 0; i < d->rows; i++) {
    const float *row = d->from + i * d->stride + c;
    LANES_STEP {
      vf s = vf_load(row + 16 * j);
      old[j] = vf_fma_by(s, d->k + i, old[j]);
      seen[j] = vf_fma_by(s, d->q + i, seen[j]);
    }
  }
  LANES_STEP {
    old[j] = vf_mul(beta, vf_sub(vf_load(d->v + c + 16 * j), vf_mul(decay, old[j]))); // the change
    vf_store(d->out + c + 16 * j, vf_fma(vf_set(kq), old[j], vf_mul(decay, seen[j])));
  }
  for (size_t i = 0; i < d->rows; i++) {
    const float *row = d->from + i * d->stride + c;
    float *to = d->to + i * d->stride + c;
    LANES_STEP vf_store(to + 16 * j, vf_fma_by(old[j], d->k + i, vf_mul(decay, vf_load(row + 16 * j))));
  }
#undef LANES_STEP
}

// The last columns, fewer than 16.
LANES_INLINE void lanes_delta_rest(const st_delta *d, float kq, size_t c, size_t n) {
  vf old = vf_set(0), seen = vf_set(0), decay = vf_set(d->decay);
  for (size_t i = 0; i < d->rows; i++) {
    vf s = vf_load_n(d->from + i * d->stride + c, n);
    old = vf_fma_by(s, d->k + i, old);
    seen = vf_fma_by(s, d->q + i, seen);
  }
  vf change = vf_mul(vf_set(d->beta), vf_sub(vf_load_n(d->v + c, n), vf_mul(decay, old)));
  vf_store_n(d->out + c, vf_fma(vf_set(kq), change, vf_mul(decay, seen)), n);
  for (size_t i = 0; i < d->rows; i++) {
    vf s = vf_mul(decay, vf_load_n(d->from + i * d->stride + c, n));
    vf_store_n(d->to + i * d->stride + c, vf_fma_by(change, d->k + i, s), n);
  }
}

static void lanes_delta(const st_delta *d) {
  float kq = lanes_dot(d->k, d->q, d->rows);
  size_t c = 0;
  for (; c + 16 * LANES_STATE <= d->columns; c += 16 * LANES_STATE) lanes_delta_columns(d, kq, c, LANES_STATE);
  if (LANES_STATE > 4 && c + 64 <= d->columns) lanes_delta_columns(d, kq, c, 4), c += 64; // a piece for many threads
  for (; c + 16 <= d->columns; c += 16) lanes_delta_columns(d, kq, c, 1);
  if (c < d->columns) lanes_delta_rest(d, kq, c, d->columns - c);
}

#endif
