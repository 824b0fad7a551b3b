// Contexts: passes over tokens of several sequences, stopping, and the requested logits.
#include "runtime/context.h"

#include "base/memory.h"
#include "base/process.h"
#include "model/embedding.h"
#include "runtime/embeddings.h"
#include "runtime/overflow.h"
#include "runtime/sampler.h"
#include "runtime/session_file.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

// An entry of the current or last call: first the tokens that its sequence must compute again, then its own.
typedef struct work {
  st_sequence *sequence;
  const setun_batch_entry *entry;
  const setun_token *ids;
  size_t n, done;       // tokens, and those in finished passes
  size_t group;         // the first entry with the same adapters: a pass computes one group
  uint32_t taken;       // in the current pass
  uint32_t row, n_rows; // first row of the logits
} work;

// An entry's rows of logits.
typedef struct result {
  uint32_t row, n_rows;
} result;

struct st_context {
  st_run *run;
  const char *what;
  int64_t maker; // the process that made it
  int threads;
  uint32_t limit; // most tokens in a sequence
  st_sequences sequences;
  st_embeddings embeddings;
  st_few_logits *few; // they go here, unless they cannot be told, and no others are read; NULL: all are
  bool (*few_usable)(const st_few_logits *few, const void *user);
  const void *few_user;
  uint32_t n_logits;
  float *logits;   // [n_logits, n_vocab], in the order in which they are computed
  float *hidden;   // [n_batch, n_embd]; allocated on first use
  result *results; // [n_max], the last call's; n_results of them
  size_t n_results;
  // State of the current call and pass.
  work *works;        // [n_max]
  st_growth *growths; // [n_max] of the call, then of the pass
  st_token_run *runs; // [n_max]
  setun_token *ids;   // [n_batch]
  uint32_t *rows;     // [n_batch] tokens of the pass with requested logits
  atomic_bool running, stop;
};

// ---- making -------------------------------------------------------------------------------------------------------

st_run_size st_context_size_of(const st_model *m, const st_run_options *o, const st_workload *workload) {
  st_run_size size = st_run_size_of(m, o, workload);
  uint64_t row = (uint64_t)m->h.n_vocab * sizeof(float);
  size.work += st_sequences_size(m, o) + o->n_logits * row + o->n_seq * st_sampler_size(m->h.n_vocab);
  size.work += (uint64_t)o->n_seq * (sizeof(work) + sizeof(result) + sizeof(st_growth) + sizeof(st_token_run));
  size.work += (uint64_t)o->n_batch * (sizeof(setun_token) + sizeof(uint32_t)) + st_embeddings_size(m, o);
  return size;
}

static setun_status new_lists(st_context *c, const st_run_options *o, setun_error *err) {
  size_t floats;
  bool fits = st_mul_size(o->n_logits, c->run->model->h.n_vocab, &floats);
  c->n_logits = o->n_logits;
  c->logits = fits ? st_malloc(floats, sizeof *c->logits) : NULL;
  c->results = st_calloc(o->n_seq, sizeof *c->results);
  c->works = st_calloc(o->n_seq, sizeof *c->works);
  c->growths = st_calloc(o->n_seq, sizeof *c->growths);
  c->runs = st_calloc(o->n_seq, sizeof *c->runs);
  c->ids = st_malloc(o->n_batch, sizeof *c->ids);
  c->rows = st_malloc(o->n_batch, sizeof *c->rows);
  bool whole = c->logits && c->results && c->works && c->growths && c->runs && c->ids && c->rows;
  return whole ? SETUN_OK : st_fail_memory(err, "the lists of a pass");
}

setun_status st_context_new(const st_model *m, const setun_context_params *params, const char *what,
                            st_context **context, setun_error *err) {
  st_run_options options;
  setun_status s = st_run_options_of(m, params, &options, err);
  if (s != SETUN_OK) return s;
  if (!params->n_batch && m->n_batch && m->n_batch < options.n_batch) options.n_batch = m->n_batch;
  st_context *c = st_calloc(1, sizeof *c);
  if (!c) return st_fail_memory(err, "the context");
  c->what = what;
  c->threads = options.threads;
  c->limit = options.limit;
  c->maker = st_process_current();
  s = st_run_new(m, &options, &c->run, err);
  if (s == SETUN_OK) s = st_sequences_new(&c->sequences, c->run, options.n_seq, err);
  if (s == SETUN_OK) s = st_embeddings_new(&c->embeddings, m, &options, err);
  if (s == SETUN_OK) s = new_lists(c, &options, err);
  if (s == SETUN_OK) {
    *context = c;
  } else {
    st_context_free(c);
  }
  return s;
}

