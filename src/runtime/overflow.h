// Detection of overflows beyond float32 before the logits. There they appear as NaN or infinity, or are hidden: a norm
// over an infinite sum and the quantization of infinite activations both produce zeros, and then all logits are equal.
#ifndef SETUN_RUNTIME_OVERFLOW_H
#define SETUN_RUNTIME_OVERFLOW_H

#include "model/forward.h"

// A finished pass.
typedef struct st_finished_pass {
  st_run *run;
  const setun_token *ids;
  const st_batch *batch;
} st_finished_pass;

// The position of a row of the pass.
uint32_t st_finished_position(const st_finished_pass *pass, uint32_t row);

// SETUN_ERROR_FORMAT where the logits after `n` rows of the pass show an overflow. Only then the pass is computed
// again, to name the layer.
setun_status st_overflow_check(const st_finished_pass *pass, const uint32_t *rows, uint32_t n, const float *logits,
                               setun_error *err);

#endif
