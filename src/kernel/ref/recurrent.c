// The causal convolution and the delta rule.
#include "kernel/recurrent.h"

#include "kernel/ref/ref.h"

#include <math.h>

void st_ref_convolve(const st_convolution *v, size_t n, float *out) {
  for (size_t c = 0; c < n; c++) {
    float sum = v->rows[0][c] * v->taps[c];
    for (size_t j = 1; j < v->n_taps; j++) sum = fmaf(v->rows[j][c], v->taps[j * v->stride + c], sum);
    out[c] = sum / (1.0f + st_ref_exp(-sum));
  }
}

void st_ref_delta(const st_delta *d) {
  float lanes[16] = {0};
  for (size_t i = 0; i < d->rows; i++) lanes[i % 16] = fmaf(d->k[i], d->q[i], lanes[i % 16]);
  float kq = st_ref_sum16(lanes);
  for (size_t c = 0; c < d->columns; c++) {
    float old = 0, seen = 0;
    for (size_t i = 0; i < d->rows; i++) {
      float s = d->from[i * d->stride + c];
      old = fmaf(s, d->k[i], old);
      seen = fmaf(s, d->q[i], seen);
    }
    float change = d->beta * (d->v[c] - d->decay * old);
    for (size_t i = 0; i < d->rows; i++) {
      d->to[i * d->stride + c] = fmaf(d->k[i], change, d->decay * d->from[i * d->stride + c]);
    }
    d->out[c] = fmaf(kq, change, d->decay * seen);
  }
}