void st_context_free(st_context *c) {
  if (!c) return;
  st_sequences_free(&c->sequences);
  st_embeddings_free(&c->embeddings);
  st_run_free(c->run);
  void *blocks[] = {c->logits, c->hidden, c->results, c->works, c->growths, c->runs, c->ids, c->rows, c};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) st_free(blocks[i]);
}

const st_model *st_context_model(const st_context *c) {
  return c->run->model;
}

void st_context_info(const st_context *c, setun_context_info *info) {
  const st_backend *b = c->run->model->backend;
  const st_hparams *h = &c->run->model->h;
  st_cache_shape shape = {.n_ctx = c->run->n_ctx,
                          .n_head = h->n_head,
                          .n_head_kv = h->n_head_kv,
                          .head_dim = h->head_dim,
                          .keys = c->run->keys,
                          .values = c->run->values};
  *info = (setun_context_info){.n_ctx = c->limit,
                               .n_seq_max = c->sequences.n_max,
                               .n_batch = c->run->n_batch,
                               .n_logits = c->n_logits,
                               .threads = c->threads,
                               .page_bytes = b->cache_page_size(&shape)};
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) {
    const st_page_pool *p = &c->sequences.pools[kind];
    info->pages += p->n_pages;
    info->pages_used += st_page_pool_used(p);
    info->pages_kept += p->n_idle;
  }
  for (uint32_t i = 0; i < info->n_seq_max; i++) info->n_seq += c->sequences.all[i].used;
}

// Every layer reads the keys and values of the tokens that it sees, or its state.
uint64_t st_context_cache_bytes(const st_context *c, uint32_t tokens) {
  const st_hparams *h = &c->run->model->h;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < h->n_layer; i++) {
    if (h->recurrent[i]) continue;
    uint32_t window = st_layer_window(h, &c->run->windows, i), sinks = st_layer_sinks(h, &c->run->windows, i);
    seen += window && window + sinks < tokens ? window + sinks : tokens;
  }
  const st_backend *b = c->run->model->backend;
  return c->run->state_bytes + seen * h->n_head_kv *
                                   (b->cache_row_size(c->run->keys, true, h->head_dim) +
                                    b->cache_row_size(c->run->values, false, h->head_dim));
}

// ---- sequences ----------------------------------------------------------------------------------------------------

// Gets a sequence; fails in a process that did not make the context.
static setun_status get(const st_context *c, int number, st_sequence **sequence, setun_error *err) {
  setun_status s = st_process_check(c->maker, c->what, err);
  return s == SETUN_OK ? st_sequence_get(&c->sequences, number, sequence, err) : s;
}

setun_status st_context_add(st_context *c, int *sequence, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = st_process_check(c->maker, c->what, err);
  if (s == SETUN_OK) s = st_sequence_add(&c->sequences, &q, err);
  if (s != SETUN_OK) return s;
  *sequence = st_sequence_number(&c->sequences, q);
  st_embeddings_reset(&c->embeddings, *sequence);
  return SETUN_OK;
}

setun_status st_context_drop(st_context *c, int sequence, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  if (s == SETUN_OK) st_sequence_drop(&c->sequences, q);
  return s;
}

setun_status st_context_fork(st_context *c, int sequence, int *copy, setun_error *err) {
  st_sequence *q = NULL, *to = NULL;
  setun_status s = get(c, sequence, &q, err);
  if (s == SETUN_OK) s = st_sequence_add(&c->sequences, &to, err);
  if (s != SETUN_OK) return s;
  st_sequence_adapt(&c->sequences, to, &q->adapting);
  st_sequence_copy(&c->sequences, q, to, q->position);
  *copy = st_sequence_number(&c->sequences, to);
  st_embeddings_reset(&c->embeddings, *copy);
  return SETUN_OK;
}

// Fails during a callback of a running pass.
static setun_status check_adapting(const st_context *c, const st_adapting *adapting, setun_error *err) {
  setun_status s = st_process_check(c->maker, c->what, err);
  if (s == SETUN_OK && atomic_load(&c->running)) {
    s = st_fail(err, SETUN_ERROR_STATE, "adapters: expected an idle %s, found a running pass", c->what);
  }
  if (s == SETUN_OK && !isfinite(adapting->scale)) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "scale: expected a finite number, found %g", (double)adapting->scale);
  }
  return s;
}

