// RMSNorm, RoPE, gates, additions, Hadamard matrices and conversions in 16 lanes. Included by one file an instruction
// set, after its lanes.
#ifndef SETUN_KERNEL_LANES_MISC_H
#define SETUN_KERNEL_LANES_MISC_H

#include "kernel/numbers.h"

#include <math.h>
#include <string.h>

// e^x of n vectors in place, by st_ref_exp's steps. Step by step for all, since the steps of one vector depend on one
// another.
LANES_INLINE void lanes_exps(vf *x, size_t n) {
  vf shifted[LANES_SLAB], r[LANES_SLAB], p[LANES_SLAB];
#define LANES_STEP _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++)
  LANES_STEP x[i] = vf_max(vf_set(ST_EXP_LOWEST), x[i]);
  LANES_STEP x[i] = vf_min(vf_set(ST_EXP_HIGHEST), x[i]);
  LANES_STEP shifted[i] = vf_fma(x[i], vf_set(ST_LOG2_E), vf_set(ST_ROUNDER));
  LANES_STEP p[i] = vf_sub(shifted[i], vf_set(ST_ROUNDER));
  LANES_STEP r[i] = vf_fma(p[i], vf_set(-ST_LN2_HIGH), x[i]);
  LANES_STEP r[i] = vf_fma(p[i], vf_set(-ST_LN2_LOW), r[i]);
  LANES_STEP p[i] = vf_fma(vf_set(ST_EXP_7), r[i], vf_set(ST_EXP_6));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(ST_EXP_5));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(ST_EXP_4));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(ST_EXP_3));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(0.5f));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(1.0f));
  LANES_STEP p[i] = vf_fma(p[i], r[i], vf_set(1.0f));
  LANES_STEP x[i] = vf_scale(p[i], shifted[i]);
#undef LANES_STEP
}

LANES_INLINE vf lanes_exp(vf x) {
  lanes_exps(&x, 1);
  return x;
}

// 1 / sqrt(mean(x^2) + eps)
LANES_INLINE float lanes_inverse_rms(const float *x, size_t n, float eps) {
  vf sum = vf_set(0);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    vf v = vf_load(x + i);
    sum = vf_fma(v, v, sum);
  }
  if (i < n) {
    vf v = vf_load_n(x + i, n - i);
    sum = vf_fma(v, v, sum);
  }
  return 1.0f / sqrtf(vf_sum(sum) / (float)n + eps);
}

static void lanes_rmsnorm(const float *x, const float *weight, size_t n, float eps, float *out) {
  vf r = vf_set(lanes_inverse_rms(x, n, eps));
  size_t i = 0;
  for (; i + 16 <= n; i += 16) vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), r), vf_load(weight + i)));
  if (i == n) return;
  vf_store_n(out + i, vf_mul(vf_mul(vf_load_n(x + i, n - i), r), vf_load_n(weight + i, n - i)), n - i);
}

// Pairs n/2 apart; neighbouring pairs are left to the compiler.
static void lanes_rope(float *x, const float *cosine, const float *sine, size_t n, bool interleaved) {
  size_t half = n / 2, i = 0;
  for (; !interleaved && i + 16 <= half; i += 16) {
    vf a = vf_load(x + i), b = vf_load(x + half + i), c = vf_load(cosine + i), s = vf_load(sine + i);
    vf_store(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
    vf_store(x + half + i, vf_add(vf_mul(b, c), vf_mul(a, s)));
  }
  for (; i < half; i++) {
    float *p = interleaved ? x + 2 * i : x + i, *q = interleaved ? p + 1 : p + half;
    float a = *p, b = *q;
    *p = a * cosine[i] - b * sine[i];
    *q = b * cosine[i] + a * sine[i];
  }
}

LANES_INLINE vf lanes_gate(st_glu kind, vf g, vf up) {
  if (kind == ST_GLU_RELU2) {
    vf r = vf_max(vf_set(0), g);
    return vf_mul(vf_mul(r, r), up);
  }
  vf u = vf_mul(vf_set(-1), g);
  if (kind == ST_GLU_GELU_TANH) u = vf_mul(g, vf_fma(vf_mul(g, g), vf_set(ST_GELU_B), vf_set(ST_GELU_A)));
  if (kind == ST_GLU_GPT_OSS) {
    g = vf_min(vf_set(ST_GPT_OSS_LIMIT), g);
    up = vf_max(vf_set(-ST_GPT_OSS_LIMIT), up);
    up = vf_add(vf_min(vf_set(ST_GPT_OSS_LIMIT), up), vf_set(1));
    u = vf_mul(vf_set(ST_GPT_OSS_ALPHA), g);
  }
  if (kind == ST_GLU_SIGMOID) g = vf_set(1);
  return vf_mul(vf_div(g, vf_add(vf_set(1), lanes_exp(u))), up);
}

LANES_INLINE void lanes_gates(st_glu kind, const float *gate, const float *up, size_t n, float *out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) vf_store(out + i, lanes_gate(kind, vf_load(gate + i), vf_load(up + i)));
  if (i < n) vf_store_n(out + i, lanes_gate(kind, vf_load_n(gate + i, n - i), vf_load_n(up + i, n - i)), n - i);
}

