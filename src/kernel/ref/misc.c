// RMSNorm, RoPE, gated activations, Hadamard matrices, the exponential, conversions, and the loops that measure
// ceilings.
#include "kernel/ref/ref.h"

#include "base/float16.h"
#include "kernel/numbers.h"

#include <math.h>
#include <string.h>

// Lane l with l + 8, then 4, 2, 1 apart.
float st_ref_sum16(const float lanes[16]) {
  float a[16];
  memcpy(a, lanes, sizeof a);
  for (int half = 8; half; half /= 2) {
    for (int i = 0; i < half; i++) a[i] += a[i + half];
  }
  return a[0];
}

float st_ref_inverse_rms(const float *x, size_t n, float eps) {
  float lanes[16] = {0};
  for (size_t i = 0; i < n; i++) lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
  return 1.0f / sqrtf(st_ref_sum16(lanes) / (float)n + eps);
}

void st_ref_rmsnorm(const float *x, const float *weight, size_t n, float eps, float *out) {
  float r = st_ref_inverse_rms(x, n, eps);
  for (size_t i = 0; i < n; i++) out[i] = x[i] * r * weight[i];
}

// e^x = 2^n e^r with n the nearest integer to x / ln 2 and r below 0.35: ln 2 in two parts, the series to degree 7, and
// 2^n in two factors, so that results run smoothly into subnormals and infinity. Within 2 units in the last place.
float st_ref_exp(float x) {
  x = ST_EXP_LOWEST > x ? ST_EXP_LOWEST : x;
  x = ST_EXP_HIGHEST < x ? ST_EXP_HIGHEST : x;
  float shifted = fmaf(x, ST_LOG2_E, ST_ROUNDER), n = shifted - ST_ROUNDER;
  float r = fmaf(n, -ST_LN2_HIGH, x);
  r = fmaf(n, -ST_LN2_LOW, r);
  float p = fmaf(ST_EXP_7, r, ST_EXP_6);
  p = fmaf(p, r, ST_EXP_5);
  p = fmaf(p, r, ST_EXP_4);
  p = fmaf(p, r, ST_EXP_3);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  uint32_t integer = st_float_bits(shifted) - ST_ROUNDER_BITS; // two's complement of n
  uint32_t half = (integer >> 1) | (integer & 0x80000000u), rest = integer - half;
  return p * st_float_from_bits((half + 127) << 23) * st_float_from_bits((rest + 127) << 23);
}

void st_ref_rope(float *x, const float *cosine, const float *sine, size_t n, bool interleaved) {
  size_t half = n / 2;
  for (size_t i = 0; i < half; i++) {
    float *a = interleaved ? x + 2 * i : x + i, *b = interleaved ? a + 1 : a + half;
    float u = *a, v = *b;
    *a = u * cosine[i] - v * sine[i];
    *b = v * cosine[i] + u * sine[i];
  }
}

static float gate_of(st_glu kind, float g) {
  switch (kind) {
  case ST_GLU_RELU2: {
    float r = g > 0 ? g : (g != g ? g : 0);
    return r * r;
  }
  case ST_GLU_GELU_TANH: {
    float u = g * fmaf(g * g, ST_GELU_B, ST_GELU_A);
    return g / (1.0f + st_ref_exp(u));
  }
  case ST_GLU_GPT_OSS: return g / (1.0f + st_ref_exp(ST_GPT_OSS_ALPHA * g));
  case ST_GLU_SIGMOID: return 1.0f / (1.0f + st_ref_exp(-g));
  default: return g / (1.0f + st_ref_exp(-g));
  }
}

void st_ref_glu(st_glu kind, const float *gate, const float *up, size_t n, float *out) {
  for (size_t i = 0; i < n; i++) {
    float g = gate[i], u = up[i];
    if (kind == ST_GLU_GPT_OSS) {
      g = ST_GPT_OSS_LIMIT < g ? ST_GPT_OSS_LIMIT : g;
      u = -ST_GPT_OSS_LIMIT > u ? -ST_GPT_OSS_LIMIT : u;
      u = (ST_GPT_OSS_LIMIT < u ? ST_GPT_OSS_LIMIT : u) + 1.0f;
    }
    out[i] = gate_of(kind, g) * u;
  }
}

void st_ref_add(float *x, const float *y, float scale, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] += scale * y[i];
}

static void transform_block(float *x, size_t n, float scale) {
  for (size_t half = n / 2; half; half /= 2) {
    for (size_t i = 0; i < n; i += 2 * half) {
      for (size_t j = i; j < i + half; j++) {
        float a = x[j], b = x[j + half];
        x[j] = a + b, x[j + half] = a - b;
      }
    }
  }
  for (size_t i = 0; i < n; i++) x[i] *= scale;
}

void st_ref_hadamard(const float *x, const float *before, const float *after, size_t n, size_t block, float *out) {
  float scale = 1.0f / sqrtf((float)block);
  for (size_t i = 0; i < n; i++) out[i] = before ? x[i] * before[i] : x[i];
  for (size_t i = 0; i < n; i += block) transform_block(out + i, block, scale);
  for (size_t i = 0; i < n && after; i++) out[i] *= after[i];
}

void st_ref_to_half(const float *x, size_t n, uint16_t *out) {
  for (size_t i = 0; i < n; i++) out[i] = st_f16_from_f32(x[i]);
}

uint64_t st_ref_peak_int8(uint64_t n) {
  int32_t sums[ST_GROUP] = {0};
  int8_t codes[ST_GROUP];
  uint64_t rounds = n / ST_GROUP + 1;
  for (size_t i = 0; i < ST_GROUP; i++) codes[i] = (int8_t)(i & 3);
  for (uint64_t i = 0; i < rounds; i++) {
    for (size_t r = 0; r < ST_GROUP; r++) sums[r] += codes[r] * (int8_t)i;
  }
  volatile int32_t kept = sums[rounds % ST_GROUP];
  (void)kept;
  return rounds * ST_GROUP;
}

uint64_t st_ref_peak_float(uint64_t n) {
  float sums[ST_GROUP] = {0};
  uint64_t rounds = n / ST_GROUP + 1;
  for (uint64_t i = 0; i < rounds; i++) {
    for (size_t r = 0; r < ST_GROUP; r++) sums[r] += (float)r * 0.5f;
  }
  volatile float kept = sums[rounds % ST_GROUP];
  (void)kept;
  return rounds * ST_GROUP;
}

uint64_t st_ref_read(const void *buffer, size_t bytes) {
  const uint64_t *words = buffer;
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (size_t i = 0; i + 4 <= bytes / 8; i += 4) a ^= words[i], b ^= words[i + 1], c ^= words[i + 2], d ^= words[i + 3];
  return a ^ b ^ c ^ d;
}
