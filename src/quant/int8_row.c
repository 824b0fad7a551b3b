// int8-row: rows of signed bytes that share a scale, for embeddings: f16 d, then a byte a weight; w = q * d. Rows are a
// multiple of 32 weights.
#include "quant/fit.h"
#include "quant/rows.h"

#include <math.h>

enum { HEAD = 2 };

// The scale of least error from 0.5 to 1.03 times the one that makes the largest weight 127: in steps of 0.01, then of
// 0.001 around the best.
static float fit_row(const float *x, int n) {
  float most = 0, least = INFINITY, best = 0, middle = 0;
  for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
  for (int step = 0; step <= 53 + 18; step++) {
    float part = step <= 53 ? 0.5f + 0.01f * (float)step : middle + 0.001f * (float)(step - 53 - 9);
    float d = st_f32_from_f16(st_f16_from_f32(most / 127 * part)), lost = st_fit_codes(x, NULL, n, d, -127, 127, NULL);
    if (!(lost < least) || !isfinite(d)) continue;
    least = lost, best = d;
    if (step <= 53) middle = part;
  }
  return best;
}

static void int8_decode(const st_format *f, st_shape shape, const st_strip *strip, const void *data, float *out) {
  const uint8_t *row = data;
  uint64_t bytes = st_format_row_bytes(f, shape.columns);
  for (uint64_t r = 0; r < strip->count; r++, row += bytes) {
    float d = st_load_f16(row);
    for (uint64_t k = 0; k < shape.columns; k++) *out++ = (float)(int8_t)row[HEAD + k] * d;
  }
}

static void int8_encode(const st_format *f, st_shape shape, const st_strip *strip, const float *in, void *data) {
  uint8_t *row = data;
  uint64_t bytes = st_format_row_bytes(f, shape.columns);
  int n = (int)shape.columns;
  for (uint64_t r = 0; r < strip->count; r++, row += bytes, in += n) {
    float d = fit_row(in, n);
    st_store_f16(row, d);
    st_fit_codes(in, NULL, n, d, -127, 127, (int8_t *)row + HEAD);
  }
}

const st_format_ops st_ops_int8 = {
    .decode = int8_decode, .encode = int8_encode, .row_head = HEAD, .packed_as = ST_ZP8_128};
