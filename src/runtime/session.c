// A session: limits, batches of prefill, stopping, and the logits of the last token.
#include "runtime/session.h"

#include "base/memory.h"
#include "base/process.h"
#include "runtime/overflow.h"
#include "runtime/sampler.h"
#include "runtime/session_file.h"

#include <stdatomic.h>
#include <string.h>

struct st_session {
  st_run *run;
  int64_t maker; // the process that computes with it
  uint32_t position;
  int threads;
  setun_token *ids; // [n_ctx], of which `position` count
  float *logits;    // [run->n_logits, n_vocab]
  uint32_t last;    // the row of those that is the last token's
  bool has_logits;
  float *hidden; // [n_batch, n_embd]; made when first wanted
  atomic_bool running, stop;
};

st_run_size st_session_size_of(const st_model *m, const st_run_options *o, const st_workload *workload) {
  st_run_size size = st_run_size_of(m, o, workload);
  uint64_t row = (uint64_t)m->h.n_vocab * sizeof(float);
  size.work += (uint64_t)o->n_ctx * sizeof(setun_token) + row + st_sampler_size(m->h.n_vocab);
  size.more_logits += (st_run_logits_at_once(o) - 1) * row;
  return size;
}

setun_status st_session_new(const st_model *m, const setun_session_params *params, st_session **session,
                            setun_error *err) {
  st_run_options options;
  setun_status s = st_run_options_of(m, params, &options, err);
  if (s != SETUN_OK) return s;
  bool asked = params && params->n_batch;
  if (!asked && m->n_batch && m->n_batch < options.n_batch) options.n_batch = m->n_batch;
  st_session *n = st_calloc(1, sizeof *n);
  if (n) {
    n->threads = options.threads;
    n->maker = st_process_current();
    n->ids = st_calloc(options.n_ctx, sizeof *n->ids);
    if (n->ids) s = st_run_new(m, &options, &n->run, err);
    if (n->run) n->logits = st_malloc((size_t)n->run->n_logits * m->h.n_vocab, sizeof *n->logits);
  }
  if (s == SETUN_OK && (!n || !n->logits)) s = st_fail_memory(err, "the session");
  if (s == SETUN_OK) {
    *session = n;
  } else {
    st_session_free(n);
  }
  return s;
}

void st_session_free(st_session *s) {
  if (!s) return;
  st_run_free(s->run);
  st_free(s->logits);
  st_free(s->ids);
  st_free(s->hidden);
  st_free(s);
}

uint32_t st_session_context(const st_session *s) {
  return s->run->n_ctx;
}
uint32_t st_session_position(const st_session *s) {
  return s->position;
}
int st_session_threads(const st_session *s) {
  return s->threads;
}
// Each layer reads the keys and values of the tokens that it sees.
uint64_t st_session_cache_bytes(const st_session *s, uint32_t tokens) {
  const st_hparams *h = &s->run->model->h;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < h->n_layer; i++) {
    bool cut = h->sliding[i] && h->window && h->window < tokens;
    seen += cut ? h->window : tokens;
  }
  const st_backend *b = s->run->model->backend;
  return seen * h->n_head_kv *
         (b->cache_row_size(s->run->keys, h->head_dim) + b->cache_row_size(s->run->values, h->head_dim));
}
const float *st_session_logits(const st_session *s) {
  return s->has_logits ? s->logits + (size_t)s->last * s->run->model->h.n_vocab : NULL;
}

static setun_status check_process(const st_session *s, setun_error *err) {
  return st_process_check(s->maker, "session", err);
}

// An evaluation, for its passes: how far it is, and whether it is to stop.
typedef struct eval_state {
  st_session *session;
  const setun_eval_params *params;
  size_t n, done;  // tokens of it, and of passes that are finished
  uint32_t count;  // tokens of the pass that runs
  uint32_t blocks; // that it has begun
} eval_state;

// Tells the caller; what it answers counts as setun_session_stop does.
static bool report_progress(eval_state *e, double done) {
  const setun_eval_params *p = e->params;
  if (p->progress && !p->progress(done / (double)e->n, p->user)) atomic_store(&e->session->stop, true);
  return !atomic_load(&e->session->stop);
}

// Asked before each block.
static bool stopped(void *context) {
  eval_state *e = context;
  double part = (double)e->blocks++ / e->session->run->model->h.n_layer;
  return !report_progress(e, (double)e->done + part * e->count);
}

static setun_status check_tokens(const st_session *s, const setun_token *ids, size_t n, setun_error *err) {
  uint32_t n_vocab = s->run->model->h.n_vocab;
  if (n > s->run->n_ctx - s->position) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%zu tokens after %u do not fit into a context of %u", n, s->position,
                   s->run->n_ctx);
  }
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "token %zu: expected an id from 0 to %u, found %d", i, n_vocab - 1,
                     ids[i]);
    }
  }
  return SETUN_OK;
}

// The tokens of a finished pass.
typedef struct pass_tokens {
  const setun_token *ids;
  uint32_t n;
} pass_tokens;

