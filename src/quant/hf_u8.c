// hf-u8: ternary weights as Hugging Face BitNet checkpoints store them, a U8 tensor P[Q, K] with Q = ceil(rows / 4).
// Row o is in quarter i = o / Q: its code for column c is the bit pair 2i of P[o - i * Q][c]; trit = code - 1. Rows
// past the end are padding with arbitrary codes. The scale is a separate tensor.
#include "base/memory.h"
#include "quant/runs.h"

static uint64_t quarter(st_shape shape) {
  return shape.rows / 4 + (shape.rows % 4 != 0);
}

static setun_status hf_u8_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  uint64_t all;
  if (!st_mul_u64(quarter(shape), shape.columns, &all)) return st_fail_too_large(format, shape, err);
  *bytes = all;
  return SETUN_OK;
}

// Rows of one quarter are contiguous.
static st_strip hf_u8_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  (void)format;
  uint64_t q = quarter(shape), end = (row / q + 1) * q;
  if (end > shape.rows) end = shape.rows;
  uint64_t count = want < end - row ? want : end - row;
  return (st_strip){.row = row, .count = count, .offset = row % q * shape.columns, .bytes = count * shape.columns};
}

static st_code_run hf_u8_run(st_shape shape, uint64_t row, uint64_t k) {
  uint64_t q = quarter(shape);
  return (st_code_run){
      .offset = row % q * shape.columns + k, .length = shape.columns - k, .shift = (unsigned)(2 * (row / q))};
}

// A quarter that ends within a group of 16 rows would be cut there.
static const st_code_layout hf_u8_codes = {.order = ST_CODES_SHARED, .step = 16, .rows = 4 * 16};
const st_format_ops st_ops_hf_u8 = {ST_RUN_FIELDS(hf_u8_run, &hf_u8_codes, hf_u8_size, hf_u8_locate), .dtype = "U8",
                                    .dividing = "hf-u8-div", .row_parts = 4};
