// Log-probabilities from logits.
#ifndef SETUN_RUNTIME_LOGPROBS_H
#define SETUN_RUNTIME_LOGPROBS_H

#include "setun.h"

// As setun_logprobs, with checked arguments.
void st_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top, size_t capacity);

#endif
