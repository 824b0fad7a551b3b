/* Experimental: embeddings, which the promise of stability does not cover. A part of setun.h, which states the
 * conventions. */
#ifndef SETUN_EMBEDDINGS_H
#define SETUN_EMBEDDINGS_H

#include "setun_context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embeddings (experimental) ----------------------------------------------------------------------------- */

/* A text as one vector: the hidden states of its tokens after the final norm, pooled, multiplied by the dense matrices
 * in the model's files (sentence-transformers' Dense modules, GGUF's dense_2 and dense_3), and divided by its length,
 * unless the files say otherwise (modules.json without a Normalize module).
 * Any model makes embeddings; good ones come from models trained for it. A text's embedding is bit-identical alone and
 * among others. */

/* "mean", "cls", "last", "none"; NULL for other values. */
SETUN_API const char *setun_pooling_name(setun_pooling pooling);

typedef struct setun_embedding_info {
  size_t size;             /* of this struct */
  uint32_t n_dimensions;   /* floats of an embedding, as truncated by the files (truncate_dim) */
  uint32_t n_ctx;          /* most tokens of a text, from the files */
  uint32_t n_dense;        /* dense matrices after the pooling */
  setun_pooling pooling;   /* what SETUN_POOLING_MODEL means; SETUN_POOLING_OFF: the files say that whole texts are not
                              pooled, so one must be chosen */
  const char *source;      /* the source of that: "modules.json", "pooling_type"; NULL: none */
  bool bidirectional;      /* attention is bidirectional: a text is computed in one pass */
  bool nested;             /* a prefix of an embedding's floats, divided by its length, is an embedding too */
  size_t n_prompts;        /* see setun_model_get_prompt */
  const char *prompt;      /* the name of the default prompt; NULL: none */
  bool no_text;            /* the model makes only embeddings: it is bidirectional, or has no head */
  const uint32_t *lengths; /* [n_lengths] of `nested` embeddings: the only lengths of such prefixes; NULL: any */
  size_t n_lengths;
  bool unscaled;           /* the files do not divide embeddings by their length (setun_embedding_params.normalize) */
} setun_embedding_info;

/* Its texts live as long as the model. For a vocabulary only the prompts are known; the rest is 0 and NULL. */
SETUN_API setun_status setun_model_get_embedding_info(const setun_model *model, setun_embedding_info *info,
                                                      setun_error *error);
/* A prefix for texts, by intended use, from the model's files (config_sentence_transformers.json): *name such as
 * "query", *text such as "query: "; they live as long as the model. */
SETUN_API setun_status setun_model_get_prompt(const setun_model *model, size_t index, const char **name,
                                              const char **text, setun_error *error);

typedef struct setun_embedding_params {
  size_t size;           /* of this struct */
  bool raw;              /* not divided by its length */
  uint32_t n_dimensions; /* for `nested` embeddings: return only this many floats; 0: all */
  setun_progress_fn
      progress; /* for setun_context_embed: called from time to time with the fraction of texts completed */
  void *user;
  bool normalize; /* divided by its length although the files do not say so; not with `raw` */
} setun_embedding_params;

SETUN_PARAMS(setun_embedding_params)

/* A text's tokens, as from setun_tokenize with SETUN_TOKENIZE_BOS and SETUN_TOKENIZE_EOS. */
typedef struct setun_embedding_input {
  const setun_token *ids;
  size_t n; /* at least 1 */
} setun_embedding_input;

/* The embeddings of `n` texts: writes [n, n_dimensions] floats, or with SETUN_POOLING_NONE [tokens, n_dimensions], text
 * after text. The context must have been created with a pooling. As many texts as fit are computed together, in
 * temporary sequences; existing sequences are not affected. SETUN_ERROR_LIMIT, before anything is computed, if a text
 * has more tokens than the context or the model allows or, with `bidirectional`, than a pass; the message names the
 * text and the limit. `params` may be NULL. */
SETUN_API setun_status setun_context_embed(setun_context *context, const setun_embedding_input *texts, size_t n,
                                           const setun_embedding_params *params, float *embeddings, setun_error *error);

/* The same step by step: the embedding of a sequence whose tokens were all evaluated with SETUN_LOGITS_POOL, in one or
 * several calls (for a bidirectional model in one call, into an empty sequence). With SETUN_POOLING_CLS only the first
 * token, with SETUN_POOLING_LAST only the last one must have been. Writes n_dimensions floats, with SETUN_POOLING_NONE
 * for each of the sequence's tokens. SETUN_ERROR_STATE if other tokens were pooled. */
SETUN_API setun_status setun_context_get_embedding(setun_context *context, int sequence,
                                                   const setun_embedding_params *params, float *embedding,
                                                   setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
