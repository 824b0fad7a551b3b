// Half precision and bfloat16 to and from float32, in portable C; the kernels have vector forms of the same.
#ifndef SETUN_BASE_FLOAT16_H
#define SETUN_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float st_float_from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint32_t st_float_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline float st_f32_from_bf16(uint16_t h) {
  return st_float_from_bits((uint32_t)h << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
static inline uint16_t st_bf16_from_f32(float f) {
  uint32_t u = st_float_bits(f);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(u >> 16 | 64);
  return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static inline float st_f32_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 31) return st_float_from_bits(sign | 0x7F800000 | mantissa << 13);
  if (exponent) return st_float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  float f = (float)mantissa * 0x1p-24f; // zero and subnormals
  return st_float_from_bits(st_float_bits(f) | sign);
}

// Round to nearest, ties to even; too large becomes infinite; NaN stays NaN.
static inline uint16_t st_f16_from_f32(float f) {
  uint32_t u = st_float_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
  if (a > 0x7F800000) return (uint16_t)(sign | 0x7E00);
  if (a >= 0x477FF000) return (uint16_t)(sign | 0x7C00); // 65520 and above round to infinity
  if (a < 0x38800000) {                                  // below 2^-14: a multiple of 2^-24
    float x = st_float_from_bits(a) + 0.5f;              // the sum's last place is 2^-24: it rounds for us
    return (uint16_t)(sign | (st_float_bits(x) - 0x3F000000));
  }
  uint32_t rounded = a + 0xFFF + (a >> 13 & 1);
  return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

#endif
