// Pooling, in double precision and in the order of the tokens, so that no bit depends on how they were split into
// passes.
#include "runtime/embeddings.h"

#include "base/memory.h"
#include "model/embedding.h"
#include "model/states.h"

#include <math.h>
#include <string.h>

static uint64_t row_bytes(const st_model *m) {
  uint32_t width = st_dense_width(&m->h);
  return (uint64_t)(width > m->h.n_embd ? width : m->h.n_embd) * sizeof(float);
}

// States that a sequence keeps.
static uint64_t kept_of(const st_run_options *o) {
  return o->pooling == SETUN_POOLING_NONE ? o->n_ctx : 0;
}

uint64_t st_embeddings_size(const st_model *m, const st_run_options *o) {
  if (o->pooling == SETUN_POOLING_OFF) return 0;
  uint64_t each = sizeof(st_pooled) + m->h.n_embd * (sizeof(double) + kept_of(o) * sizeof(float));
  return o->n_seq * each + ST_STATES_AT_ONCE * row_bytes(m) + (uint64_t)o->n_batch * sizeof(uint32_t);
}

setun_status st_embeddings_new(st_embeddings *e, const st_model *m, const st_run_options *o, setun_error *err) {
  size_t doubles, kept;
  *e = (st_embeddings){.pooling = o->pooling, .width = m->h.n_embd, .n_ctx = o->n_ctx};
  if (o->pooling == SETUN_POOLING_OFF) return SETUN_OK;
  if (o->pooling == SETUN_POOLING_NONE && o->limit > o->n_ctx) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "pooling: expected mean, cls or last with a window, found none");
  }
  bool fits = st_mul_size(o->n_seq, m->h.n_embd, &doubles) && st_mul_size(doubles, (size_t)kept_of(o), &kept);
  e->pooled = st_calloc(o->n_seq, sizeof *e->pooled);
  e->sums = fits ? st_malloc(doubles, sizeof *e->sums) : NULL;
  e->states = st_malloc(ST_STATES_AT_ONCE, (size_t)row_bytes(m));
  e->rows = st_malloc(o->n_batch, sizeof *e->rows);
  e->tokens = fits && kept ? st_malloc(kept, sizeof *e->tokens) : NULL;
  bool whole = e->pooled && e->sums && e->states && e->rows && (e->tokens || !kept_of(o));
  return whole ? SETUN_OK : st_fail_memory(err, "the embeddings");
}

void st_embeddings_free(st_embeddings *e) {
  st_free(e->pooled);
  st_free(e->sums);
  st_free(e->states);
  st_free(e->rows);
  st_free(e->tokens);
}

void st_embeddings_reset(st_embeddings *e, int sequence) {
  if (e->pooled) e->pooled[sequence] = (st_pooled){0, 0};
}

// ---- pooling ------------------------------------------------------------------------------------------------------

// The tokens to read: all of them, or the one that matters, if it is among them.
static uint32_t choose(const st_embeddings *e, uint32_t row, uint32_t n, uint32_t position, bool last) {
  switch (e->pooling) {
  case SETUN_POOLING_CLS: e->rows[0] = row; return position == 0;
  case SETUN_POOLING_LAST: e->rows[0] = row + n - 1; return last;
  default:
    for (uint32_t i = 0; i < n; i++) e->rows[i] = row + i;
    return n;
  }
}

// Where the states of a sequence's tokens from a position on are kept.
static float *token_states(const st_embeddings *e, int sequence, uint32_t position) {
  return e->tokens + ((size_t)sequence * e->n_ctx + position) * e->width;
}

setun_status st_embeddings_add(st_embeddings *e, st_run *run, int sequence, uint32_t row, uint32_t n, uint32_t position,
                               bool last, setun_error *err) {
  st_pooled *p = &e->pooled[sequence];
  double *sum = e->sums + (size_t)sequence * e->width;
  uint32_t count = choose(e, row, n, position, last);
  bool several = e->pooling == SETUN_POOLING_MEAN || e->pooling == SETUN_POOLING_NONE;
  bool goes_on = several && p->end > p->begin && p->end == position;
  for (uint32_t i = 0; count && !goes_on && i < e->width; i++) sum[i] = 0;
  for (uint32_t first = 0; first < count; first += ST_STATES_AT_ONCE) {
    uint32_t some = count - first < ST_STATES_AT_ONCE ? count - first : ST_STATES_AT_ONCE;
    float *states = e->tokens ? token_states(e, sequence, position + first) : e->states;
    setun_status s = st_run_states(run, e->rows + first, some, states, err);
    if (s != SETUN_OK) return s;
    for (size_t t = 0; t < some && !e->tokens; t++) {
      for (size_t i = 0; i < e->width; i++) sum[i] += (double)e->states[t * e->width + i];
    }
  }
  if (count && !goes_on) p->begin = position;
  if (count) p->end = position + n;
  return SETUN_OK;
}