setun_status st_context_adapt(st_context *c, const st_adapting *adapting, setun_error *err) {
  setun_status s = check_adapting(c, adapting, err);
  if (s == SETUN_OK) st_sequences_adapt(&c->sequences, adapting);
  return s;
}

setun_status st_context_adapt_sequence(st_context *c, int sequence, const st_adapting *adapting, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = check_adapting(c, adapting, err);
  if (s == SETUN_OK) s = st_sequence_get(&c->sequences, sequence, &q, err);
  if (s != SETUN_OK) return s;
  st_embeddings_reset(&c->embeddings, sequence);
  if (q->forgotten && q->adapting.identity != adapting->identity) {
    return st_fail(err, SETUN_ERROR_STATE,
                   "adapters: expected all tokens, to recompute them, but %u of %u were forgotten", q->forgotten,
                   q->forgotten + q->position);
  }
  st_sequence_adapt(&c->sequences, q, adapting);
  c->n_results = 0;
  return SETUN_OK;
}

setun_status st_context_truncate(st_context *c, int sequence, uint32_t n, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  if (s != SETUN_OK) return s;
  if (n > q->forgotten + q->position) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "truncate: expected at most its %u tokens, found %u",
                   q->forgotten + q->position, n);
  }
  st_embeddings_reset(&c->embeddings, sequence);
  return st_sequence_truncate(&c->sequences, q, n, err);
}

setun_status st_context_reuse(st_context *c, const setun_token *ids, size_t n, int *sequence, uint32_t *position,
                              setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = st_process_check(c->maker, c->what, err);
  if (s == SETUN_OK) s = st_sequence_reuse(&c->sequences, ids, n, &q, err);
  if (s != SETUN_OK) return s;
  *sequence = st_sequence_number(&c->sequences, q);
  st_embeddings_reset(&c->embeddings, *sequence);
  *position = q->position;
  return SETUN_OK;
}

uint32_t st_context_position(const st_context *c, int sequence) {
  st_sequence *q = NULL;
  return st_sequence_get(&c->sequences, sequence, &q, NULL) == SETUN_OK ? q->forgotten + q->position : 0;
}

uint32_t st_context_forgotten(const st_context *c, int sequence) {
  st_sequence *q = NULL;
  return st_sequence_get(&c->sequences, sequence, &q, NULL) == SETUN_OK ? q->forgotten : 0;
}

const setun_token *st_context_tokens(const st_context *c, int sequence) {
  st_sequence *q = NULL;
  return st_sequence_get(&c->sequences, sequence, &q, NULL) == SETUN_OK ? q->ids : NULL;
}

setun_status st_context_save(st_context *c, int sequence, const char *path, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  return s == SETUN_OK ? st_session_file_save(&c->sequences, q, path, err) : s;
}

setun_status st_context_load(st_context *c, int sequence, const char *path, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  if (s == SETUN_OK) st_embeddings_reset(&c->embeddings, sequence);
  return s == SETUN_OK ? st_session_file_load(&c->sequences, q, path, err) : s;
}

setun_status st_context_save_memory(st_context *c, int sequence, void *bytes, size_t capacity, size_t *length,
                                    setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  return s == SETUN_OK ? st_session_file_save_memory(&c->sequences, q, bytes, capacity, length, err) : s;
}

setun_status st_context_load_memory(st_context *c, int sequence, const void *bytes, size_t length, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = get(c, sequence, &q, err);
  if (s == SETUN_OK) st_embeddings_reset(&c->embeddings, sequence);
  return s == SETUN_OK ? st_session_file_load_memory(&c->sequences, q, bytes, length, err) : s;
}

// ---- evaluation --------------------------------------------------------------------------------------------

// The progress of an evaluation.
typedef struct eval_state {
  st_context *c;
  const setun_eval_params *params;
  size_t n_works, n, done; // entries; tokens in all of them, and in finished passes
  size_t total, before;    // tokens of the call, including recomputed ones; those before these entries
  bool again;              // recomputing what sequences lost
  uint32_t blocks;         // entries in the pass so far
  st_batch batch;          // tokens of the current pass
  uint32_t n_rows;         // its tokens with requested logits
  uint32_t row;            // first row next row of the logits
} eval_state;

