// Layers with a recurrent state (gated DeltaNet): the causal convolution, and the update of a state by one token.
// Called by backend/cpu, which owns the states.
#ifndef SETUN_KERNEL_RECURRENT_H
#define SETUN_KERNEL_RECURRENT_H

#include <stddef.h>

enum { ST_TAPS_MOST = 16 };

// out[c] = silu(sum over taps j, from 0 on, of rows[j][c] * taps[j * stride + c]) for n channels: the products after
// the first are fused multiply-adds.
typedef struct st_convolution {
  const float *rows[ST_TAPS_MOST]; // of the tokens, the current one last
  const float *taps;               // [n_taps][stride]
  size_t n_taps, stride;
} st_convolution;

// One head's state S [rows, columns] and one token: with old = S^T k and seen = S^T q (fused multiply-adds, rows in
// order),
//   change = beta * (v - decay * old),  out = fma(k . q, change, decay * seen),  S' = fma(k, change, decay * S)
// in each column by itself, so that any range of columns may be computed alone. k . q is a sum over a vector as in
// norms.
typedef struct st_delta {
  const float *q, *k; // [rows]
  const float *v;     // [columns]
  float decay, beta;
  const float *from; // [rows][stride]
  float *to;         // likewise; may be `from`
  size_t rows, columns, stride;
  float *out; // [columns]
} st_delta;

#endif
