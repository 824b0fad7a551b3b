/* Contexts: several sequences of tokens, computed together. A part of setun.h, which states the conventions. */
#ifndef SETUN_CONTEXT_H
#define SETUN_CONTEXT_H

#include "setun_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- contexts ---------------------------------------------------------------------------------------------- */

/* Several sequences of tokens over one model: one pass computes tokens of any of them and reads each weight once for
 * all. A sequence's results are bit-identical alone and among others, however its tokens are split into calls. Keys and
 * values are kept in pages of 64 positions, which sequences share as long as they are equal; no pages are allocated
 * after the context was created. A session is a context with one sequence. */
typedef struct setun_context setun_context;

/* Experimental: how the hidden states of a text's tokens become one embedding, see setun_embeddings.h. */
typedef enum setun_pooling {
  SETUN_POOLING_OFF,   /* not at all */
  SETUN_POOLING_MODEL, /* as in the model's files; otherwise LAST, or MEAN if it is bidirectional */
  SETUN_POOLING_MEAN,  /* the mean of all tokens' */
  SETUN_POOLING_CLS,   /* the first token's */
  SETUN_POOLING_LAST,  /* the last token's */
  SETUN_POOLING_NONE   /* not pooled: an embedding for each token */
} setun_pooling;

typedef struct setun_context_params {
  size_t size;        /* of this struct */
  uint32_t n_ctx;     /* most tokens of one sequence; 0: as setun_session_params.n_ctx */
  uint32_t n_seq_max; /* sequences at once; 0: 8 */
  uint64_t n_cache;   /* tokens that the KV cache holds for all sequences together, in pages of 64; shared pages count
                         once. 0: n_ctx for each sequence */
  uint32_t n_batch;   /* most tokens of one pass; 0: as setun_session_params.n_batch */
  uint32_t n_logits;  /* most tokens whose logits one call may request; 0: n_seq_max */
  int threads;        /* 0: as many as suit the machine */
  setun_kv_type kv_keys, kv_values; /* formats of keys and of values */
  /* Experimental. With `window`, layers without a window in the model see only that many last tokens and, with `sinks`,
   * that many of the sequence's first tokens in addition. The length of text is then not limited: the cache holds the
   * sinks, the window and one pass, positions are counted within it, and earlier tokens are forgotten, see
   * setun_session_forgotten. Up to window + sinks tokens, results equal those without a window. */
  uint32_t window; /* n_ctx must be 0; 0: with sinks the rest of n_ctx, otherwise none */
  uint32_t sinks;  /* at most 512; 0: none */
  /* Experimental: the pooling of embeddings; SETUN_POOLING_OFF: no embeddings. */
  setun_pooling pooling;
} setun_context_params;

SETUN_PARAMS(setun_context_params)

/* `params` may be NULL. The caller frees *context with setun_context_free, before the model. */
SETUN_API setun_status setun_context_new(const setun_model *model, const setun_context_params *params,
                                         setun_context **context, setun_error *error);
SETUN_API void setun_context_free(setun_context *context);

/* Sequences created from now on (setun_context_add, setun_context_reuse) are computed with these adapters, times
 * `scale`; NULL: with those that the model was loaded with, as in a new context. Existing sequences keep theirs, and
 * copies have those of their original. What was computed with other adapters is not reused. One pass computes only
 * sequences with the same adapters; others wait for the next one. SETUN_ERROR_STATE during a callback of an evaluation.
 */
SETUN_API setun_status setun_context_use_adapters(setun_context *context, const setun_adapters *adapters, float scale,
                                                  setun_error *error);

typedef struct setun_context_info {
  size_t size;         /* of this struct */
  uint32_t n_ctx;      /* most tokens of one sequence; UINT32_MAX: no limit */
  uint32_t n_seq_max;  /* sequences at once */
  uint32_t n_seq;      /* existing sequences */
  uint32_t n_batch;    /* most tokens of one pass */
  uint32_t n_logits;   /* most tokens whose logits one call may request */
  int threads;         /* computing threads */
  uint64_t page_bytes; /* bytes of a page: keys and values of 64 positions of one layer */
  uint64_t pages;      /* total pages */
  uint64_t pages_used; /* used by existing sequences; shared pages count once */
  uint64_t pages_kept; /* used only by dropped sequences: available to others */
} setun_context_info;

