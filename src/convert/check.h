// Scanning stored ternary weights: invalid codes, and zeros.
#ifndef SETUN_CONVERT_CHECK_H
#define SETUN_CONVERT_CHECK_H

#include "source/weight.h"

// Reads a whole stored tensor and looks for a byte that holds an invalid code, or that no writer makes: its offset in
// the tensor goes to *offset, -1 when there is none. Code 3 of the Q2_0 kinds counts as invalid only with `strict`.
// In value formats: half-precision scales that are not finite, and, unless `strict`, floats that are not.
setun_status st_check_tensor(const st_directory *d, const st_tensor *tensor, const st_format *format, st_shape stored,
                             bool strict, int64_t *offset, setun_error *err);

typedef struct st_zeros {
  uint64_t weights, zeros;
  uint64_t columns, zero_columns; // columns that are zero in all rows
} st_zeros;

// Counts the zeros of a ternary weight.
setun_status st_count_zeros(const st_directory *d, const st_weight *weight, st_zeros *zeros, setun_error *err);

#endif
