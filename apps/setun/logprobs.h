// Log-probabilities of the tokens that were drawn and of the likeliest ones beside them, from the model's own logits:
// before biases, penalties, temperature and whatever else draws.
#ifndef SETUN_APP_LOGPROBS_H
#define SETUN_APP_LOGPROBS_H

#include "setun.h"

// Zero-initialize with `top` set; freed with logprobs_free. `rows` has for each token its own, then `top` likeliest
// ones, falling.
typedef struct logprobs {
  size_t top;
  setun_logprob *rows; // [count][1 + top]
  size_t count, capacity;
} logprobs;

// Adds those of a token that was drawn from these logits. False after a report.
bool logprobs_add(logprobs *l, const float *logits, uint32_t n_vocab, setun_token id);
void logprobs_free(logprobs *l);
// Members of a JSON object for one token: "id", "token" (its text), "logprob", and where `top` is above 0
// "top_logprobs", an array of such objects.
void print_logprob_members(const setun_model *model, const logprobs *l, size_t index);

#endif
