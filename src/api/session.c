// setun.h: sessions.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "base/process.h"

static setun_status check_draft(const setun_model *model, const setun_session_params *p, setun_error *err) {
  if (!p->draft->model) {
    return st_fail(err, SETUN_ERROR_STATE, "draft model: expected one with weights, found only a vocabulary");
  }
  if (!p->n_draft) return st_fail(err, SETUN_ERROR_ARGUMENT, "n_draft: expected 1 or more with a draft model, found 0");
  setun_status s = st_process_check(p->draft->maker, "session: the draft model", err);
  return s == SETUN_OK ? st_draft_model_check(model->tokenizer, p->draft->tokenizer, err) : s;
}

setun_status setun_session_new(const setun_model *model, const setun_session_params *params, setun_session **session,
                               setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_session_params own;
  ST_NEED(model);
  ST_NEED(session);
  if (!model->model) {
    return st_fail(error, SETUN_ERROR_STATE, "session: expected a model with weights, found only a vocabulary");
  }
  setun_status status = st_process_check(model->maker, "session: the model", error);
  if (status != SETUN_OK) return status;
  status = st_take_session_params(&own, params, error);
  if (status != SETUN_OK) return status;
  if (own.draft) status = check_draft(model, &own, error);
  if (status != SETUN_OK) return status;
  setun_session *s = st_calloc(1, sizeof *s);
  if (!s) return st_fail_memory(error, "the session");
  s->model = model;
  status = st_session_new(model->model, &own, &s->inner, error);
  if (status == SETUN_OK && own.draft) status = st_session_use_draft(s->inner, own.draft->model, &own, error);
  if (status == SETUN_OK) {
    *session = s;
  } else {
    setun_session_free(s);
  }
  return status;
}

void setun_session_free(setun_session *session) {
  if (!session) return;
  st_session_free(session->inner);
  st_free(session);
}

setun_status setun_session_use_adapters(setun_session *session, const setun_adapters *adapters, float scale,
                                        setun_error *error) {
  ST_NEED(session);
  st_adapting adapting;
  setun_status s = st_take_adapters(session->model->model, adapters, scale, &adapting, error);
  return s == SETUN_OK ? st_session_adapt(session->inner, &adapting, error) : s;
}

uint32_t setun_session_context(const setun_session *session) {
  return session ? st_session_context(session->inner) : 0;
}

uint32_t setun_session_position(const setun_session *session) {
  return session ? st_session_position(session->inner) : 0;
}

uint32_t setun_session_forgotten(const setun_session *session) {
  return session ? st_session_forgotten(session->inner) : 0;
}

int setun_session_threads(const setun_session *session) {
  return session ? st_session_threads(session->inner) : 0;
}

uint64_t setun_session_cache_bytes(const setun_session *session, uint32_t tokens) {
  return session ? st_session_cache_bytes(session->inner, tokens) : 0;
}

setun_status setun_session_eval(setun_session *session, const setun_token *ids, size_t n,
                                const setun_eval_params *params, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_eval_params own;
  ST_NEED(session);
  ST_NEED_ARRAY(ids, n);
  setun_status s = st_take_eval_params(&own, params, error);
  return s == SETUN_OK ? st_session_eval(session->inner, ids, n, &own, error) : s;
}

setun_status setun_session_eval_sample(setun_session *session, const setun_token *ids, size_t n, setun_sampler *sampler,
                                       setun_token *id, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(session);
  ST_NEED_ARRAY(ids, n);
  ST_NEED(sampler);
  ST_NEED(id);
  if (!n) return st_fail(error, SETUN_ERROR_ARGUMENT, "n: expected at least 1 token, found 0");
  return st_session_eval_sample(session->inner, ids, n, st_sampler_of(sampler), id, error);
}

const float *setun_session_logits(const setun_session *session) {
  return session ? st_session_logits(session->inner) : NULL;
}

setun_status setun_session_truncate(setun_session *session, uint32_t n, setun_error *error) {
  ST_NEED(session);
  return st_session_truncate(session->inner, n, error);
}

const setun_token *setun_session_tokens(const setun_session *session) {
  return session ? st_session_tokens(session->inner) : NULL;
}

setun_status setun_session_save(setun_session *session, const char *path, setun_error *error) {
  ST_NEED(session);
  ST_NEED(path);
  return st_session_save(session->inner, path, error);
}

setun_status setun_session_load(setun_session *session, const char *path, setun_error *error) {
  ST_NEED(session);
  ST_NEED(path);
  return st_session_load(session->inner, path, error);
}

setun_status setun_session_save_memory(setun_session *session, void *bytes, size_t capacity, size_t *length,
                                       setun_error *error) {
  ST_NEED(session);
  ST_NEED_ARRAY(bytes, capacity);
  ST_NEED(length);
  return st_session_save_memory(session->inner, bytes, capacity, length, error);
}

setun_status setun_session_load_memory(setun_session *session, const void *bytes, size_t length, setun_error *error) {
  ST_NEED(session);
  ST_NEED(bytes);
  return st_session_load_memory(session->inner, bytes, length, error);
}

setun_status setun_session_get_draft_stats(const setun_session *session, setun_draft_stats *stats, setun_error *error) {
  ST_NEED(session);
  setun_draft_stats found;
  st_session_draft_stats(session->inner, &found);
  return ST_FILL(stats, &found);
}

void setun_session_stop(setun_session *session) {
  if (session) st_session_stop(session->inner);
}