static setun_status fail_unpooled(const st_context *c, setun_error *err) {
  const st_embedding *e = &c->run->model->h.embedding;
  if (e->pooling == SETUN_POOLING_OFF) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "pooling: expected mean, cls, last or none, since the model does not define one (%s)", e->source);
  }
  return st_fail(err, SETUN_ERROR_STATE, "embedding: expected a %s made with a pooling, found one without", c->what);
}

// Checks what an entry requests.
static setun_status check_wanted(const st_context *c, const setun_batch_entry *e, uint32_t position, setun_error *err) {
  const st_hparams *h = &c->run->model->h;
  if ((unsigned)e->logits > SETUN_LOGITS_POOL) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "logits: expected one of setun_logits, found %d", (int)e->logits);
  }
  if (e->logits == SETUN_LOGITS_POOL && c->embeddings.pooling == SETUN_POOLING_OFF) return fail_unpooled(c, err);
  if (h->headless && (e->logits == SETUN_LOGITS_LAST || e->logits == SETUN_LOGITS_ALL)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "lm_head.weight: expected a model that generates text, found an embedding model (setun embed): the "
                   "tensor is missing, and tie_word_embeddings is false");
  }
  if (!h->bidirectional || !e->n) return SETUN_OK;
  if (e->logits != SETUN_LOGITS_POOL) {
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: bidirectional attention: expected a model that generates text, found an embedding model (setun embed)",
        h->direction_key);
  }
  if (position) {
    return st_fail(err, SETUN_ERROR_STATE, "%s: expected a whole text in one call, found a sequence of %u tokens",
                   h->direction_key, position);
  }
  if (e->n <= c->run->n_batch) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_LIMIT, "%s: expected at most the %u tokens of one pass, found %zu (n_batch)",
                 h->direction_key, c->run->n_batch, e->n);
}

static setun_status check_entry(const st_context *c, const work *w, setun_error *err) {
  uint32_t n_vocab = c->run->model->h.n_vocab, position = w->sequence->forgotten + w->sequence->position;
  const setun_batch_entry *e = w->entry;
  if (e->n > c->limit - position) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%zu tokens after %u do not fit into a context of %u", e->n, position,
                   c->limit);
  }
  if (e->n && !e->ids) return st_fail(err, SETUN_ERROR_ARGUMENT, "ids: expected %zu tokens, found NULL", e->n);
  for (size_t i = 0; i < e->n; i++) {
    if (e->ids[i] < 0 || (uint32_t)e->ids[i] >= n_vocab) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "token %zu: expected an id from 0 to %u, found %d", i, n_vocab - 1,
                     e->ids[i]);
    }
  }
  setun_status s = check_wanted(c, e, position, err);
  if (s != SETUN_OK) return s;
  for (const work *other = c->works; other < w; other++) {
    if (other->sequence != w->sequence) continue;
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence %d: expected once, found twice", e->sequence);
  }
  return SETUN_OK;
}

// Whether an entry has several tokens. Entries with one token come first, so that they do not wait for others.
static bool has_several(const work *w) {
  return w->entry->n > 1;
}

// Assigns each entry's rows of logits, in the order of the passes.
static setun_status assign_rows(st_context *c, size_t n, setun_error *err) {
  uint64_t rows = 0;
  for (size_t group = 0; group < n; group++) {
    for (int several = 0; several < 2 && c->works[group].group == group; several++) {
      for (size_t i = group; i < n; i++) {
        work *w = &c->works[i];
        if (w->group != group || has_several(w) != several) continue;
        w->row = (uint32_t)rows;
        rows += w->n_rows;
      }
    }
  }
  if (rows <= c->n_logits) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_LIMIT,
                 "logits: expected a request for at most %u tokens, found %llu "
                 "(n_logits)",
                 c->n_logits, (unsigned long long)rows);
}

static size_t group_of(const st_context *c, size_t entry) {
  const st_sequence *q = c->works[entry].sequence;
  size_t i = 0;
  while (c->works[i].sequence->adapting.identity != q->adapting.identity) i++;
  return i;
}

