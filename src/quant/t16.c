// t16: the order of the kernels, so that streamed layers need no repacking. Groups of 16 rows; in a group blocks of 64
// bytes, one for 16 columns. Byte 4 r + j of a block holds row r; its bit pairs 0-1, 2-3, 4-5, 6-7 are its columns j, 4
// + j, 8 + j, 12 + j; code = trit + 1. Rows are padded to a multiple of 16 and columns to one of 32, the kernels' step,
// with code 1. Scales are a separate tensor.
#include "base/memory.h"
#include "quant/runs.h"

static uint64_t groups_of(uint64_t rows) {
  return rows / 16 + (rows % 16 != 0);
}

static uint64_t blocks_of(uint64_t columns) {
  return 2 * (columns / 32 + (columns % 32 != 0));
}

static setun_status t16_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  uint64_t all;
  if (!st_mul_u64(blocks_of(shape.columns), 64, &all) || !st_mul_u64(all, groups_of(shape.rows), &all))
    return st_fail_too_large(format, shape, err);
  *bytes = all;
  return SETUN_OK;
}

// Whole groups.
static st_strip t16_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  (void)format;
  uint64_t group = 64 * blocks_of(shape.columns), first = row / 16;
  uint64_t count = want < shape.rows - row ? want : shape.rows - row;
  return (st_strip){
      .row = row, .count = count, .offset = first * group, .bytes = (groups_of(row + count) - first) * group};
}

static st_code_run t16_run(st_shape shape, uint64_t row, uint64_t k) {
  uint64_t block = row / 16 * blocks_of(shape.columns) + k / 16;
  return (st_code_run){
      .offset = 64 * block + 4 * (row % 16) + k % 4, .length = 4 - k % 4, .shift = (unsigned)(2 * (k % 16 / 4))};
}

// The kernels read padding columns, so these must have code 1.
static int64_t t16_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data) {
  int64_t first = st_runs_check(format, shape, strip, data);
  for (uint64_t row = strip->row; row < strip->row + strip->count; row++)
    for (uint64_t k = shape.columns; k % 32; k++) {
      st_code_run run = t16_run(shape, row, k);
      unsigned code = ((const uint8_t *)data)[run.offset - strip->offset] >> run.shift & 3;
      if (code != 1 && (first < 0 || (int64_t)run.offset < first)) first = (int64_t)run.offset;
    }
  return first;
}

static void t16_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                     const float *scales, void *data) {
  st_runs_pack(format, shape, strip, trits, scales, data);
  uint64_t end = strip->row + strip->count;
  uint64_t padded = end == shape.rows ? 16 * groups_of(end) : end;
  for (uint64_t row = strip->row; row < padded; row++)
    for (uint64_t k = row < end ? shape.columns : 0; k < 16 * blocks_of(shape.columns); k++) {
      st_code_run run = t16_run(shape, row, k);
      ((uint8_t *)data)[run.offset - strip->offset] |= (uint8_t)(1 << run.shift);
    }
}

static const st_code_layout t16_codes = {.order = ST_CODES_GROUPS, .step = 16};
const st_format_ops st_ops_t16 = {.run = t16_run,
                                  .codes = &t16_codes,
                                  .size = t16_size,
                                  .locate = t16_locate,
                                  .unpack = st_runs_unpack,
                                  .check = t16_check,
                                  .pack = t16_pack,
                                  .dot = st_runs_dot,
                                  .synthetic = ST_SYNTHETIC_PLANNED};
