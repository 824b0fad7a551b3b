// Guesses of a second, smaller model that has the same tokens: the likeliest token, again and again.
#ifndef SETUN_RUNTIME_DRAFT_MODEL_H
#define SETUN_RUNTIME_DRAFT_MODEL_H

#include "runtime/context.h"
#include "tokenizer/tokenizer.h"

typedef struct st_draft_model st_draft_model;

// Whether two vocabularies have the same text for each id; where not, the error names the first that differs. Ids that
// have no text may be missing in one of them: models pad their embeddings.
setun_status st_draft_model_check(const st_tokenizer *own, const st_tokenizer *draft, setun_error *err);

// `params` of the context that it computes in, for one sequence; fewer tokens where the model has no longer contexts.
setun_status st_draft_model_new(const st_model *model, const setun_context_params *params, st_draft_model **draft,
                                setun_error *err);
void st_draft_model_free(st_draft_model *draft);
// What follows the text of `n` tokens and `last` behind them: up to `most` ids below n_vocab; *count of them, 0 where
// its context is full. What it has of the text it does not compute again.
setun_status st_draft_model_guess(st_draft_model *draft, const setun_token *ids, size_t n, setun_token last,
                                  uint32_t n_vocab, setun_token *next, uint32_t most, uint32_t *count,
                                  setun_error *err);
// As setun_session_stop.
void st_draft_model_stop(st_draft_model *draft);

#endif
