// Log-probabilities: kept, and printed as JSON.
#include "logprobs.h"

#include "output.h"

#include <stdlib.h>

void logprobs_free(logprobs *l) {
  free(l->rows);
}

static bool make_room(logprobs *l) {
  size_t width = 1 + l->top, larger = l->capacity * 2 + 64;
  if (l->count < l->capacity) return true;
  setun_logprob *rows =
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
  setun_error error;
  if (l->top > n_vocab) l->top = n_vocab;
  if (!make_room(l)) return false;
  setun_logprob *row = l->rows + l->count * (1 + l->top);
  row->id = id;
  if (setun_logprobs(logits, n_vocab, id, &row->value, row + 1, l->top, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  l->count++;
  return true;
}

static void print_one(const setun_model *model, const setun_logprob *t) {
  const char *text = "";
  size_t length = 0;
  if (setun_token_get_text(model, t->id, &text, &length, NULL) != SETUN_OK) length = 0;
  print_text("\"id\": %d, \"token\": ", (int)t->id);
  print_json_string(text, length);
  print_text(", \"logprob\": ");
  print_json_number(t->value);
}

void print_logprob_members(const setun_model *model, const logprobs *l, size_t index) {
  const setun_logprob *row = l->rows + index * (1 + l->top);
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
