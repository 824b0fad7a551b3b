// int8-row: rows of signed bytes that share a scale, for embeddings: f16 d, then a byte a weight; w = q * d. Rows are a
// multiple of 32 weights.
#include "quant/fit.h"
#include "quant/rows.h"

enum { HEAD = 2 };

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
    float d = st_fit_scale(in, NULL, n, -127, 127);
    st_store_f16(row, d);
    st_fit_codes(in, NULL, n, d, -127, 127, (int8_t *)row + HEAD);
  }
}

const st_format_ops st_ops_int8 = {
    .decode = int8_decode, .encode = int8_encode, .row_head = HEAD, .packed_as = ST_ZP8_128};
