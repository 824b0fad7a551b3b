// Plain floats: F32, F16, BF16. Blocks of one weight.
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

const st_format_ops st_ops_f32 = {.decode = f32_decode, .encode = f32_encode};
const st_format_ops st_ops_f16 = {.decode = f16_decode, .encode = f16_encode};
const st_format_ops st_ops_bf16 = {.decode = bf16_decode, .encode = bf16_encode};
