// setun.h: sessions.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/process.h"

setun_session_params setun_session_params_default(void) {
  return (setun_session_params){0};
}

setun_status setun_session_new(const setun_model *model, const setun_session_params *params, setun_session **session,
                               setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  if (!model->model) {
    return st_fail(error, SETUN_ERROR_STATE, "session: expected a model with weights, found a vocabulary only");
  }
  setun_status status = st_process_check(model->maker, "session: the model", error);
  if (status != SETUN_OK) return status;
  st_session *s = NULL;
  status = st_session_new(model->model, params, &s, error);
  if (status == SETUN_OK) *session = (setun_session *)(void *)s;
  return status;
}

void setun_session_free(setun_session *session) {
  st_session_free(st_session_of(session));
}

uint32_t setun_session_context(const setun_session *session) {
  return st_session_context(st_const_session_of(session));
}

uint32_t setun_session_position(const setun_session *session) {
  return st_session_position(st_const_session_of(session));
}

int setun_session_threads(const setun_session *session) {
  return st_session_threads(st_const_session_of(session));
}
uint64_t setun_session_cache_bytes(const setun_session *session, uint32_t tokens) {
  return st_session_cache_bytes(st_const_session_of(session), tokens);
}

setun_status setun_session_eval(setun_session *session, const setun_token *ids, size_t n,
                                const setun_eval_params *params, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  return st_session_eval(st_session_of(session), ids, n, params, error);
}

const float *setun_session_logits(const setun_session *session) {
  return st_session_logits(st_const_session_of(session));
}

setun_status setun_session_truncate(setun_session *session, uint32_t n, setun_error *error) {
  return st_session_truncate(st_session_of(session), n, error);
}

const setun_token *setun_session_tokens(const setun_session *session) {
  return st_session_tokens(st_const_session_of(session));
}

setun_status setun_session_save(setun_session *session, const char *path, setun_error *error) {
  return st_session_save(st_session_of(session), path, error);
}

setun_status setun_session_load(setun_session *session, const char *path, setun_error *error) {
  return st_session_load(st_session_of(session), path, error);
}

void setun_session_stop(setun_session *session) {
  st_session_stop(st_session_of(session));
}
