/* Contexts: several sequences of tokens that one pass computes. A part of setun.h, which states the
 * conventions. */
#ifndef SETUN_CONTEXT_H
#define SETUN_CONTEXT_H

#include "setun_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- contexts ---------------------------------------------------------------------------------------------- */

/* Several sequences of tokens over one model: one pass computes tokens of any of them and reads each weight once for
 * all. A sequence's results are the same to the bit alone and among others, however its tokens are cut into calls. Keys
 * and values are kept in pages of 64 positions, which sequences share as long as they are the same; none is allocated
 * after the context was made. A session is a context with one sequence. */
typedef struct setun_context setun_context;

/* Experimental: how the states of a text's tokens become one embedding, see setun_embeddings.h. */
typedef enum setun_pooling {
  SETUN_POOLING_OFF,   /* not at all */
  SETUN_POOLING_MODEL, /* as the model's files say; where they do not, LAST, or MEAN where tokens see those behind them
                        */
  SETUN_POOLING_MEAN,  /* the mean of all tokens' */
  SETUN_POOLING_CLS,   /* the first token's */
  SETUN_POOLING_LAST   /* the last token's */
} setun_pooling;

typedef struct setun_context_params {
  size_t size;                      /* of this struct */
  uint32_t n_ctx;                   /* tokens that one sequence may have; 0: as setun_session_params.n_ctx */
  uint32_t n_seq_max;               /* sequences at once; 0: 8 */
  uint64_t n_cache;                 /* tokens that the KV cache holds, of all sequences together, in pages of 64; one
                                       that sequences share counts once. 0: n_ctx for each sequence */
  uint32_t n_batch;                 /* tokens that one pass takes; 0: as setun_session_params.n_batch */
  uint32_t n_logits;                /* tokens whose logits one call may ask for; 0: n_seq_max */
  int threads;                      /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  /* Experimental. With `window` layers to which the model gives none see the last so many tokens, and, with `sinks`, so
   * many of the first ones of the sequence beside them. Text then has no end: the cache holds the sinks, the window and
   * one pass, positions are counted within it, and tokens before it are forgotten, see setun_session_forgotten. Up to
   * window + sinks tokens nothing differs from a context without them. */
  uint32_t window; /* n_ctx must be 0; 0: with sinks what they leave of n_ctx, otherwise none */
  uint32_t sinks;  /* at most 512; 0: none */
  /* Experimental: embeddings will be asked for, pooled so; SETUN_POOLING_OFF: they will not. */
  setun_pooling pooling;
} setun_context_params;

SETUN_PARAMS(setun_context_params)

/* `params` may be NULL. The caller frees *context with setun_context_free, before the model. */
SETUN_API setun_status setun_context_new(const setun_model *model, const setun_context_params *params,
                                         setun_context **context, setun_error *error);
SETUN_API void setun_context_free(setun_context *context);

/* Sequences that are made from now on (setun_context_add, setun_context_reuse) are computed with these adapters, times
 * `scale`; NULL: with those that the model was loaded with, as in a new context. Sequences that there are keep theirs,
 * and copies have those of their original. What was computed with other adapters is not reused. One pass computes
 * sequences with the same adapters: others wait for the next one. SETUN_ERROR_STATE from a callback of an evaluation.
 */
