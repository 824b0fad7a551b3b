// A session: one sequence of tokens over a model, implemented as a context with one sequence.
#ifndef SETUN_RUNTIME_SESSION_H
#define SETUN_RUNTIME_SESSION_H

#include "runtime/draft_model.h"
#include "runtime/sampler.h"

typedef struct st_session st_session;

// The session's context.
setun_context_params st_session_context_params(const setun_session_params *params);

setun_status st_session_new(const st_model *model, const setun_session_params *params, st_session **session,
                            setun_error *err);
// Makes drafts come from this model, which has the same tokens as the session's, instead of from the text; once, at the
// start.
setun_status st_session_use_draft(st_session *session, const st_model *draft, const setun_session_params *params,
                                  setun_error *err);
void st_session_free(st_session *session);
uint32_t st_session_context(const st_session *session);
uint32_t st_session_position(const st_session *session);
uint32_t st_session_forgotten(const st_session *session);
int st_session_threads(const st_session *session);
uint64_t st_session_cache_bytes(const st_session *session, uint32_t tokens);
setun_status st_session_eval(st_session *session, const setun_token *ids, size_t n, const setun_eval_params *params,
                             setun_error *err);
setun_status st_session_eval_sample(st_session *session, const setun_token *ids, size_t n, st_sampler *sampler,
                                    setun_token *id, setun_error *err);
bool st_session_device_work(const st_session *session, size_t index, st_op_counts *counts);
const float *st_session_logits(const st_session *session);
setun_status st_session_adapt(st_session *session, const st_adapting *adapting, setun_error *err);
setun_status st_session_truncate(st_session *session, uint32_t n, setun_error *err);
const setun_token *st_session_tokens(const st_session *session);
setun_status st_session_save(st_session *session, const char *path, setun_error *err);
setun_status st_session_load(st_session *session, const char *path, setun_error *err);
setun_status st_session_save_memory(st_session *session, void *bytes, size_t capacity, size_t *length,
                                    setun_error *err);
setun_status st_session_load_memory(st_session *session, const void *bytes, size_t length, setun_error *err);
void st_session_draft_stats(const st_session *session, setun_draft_stats *stats);
void st_session_stop(st_session *session);

#endif
