// A session: one timeline of tokens over a model.
#ifndef SETUN_RUNTIME_SESSION_H
#define SETUN_RUNTIME_SESSION_H

#include "model/forward.h"

typedef struct st_session st_session;

// Bytes of a session of the model with a sampler, before there is one; see st_run_size_of.
st_run_size st_session_size_of(const st_model *model, const st_run_options *options, const st_workload *workload);

setun_status st_session_new(const st_model *model, const setun_session_params *params, st_session **session,
                            setun_error *err);
void st_session_free(st_session *session);
uint32_t st_session_context(const st_session *session);
uint32_t st_session_position(const st_session *session);
int st_session_threads(const st_session *session);
uint64_t st_session_cache_bytes(const st_session *session, uint32_t tokens);
setun_status st_session_eval(st_session *session, const setun_token *ids, size_t n, const setun_eval_params *params,
                             setun_error *err);
const float *st_session_logits(const st_session *session);
setun_status st_session_truncate(st_session *session, uint32_t n, setun_error *err);
const setun_token *st_session_tokens(const st_session *session);
setun_status st_session_save(st_session *session, const char *path, setun_error *err);
setun_status st_session_load(st_session *session, const char *path, setun_error *err);
setun_status st_session_save_memory(st_session *session, void *bytes, size_t capacity, size_t *length,
                                    setun_error *err);
setun_status st_session_load_memory(st_session *session, const void *bytes, size_t length, setun_error *err);
void st_session_stop(st_session *session);

#endif