SETUN_API setun_status setun_context_get_info(const setun_context *context, setun_context_info *info,
                                              setun_error *error);

/* Creates an empty sequence: *sequence is a number below n_seq_max, in use until setun_context_drop. SETUN_ERROR_LIMIT
 * when there are n_seq_max already. */
SETUN_API setun_status setun_context_add(setun_context *context, int *sequence, setun_error *error);
/* Ends a sequence. Its contents stay available to setun_context_reuse until its pages are needed (least recently used
 * first), or until more than n_seq_max sequences were dropped. */
SETUN_API setun_status setun_context_drop(setun_context *context, int sequence, setun_error *error);
/* Creates a sequence with the same tokens, which shares the pages: nothing is copied until one of the two continues. */
SETUN_API setun_status setun_context_fork(setun_context *context, int sequence, int *copy, setun_error *error);
/* Forgets all tokens of a sequence from position `n` on; see setun_session_truncate. */
SETUN_API setun_status setun_context_truncate(setun_context *context, int sequence, uint32_t n, setun_error *error);
/* Creates a sequence with the longest prefix of `ids` in the cache, including dropped sequences: *position tokens, at
 * most n - 1, so that evaluating the rest yields logits; possibly none. Tokens themselves are compared, not hashes. */
SETUN_API setun_status setun_context_reuse(setun_context *context, const setun_token *ids, size_t n, int *sequence,
                                           uint32_t *position, setun_error *error);

/* The number of a sequence's tokens; 0 for an unknown sequence. */
SETUN_API uint32_t setun_context_position(const setun_context *context, int sequence);
/* The tokens, owned by the context and valid until its next call; NULL for an unknown sequence. With a window:
 * without forgotten tokens, as in setun_session_tokens. */
SETUN_API const setun_token *setun_context_tokens(const setun_context *context, int sequence);
SETUN_API uint32_t setun_context_forgotten(const setun_context *context, int sequence); /* (experimental) */

/* Like setun_session_save and the others, for a sequence; the files are session files. Loading replaces the sequence's
 * tokens; pages shared with others are not affected. SETUN_ERROR_LIMIT when the cache has no room. */
SETUN_API setun_status setun_context_save(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_load(setun_context *context, int sequence, const char *path, setun_error *error);
SETUN_API setun_status setun_context_save_memory(setun_context *context, int sequence, void *bytes, size_t capacity,
                                                 size_t *length, setun_error *error);
SETUN_API setun_status setun_context_load_memory(setun_context *context, int sequence, const void *bytes, size_t length,
                                                 setun_error *error);

typedef enum setun_logits {
  SETUN_LOGITS_NONE,
  SETUN_LOGITS_LAST, /* after the entry's last token */
  SETUN_LOGITS_ALL,  /* after each of its tokens */
  SETUN_LOGITS_POOL  /* experimental: none, but the tokens are added to the sequence's embedding: setun_embeddings.h */
} setun_logits;

/* Tokens to append to a sequence. */
typedef struct setun_batch_entry {
  int sequence;
  setun_logits logits; /* requested logits */
  const setun_token *ids;
  size_t n;
} setun_batch_entry;

/* Appends each entry's tokens to its sequence (each sequence at most once) and computes what follows. More tokens than
 * one pass takes are split into several passes; among entries with the same adapters, those with one token are in the
 * first ones. In `params`, which may be NULL, on_logits and on_hidden must be NULL.
 *
 * SETUN_ERROR_LIMIT, before anything is computed, if a sequence would have more than n_ctx tokens, if more than
 * n_logits logits are requested, or if the KV cache has no room: the message names a sequence to drop. After any other
 * failure or a stop each sequence has the tokens of the finished passes. */
SETUN_API setun_status setun_context_eval(setun_context *context, const setun_batch_entry *entries, size_t n,
                                          const setun_eval_params *params, setun_error *error);
/* The logits of an entry of the last setun_context_eval, if it succeeded: n_vocab floats, after its last token (i is 0)
 * or, for SETUN_LOGITS_ALL, after its token i. Owned by the context and valid until the next evaluation; NULL: none. */
SETUN_API const float *setun_context_logits(const setun_context *context, size_t entry, size_t i);
/* Like setun_session_stop. */
SETUN_API void setun_context_stop(setun_context *context);

#ifdef __cplusplus
}
#endif

#endif