// Checks the entries; *tokens is the number of tokens to compute.
static setun_status take_entries(st_context *c, const setun_batch_entry *entries, size_t n, size_t *tokens,
                                 setun_error *err) {
  *tokens = 0;
  if (n > c->sequences.n_max) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "entries: expected at most one for each of %u sequences, found %zu",
                   c->sequences.n_max, n);
  }
  for (size_t i = 0; i < n; i++) {
    work *w = &c->works[i];
    *w = (work){.entry = &entries[i]};
    setun_status s = st_sequence_get(&c->sequences, entries[i].sequence, &w->sequence, err);
    if (s == SETUN_OK) s = check_entry(c, w, err);
    if (s != SETUN_OK) return n > 1 ? st_fail_in(err, s, "entry %zu", i) : s;
    w->group = group_of(c, i);
    w->n_rows = entries[i].logits == SETUN_LOGITS_ALL ? (uint32_t)entries[i].n
                                                      : entries[i].logits == SETUN_LOGITS_LAST && entries[i].n;
    c->growths[i] = (st_growth){w->sequence, (uint32_t)entries[i].n};
    if (entries[i].n) c->growths[i].n += w->sequence->position - w->sequence->cached;
    *tokens += c->growths[i].n;
  }
  return assign_rows(c, n, err);
}

// Reports progress; if the caller returns false, this acts like setun_session_stop.
static bool report_progress(eval_state *e, double done) {
  const setun_eval_params *p = e->params;
  if (p->progress && !p->progress(((double)e->before + done) / (double)e->total, p->user))
    atomic_store(&e->c->stop, true);
  return !atomic_load(&e->c->stop);
}

// Called before each block.
static bool stopped(void *context) {
  eval_state *e = context;
  double part = (double)e->blocks++ / e->c->run->model->h.n_layer;
  return !report_progress(e, (double)e->done + part * e->batch.n_tokens);
}

// ---- passes -------------------------------------------------------------------------------------------------------

// Adds tokens [w->done, w->done + n) of an entry to the pass.
static void take_tokens(eval_state *e, work *w, uint32_t n) {
  st_context *c = e->c;
  setun_logits logits = w->entry->logits;
  const st_sequence *q = w->sequence;
  c->growths[e->batch.n_runs] = (st_growth){w->sequence, n};
  c->runs[e->batch.n_runs++] = (st_token_run){
      .position = q->cached, .n = n, .forgotten = q->forgotten, .pages = q->pages, .stride = c->sequences.stride};
  memcpy(c->ids + e->batch.n_tokens, w->ids + w->done, n * sizeof *c->ids);
  for (uint32_t i = 0; i < n && !e->again; i++) {
    bool last = w->done + i + 1 == w->n, all = e->params->on_logits || logits == SETUN_LOGITS_ALL;
    if (!all && !(last && logits == SETUN_LOGITS_LAST)) continue;
    c->rows[e->n_rows++] = e->batch.n_tokens + i;
  }
  w->taken = n;
  e->batch.n_tokens += n;
}

// The first group with tokens left.
static size_t next_group(const eval_state *e) {
  size_t group = e->n_works;
  for (size_t i = 0; i < e->n_works; i++) {
    const work *w = &e->c->works[i];
    if (w->done < w->n && w->group < group) group = w->group;
  }
  return group;
}

// Chooses the next pass: entries with one token, then the others as far as they fit, all with the same adapters. A
// split entry ends the pass, so that logits come in the order of assign_rows.
static void fill_pass(eval_state *e) {
  st_context *c = e->c;
  bool cut = false;
  e->batch = (st_batch){.runs = c->runs};
  e->n_rows = e->blocks = 0;
  size_t group = next_group(e);
  c->run->lora = c->works[group].sequence->adapting.lora;
  c->run->lora_scale = c->works[group].sequence->adapting.scale;
  for (size_t i = 0; i < e->n_works; i++) c->works[i].taken = 0;
  for (int several = 0; several < 2; several++) {
    for (size_t i = 0; i < e->n_works && !cut; i++) {
      work *w = &c->works[i];
      size_t left = w->group == group ? w->n - w->done : 0, room = c->run->n_batch - e->batch.n_tokens;
      if (!left || !room || has_several(w) != several) continue;
      if (c->run->model->h.bidirectional && left > room) continue; // waits for its own pass
      if (!e->again) st_sequence_wrap(&c->sequences, w->sequence);
      take_tokens(e, w, st_windows_run(&c->run->windows, w->sequence->cached, (uint32_t)(left < room ? left : room)));
      cut = w->taken < left;
    }
  }
}