// The logits behind some of them, of which `left` more will be wanted.
static setun_status compute_logits(st_session *s, const pass_tokens *pass, uint32_t first, uint32_t n, uint32_t left,
                                   setun_error *err) {
  s->has_logits = false;
  s->last = n - 1;
  setun_status status = st_run_logits(s->run, first, n, left, s->logits, err);
  if (status != SETUN_OK) return status;
  return st_overflow_check(s->run, s->logits, first, n, pass->ids, pass->n, s->position, err);
}

// The logits of each token of a finished pass, handed out in order.
static setun_status report_logits(st_session *s, const setun_eval_params *p, const pass_tokens *pass,
                                  setun_error *err) {
  for (uint32_t first = 0, n = pass->n; first < n;) {
    uint32_t count = n - first < s->run->n_logits ? n - first : s->run->n_logits;
    setun_status status = compute_logits(s, pass, first, count, n - first - count, err);
    if (status != SETUN_OK) return status;
    for (uint32_t t = 0; t < count; t++) {
      const float *logits = s->logits + (size_t)t * s->run->model->h.n_vocab;
      if (!p->on_logits(s->position + first + t, logits, p->user) || atomic_load(&s->stop)) {
        return st_fail(err, SETUN_ERROR_CANCELED, "stopped at position %u", s->position + first + t);
      }
    }
    first += count;
  }
  return SETUN_OK;
}

static setun_status eval(st_session *s, const setun_token *ids, size_t n, const setun_eval_params *p,
                         setun_error *err) {
  eval_state state = {.session = s, .params = p, .n = n};
  st_pass pass = {.stop = stopped, .stop_context = &state};
  if (p->on_hidden) {
    size_t floats;
    if (!s->hidden && st_mul_size(s->run->n_batch, s->run->model->h.n_embd, &floats)) {
      s->hidden = st_malloc(floats, sizeof *s->hidden);
    }
    if (!s->hidden) return st_fail_memory(err, "hidden states");
    pass.hidden = s->hidden;
    pass.on_hidden = p->on_hidden;
    pass.user = p->user;
  }
  for (size_t done = 0; done < n;) {
    uint32_t count = n - done < s->run->n_batch ? (uint32_t)(n - done) : s->run->n_batch;
    bool last = done + count == n;
    pass.n_logits = p->on_logits ? count : last;
    state.count = count;
    state.blocks = 0;
    setun_status status = st_run_tokens(s->run, ids + done, count, s->position, &pass, err);
    if (status == SETUN_ERROR_CANCELED) {
      return st_fail(err, SETUN_ERROR_CANCELED, "stopped after %zu of %zu tokens", done, n);
    }
    if (status != SETUN_OK) return status;
    if (p->on_logits) {
      status = report_logits(s, p, &(pass_tokens){ids + done, count}, err);
    } else if (last) {
      status = compute_logits(s, &(pass_tokens){ids + done, count}, count - 1, 1, 0, err);
    }
    if (status != SETUN_OK) return status;
    memcpy(s->ids + s->position, ids + done, count * sizeof *ids);
    s->position += count;
    s->has_logits = last;
    state.done = done += count;
  }
  report_progress(&state, (double)n); // all is done whatever the answer is
  return SETUN_OK;
}

setun_status st_session_eval(st_session *s, const setun_token *ids, size_t n, const setun_eval_params *params,
                             setun_error *err) {
  setun_eval_params none = {0};
  setun_status status = check_process(s, err);
  if (status == SETUN_OK) status = check_tokens(s, ids, n, err);
  if (status != SETUN_OK || !n) return status;
  atomic_store(&s->stop, false);
  atomic_store(&s->running, true);
  status = eval(s, ids, n, params ? params : &none, err);
  atomic_store(&s->running, false);
  return status;
}

setun_status st_session_truncate(st_session *s, uint32_t n, setun_error *err) {
  setun_status status = check_process(s, err);
  if (status != SETUN_OK) return status;
  if (n > s->position) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "truncate: expected at most the %u tokens there are, found %u",
                   s->position, n);
  }
  if (n < s->position) s->has_logits = false;
  s->position = n;
  return SETUN_OK;
}

const setun_token *st_session_tokens(const st_session *s) {
  return s->ids;
}

setun_status st_session_save(st_session *s, const char *path, setun_error *err) {
  setun_status status = check_process(s, err);
  return status == SETUN_OK ? st_session_file_save(s->run, s->ids, s->position, path, err) : status;
}

setun_status st_session_load(st_session *s, const char *path, setun_error *err) {
  setun_status status = check_process(s, err);
  if (status == SETUN_OK) status = st_session_file_load(s->run, s->ids, &s->position, path, err);
  if (status == SETUN_OK) s->has_logits = false;
  return status;
}

setun_status st_session_save_memory(st_session *s, void *bytes, size_t capacity, size_t *length, setun_error *err) {
  setun_status status = check_process(s, err);
  return status == SETUN_OK ? st_session_file_save_memory(s->run, s->ids, s->position, bytes, capacity, length, err)
                            : status;
}

setun_status st_session_load_memory(st_session *s, const void *bytes, size_t length, setun_error *err) {
  setun_status status = check_process(s, err);
  if (status == SETUN_OK) status = st_session_file_load_memory(s->run, s->ids, &s->position, bytes, length, err);
  if (status == SETUN_OK) s->has_logits = false;
  return status;
}

void st_session_stop(st_session *s) {
  if (atomic_load(&s->running)) atomic_store(&s->stop, true);
}
