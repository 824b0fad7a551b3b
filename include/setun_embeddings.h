/* Experimental: embeddings, which the promise of stability does not cover. A part of setun.h, which states the
 * conventions. */
#ifndef SETUN_EMBEDDINGS_H
#define SETUN_EMBEDDINGS_H

#include "setun_context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embeddings (experimental) ----------------------------------------------------------------------------- */

/* A text as one vector: the states of its tokens behind the final norm, pooled, then through the dense matrices that
 * the model's files have for it (sentence-transformers' Dense modules, GGUF's dense_2 and dense_3), then divided by its
 * length. Any model makes embeddings; good ones come from models that were trained for it. A text's embedding is the
 * same to the bit alone and among others. */

/* "mean", "cls", "last"; NULL: none of these. */
SETUN_API const char *setun_pooling_name(setun_pooling pooling);

typedef struct setun_embedding_info {
  size_t size;           /* of this struct */
  uint32_t n_dimensions; /* floats of an embedding */
  uint32_t n_ctx;        /* tokens that a text may have at most, as the files say */
  uint32_t n_dense;      /* dense matrices behind the pooling */
  setun_pooling pooling; /* what SETUN_POOLING_MODEL means; SETUN_POOLING_OFF: the files say that whole texts are not
                            pooled, so that one has to be chosen */
  const char *source;    /* where that is said: "modules.json", "pooling_type"; NULL: nowhere */
  bool bidirectional;    /* tokens see those behind them: a text is computed in one pass */
  bool nested;           /* the first so many of an embedding's floats, divided by their length, are one too */
  size_t n_prompts;      /* see setun_model_get_prompt */
  const char *prompt;    /* the name of the one that is meant where none is named; NULL: none is */
  bool no_text;          /* the model makes embeddings alone: it is bidirectional, or has no head */
} setun_embedding_info;

/* Its texts live as long as the model. Of a vocabulary only the prompts are known; the rest is 0 and NULL. */
SETUN_API setun_status setun_model_get_embedding_info(const setun_model *model, setun_embedding_info *info,
                                                      setun_error *error);
/* What the model's files (config_sentence_transformers.json) would have put before a text, by the use that is made of
 * it: *name such as "query", *text such as "query: "; they live as long as the model. */
SETUN_API setun_status setun_model_get_prompt(const setun_model *model, size_t index, const char **name,
                                              const char **text, setun_error *error);

typedef struct setun_embedding_params {
  size_t size;                /* of this struct */
  bool raw;                   /* not divided by its length */
  uint32_t n_dimensions;      /* of a model with `nested` embeddings: the first so many floats; 0: all */
  setun_progress_fn progress; /* of setun_context_embed: called now and then with the share of the texts that is done */
  void *user;
} setun_embedding_params;

SETUN_PARAMS(setun_embedding_params)

/* A text's tokens, as setun_tokenize gives them with SETUN_TOKENIZE_BOS and SETUN_TOKENIZE_EOS. */
typedef struct setun_embedding_input {
  const setun_token *ids;
  size_t n; /* at least 1 */
} setun_embedding_input;

/* The embeddings of `n` texts: writes [n, n_dimensions] floats. The context was made with a pooling. As many texts as
 * it has room for are computed together, in sequences of their own, which are gone afterwards; those that it has stay.
 * SETUN_ERROR_LIMIT, before anything is computed, where a text has more tokens than the context or the model takes, or,
 * with `bidirectional`, than a pass; the message names the text and the limit. `params` may be NULL. */
SETUN_API setun_status setun_context_embed(setun_context *context, const setun_embedding_input *texts, size_t n,
                                           const setun_embedding_params *params, float *embeddings, setun_error *error);

/* The same step by step: the embedding of a sequence whose tokens were all evaluated with SETUN_LOGITS_POOL, in one
 * call or in several (in one, from an empty sequence on, where the model is bidirectional). With SETUN_POOLING_CLS it
 * is the first token, with SETUN_POOLING_LAST the last one that must have been. Writes n_dimensions floats.
 * SETUN_ERROR_STATE where other tokens were pooled. */
SETUN_API setun_status setun_context_get_embedding(setun_context *context, int sequence,
                                                   const setun_embedding_params *params, float *embedding,
                                                   setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