static void lanes_glu(st_glu kind, const float *gate, const float *up, size_t n, float *out) {
  switch (kind) {
  case ST_GLU_RELU2: lanes_gates(ST_GLU_RELU2, gate, up, n, out); break;
  case ST_GLU_GELU_TANH: lanes_gates(ST_GLU_GELU_TANH, gate, up, n, out); break;
  case ST_GLU_GPT_OSS: lanes_gates(ST_GLU_GPT_OSS, gate, up, n, out); break;
  case ST_GLU_SIGMOID: lanes_gates(ST_GLU_SIGMOID, gate, up, n, out); break;
  default: lanes_gates(ST_GLU_SILU, gate, up, n, out);
  }
}

static void lanes_add(float *x, const float *y, float scale, size_t n) {
  vf s = vf_set(scale);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) vf_store(x + i, vf_add(vf_load(x + i), vf_mul(s, vf_load(y + i))));
  if (i < n) vf_store_n(x + i, vf_add(vf_load_n(x + i, n - i), vf_mul(s, vf_load_n(y + i, n - i))), n - i);
}

// Lanes `distance` apart: the lower of two becomes their sum, the upper their difference.
LANES_INLINE vf lanes_butterfly(vf v, int distance) {
  static const float signs[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                     {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                     {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                     {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
  return vf_fma(v, vf_load(signs[distance == 1 ? 0 : distance == 2 ? 1 : distance == 4 ? 2 : 3]), vf_swap(v, distance));
}

// The steps within 16 lanes, of blocks that may be smaller, and the factor of all.
LANES_INLINE vf lanes_butterflies(vf v, size_t block, vf scale) {
  if (block > 8) v = lanes_butterfly(v, 8);
  if (block > 4) v = lanes_butterfly(v, 4);
  if (block > 2) v = lanes_butterfly(v, 2);
  if (block > 1) v = lanes_butterfly(v, 1);
  return vf_mul(v, scale);
}

// Steps `half` and half / 2 of a block together: 4 numbers of each.
LANES_INLINE void lanes_two_steps(float *x, size_t n, size_t half) {
  size_t quarter = half / 2;
  for (size_t i = 0; i < n; i += 2 * half) {
    for (float *p = x + i; p < x + i + quarter; p += 16) {
      vf a = vf_load(p), b = vf_load(p + quarter), c = vf_load(p + half), d = vf_load(p + half + quarter);
      vf ac = vf_add(a, c), bd = vf_add(b, d), less = vf_sub(a, c), rest = vf_sub(b, d);
      vf_store(p, vf_add(ac, bd)), vf_store(p + quarter, vf_sub(ac, bd));
      vf_store(p + half, vf_add(less, rest)), vf_store(p + half + quarter, vf_sub(less, rest));
    }
  }
}

// A block of 16 or more; or all smaller blocks.
static void lanes_transform(float *x, size_t n, size_t block, vf scale) {
  size_t half = block / 2, i = 0;
  for (; half >= 32; half /= 4) lanes_two_steps(x, n, half);
  for (; half == 16 && i < n; i += 32) {
    vf a = vf_load(x + i), b = vf_load(x + i + 16);
    vf_store(x + i, lanes_butterflies(vf_add(a, b), 16, scale));
    vf_store(x + i + 16, lanes_butterflies(vf_sub(a, b), 16, scale));
  }
  for (; i + 16 <= n; i += 16) vf_store(x + i, lanes_butterflies(vf_load(x + i), block, scale));
  if (i < n) vf_store_n(x + i, lanes_butterflies(vf_load_n(x + i, n - i), block, scale), n - i);
}

LANES_INLINE void lanes_factors(const float *x, const float *factors, size_t n, float *out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) vf_store(out + i, vf_mul(vf_load(x + i), vf_load(factors + i)));
  if (i < n) vf_store_n(out + i, vf_mul(vf_load_n(x + i, n - i), vf_load_n(factors + i, n - i)), n - i);
}

static void lanes_hadamard(const float *x, const float *before, const float *after, size_t n, size_t block,
                           float *out) {
  vf scale = vf_set(1.0f / sqrtf((float)block));
  size_t each = block < 16 ? n : block; // while a block is in the first-level cache
  if (!before && out != x) memcpy(out, x, n * sizeof *out);
  for (size_t i = 0; i < n; i += each) {
    if (before) lanes_factors(x + i, before + i, each, out + i);
    lanes_transform(out + i, each, block, scale);
    if (after) lanes_factors(out + i, after + i, each, out + i);
  }
}

static void lanes_to_half(const float *x, size_t n, uint16_t *out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) vf_store_half(out + i, vf_load(x + i));
  if (i < n) vf_store_half_n(out + i, vf_load_n(x + i, n - i), n - i);
}

#endif
