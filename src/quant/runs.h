// Shared by ternary formats whose bytes mix weights of distant rows or columns, four 2-bit codes (trit + 1) per byte: a
// format's file locates the codes of some weights; the functions here do the rest.
#ifndef SETUN_QUANT_RUNS_H
#define SETUN_QUANT_RUNS_H

#include "quant/quant.h"

void st_runs_unpack(const st_format *format, st_shape shape, const st_strip *strip, const void *data, int8_t *trits,
                    float *scales);
int64_t st_runs_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data);
void st_runs_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                  const float *scales, void *data);
void st_runs_dot(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
                 const int8_t *x, int32_t *sums);

#define ST_RUN_FIELDS(run_, codes_, size_, locate_)                                                                    \
  .run = (run_), .codes = (codes_), .size = (size_), .locate = (locate_), .unpack = st_runs_unpack,                    \
  .check = st_runs_check, .pack = st_runs_pack, .dot = st_runs_dot

// The error for a `size` function whose product overflows.
setun_status st_fail_too_large(const st_format *format, st_shape shape, setun_error *err);

#endif
