// Weights whose rows are not stored in the layout of their format and are assembled first: every second row of a
// tensor, MXFP4 in two tensors, MLX's groups in three, and the weights of packed.h. Private to src/source.
#ifndef SETUN_SOURCE_SCATTERED_H
#define SETUN_SOURCE_SCATTERED_H

#include "source/weight.h"

static inline bool st_weight_is_scattered(const st_weight *w) {
  return w->row_step > 1 || w->block_scales || w->packed.kind;
}

// Fills r->bytes with at most `want` rows, starting at `row` of this weight, in the weight's format, contiguously; the
// strip has their number. The rows must be within the weight.
setun_status st_load_scattered(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err);

#endif
