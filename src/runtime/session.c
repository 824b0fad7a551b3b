// Sessions: contexts with one sequence; and drafts: tokens computed ahead of the text.
#include "runtime/session.h"

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/draft.h"
#include "runtime/draft_pace.h"

struct st_session {
  st_context *context;
  int sequence;
  setun_context_info info;
  bool has_logits; // logits of the last token
  // Drafted tokens: those that the sequence has beyond the session's position, and the row of logits at the position.
  uint32_t n_draft, ahead, row;
  st_draft_pace pace;
  setun_token guess;     // predicted next token that was not computed; -1: none
  st_draft_model *draft; // makes drafts; NULL: prompt lookup
  uint32_t n_vocab;
};

setun_context_params st_session_context_params(const setun_session_params *params) {
  enum { LOGITS_AT_ONCE = 8 };
  const setun_session_params none = {0}, *p = params ? params : &none;
  uint32_t logits = p->all_logits ? LOGITS_AT_ONCE : 1;
  return (setun_context_params){.n_ctx = p->n_ctx,
                                .n_seq_max = 1,
                                .n_batch = p->n_batch,
                                .n_logits = logits > p->n_draft ? logits : p->n_draft + 1,
                                .threads = p->threads,
                                .kv_keys = p->kv_keys,
                                .kv_values = p->kv_values,
                                .window = p->window,
                                .sinks = p->sinks};
}

setun_status st_session_new(const st_model *m, const setun_session_params *params, st_session **session,
                            setun_error *err) {
  const setun_context_params p = st_session_context_params(params);
  if (params && params->n_draft > SETUN_DRAFT_MOST) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "n_draft: expected at most %d tokens, found %u", SETUN_DRAFT_MOST,
                   params->n_draft);
  }
  st_session *n = st_calloc(1, sizeof *n);
  if (!n) return st_fail_memory(err, "the session");
  setun_status s = st_context_new(m, &p, "session", &n->context, err);
  if (s == SETUN_OK) s = st_context_add(n->context, &n->sequence, err);
  if (s == SETUN_OK) {
    st_context_info(n->context, &n->info);
    n->n_draft = params ? params->n_draft : 0;
    n->n_vocab = m->h.n_vocab;
    st_draft_pace_begin(&n->pace, 0, n->n_draft);
    n->guess = -1;
    *session = n;
  } else {
    st_session_free(n);
  }
  return s;
}

setun_status st_session_use_draft(st_session *s, const st_model *draft, const setun_session_params *params,
                                  setun_error *err) {
  setun_context_params p = st_session_context_params(params);
  // When text is forgotten, what remains after the sinks changes and is recomputed.
  if (!p.window && !p.sinks) p.n_ctx = s->info.n_ctx;
  p.window = p.sinks = 0;
  p.threads = s->info.threads;
  st_draft_pace_begin(&s->pace, 1, s->n_draft);
  return st_draft_model_new(draft, &p, &s->draft, err);
}

void st_session_free(st_session *s) {
  if (!s) return;
  st_draft_model_free(s->draft);
  st_context_free(s->context);
  st_free(s);
}

uint32_t st_session_context(const st_session *s) {
  return s->info.n_ctx;
}
uint32_t st_session_position(const st_session *s) {
  return st_context_position(s->context, s->sequence) - s->ahead;
}
uint32_t st_session_forgotten(const st_session *s) {
  return st_context_forgotten(s->context, s->sequence);
}
// The number of tokens that st_session_tokens returns.
static uint32_t n_tokens(const st_session *s) {
  return st_session_position(s) - st_session_forgotten(s);
}
int st_session_threads(const st_session *s) {
  return s->info.threads;
}
uint64_t st_session_cache_bytes(const st_session *s, uint32_t tokens) {
  return st_context_cache_bytes(s->context, tokens);
}
const float *st_session_logits(const st_session *s) {
  return s->has_logits ? st_context_logits(s->context, 0, s->row) : NULL;
}