// Computes logits for tokens [first, first + n) among those of the pass that request them.
static setun_status compute_logits(eval_state *e, uint32_t first, uint32_t n, float *out, setun_error *err) {
  st_context *c = e->c;
  const st_finished_pass pass = {c->run, c->ids, &e->batch};
  setun_status s;
  c->n_results = 0;
  if (c->few && n == 1) {
    s = st_run_few(c->run, c->rows[first], c->few, err);
    if (s == SETUN_OK && !c->few_usable(c->few, c->few_user)) c->few->count = 0;
    if (s != SETUN_OK || c->few->count) return s;
    s = st_run_read_logits(c->run, n, out, err);
  } else {
    s = st_run_logits(c->run, c->rows + first, n, e->n_rows - first - n, out, err);
  }
  return s == SETUN_OK ? st_overflow_check(&pass, c->rows + first, n, out, err) : s;
}

// Passes logits to on_logits; the last ones are kept.
static setun_status report_logits(eval_state *e, uint32_t first, uint32_t n, setun_error *err) {
  st_context *c = e->c;
  const st_finished_pass pass = {c->run, c->ids, &e->batch};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t position = st_finished_position(&pass, c->rows[first + i]);
    const float *logits = c->logits + (size_t)i * c->run->model->h.n_vocab;
    if (!e->params->on_logits(position, logits, e->params->user) || atomic_load(&c->stop)) {
      return st_fail(err, SETUN_ERROR_CANCELED, "stopped at position %u", position);
    }
  }
  c->works[0].row = n - 1;
  return SETUN_OK;
}

static setun_status all_logits(eval_state *e, setun_error *err) {
  st_context *c = e->c;
  setun_status s = SETUN_OK;
  for (uint32_t first = 0, n; first < e->n_rows && s == SETUN_OK; first += n) {
    n = e->n_rows - first < c->run->n_logits ? e->n_rows - first : c->run->n_logits;
    s = compute_logits(e, first, n, c->logits + (size_t)e->row * c->run->model->h.n_vocab, err);
    if (s != SETUN_OK) return s;
    if (e->params->on_logits) {
      s = report_logits(e, first, n, err);
    } else {
      e->row += n;
    }
  }
  return s;
}

// Adds the tokens of entries that request it to their sequences' embeddings.
static setun_status pool_states(eval_state *e, setun_error *err) {
  st_context *c = e->c;
  uint32_t row = 0;
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < e->batch.n_runs && !e->again && s == SETUN_OK; row += c->runs[i++].n) {
    const st_token_run *run = &c->runs[i];
    const st_sequence *q = c->growths[i].sequence;
    const work *w = c->works;
    while (w->sequence != q) w++;
    if (w->entry->logits != SETUN_LOGITS_POOL) continue;
    bool last = w->done + w->taken == w->n;
    s = st_embeddings_add(&c->embeddings, c->run, st_sequence_number(&c->sequences, q), row, run->n,
                          run->forgotten + run->position, last, err);
  }
  return s;
}

static void finish_pass(eval_state *e) {
  st_context *c = e->c;
  c->n_results = 0;
  for (size_t i = 0; i < e->n_works; i++) {
    work *w = &c->works[i];
    if (!w->taken) continue;
    st_sequence *q = w->sequence;
    if (!e->again) memcpy(q->ids + q->cached, w->ids + w->done, w->taken * sizeof *q->ids);
    q->cached += w->taken;
    st_states_commit(&c->sequences, q, w->taken);
    if (q->position < q->cached) q->position = q->cached;
    w->done += w->taken;
  }
  e->done += e->batch.n_tokens;
}

// Computes the tokens of the entries, pass by pass.
static setun_status run_passes(eval_state *e, st_pass *pass, setun_error *err) {
  st_context *c = e->c;
  for (e->done = 0; e->done < e->n;) {
    fill_pass(e);
    pass->n_logits = e->n_rows;
    setun_status s = st_sequences_reserve(&c->sequences, c->growths, e->batch.n_runs, err);
    for (uint32_t i = 0; i < e->batch.n_runs; i++) {
      c->runs[i].state_from = c->growths[i].sequence->states.slot;
      c->runs[i].state_to = c->growths[i].sequence->states.next;
    }
    if (s == SETUN_OK) s = st_run_tokens(c->run, c->ids, &e->batch, pass, err);
    if (s == SETUN_ERROR_CANCELED) {
      return st_fail(err, SETUN_ERROR_CANCELED, "stopped after %zu of %zu tokens", e->done, e->n);
    }
    if (s == SETUN_OK) s = all_logits(e, err);
    if (s == SETUN_OK) s = pool_states(e, err);
    if (s != SETUN_OK) return s;
    finish_pass(e);
  }
  return SETUN_OK;
}

