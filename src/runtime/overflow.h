// Numbers that went beyond float32 on their way to the logits. There they are NaN or infinite, or were lost: a norm
// over an infinite sum and the quantization of infinite activations both give zeros, and all logits are one number.
#ifndef SETUN_RUNTIME_OVERFLOW_H
#define SETUN_RUNTIME_OVERFLOW_H

#include "model/forward.h"

// SETUN_ERROR_FORMAT where the `n` rows of logits behind a pass's token `first` and those after it show that. Only
// where they look so the pass, `n_ids` tokens from `position` on, is computed again, to name the layer.
setun_status st_overflow_check(st_run *run, const float *logits, uint32_t first, uint32_t n, const setun_token *ids,
                               uint32_t n_ids, uint32_t position, setun_error *err);

#endif