// ---- embeddings ---------------------------------------------------------------------------------------------------

static setun_status check(const st_embeddings *e, const st_pooled *p, uint32_t position, setun_error *err) {
  bool none = p->begin == p->end, first = !none && p->begin == 0, last = !none && p->end == position;
  if (none || (e->pooling != SETUN_POOLING_LAST && !first) || (e->pooling != SETUN_POOLING_CLS && !last)) {
    return st_fail(err, SETUN_ERROR_STATE,
                   "embedding: expected the %s of the sequence's %u tokens to be evaluated with SETUN_LOGITS_POOL, "
                   "found those from %u to %u",
                   e->pooling == SETUN_POOLING_CLS    ? "first"
                   : e->pooling == SETUN_POOLING_LAST ? "last"
                                                      : "whole",
                   position, p->begin, p->end);
  }
  return SETUN_OK;
}

// Divides the vector by its length, unless `raw`; a zero vector is unchanged.
static setun_status normalize(float *x, uint32_t n, bool raw, setun_error *err) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  if (!isfinite(sum)) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "embedding: expected finite numbers, found others: the weights are damaged");
  }
  double length = sqrt(sum);
  for (uint32_t i = 0; i < n && length > 0 && !raw; i++) x[i] = (float)((double)x[i] / length);
  return SETUN_OK;
}

size_t st_embeddings_vectors(const st_embeddings *e, size_t n) {
  return e->pooling == SETUN_POOLING_NONE ? n : 1;
}

// From a state, pooled or a token's, to an embedding.
static setun_status finish(st_embeddings *e, st_run *run, const float *state, uint32_t n,
                           const setun_embedding_params *params, float *out, setun_error *err) {
  const st_hparams *h = &run->model->h;
  uint32_t dense = st_dense_width(h);
  bool raw = params->raw || (h->embedding.unscaled && !params->normalize);
  // The files' own division by the length comes before their truncation, as in sentence-transformers; one that is asked
  // for comes after it, and so does that of a vector that is cut further.
  uint32_t scaled = n == st_embedding_length(h) && !params->normalize ? st_embedding_width(h) : n;
  float *projected = e->states + (ST_STATES_AT_ONCE - 1) * (size_t)(dense > e->width ? dense : e->width);
  setun_status s = st_run_project(run, state, projected, err);
  if (s == SETUN_OK) s = normalize(projected, scaled, raw, err);
  if (s == SETUN_OK) memcpy(out, projected, n * sizeof *out);
  return s;
}

setun_status st_embeddings_get(st_embeddings *e, st_run *run, int sequence, uint32_t position,
                               const setun_embedding_params *params, float *out, setun_error *err) {
  const st_pooled *p = &e->pooled[sequence];
  const double *sum = e->sums + (size_t)sequence * e->width;
  const st_hparams *h = &run->model->h;
  uint32_t n = params->n_dimensions ? params->n_dimensions : st_embedding_length(h);
  if (params->raw && params->normalize) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "embedding: expected at most one of raw and normalize, found both");
  }
  setun_status s = st_embedding_check_length(h, n, err);
  if (s == SETUN_OK) s = check(e, p, position, err);
  if (s != SETUN_OK) return s;
  for (uint32_t t = 0; e->tokens && t < position && s == SETUN_OK; t++) {
    s = finish(e, run, token_states(e, sequence, t), n, params, out + (size_t)t * n, err);
  }
  if (e->tokens) return s;
  double count = e->pooling == SETUN_POOLING_MEAN ? p->end - p->begin : 1;
  for (uint32_t i = 0; i < e->width; i++) e->states[i] = (float)(sum[i] / count);
  return finish(e, run, e->states, n, params, out, err);
}