// Prepares the recomputation of what sequences lost, or the entries' own tokens.
static void set_works(eval_state *e, bool again) {
  e->again = again;
  e->before = e->n;
  e->n = 0;
  for (size_t i = 0; i < e->n_works; i++) {
    work *w = &e->c->works[i];
    const st_sequence *q = w->sequence;
    w->ids = again ? q->ids + q->cached : w->entry->ids;
    w->n = !again ? w->entry->n : w->entry->n ? q->position - q->cached : 0;
    w->done = 0;
    e->n += w->n;
  }
}

// Recomputes what sequences lost by truncation, see st_sequence_truncate.
static setun_status compute_again(eval_state *e, setun_error *err) {
  st_pass pass = {.stop = stopped, .stop_context = e};
  set_works(e, true);
  return run_passes(e, &pass, err);
}

static setun_status compute(eval_state *e, setun_error *err) {
  st_context *c = e->c;
  st_pass pass = {.stop = stopped, .stop_context = e, .on_hidden = e->params->on_hidden, .user = e->params->user};
  if (pass.on_hidden) {
    size_t floats;
    if (!c->hidden && st_mul_size(c->run->n_batch, c->run->model->h.n_embd, &floats)) {
      c->hidden = st_malloc(floats, sizeof *c->hidden);
    }
    if (!c->hidden) return st_fail_memory(err, "hidden states");
    pass.hidden = c->hidden;
  }
  set_works(e, false);
  setun_status s = run_passes(e, &pass, err);
  if (s != SETUN_OK) return s;
  report_progress(e, (double)e->n); // everything is done, whatever it returns
  c->n_results = c->few && c->few->count ? 0 : e->n_works;
  for (size_t i = 0; i < e->n_works; i++) c->results[i] = (result){c->works[i].row, c->works[i].n_rows};
  return SETUN_OK;
}

setun_status st_context_eval(st_context *c, const setun_batch_entry *entries, size_t n, const setun_eval_params *params,
                             setun_error *err) {
  const setun_eval_params none = {0};
  eval_state e = {.c = c, .params = params ? params : &none, .n_works = n};
  setun_status s = st_process_check(c->maker, c->what, err);
  if (s == SETUN_OK) s = take_entries(c, entries, n, &e.total, err);
  if (s != SETUN_OK || !e.total) return s;
  s = st_sequences_begin(&c->sequences, c->growths, n, err);
  if (s != SETUN_OK) return s;
  atomic_store(&c->stop, false);
  atomic_store(&c->running, true);
  s = compute_again(&e, err);
  if (s == SETUN_OK) s = compute(&e, err);
  atomic_store(&c->running, false);
  for (size_t i = 0; i < n && s != SETUN_OK; i++) {
    st_states_abandon(&c->sequences, c->works[i].sequence);
    st_sequence_trim(&c->sequences, c->works[i].sequence);
  }
  return s;
}

// ---- embeddings ---------------------------------------------------------------------------------------------------

static setun_status check_pooling(const st_context *c, setun_error *err) {
  setun_status s = st_process_check(c->maker, c->what, err);
  if (s == SETUN_OK && atomic_load(&c->running)) {
    s = st_fail(err, SETUN_ERROR_STATE, "embedding: expected an idle %s, found a running pass", c->what);
  }
  return s == SETUN_OK && c->embeddings.pooling == SETUN_POOLING_OFF ? fail_unpooled(c, err) : s;
}

setun_status st_context_get_embedding(st_context *c, int sequence, const setun_embedding_params *params,
                                      float *embedding, setun_error *err) {
  st_sequence *q = NULL;
  setun_status s = check_pooling(c, err);
  if (s == SETUN_OK) s = st_sequence_get(&c->sequences, sequence, &q, err);
  if (s != SETUN_OK) return s;
  return st_embeddings_get(&c->embeddings, c->run, sequence, q->forgotten + q->position, params, embedding, err);
}

