// Plain floats: F32, F16, BF16, and the two 8-bit kinds in safetensors, which are read only. Blocks of one weight.
#include "quant/rows.h"

static uint64_t count(st_shape shape, const st_strip *strip) {
  return shape.columns * strip->count;
}

static void f32_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) out[i] = st_load_f32((const uint8_t *)data + 4 * i);
}

static void f32_encode(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) st_store_f32((uint8_t *)data + 4 * i, in[i]);
}

static void f16_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) out[i] = st_load_f16((const uint8_t *)data + 2 * i);
}

static void f16_encode(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) st_store_f16((uint8_t *)data + 2 * i, in[i]);
}

static void bf16_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out) {
  (void)format;
  const uint8_t *bytes = data;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) out[i] = st_f32_from_bf16(st_load_u16(bytes + 2 * i));
}

static void bf16_encode(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data) {
  (void)format;
  uint8_t *bytes = data;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) st_store_u16(bytes + 2 * i, st_bf16_from_f32(in[i]));
}

// E5M2 is the upper byte of half precision.
static float from_e5m2(uint8_t b) {
  return st_f32_from_f16((uint16_t)(b << 8));
}

// E4M3 without infinities ("FN"): bias 7, all ones is not a number.
static float from_e4m3(uint8_t b) {
  uint32_t sign = (uint32_t)(b & 0x80) << 24, exponent = b >> 3 & 15, mantissa = b & 7;
  if ((b & 0x7F) == 0x7F) return st_float_from_bits(sign | 0x7FC00000);
  float f = exponent ? st_float_from_bits((exponent + 120) << 23 | mantissa << 20) : (float)mantissa * 0x1p-9f;
  return st_float_from_bits(st_float_bits(f) | sign);
}

static void f8_e4m3_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                           float *out) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) out[i] = from_e4m3(((const uint8_t *)data)[i]);
}

static void f8_e5m2_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                           float *out) {
  (void)format;
  for (uint64_t i = 0, n = count(shape, strip); i < n; i++) out[i] = from_e5m2(((const uint8_t *)data)[i]);
}

const st_format_ops st_ops_f8_e4m3 = {.decode = f8_e4m3_decode, .dtype = "F8_E4M3", .wider = ST_F16};
const st_format_ops st_ops_f8_e5m2 = {.decode = f8_e5m2_decode, .dtype = "F8_E5M2", .wider = ST_F16};
const st_format_ops st_ops_f32 = {.decode = f32_decode, .encode = f32_encode, .dtype = "F32", .exponent = 0x7F80};
const st_format_ops st_ops_f16 = {
    .decode = f16_decode, .encode = f16_encode, .dtype = "F16", .exponent = 0x7C00, .synthetic = ST_SYNTHETIC_HEAD};
const st_format_ops st_ops_bf16 = {.decode = bf16_decode, .encode = bf16_encode, .dtype = "BF16", .exponent = 0x7F80};