// ---- drafts -------------------------------------------------------------------------------------------------------

// Discards what was computed ahead; the position's logits stay. In a forked child the context is left alone and reports
// the error on its next use.
static void drop_drafts(st_session *s) {
  if (s->ahead && st_context_truncate(s->context, s->sequence, st_session_position(s), NULL) == SETUN_OK) s->ahead = 0;
  s->guess = -1;
}

// Whether the token is the one computed ahead; if so, accepts it.
static bool take_draft(st_session *s, setun_token id) {
  const setun_token *ids = st_context_tokens(s->context, s->sequence);
  setun_token guess = s->ahead ? ids[n_tokens(s)] : s->guess;
  if (guess >= 0) st_draft_pace_judge(&s->pace, guess == id);
  if (!s->ahead || guess != id) return false;
  s->ahead--;
  s->row++;
  return true;
}

// Drafts what follows `id`: fills ids[1 ...]; *n is the number of tokens to compute.
static setun_status make_draft(st_session *s, setun_token *ids, uint32_t *n, setun_error *err) {
  uint32_t position = st_session_position(s), room = s->info.n_ctx - position, most = st_draft_pace_next(&s->pace);
  const setun_token *text = st_context_tokens(s->context, s->sequence);
  *n = 0;
  if (!room) return SETUN_OK;
  if (most > room - 1) most = room - 1;
  if (most > s->info.n_batch - 1) most = s->info.n_batch - 1;
  if (!s->draft) {
    uint32_t found = (uint32_t)st_draft_lookup(text, n_tokens(s), ids[0], ids + 1, SETUN_DRAFT_MOST);
    if (found && !most) s->guess = ids[1]; // to learn from
    *n = found < most ? found : most;
    return SETUN_OK;
  }
  if (!most) return SETUN_OK;
  setun_status status = st_draft_model_propose(s->draft, text, n_tokens(s), ids[0], s->n_vocab, ids + 1, most, n, err);
  if (status == SETUN_ERROR_CANCELED) return status;
  if (status != SETUN_OK) *n = 0; // generation continues without
  return SETUN_OK;
}

// Evaluates one token together with its draft.
static setun_status eval_with_draft(st_session *s, setun_token id, const setun_eval_params *params, setun_error *err) {
  setun_token ids[SETUN_DRAFT_MOST + 1] = {id};
  setun_batch_entry entry = {.sequence = s->sequence, .logits = SETUN_LOGITS_ALL, .ids = ids};
  uint32_t n = 0;
  setun_status status =
      st_context_eval(s->context, &entry, 1, params, err); // checks only whether this process may compute
  if (status != SETUN_OK || take_draft(s, id)) return status;
  drop_drafts(s);
  double start = st_clock_seconds();
  status = make_draft(s, ids, &n, err);
  if (status != SETUN_OK) return status;
  entry.n = n + 1;
  status = st_context_eval(s->context, &entry, 1, params, err);
  if (status != SETUN_OK && status != SETUN_ERROR_CANCELED && n) { // which a draft may have caused
    n = 0;
    entry.n = 1;
    status = st_context_eval(s->context, &entry, 1, params, err);
  }
  if (status != SETUN_OK) return status;
  st_draft_pace_pass(&s->pace, n, st_clock_seconds() - start);
  s->row = 0;
  s->ahead = n;
  s->has_logits = true;
  return SETUN_OK;
}

setun_status st_session_eval(st_session *s, const setun_token *ids, size_t n, const setun_eval_params *params,
                             setun_error *err) {
  const setun_batch_entry entry = {.sequence = s->sequence, .logits = SETUN_LOGITS_LAST, .ids = ids, .n = n};
  bool plain = !params || (!params->on_logits && !params->on_hidden);
  if (s->n_draft && n == 1 && plain) {
    return eval_with_draft(s, ids[0], params, err);
  }
  drop_drafts(s);
  setun_status status = st_context_eval(s->context, &entry, 1, params, err);
  if (status == SETUN_OK && n) {
    s->has_logits = true;
    s->row = 0;
  }
  return status;
}

