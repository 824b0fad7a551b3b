/* A session: one sequence of tokens over a model. A part of setun.h, which states the conventions. */
#ifndef SETUN_SESSION_H
#define SETUN_SESSION_H

#include "setun_model.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- session ----------------------------------------------------------------------------------------------- */

/* One sequence of tokens over a model, with its KV cache. The sessions of a model share its threads; each computes with
 * the number in its parameters, independently of other sessions and with the same results. */
typedef struct setun_session setun_session;

typedef struct setun_session_params {
  size_t size;                      /* of this struct */
  uint32_t n_ctx;                   /* most tokens; 0: the model's trained length, at most 4096 */
  uint32_t n_batch;                 /* most tokens of one prefill pass; 0: 512, or less if memory is scarce */
  int threads;                      /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  bool all_logits; /* on_logits will be used: with a streamed output matrix, keeps room for the logits of several tokens
                      at once, so that it is read less often; false: it is read for each token */
  uint32_t n_draft; /* 0: none; at most SETUN_DRAFT_MOST. When one token is evaluated, up to this many more, drafted
                       from the text so far, may be computed with it. A later call with the drafted token then computes
                       nothing. Logits, positions and text do not change; text that repeats earlier text, as in quotes
                       and edits, is generated several times as fast. Drafts that fail become rarer, and pause for a
                       while if passes with drafts are measured to lose time. */
  uint32_t window, sinks;   /* as in setun_context_params (experimental) */
  const setun_model *draft; /* experimental: a smaller model with the same tokens that makes the n_draft drafts; it must
                               outlive the session. Add its plan's cache and work to the model's `beside` */
} setun_session_params;

enum { SETUN_DRAFT_MOST = 32 };

SETUN_PARAMS(setun_session_params)

/* `params` may be NULL. The caller frees *session with setun_session_free, before the model. */
SETUN_API setun_status setun_session_new(const setun_model *model, const setun_session_params *params,
                                         setun_session **session, setun_error *error);
SETUN_API void setun_session_free(setun_session *session);

/* Makes the session compute with these adapters, times `scale`, from now on, instead of its previous ones; NULL: with
 * those that the model was loaded with, as in a new session. Its tokens stay, but not the logits: if the adapters
 * differ, the next evaluation recomputes all tokens. SETUN_ERROR_STATE during a callback of an evaluation, and if
 * tokens were forgotten. A saved session must be loaded with the adapters and the scale that it was saved with. */
SETUN_API setun_status setun_session_use_adapters(setun_session *session, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

SETUN_API uint32_t setun_session_context(const setun_session *session);  /* most tokens; UINT32_MAX: no limit */
SETUN_API uint32_t setun_session_position(const setun_session *session); /* tokens so far */
SETUN_API int setun_session_threads(const setun_session *session);
/* Bytes of the KV cache read for decoding one token when it has `tokens` tokens. */
SETUN_API uint64_t setun_session_cache_bytes(const setun_session *session, uint32_t tokens);

/* Receives the logits after one token, at `position`: n_vocab floats, valid during the call. Returning false ends the
 * evaluation with SETUN_ERROR_CANCELED. */
typedef bool (*setun_logits_fn)(uint32_t position, const float *logits, void *user);
/* Receives the hidden states of `n` tokens from `position` on: `layer` 0 is the input of block 0 and l+1 the output of
 * block l, before the final norm; `hidden` is [n, n_embd]. */
typedef bool (*setun_hidden_fn)(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user);

typedef struct setun_eval_params {
  size_t size;                /* of this struct */
  setun_logits_fn on_logits;  /* NULL: compute only the last token's logits, see setun_session_logits */
  setun_hidden_fn on_hidden;  /* NULL: not needed */
  setun_progress_fn progress; /* called during and after each pass with the fraction of the `n` tokens completed;
                                 returning false acts like setun_session_stop */
  void *user;                 /* passed to all callbacks */
} setun_eval_params;

SETUN_PARAMS(setun_eval_params)

/* Appends `n` tokens and computes the logits after them. `params` may be NULL. Too many tokens are refused with
 * SETUN_ERROR_LIMIT before anything is computed. After a failure or a stop the session has the tokens of the finished
 * passes (see setun_session_position). */
SETUN_API setun_status setun_session_eval(setun_session *session, const setun_token *ids, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* The logits after the last token, n_vocab floats, owned by the session and valid until its next call; NULL before the
 * first token. */
SETUN_API const float *setun_session_logits(const setun_session *session);
/* Removes all tokens from position `n` on. If layers with a sliding window no longer have what position `n` sees, the
 * next evaluation recomputes the remaining tokens, with the results of a new session. If some of these were forgotten,
 * it is SETUN_ERROR_ARGUMENT instead. */
SETUN_API setun_status setun_session_truncate(setun_session *session, uint32_t n, setun_error *error);
/* The tokens so far, setun_session_position of them, owned by the session and valid until its next call. With a window:
 * without setun_session_forgotten of them, which came after the sinks. */
SETUN_API const setun_token *setun_session_tokens(const setun_session *session);
SETUN_API uint32_t setun_session_forgotten(const setun_session *session); /* (experimental) */
/* Writes the tokens and the KV cache to a file, completely or not at all: on failure an existing file is unchanged. */
SETUN_API setun_status setun_session_save(setun_session *session, const char *path, setun_error *error);
/* Replaces the session's tokens and KV cache by those in a file that setun_session_save wrote for the same model and
 * the same kv types. A damaged file, one for another model, or too many tokens are errors that leave the session
 * unchanged (except if the file changes while it is read). Logits are not saved: see setun_session_logits. */
SETUN_API setun_status setun_session_load(setun_session *session, const char *path, setun_error *error);
/* The same in memory: writes the session to `bytes` (which may be NULL when capacity is 0) if its *length bytes fit
 * into the capacity; otherwise writes nothing. */
SETUN_API setun_status setun_session_save_memory(setun_session *session, void *bytes, size_t capacity, size_t *length,
                                                 setun_error *error);
SETUN_API setun_status setun_session_load_memory(setun_session *session, const void *bytes, size_t length,
                                                 setun_error *error);
/* Experimental: statistics of a session's drafts. */
typedef struct setun_draft_stats {
  size_t size;      /* of this struct */
  uint64_t passes;  /* passes with drafts */
  uint64_t guessed; /* tokens computed ahead */
  uint64_t taken;   /* those that the text then continued with */
} setun_draft_stats;
SETUN_API setun_status setun_session_get_draft_stats(const setun_session *session, setun_draft_stats *stats,
                                                     setun_error *error);
/* Makes a running evaluation end soon with SETUN_ERROR_CANCELED; otherwise does nothing. Async-signal-safe. */
SETUN_API void setun_session_stop(setun_session *session);

#ifdef __cplusplus
}
#endif

#endif
