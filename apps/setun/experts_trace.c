// Writing the trace.
#include "experts_trace.h"

#include "model.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { PENDING_MOST = 1 << 20 };

bool open_experts_trace(experts_trace *t, const char *path) {
  setun_error error;
  *t = (experts_trace){.status = SETUN_OK};
  return setun_output_open(path, &t->output, &error) == SETUN_OK || !report(&error);
}

static void flush(experts_trace *t) {
  if (t->status == SETUN_OK) t->status = setun_output_write(t->output, t->written, t->pending, t->length, &t->error);
  t->written += t->length;
  t->length = 0;
}

// Makes room for `n` more bytes.
static bool reserve(experts_trace *t, size_t n) {
  if (t->capacity - t->length >= n) return true;
  size_t larger = t->capacity * 2 + n;
  char *pending = realloc(t->pending, larger);
  if (!pending) {
    if (t->status == SETUN_OK) snprintf(t->error.message, sizeof t->error.message, "out of memory for the trace");
    t->status = t->error.code = SETUN_ERROR_MEMORY;
    return false;
  }
  t->pending = pending;
  t->capacity = larger;
  return true;
}

void write_experts(uint32_t layer, uint32_t n_tokens, const uint32_t *experts, const uint32_t *tokens, uint32_t n,
                   void *trace) {
  enum { NUMBERS = 32 }; // room for two numbers and their separators
  experts_trace *t = trace;
  if (!reserve(t, (size_t)(n + 1) * NUMBERS)) return;
  char *line = t->pending + t->length;
  size_t at = (size_t)snprintf(line, NUMBERS, "%u %u", (unsigned)layer, (unsigned)n_tokens);
  for (uint32_t i = 0; i < n; i++) {
    at += (size_t)snprintf(line + at, NUMBERS, " %u", (unsigned)experts[i]);
    if (tokens[i] != 1) at += (size_t)snprintf(line + at, NUMBERS, ":%u", (unsigned)tokens[i]);
  }
  line[at++] = '\n';
  t->length += at;
  if (t->length > PENDING_MOST) flush(t);
}

bool begin_experts_trace(experts_trace *t, const setun_model *model) {
  enum { HEAD = 96 };
  setun_plan plan = model_plan_of(model);
  setun_model_info info = model_info(model);
  if (!t->output) return true;
  if (!plan.n_expert_layers) {
    failure("--trace: expected a model with experts, found one without");
    return false;
  }
  if (reserve(t, HEAD)) {
    t->length += (size_t)snprintf(t->pending + t->length, HEAD, "setun-experts 1 layers=%u experts=%u used=%u\n",
                                  (unsigned)info.n_layer, (unsigned)(plan.n_experts / plan.n_expert_layers),
                                  (unsigned)plan.n_experts_of_token);
  }
  return true;
}

bool close_experts_trace(experts_trace *t, bool whole) {
  if (!t->output) return true;
  flush(t);
  free(t->pending);
  setun_output *output = t->output;
  t->output = NULL;
  if (whole && t->status == SETUN_OK) {
    t->status = setun_output_commit(output, &t->error);
  } else {
    setun_output_discard(output);
  }
  if (t->status == SETUN_OK) return true;
  report(&t->error);
  return false;
}