SETUN_API setun_status setun_context_use_adapters(setun_context *context, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

typedef struct setun_context_info {
  size_t size;         /* of this struct */
  uint32_t n_ctx;      /* tokens that one sequence may have; UINT32_MAX: no limit */
  uint32_t n_seq_max;  /* sequences at once */
  uint32_t n_seq;      /* that there are */
  uint32_t n_batch;    /* tokens that one pass takes */
  uint32_t n_logits;   /* tokens whose logits one call may ask for */
  int threads;         /* that compute */
  uint64_t page_bytes; /* of a page: keys and values of 64 positions of one layer */
  uint64_t pages;      /* in all */
  uint64_t pages_used; /* by sequences that there are; a page that several share counts once */
  uint64_t pages_kept; /* by dropped sequences alone: used again when others need them */
} setun_context_info;

SETUN_API setun_status setun_context_get_info(const setun_context *context, setun_context_info *info,
                                              setun_error *error);

/* An empty sequence: *sequence is a number below n_seq_max that is in use until setun_context_drop.
 * SETUN_ERROR_LIMIT when there are n_seq_max already. */
SETUN_API setun_status setun_context_add(setun_context *context, int *sequence, setun_error *error);
/* Ends a sequence. What it holds stays for setun_context_reuse until its pages are needed, the least recently used
 * one's first, or until more than n_seq_max were dropped. */
SETUN_API setun_status setun_context_drop(setun_context *context, int sequence, setun_error *error);
/* A new sequence with the same tokens, which shares the pages: nothing is copied before one of the two goes on. */
SETUN_API setun_status setun_context_fork(setun_context *context, int sequence, int *copy, setun_error *error);
/* Forgets all tokens of a sequence from position `n` on; see setun_session_truncate. */
SETUN_API setun_status setun_context_truncate(setun_context *context, int sequence, uint32_t n, setun_error *error);
/* A new sequence with the longest beginning of `ids` that is in the cache, of dropped sequences included: *position
 * tokens, at most n - 1, so that evaluating the rest gives logits; possibly none. Tokens are compared, no hashes. */
SETUN_API setun_status setun_context_reuse(setun_context *context, const setun_token *ids, size_t n, int *sequence,
                                           uint32_t *position, setun_error *error);

/* Tokens that a sequence has; 0: there is none of that number. */
SETUN_API uint32_t setun_context_position(const setun_context *context, int sequence);
/* These tokens, owned by the context and valid until its next call; NULL: no sequence of that number. With a window:
 * less those forgotten, as setun_session_tokens. */
SETUN_API const setun_token *setun_context_tokens(const setun_context *context, int sequence);
SETUN_API uint32_t setun_context_forgotten(const setun_context *context, int sequence); /* (experimental) */

/* As setun_session_save and the others, for a sequence; their files are those of sessions. Loading replaces the
 * sequence's tokens; pages that others share stay theirs. SETUN_ERROR_LIMIT when the cache has no room for them. */
SETUN_API setun_status setun_context_save(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_load(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_save_memory(setun_context *context, int sequence, void *bytes, size_t capacity,
                                                 size_t *length, setun_error *error);
SETUN_API setun_status setun_context_load_memory(setun_context *context, int sequence, const void *bytes, size_t length,
                                                 setun_error *error);

typedef enum setun_logits {
  SETUN_LOGITS_NONE,
  SETUN_LOGITS_LAST, /* those after the entry's last token */
  SETUN_LOGITS_ALL,  /* those after each of them */
  SETUN_LOGITS_POOL  /* experimental: none, but the tokens count in the sequence's embedding: setun_embeddings.h */
} setun_logits;

/* Tokens that a sequence goes on with. */
typedef struct setun_batch_entry {
  int sequence;
  setun_logits logits; /* that are wanted */
  const setun_token *ids;
  size_t n;
} setun_batch_entry;

/* Appends each entry's tokens to its sequence, no sequence twice, and computes what follows them. More tokens than a
 * pass takes are cut into several; entries with one token are in the first ones, of those with the same adapters. Of
 * `params`, which may be NULL, on_logits and on_hidden must be NULL.
 *
 * SETUN_ERROR_LIMIT, before anything is computed, where a sequence would have more than n_ctx tokens, where more than
 * n_logits logits are wanted, and where the KV cache has no room: the message names a sequence whose end would free
 * pages. After any other failure or a stop each sequence has the tokens of the passes that were finished. */
SETUN_API setun_status setun_context_eval(setun_context *context, const setun_batch_entry *entries, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* Of the last setun_context_eval, which was successful: logits of an entry, n_vocab floats, after its last token (i is
 * 0) or, for SETUN_LOGITS_ALL, after its token i. Owned by the context and valid until the next one; NULL: none. */
SETUN_API const float *setun_context_logits(const setun_context *context, size_t entry, size_t i);
/* As setun_session_stop. */
SETUN_API void setun_context_stop(setun_context *context);

#ifdef __cplusplus
}
#endif

#endif
