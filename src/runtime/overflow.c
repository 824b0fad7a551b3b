// Overflow: its symptoms in the logits, and where it began.
#include "runtime/overflow.h"

#include "base/memory.h"

#include <float.h>
#include <math.h>

// State of a pass that is computed again to find the overflow.
typedef struct probe {
  uint32_t width;
  bool found;
  uint32_t layer, position; // after this many layers
  float value;
} probe;

// The next norm sums its squares.
static bool overflows(const float *x, uint32_t n, float *value) {
  float squares = 0;
  for (uint32_t i = 0; i < n; i++) squares += x[i] * x[i];
  if (squares <= FLT_MAX) return false;
  *value = x[0];
  for (uint32_t i = 1; i < n && *value == *value; i++) {
    if (!(fabsf(x[i]) <= fabsf(*value))) *value = x[i];
  }
  return true;
}

static bool on_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  probe *p = user;
  for (uint32_t t = 0; t < n && !p->found; t++) {
    p->found = overflows(hidden + (size_t)t * p->width, p->width, &p->value);
    p->layer = layer;
    p->position = position + t;
  }
  return !p->found;
}

static setun_status find(const st_finished_pass *f, probe *p, setun_error *err) {
  float *hidden = st_malloc(f->batch->n_tokens, p->width * sizeof *hidden);
  if (!hidden) return st_fail_memory(err, "hidden states");
  st_pass pass = {.hidden = hidden, .on_hidden = on_hidden, .user = p};
  setun_status s = st_run_tokens(f->run, f->ids, f->batch, &pass, err);
  st_free(hidden);
  return p->found ? SETUN_OK : s; // the probe ends the pass
}

// NULL: the logits are fine. Otherwise the first that is not finite, or the first of a row with all equal.
static const float *suspicious(const float *logits, uint32_t n, uint32_t n_vocab) {
  for (uint32_t t = 0; t < n; t++) {
    const float *row = logits + (size_t)t * n_vocab;
    int bad = 0, differ = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
      bad |= !(fabsf(row[i]) <= FLT_MAX);
      differ |= row[i] != row[0];
    }
    if (!bad && (differ || n_vocab == 1)) continue;
    while (bad && fabsf(*row) <= FLT_MAX) row++;
    return row;
  }
  return NULL;
}

uint32_t st_finished_position(const st_finished_pass *f, uint32_t row) {
  const st_token_run *r = f->batch->runs;
  for (; row >= r->n; r++) row -= r->n;
  return r->forgotten + r->position + row;
}

setun_status st_overflow_check(const st_finished_pass *f, const uint32_t *rows, uint32_t n, const float *logits,
                               setun_error *err) {
  uint32_t n_vocab = f->run->model->h.n_vocab;
  const float *bad = suspicious(logits, n, n_vocab);
  if (!bad) return SETUN_OK;
  probe p = {.width = f->run->model->h.n_embd};
  setun_status s = find(f, &p, err);
  if (s != SETUN_OK) return s;
  if (p.found && !p.layer) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "the embedding: expected numbers whose squares fit into float32, found %g at "
                   "position %u",
                   (double)p.value, p.position);
  }
  if (p.found) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "layer %u: expected numbers whose squares fit into float32, found %g at "
                   "position %u",
                   p.layer - 1, (double)p.value, p.position);
  }
  if (fabsf(*bad) <= FLT_MAX) return SETUN_OK; // such weights do produce equal logits
  size_t at = (size_t)(bad - logits);
  return st_fail(err, SETUN_ERROR_FORMAT, "logit of token %zu after position %u: expected a finite number, found %g",
                 at % n_vocab, st_finished_position(f, rows[at / n_vocab]), (double)*bad);
}
