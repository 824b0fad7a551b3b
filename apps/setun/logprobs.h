// Log-probabilities of drawn tokens and of the likeliest alternatives, from the model's own logits: before biases,
// penalties, temperature and other sampling steps.
#ifndef SETUN_APP_LOGPROBS_H
#define SETUN_APP_LOGPROBS_H

#include "setun.h"

// Zero-initialize with `top` set; freed with logprobs_free. `rows` has for each token its own, then the `top` likeliest
// ones, descending.
typedef struct logprobs {
  size_t top;
  setun_logprob *rows; // [count][1 + top]
  size_t count, capacity;
} logprobs;

// Adds those of a token drawn from these logits. False after a report.
bool logprobs_add(logprobs *l, const float *logits, uint32_t n_vocab, setun_token id);
void logprobs_free(logprobs *l);
// Members of a JSON object for one token: "id", "token" (its text), "logprob", and, if `top` is above 0,
// "top_logprobs", an array of such objects.
void print_logprob_members(const setun_model *model, const logprobs *l, size_t index);

#endif
