// i2_s in its three orders, which share a GGUF type and differ by the build that wrote the file. All have one 2-bit
// code (trit + 1) per weight, then 32 bytes, the first four of which are the float32 scale: n / 4 + 32 bytes for n
// weights.
//   i2_s (x86): 128 weights in 32 bytes; byte b = w[b] << 6 | w[32 + b] << 4 | w[64 + b] << 2 | w[96 + b]
//   i2_s-arm:    64 weights in 16 bytes; byte b = w[b] << 6 | w[16 + b] << 4 | w[32 + b] << 2 | w[48 + b]
//   i2_s-x4:     four rows a byte; byte [row / 4][column] = r0 << 6 | r1 << 4 | r2 << 2 | r3
// The first two pack across rows whose length is not a multiple of the group: files with such rows are read, not
// written.
#include "base/memory.h"
#include "quant/runs.h"

#include <inttypes.h>

enum { I2_S_TAIL = 32 };

// n / 4 has passed i2_s_size.
static uint64_t code_bytes(st_shape shape) {
  return shape.rows * shape.columns / 4;
}

static setun_status size_of(const st_format *format, st_shape shape, uint64_t multiple, uint64_t *bytes,
                            setun_error *err) {
  uint64_t n;
  if (!st_mul_u64(shape.rows, shape.columns, &n)) return st_fail_too_large(format, shape, err);
  if (n % multiple)
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: weights come in groups of %" PRIu64 ", these are %" PRIu64 " by %" PRIu64, format->name,
                   multiple, shape.rows, shape.columns);
  *bytes = n / 4 + I2_S_TAIL;
  return SETUN_OK;
}

static uint64_t i2_s_scale_offset(const st_format *format, st_shape shape) {
  (void)format;
  return code_bytes(shape);
}

static setun_status flat_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  return size_of(format, shape, format->block, bytes, err);
}

static st_strip flat_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  uint64_t count = want < shape.rows - row ? want : shape.rows - row;
  uint64_t first = row * shape.columns / format->block, end = (row + count) * shape.columns;
  uint64_t last = end / format->block + (end % format->block != 0), bytes = format->block / 4;
  return (st_strip){.row = row, .count = count, .offset = first * bytes, .bytes = (last - first) * bytes};
}

static st_code_run flat_run(st_shape shape, uint64_t row, uint64_t k, uint64_t width) {
  uint64_t i = row * shape.columns + k, group = i / (4 * width), plane = i / width % 4, b = i % width;
  return (st_code_run){.offset = group * width + b, .length = width - b, .shift = (unsigned)(6 - 2 * plane)};
}

static st_code_run x86_run(st_shape shape, uint64_t row, uint64_t k) {
  return flat_run(shape, row, k, 32);
}
static st_code_run arm_run(st_shape shape, uint64_t row, uint64_t k) {
  return flat_run(shape, row, k, 16);
}

static setun_status x4_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  if (shape.rows % 4)
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a multiple of 4 rows, found %" PRIu64, format->name,
                   shape.rows);
  return size_of(format, shape, 4, bytes, err);
}

static st_strip x4_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  (void)format;
  uint64_t count = want < shape.rows - row ? want : shape.rows - row;
  uint64_t first = row / 4, last = (row + count + 3) / 4;
  return (st_strip){
      .row = row, .count = count, .offset = first * shape.columns, .bytes = (last - first) * shape.columns};
}

static st_code_run x4_run(st_shape shape, uint64_t row, uint64_t k) {
  return (st_code_run){
      .offset = row / 4 * shape.columns + k, .length = shape.columns - k, .shift = (unsigned)(6 - 2 * (row % 4))};
}

#define I2_S_OPS(run_, codes_, size_, locate_, usual_, synthetic_)                                                     \
  {                                                                                                                    \
    .run = (run_), .codes = (codes_), .size = (size_), .locate = (locate_), .unpack = st_runs_unpack,                  \
    .check = st_runs_check, .pack = st_runs_pack, .scale_offset = i2_s_scale_offset, .dot = st_runs_dot,               \
    .of_int8_models = true, .is_usual = (usual_), .synthetic = (synthetic_)                                            \
  }
static const st_code_layout x86_codes = {.step = 128, .step_bytes = 32, .width = 32, .first = 6, .next = -2};
static const st_code_layout arm_codes = {.step = 64, .step_bytes = 16, .width = 16, .first = 6, .next = -2};
static const st_code_layout x4_codes = {.order = ST_CODES_SHARED, .step = 16};
const st_format_ops st_ops_i2_s = I2_S_OPS(x86_run, &x86_codes, flat_size, flat_locate, true, ST_SYNTHETIC_MATRICES);
const st_format_ops st_ops_i2_s_arm = I2_S_OPS(arm_run, &arm_codes, flat_size, flat_locate, true, ST_SYNTHETIC_NONE);
const st_format_ops st_ops_i2_s_x4 = I2_S_OPS(x4_run, &x4_codes, x4_size, x4_locate, false, ST_SYNTHETIC_NONE);
