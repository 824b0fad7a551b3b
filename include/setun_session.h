/* A session, one timeline of tokens over a model. A part of setun.h, which states the conventions. */
#ifndef SETUN_SESSION_H
#define SETUN_SESSION_H

#include "setun_model.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- session ----------------------------------------------------------------------------------------------- */

/* One timeline of tokens over a model, with its KV cache. The sessions of a model share its threads; each computes with
 * as many as its parameters say, whatever the others do meanwhile, and with the same results. */
typedef struct setun_session setun_session;

typedef struct setun_session_params {
  size_t size;                      /* of this struct */
  uint32_t n_ctx;                   /* tokens that fit; 0: the model's trained length, at most 4096 */
  uint32_t n_batch;                 /* tokens that one pass of prefill takes; 0: 512, or less where memory is little */
  int threads;                      /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  bool all_logits;  /* on_logits will be used: where the output matrix streams, room for the logits of several tokens at
                       once, so that it is read less often; false: it is read for each of them */
  uint32_t n_draft; /* 0: none; at most SETUN_DRAFT_MOST. Where one token is evaluated, so many more may be computed
                       with it that are guessed from the text so far. A later call that brings the guessed token then
                       computes nothing. Neither logits nor positions change, and so no text; text that repeats
                       earlier text, quotes and edits, comes several times as fast. Guesses that fail are made less
                       often, and none for a while where passes with guesses took longer than others, as measured. */
  uint32_t window, sinks;   /* as those of setun_context_params (experimental) */
  const setun_model *draft; /* experimental: a smaller model of the same tokens that makes the n_draft guesses; it must
                               outlive the session. Its plan's cache and work belong in the model's `beside` */
} setun_session_params;

enum { SETUN_DRAFT_MOST = 32 };

SETUN_PARAMS(setun_session_params)

/* `params` may be NULL. The caller frees *session with setun_session_free, before the model. */
SETUN_API setun_status setun_session_new(const setun_model *model, const setun_session_params *params,
                                         setun_session **session, setun_error *error);
SETUN_API void setun_session_free(setun_session *session);

/* From now on the session computes with these adapters, times `scale`, in place of those that it had; NULL: with those
 * that the model was loaded with, as a new session does. Its tokens stay, the logits do not: where anything changes,
 * the next evaluation computes all tokens anew. SETUN_ERROR_STATE from a callback of an evaluation, and where tokens
 * were forgotten. A saved session is loaded with the adapters and the scale that it was saved with. */
SETUN_API setun_status setun_session_use_adapters(setun_session *session, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

SETUN_API uint32_t setun_session_context(const setun_session *session);  /* tokens that fit; UINT32_MAX: no limit */
SETUN_API uint32_t setun_session_position(const setun_session *session); /* tokens so far */
SETUN_API int setun_session_threads(const setun_session *session);
/* Bytes of the KV cache that decoding one token reads when `tokens` are in it. */
SETUN_API uint64_t setun_session_cache_bytes(const setun_session *session, uint32_t tokens);

/* Receives the logits after one token: `position` is that token's, `logits` has n_vocab floats, valid during the
 * call. Returning false ends the evaluation with SETUN_ERROR_CANCELED. */
typedef bool (*setun_logits_fn)(uint32_t position, const float *logits, void *user);
/* Receives hidden states: of `n` tokens from `position` on, `layer` 0 is the input of block 0 and l+1 the output
 * of block l, before the final norm; `hidden` is [n, n_embd]. */
typedef bool (*setun_hidden_fn)(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user);

typedef struct setun_eval_params {
  size_t size;                /* of this struct */
  setun_logits_fn on_logits;  /* NULL: only the last token's logits are computed, see setun_session_logits */
  setun_hidden_fn on_hidden;  /* NULL: not wanted */
  setun_progress_fn progress; /* called after each pass with the share of the `n` tokens that is done, and while one
                                 runs; false stops as setun_session_stop does */
  void *user;                 /* passed to all of them */
} setun_eval_params;

SETUN_PARAMS(setun_eval_params)

/* Appends `n` tokens and computes what follows them. `params` may be NULL. More tokens than fit are refused with
 * SETUN_ERROR_LIMIT before anything is computed. After a failure or a stop the session holds the passes that were
 * finished (see setun_session_position). */
SETUN_API setun_status setun_session_eval(setun_session *session, const setun_token *ids, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* The logits after the last token, n_vocab floats, owned by the session and valid until its next call; NULL before
 * the first token. */
SETUN_API const float *setun_session_logits(const setun_session *session);
/* Forgets all tokens from position `n` on. Where layers with a sliding window have no longer what position `n` sees,
 * the next evaluation computes the tokens that are left again, with the results of a fresh session. Where tokens among
 * these were forgotten, it is SETUN_ERROR_ARGUMENT instead. */
SETUN_API setun_status setun_session_truncate(setun_session *session, uint32_t n, setun_error *error);
/* The tokens so far, setun_session_position of them, owned by the session and valid until its next call. With a window:
 * less setun_session_forgotten of them, which stood behind the sinks. */
SETUN_API const setun_token *setun_session_tokens(const setun_session *session);
SETUN_API uint32_t setun_session_forgotten(const setun_session *session); /* (experimental) */
/* Writes the tokens and the KV cache to a file, whole or not at all: on failure an older file of that name is as it
 * was. */
SETUN_API setun_status setun_session_save(setun_session *session, const char *path, setun_error *error);
/* Replaces the session's tokens and KV cache by those in a file that setun_session_save wrote for the same model and
 * the same kv type. A damaged file, one of another model, or more tokens than fit are errors, after which the session
 * is as it was (but for a file that changes while it is read). Logits are not saved: see setun_session_logits. */
SETUN_API setun_status setun_session_load(setun_session *session, const char *path, setun_error *error);
/* The same in memory: writes the session to `bytes` (which may be NULL when capacity is 0) if its *length bytes fit
 * into the capacity, and nothing otherwise. */
SETUN_API setun_status setun_session_save_memory(setun_session *session, void *bytes, size_t capacity, size_t *length,
                                                 setun_error *error);
SETUN_API setun_status setun_session_load_memory(setun_session *session, const void *bytes, size_t length,
                                                 setun_error *error);
/* Experimental: what came of a session's guesses. */
typedef struct setun_draft_stats {
  size_t size;      /* of this struct */
  uint64_t passes;  /* with guesses */
  uint64_t guessed; /* tokens that were computed ahead */
  uint64_t taken;   /* of these: that the text then went on with */
} setun_draft_stats;
SETUN_API setun_status setun_session_get_draft_stats(const setun_session *session, setun_draft_stats *stats,
                                                     setun_error *error);
/* Makes the evaluation that is running end soon with SETUN_ERROR_CANCELED; nothing when none is running.
 * Async-signal-safe. */
SETUN_API void setun_session_stop(setun_session *session);

#ifdef __cplusplus
}
#endif

#endif
