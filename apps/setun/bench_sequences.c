// Passes over several sequences, timed alternately with passes over one; forks, and prefixes found in the cache.
#include "bench_sequences.h"

#include "interrupt.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double median_of(double *values, int64_t n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

setun_context_params sequences_context_params(const compute_options *compute, const sequences_work *w) {
  const setun_session_params session = session_params(compute);
  setun_context_params params = setun_context_params_default();
  params.n_ctx = session.n_ctx;
  params.n_seq_max = w->n < 2 ? 2 : w->n;
  params.n_cache = (uint64_t)w->n * ((w->depth + w->passes + 63) / 64 * 64) + 64; // and the page copied by a fork
  params.n_batch = session.n_batch;
  params.threads = session.threads;
  params.kv_keys = session.kv_keys;
  params.kv_values = session.kv_values;
  return params;
}

static bool goes_on(double fraction, void *user) {
  (void)fraction, (void)user;
  return !interrupt_status();
}

typedef struct timing {
  setun_context *context;
  const sequences_work *work;
  setun_eval_params eval;
  setun_batch_entry *entries; // [n], one per sequence
  double *all, *one;          // [repeats] seconds of a pass
  double *fork, *hit;         // [repeats] seconds
} timing;

// Makes the sequences, each with the first `depth` tokens, evaluated separately.
static setun_status begin_sequences(timing *t, setun_error *error) {
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < t->work->n && s == SETUN_OK; i++) {
    setun_batch_entry *e = &t->entries[i];
    *e = (setun_batch_entry){.logits = SETUN_LOGITS_NONE, .ids = t->work->ids, .n = t->work->depth};
    s = setun_context_add(t->context, &e->sequence, error);
    if (s == SETUN_OK) s = setun_context_eval(t->context, e, 1, &t->eval, error);
    e->logits = SETUN_LOGITS_LAST;
    e->n = 1;
  }
  return s;
}

// Seconds of a pass over the first `n` sequences, each at `depth` before and after.
static setun_status time_passes(timing *t, uint32_t n, double *seconds, setun_error *error) {
  const sequences_work *w = t->work;
  setun_status s = SETUN_OK;
  double start = seconds_now();
  for (uint32_t i = 0; i < w->passes && s == SETUN_OK; i++) {
    // Different tokens for each sequence, so that a mixture of experts uses different experts.
    for (uint32_t k = 0; k < n; k++) t->entries[k].ids = &w->ids[(i + k) % (w->depth + w->passes)];
    s = setun_context_eval(t->context, t->entries, n, &t->eval, error);
  }
  *seconds = (seconds_now() - start) / w->passes;
  for (uint32_t k = 0; k < n && s == SETUN_OK; k++) {
    s = setun_context_truncate(t->context, t->entries[k].sequence, w->depth, error);
  }
  return s;
}

static setun_status time_in_turns(timing *t, setun_error *error) {
  double warm;
  setun_status s = time_passes(t, t->work->n, &warm, error);
  for (int64_t i = 0; i < t->work->repeats && s == SETUN_OK; i++) {
    s = time_passes(t, 1, &t->one[i], error);
    if (s == SETUN_OK) s = time_passes(t, t->work->n, &t->all[i], error);
  }
  return s;
}

// Seconds to fork the first sequence, which is unchanged.
static setun_status time_fork(timing *t, double *seconds, setun_error *error) {
  int copy = 0;
  double start = seconds_now();
  setun_status s = setun_context_fork(t->context, t->entries[0].sequence, &copy, error);
  *seconds = seconds_now() - start;
  return s == SETUN_OK ? setun_context_drop(t->context, copy, error) : s;
}

// Seconds until a request whose first `depth` tokens are in the cache has its first logits. Its sequence replaces the
// first one.
static setun_status time_hit(timing *t, double *seconds, uint32_t *found, setun_error *error) {
  const sequences_work *w = t->work;
  setun_batch_entry *e = &t->entries[0];
  setun_status s = setun_context_drop(t->context, e->sequence, error);
  if (s != SETUN_OK) return s;
  double start = seconds_now();
  s = setun_context_reuse(t->context, w->ids, w->depth + 1u, &e->sequence, found, error);
  if (s != SETUN_OK) return s;
  const setun_batch_entry rest = {
      .sequence = e->sequence, .logits = SETUN_LOGITS_LAST, .ids = w->ids + *found, .n = w->depth + 1u - *found};
  s = setun_context_eval(t->context, &rest, 1, &t->eval, error);
  *seconds = seconds_now() - start;
  return s == SETUN_OK ? setun_context_truncate(t->context, e->sequence, w->depth, error) : s;
}

// Drops all sequences but the first.
static setun_status time_reuse(timing *t, uint32_t *found, setun_error *error) {
  setun_status s = SETUN_OK;
  for (uint32_t k = 1; k < t->work->n && s == SETUN_OK; k++) {
    s = setun_context_drop(t->context, t->entries[k].sequence, error);
  }
  for (int64_t i = 0; i < t->work->repeats && s == SETUN_OK; i++) {
    s = time_fork(t, &t->fork[i], error);
    if (s == SETUN_OK) s = time_hit(t, &t->hit[i], found, error);
  }
  return s;
}

setun_status time_sequences(const setun_model *model, const compute_options *compute, const sequences_work *w,
                            sequences_result *result, setun_error *error) {
  const setun_context_params params = sequences_context_params(compute, w);
  timing t = {.work = w, .eval = setun_eval_params_default()};
  t.eval.progress = goes_on;
  t.entries = calloc(w->n, sizeof *t.entries);
  t.all = calloc((size_t)w->repeats, sizeof *t.all);
  t.one = calloc((size_t)w->repeats, sizeof *t.one);
  t.fork = calloc((size_t)w->repeats, sizeof *t.fork);
  t.hit = calloc((size_t)w->repeats, sizeof *t.hit);
  setun_status s = SETUN_OK;
  if (!t.entries || !t.all || !t.one || !t.fork || !t.hit) {
    snprintf(error->message, sizeof error->message, "out of memory for %u sequences", w->n);
    s = SETUN_ERROR_MEMORY;
  }
  if (s == SETUN_OK) s = setun_context_new(model, &params, &t.context, error);
  if (s == SETUN_OK) s = begin_sequences(&t, error);
  if (s == SETUN_OK) s = time_in_turns(&t, error);
  if (s == SETUN_OK) s = time_reuse(&t, &result->found, error);
  if (s == SETUN_OK) {
    result->fork = median_of(t.fork, w->repeats);
    result->hit = median_of(t.hit, w->repeats);
    result->single_pass = median_of(t.one, w->repeats);
    result->pass = median_of(t.all, w->repeats);
  }
  setun_context_free(t.context);
  free(t.entries);
  free(t.all);
  free(t.one);
  free(t.fork);
  free(t.hit);
  return s;
}
