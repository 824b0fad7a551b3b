// Log-probabilities: computed in float64, kept, and printed as JSON.
#include "logprobs.h"

#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void logprobs_free(logprobs *l) {
  free(l->rows);
}

log_softmax log_softmax_of(const float *logits, uint32_t n) {
  double highest = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < n; i++) highest = (double)logits[i] > highest ? (double)logits[i] : highest;
  for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - highest);
  return (log_softmax){highest, log(sum)};
}

// Puts a token among the likeliest, which are in order; of equal ones that with the lowest id is first.
static void put_likely(token_logprob *top, size_t *count, size_t most, token_logprob t) {
  size_t i = *count;
  if (i == most && (!i || t.value <= top[i - 1].value)) return;
  if (i < most)
    ++*count;
  else
    i--;
  for (; i > 0 && top[i - 1].value < t.value; i--) top[i] = top[i - 1];
  top[i] = t;
}

static bool make_room(logprobs *l) {
  size_t width = 1 + l->top, larger = l->capacity * 2 + 64;
  if (l->count < l->capacity) return true;
  token_logprob *rows =
      larger <= SIZE_MAX / sizeof *rows / width ? realloc(l->rows, larger * width * sizeof *rows) : NULL;
  if (!rows) {
    failure("out of memory for the log-probabilities of %zu tokens", larger);
    return false;
  }
  l->rows = rows;
  l->capacity = larger;
  return true;
}

bool logprobs_add(logprobs *l, const float *logits, uint32_t n_vocab, setun_token id) {
  size_t found = 0;
  if (l->top > n_vocab) l->top = n_vocab;
  if (!make_room(l)) return false;
  token_logprob *row = l->rows + l->count++ * (1 + l->top);
  log_softmax all = log_softmax_of(logits, n_vocab);
  row[0] = (token_logprob){id, log_probability(all, logits[id])};
  for (uint32_t i = 0; i < n_vocab; i++) {
    put_likely(row + 1, &found, l->top, (token_logprob){(setun_token)i, log_probability(all, logits[i])});
  }
  return true;
}

static void print_one(const setun_model *model, const token_logprob *t) {
  const char *text = "";
  size_t length = 0;
  if (setun_token_get_text(model, t->id, &text, &length, NULL) != SETUN_OK) length = 0;
  print_text("\"id\": %d, \"token\": ", (int)t->id);
  print_json_string(text, length);
  print_text(", \"logprob\": ");
  print_json_number(t->value);
}

void print_logprob_members(const setun_model *model, const logprobs *l, size_t index) {
  const token_logprob *row = l->rows + index * (1 + l->top);
  print_one(model, row);
  if (!l->top) return;
  print_text(", \"top_logprobs\": [");
  for (size_t i = 0; i < l->top; i++) {
    print_text(i ? ", {" : "{");
    print_one(model, row + 1 + i);
    print_text("}");
  }
  print_text("]");
}
