// Sessions: contexts with one sequence.
#include "runtime/session.h"

#include "base/memory.h"

struct st_session {
  st_context *context;
  int sequence;
  setun_context_info info;
  bool has_logits; // those of the last token
};

setun_context_params st_session_context_params(const setun_session_params *params) {
  enum { LOGITS_AT_ONCE = 8 };
  const setun_session_params none = {0}, *p = params ? params : &none;
  return (setun_context_params){.n_ctx = p->n_ctx,
                                .n_seq_max = 1,
                                .n_batch = p->n_batch,
                                .n_logits = p->all_logits ? LOGITS_AT_ONCE : 1,
                                .threads = p->threads,
                                .kv_keys = p->kv_keys,
                                .kv_values = p->kv_values};
}

setun_status st_session_new(const st_model *m, const setun_session_params *params, st_session **session,
                            setun_error *err) {
  const setun_context_params p = st_session_context_params(params);
  st_session *n = st_calloc(1, sizeof *n);
  if (!n) return st_fail_memory(err, "the session");
  setun_status s = st_context_new(m, &p, "session", &n->context, err);
  if (s == SETUN_OK) s = st_context_add(n->context, &n->sequence, err);
  if (s == SETUN_OK) {
    st_context_info(n->context, &n->info);
    *session = n;
  } else {
    st_session_free(n);
  }
  return s;
}

void st_session_free(st_session *s) {
  if (!s) return;
  st_context_free(s->context);
  st_free(s);
}

uint32_t st_session_context(const st_session *s) {
  return s->info.n_ctx;
}
uint32_t st_session_position(const st_session *s) {
  return st_context_position(s->context, s->sequence);
}
int st_session_threads(const st_session *s) {
  return s->info.threads;
}
uint64_t st_session_cache_bytes(const st_session *s, uint32_t tokens) {
  return st_context_cache_bytes(s->context, tokens);
}
const float *st_session_logits(const st_session *s) {
  return s->has_logits ? st_context_logits(s->context, 0, 0) : NULL;
}

setun_status st_session_eval(st_session *s, const setun_token *ids, size_t n, const setun_eval_params *params,
                             setun_error *err) {
  const setun_batch_entry entry = {.sequence = s->sequence, .logits = SETUN_LOGITS_LAST, .ids = ids, .n = n};
  setun_status status = st_context_eval(s->context, &entry, 1, params, err);
  if (status == SETUN_OK && n) s->has_logits = true;
  return status;
}

setun_status st_session_truncate(st_session *s, uint32_t n, setun_error *err) {
  uint32_t before = st_session_position(s);
  setun_status status = st_context_truncate(s->context, s->sequence, n, err);
  if (status == SETUN_OK && n < before) s->has_logits = false;
  return status;
}

const setun_token *st_session_tokens(const st_session *s) {
  return st_context_tokens(s->context, s->sequence);
}

setun_status st_session_save(st_session *s, const char *path, setun_error *err) {
  return st_context_save(s->context, s->sequence, path, err);
}

setun_status st_session_load(st_session *s, const char *path, setun_error *err) {
  uint32_t before = st_session_position(s);
  setun_status status = st_context_load(s->context, s->sequence, path, err);
  if (status == SETUN_OK || st_session_position(s) != before) s->has_logits = false;
  return status;
}

setun_status st_session_save_memory(st_session *s, void *bytes, size_t capacity, size_t *length, setun_error *err) {
  return st_context_save_memory(s->context, s->sequence, bytes, capacity, length, err);
}

setun_status st_session_load_memory(st_session *s, const void *bytes, size_t length, setun_error *err) {
  uint32_t before = st_session_position(s);
  setun_status status = st_context_load_memory(s->context, s->sequence, bytes, length, err);
  if (status == SETUN_OK || st_session_position(s) != before) s->has_logits = false;
  return status;
}

void st_session_stop(st_session *s) {
  st_context_stop(s->context);
}