static bool usable(const st_few_logits *few, const void *sampler) {
  return st_sampler_can_use(sampler, few->ids, few->count);
}

// Few logits are enough where nothing else of the device's results is needed.
setun_status st_session_eval_sample(st_session *s, const setun_token *ids, size_t n, st_sampler *sampler,
                                    setun_token *id, setun_error *err) {
  const setun_batch_entry entry = {.sequence = s->sequence, .logits = SETUN_LOGITS_LAST, .ids = ids, .n = n};
  st_few_logits few = {0};
  size_t needs = st_sampler_needs(sampler);
  setun_status status;
  if (s->n_draft || needs > ST_FEW_LOGITS || !st_context_finds_few(s->context)) {
    status = st_session_eval(s, ids, n, NULL, err);
  } else {
    few.k = (uint32_t)needs;
    drop_drafts(s);
    st_context_seek_few(s->context, &few, usable, sampler);
    status = st_context_eval(s->context, &entry, 1, NULL, err);
    st_context_seek_few(s->context, NULL, NULL, NULL);
    if (status == SETUN_OK) s->has_logits = !few.count, s->row = 0;
  }
  if (status != SETUN_OK) return status;
  if (few.count) return st_sampler_sample_few(sampler, few.ids, few.logits, few.count, s->n_vocab, id, err);
  return st_sampler_sample(sampler, st_session_logits(s), s->n_vocab, id, err);
}

bool st_session_device_work(const st_session *s, size_t index, st_op_counts *counts) {
  return st_context_device_work(s->context, index, counts);
}

setun_status st_session_adapt(st_session *s, const st_adapting *adapting, setun_error *err) {
  drop_drafts(s);
  setun_status status = st_context_adapt_sequence(s->context, s->sequence, adapting, err);
  if (status == SETUN_OK) s->has_logits = false;
  return status;
}

setun_status st_session_truncate(st_session *s, uint32_t n, setun_error *err) {
  uint32_t before = st_session_position(s);
  drop_drafts(s);
  setun_status status = st_context_truncate(s->context, s->sequence, n, err);
  if (status == SETUN_OK && n < before) s->has_logits = false;
  return status;
}

const setun_token *st_session_tokens(const st_session *s) {
  return st_context_tokens(s->context, s->sequence);
}

setun_status st_session_save(st_session *s, const char *path, setun_error *err) {
  drop_drafts(s);
  return st_context_save(s->context, s->sequence, path, err);
}

setun_status st_session_load(st_session *s, const char *path, setun_error *err) {
  drop_drafts(s);
  uint32_t before = st_session_position(s);
  setun_status status = st_context_load(s->context, s->sequence, path, err);
  if (status == SETUN_OK || st_session_position(s) != before) s->has_logits = false;
  return status;
}

setun_status st_session_save_memory(st_session *s, void *bytes, size_t capacity, size_t *length, setun_error *err) {
  drop_drafts(s);
  return st_context_save_memory(s->context, s->sequence, bytes, capacity, length, err);
}

setun_status st_session_load_memory(st_session *s, const void *bytes, size_t length, setun_error *err) {
  drop_drafts(s);
  uint32_t before = st_session_position(s);
  setun_status status = st_context_load_memory(s->context, s->sequence, bytes, length, err);
  if (status == SETUN_OK || st_session_position(s) != before) s->has_logits = false;
  return status;
}

void st_session_draft_stats(const st_session *s, setun_draft_stats *stats) {
  *stats =
      (setun_draft_stats){.passes = s->pace.all_passes, .guessed = s->pace.all_guessed, .taken = s->pace.all_taken};
}

void st_session_stop(st_session *s) {
  if (s->draft) st_draft_model_stop(s->draft);
  st_context_stop(s->context);
}
