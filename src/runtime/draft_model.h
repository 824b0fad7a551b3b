// Drafts from a second, smaller model with the same tokens: its likeliest token, repeatedly.
#ifndef SETUN_RUNTIME_DRAFT_MODEL_H
#define SETUN_RUNTIME_DRAFT_MODEL_H

#include "runtime/context.h"
#include "tokenizer/tokenizer.h"

typedef struct st_draft_model st_draft_model;

// Checks that two vocabularies have the same text for each id; the error names the first that differs. Ids without text
// may be missing in one of them: models pad their embeddings.
setun_status st_draft_model_check(const st_tokenizer *own, const st_tokenizer *draft, setun_error *err);

// `params` are those of its context, for one sequence; with fewer tokens if the model's contexts are shorter.
setun_status st_draft_model_new(const st_model *model, const setun_context_params *params, st_draft_model **draft,
                                setun_error *err);
void st_draft_model_free(st_draft_model *draft);
// Predicts what follows the text of `n` tokens and `last`: up to `most` ids below n_vocab; *count is their number, 0 if
// its context is full. Tokens already in its context are not computed again.
setun_status st_draft_model_propose(st_draft_model *draft, const setun_token *ids, size_t n, setun_token last,
                                    uint32_t n_vocab, setun_token *next, uint32_t most, uint32_t *count,
                                    setun_error *err);
// As setun_session_stop.
void st_draft_model_stop(st_draft_model *draft);

#endif