// Checks every text before any is computed.
static setun_status check_texts(const st_context *c, const setun_embedding_input *texts, size_t n, setun_error *err) {
  const st_hparams *h = &c->run->model->h;
  uint32_t own = h->embedding.n_ctx ? h->embedding.n_ctx : UINT32_MAX, most = own < c->limit ? own : c->limit;
  bool pass = h->bidirectional && c->run->n_batch < most;
  if (pass) most = c->run->n_batch;
  for (size_t i = 0; i < n; i++) {
    if (!texts[i].n) return st_fail(err, SETUN_ERROR_ARGUMENT, "text %zu: expected at least one token, found none", i);
    if (texts[i].n <= most) continue;
    return st_fail(err, SETUN_ERROR_LIMIT, "text %zu: expected at most %u tokens (%s), found %zu", i, most,
                   pass                        ? "n_batch, since the model is bidirectional"
                   : most == own               ? "max_seq_length in sentence_bert_config.json"
                   : c->limit == h->n_ctx_most ? "the model's context length"
                                               : "the context",
                   texts[i].n);
  }
  return SETUN_OK;
}

// Computes some of the texts, each in its own sequence: as many as there is room for; *n is their number, *vectors that
// of their embeddings.
static setun_status embed_some(st_context *c, const setun_embedding_input *texts, size_t *n,
                               const setun_embedding_params *params, float *out, size_t *vectors, setun_error *err) {
  enum { MOST = 64 };
  setun_batch_entry entries[MOST];
  size_t count = 0, width = params->n_dimensions ? params->n_dimensions : st_embedding_length(&c->run->model->h);
  setun_status s = SETUN_OK;
  while (count < *n && count < MOST && s == SETUN_OK) {
    setun_batch_entry *e = &entries[count];
    *e = (setun_batch_entry){.logits = SETUN_LOGITS_POOL, .ids = texts[count].ids, .n = texts[count].n};
    s = st_context_add(c, &e->sequence, err);
    count += s == SETUN_OK;
  }
  if (s == SETUN_ERROR_LIMIT && count) s = SETUN_OK;
  size_t made = count; // fewer if the cache lacks room
  *vectors = 0;
  if (s == SETUN_OK) s = st_context_eval(c, entries, count, NULL, err);
  while (s == SETUN_ERROR_LIMIT && count > 1) s = st_context_eval(c, entries, count /= 2, NULL, err);
  for (size_t i = 0; i < count && s == SETUN_OK; i++) {
    s = st_context_get_embedding(c, entries[i].sequence, params, out + *vectors * width, err);
    *vectors += st_embeddings_vectors(&c->embeddings, texts[i].n);
  }
  for (size_t i = 0; i < made; i++) {
    st_context_truncate(c, entries[i].sequence, 0, NULL); // not reused
    st_context_drop(c, entries[i].sequence, NULL);
  }
  *n = count;
  return s;
}

setun_status st_context_embed(st_context *c, const setun_embedding_input *texts, size_t n,
                              const setun_embedding_params *params, float *embeddings, setun_error *err) {
  size_t width = params->n_dimensions ? params->n_dimensions : st_embedding_length(&c->run->model->h);
  setun_status s = check_pooling(c, err);
  if (s == SETUN_OK) s = check_texts(c, texts, n, err);
  for (size_t done = 0, some, vectors; done < n && s == SETUN_OK; done += some, embeddings += vectors * width) {
    some = n - done;
    s = embed_some(c, texts + done, &some, params, embeddings, &vectors, err);
    if (s == SETUN_OK && params->progress && !params->progress((double)(done + some) / (double)n, params->user)) {
      s = st_fail(err, SETUN_ERROR_CANCELED, "stopped after %zu of %zu texts", done + some, n);
    }
  }
  return s;
}

void st_context_seek_few(st_context *c, st_few_logits *few, bool (*usable)(const st_few_logits *few, const void *user),
                         const void *user) {
  c->few = few;
  c->few_usable = usable;
  c->few_user = user;
}

bool st_context_finds_few(const st_context *c) {
  return st_run_finds_few(c->run);
}

bool st_context_device_work(const st_context *c, size_t index, st_op_counts *counts) {
  return c->run->model->backend->counted(c->run->queue, index, counts);
}

const float *st_context_logits(const st_context *c, size_t entry, size_t i) {
  if (entry >= c->n_results || i >= c->results[entry].n_rows) return NULL;
  return c->logits + (c->results[entry].row + i) * c->run->model->h.n_vocab;
}

void st_context_stop(st_context *c) {
  if (atomic_load(&c->running)) atomic_store(&c->stop, true);
}
