// Ternary formats whose bytes mix distant weights: the loops over runs of codes.
#include "quant/runs.h"

#include <inttypes.h>

// The run at column k, up to the row's end at most.
static st_code_run run_at(const st_format *format, st_shape shape, uint64_t row, uint64_t k) {
  st_code_run run = format->ops->run(shape, row, k);
  if (run.length > shape.columns - k) run.length = shape.columns - k;
  return run;
}

void st_runs_unpack(const st_format *format, st_shape shape, const st_strip *strip, const void *data, int8_t *trits,
                    float *scales) {
  (void)scales;
  for (uint64_t row = strip->row; row < strip->row + strip->count; row++)
    for (uint64_t k = 0; k < shape.columns;) {
      st_code_run run = run_at(format, shape, row, k);
      const uint8_t *bytes = (const uint8_t *)data + (run.offset - strip->offset);
      for (uint64_t i = 0; i < run.length; i++) trits[i] = (int8_t)((bytes[i] >> run.shift & 3) - 1);
      trits += run.length;
      k += run.length;
    }
}

int64_t st_runs_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data) {
  int64_t first = -1;
  for (uint64_t row = strip->row; row < strip->row + strip->count; row++)
    for (uint64_t k = 0; k < shape.columns;) {
      st_code_run run = run_at(format, shape, row, k);
      const uint8_t *bytes = (const uint8_t *)data + (run.offset - strip->offset);
      uint64_t i = 0;
      while (i < run.length && (bytes[i] >> run.shift & 3) != 3) i++;
      int64_t at = (int64_t)(run.offset + i);
      if (i < run.length && (first < 0 || at < first)) first = at;
      k += run.length;
    }
  return first;
}

void st_runs_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                  const float *scales, void *data) {
  (void)scales;
  for (uint64_t row = strip->row; row < strip->row + strip->count; row++)
    for (uint64_t k = 0; k < shape.columns;) {
      st_code_run run = run_at(format, shape, row, k);
      uint8_t *bytes = (uint8_t *)data + (run.offset - strip->offset);
      for (uint64_t i = 0; i < run.length; i++) bytes[i] |= (uint8_t)((trits[i] + 1) << run.shift);
      trits += run.length;
      k += run.length;
    }
}

void st_runs_dot(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
                 const int8_t *x, int32_t *sums) {
  int32_t sum = 0;
  for (uint64_t k = 0; k < shape.columns;) {
    st_code_run run = run_at(format, shape, row, k);
    const uint8_t *bytes = (const uint8_t *)data + (run.offset - strip->offset);
    for (uint64_t i = 0; i < run.length; i++) sum += ((bytes[i] >> run.shift & 3) - 1) * x[k + i];
    k += run.length;
  }
  *sums = sum;
}

setun_status st_fail_too_large(const st_format *format, st_shape shape, setun_error *err) {
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: a tensor of %" PRIu64 " by %" PRIu64 " weights is too large",
                 format->name, shape.rows, shape.columns);
}
