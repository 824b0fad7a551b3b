// hf-u8: ternary weights as Hugging Face BitNet checkpoints store them, a U8 tensor P[Q, K] with Q = ceil(rows / 4).
// Row o stands in quarter i = o / Q: its code for column c is the bit pair 2i of P[o - i * Q][c]; trit = code - 1. Rows
// past the end are padding whose codes mean nothing. The scale is a tensor of its own.
#include "base/memory.h"
#include "quant/rows.h"

#include <inttypes.h>

static uint64_t quarter(st_shape shape) {
  return shape.rows / 4 + (shape.rows % 4 != 0);
}

static setun_status hf_u8_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  if (st_mul_u64(quarter(shape), shape.columns, bytes)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: a tensor of %" PRIu64 " by %" PRIu64 " weights is too large",
                 format->name, shape.rows, shape.columns);
}

// Rows of one quarter are contiguous.
static st_strip hf_u8_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  (void)format;
  uint64_t q = quarter(shape), end = (row / q + 1) * q;
  if (end > shape.rows) end = shape.rows;
  uint64_t count = want < end - row ? want : end - row;
  return (st_strip){.row = row, .count = count, .offset = row % q * shape.columns, .bytes = count * shape.columns};
}

static int shift_of(st_shape shape, const st_strip *strip) {
  return (int)(2 * (strip->row / quarter(shape)));
}

static void hf_u8_unpack(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                         int8_t *trits, float *scales) {
  (void)format, (void)scales;
  int shift = shift_of(shape, strip);
  const uint8_t *bytes = data;
  for (uint64_t i = 0; i < strip->bytes; i++) trits[i] = (int8_t)((bytes[i] >> shift & 3) - 1);
}

static int64_t hf_u8_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data) {
  (void)format;
  int shift = shift_of(shape, strip);
  const uint8_t *bytes = data;
  for (uint64_t i = 0; i < strip->bytes; i++)
    if ((bytes[i] >> shift & 3) == 3) return (int64_t)(strip->offset + i);
  return -1;
}

static void hf_u8_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                       const float *scales, void *data) {
  (void)format, (void)scales;
  int shift = shift_of(shape, strip);
  uint8_t *bytes = data;
  for (uint64_t i = 0; i < strip->bytes; i++) bytes[i] |= (uint8_t)((trits[i] + 1) << shift);
}

static void hf_u8_dot(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
                      const int8_t *x, int32_t *sums) {
  (void)format;
  int shift = shift_of(shape, strip);
  const uint8_t *bytes = (const uint8_t *)data + (row - strip->row) * shape.columns;
  int32_t sum = 0;
  for (uint64_t k = 0; k < shape.columns; k++) sum += ((bytes[k] >> shift & 3) - 1) * x[k];
  *sums = sum;
}

const st_format_ops st_ops_hf_u8 = {.size = hf_u8_size,
                                    .locate = hf_u8_locate,
                                    .unpack = hf_u8_unpack,
                                    .check = hf_u8_check,
                                    .pack = hf_u8_pack,
                                    .dot = hf_u8_dot};
