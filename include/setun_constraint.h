/* Constrained output (experimental): texts that match a JSON schema, an expression or a grammar. A part of setun.h,
 * which states the conventions; the promise of stability does not cover it. */
#ifndef SETUN_CONSTRAINT_H
#define SETUN_CONSTRAINT_H

#include "setun_chat.h"
#include "setun_model.h"
#include "setun_sampling.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constraints (experimental) ---------------------------------------------------------------------------- */

/* A description of the texts that are allowed, compiled for a model's vocabulary. Immutable to callers: any number of
 * threads may use one at the same time. */
typedef struct setun_constraint setun_constraint;

typedef enum setun_grammar {
  SETUN_GRAMMAR_JSON_SCHEMA, /* a JSON schema, drafts 4 to 2020-12; keywords that cannot be enforced are refused */
  SETUN_GRAMMAR_EXPRESSION,  /* a regular expression of ECMA 262 that matches the whole text */
  SETUN_GRAMMAR_GBNF,        /* llama.cpp's grammars */
  SETUN_GRAMMAR_LARK         /* the commonly used subset of Lark's grammars */
} setun_grammar;

/* "json_schema", "expression", "gbnf", "lark"; NULL: no setun_grammar. */
SETUN_API const char *setun_grammar_name(setun_grammar grammar);

typedef struct setun_constraint_params {
  size_t size; /* of this struct */
  setun_grammar grammar;
  const char *text; /* of the schema, expression or grammar */
  size_t length;
  const char *name; /* its name in messages; NULL: the name of the kind of grammar */
  uint32_t space;   /* JSON schemas: the most white space in a row around punctuation, at most 8; 0: one space after
                     * colons and commas, and none elsewhere */
  bool ordered;     /* JSON schemas: properties in the schema's order */
  uint64_t memory;  /* most bytes, while it is compiled and when texts are matched; 0: 256 MiB */
  uint32_t milliseconds; /* most processor time to compile it; 0: 10,000 */
} setun_constraint_params;

SETUN_PARAMS(setun_constraint_params)

/* `model` must outlive the constraint. An error message says what is wrong and where, or which limit was reached. The
 * caller frees *constraint with setun_constraint_free; matchers and samplers that use it keep it. A text that needs
 * more than `memory`, or too many steps for its next token, is SETUN_ERROR_LIMIT, from then on for all of its matchers.
 */
SETUN_API setun_status setun_constraint_new(const setun_model *model, const setun_constraint_params *params,
                                            setun_constraint **constraint, setun_error *error);
SETUN_API void setun_constraint_free(setun_constraint *constraint);

/* What an answer to a rendered conversation may be: a text, tool calls, or either. */
typedef struct setun_answer_params {
  size_t size;                         /* of this struct */
  const setun_constraint_params *text; /* the text must match this; NULL: the answer may not be a text */
  bool calls;                          /* the answer may call the tools that were passed to setun_chat_render_tools */
  const char *tool;                    /* with `calls`: only this tool may be called; NULL: any of them */
  bool one_call;   /* with `calls`: exactly one call; otherwise one or more, if the model's format allows several */
  uint32_t space;  /* with `calls`: white space in their arguments, as in setun_constraint_params */
  uint64_t memory; /* without `text`, whose limits apply otherwise: as in setun_constraint_params */
  uint32_t milliseconds; /* the same */
} setun_answer_params;

SETUN_PARAMS(setun_answer_params)

/* A constraint for the whole answer: reasoning that the template or the model begins with is not constrained, and
 * what follows it must match `params`, with calls in the model's own format. A tool whose schema cannot be enforced is
 * refused if it says "strict": true; otherwise its arguments may be any object. */
SETUN_API setun_status setun_constraint_new_answer(const setun_rendering *prompt, const setun_answer_params *params,
                                                   setun_constraint **constraint, setun_error *error);

/* All that such a constraint depends on, except the model: equal keys mean equal constraints, for caches. At most
 * `capacity` bytes are written, *length is how many there are. `conversation` NULL: a constraint for `params->text`
 * alone, as setun_constraint_new makes it. */
SETUN_API setun_status setun_answer_key(const setun_rendering *conversation, const setun_answer_params *params,
                                        void *bytes, size_t capacity, size_t *length, setun_error *error);

typedef struct setun_constraint_info {
  size_t size;    /* of this struct */
  uint64_t bytes; /* its memory now, which grows as texts are matched */
  bool failed;    /* it reached a limit: it cannot be used any more */
} setun_constraint_info;

SETUN_API setun_status setun_constraint_get_info(const setun_constraint *constraint, setun_constraint_info *info,
                                                 setun_error *error);

/* ---- matching (experimental) ------------------------------------------------------------------------------- */

/* A position in one text that has to match a constraint, which it keeps. It belongs to one thread at a time. */
typedef struct setun_matcher setun_matcher;

SETUN_API setun_status setun_matcher_new(setun_constraint *constraint, setun_matcher **matcher, setun_error *error);
/* A second matcher at the same position. */
SETUN_API setun_status setun_matcher_copy(const setun_matcher *matcher, setun_matcher **copy, setun_error *error);
SETUN_API void setun_matcher_free(setun_matcher *matcher);
/* Moves the matcher back to the beginning of the text. */
SETUN_API void setun_matcher_reset(setun_matcher *matcher);
/* Which tokens may come next, one bit each: bits[id / 32] >> id % 32 & 1. `n` words; bits beyond the vocabulary become
 * 0. Tokens that end a text may come where the text may end. SETUN_ERROR_STATE: no token may come next, and the message
 * says where. */
SETUN_API setun_status setun_matcher_mask(setun_matcher *matcher, uint32_t *bits, size_t n, setun_error *error);
/* Whether this token may come next. */
SETUN_API bool setun_matcher_allows(setun_matcher *matcher, setun_token id);
/* Appends the token to the text. If it is not allowed, returns SETUN_ERROR_ARGUMENT and changes nothing. */
SETUN_API setun_status setun_matcher_accept(setun_matcher *matcher, setun_token id, setun_error *error);
/* Takes back the last `n` tokens; SETUN_ERROR_ARGUMENT if the text has fewer. */
SETUN_API setun_status setun_matcher_rollback(setun_matcher *matcher, size_t n, setun_error *error);
/* Whether the text may end here, and whether it must. */
SETUN_API bool setun_matcher_may_end(const setun_matcher *matcher);
SETUN_API bool setun_matcher_must_end(setun_matcher *matcher);
/* The tokens that must follow, as the model's tokenizer writes them, up to the first choice: at most `capacity` of them
 * are written, *count is how many there are, possibly none. They are not accepted yet. */
SETUN_API setun_status setun_matcher_forced(setun_matcher *matcher, setun_token *ids, size_t capacity, size_t *count,
                                            setun_error *error);

/* The tokens that the sampler accepts from now on must match the constraint, which is kept; it draws no other tokens,
 * whatever the biases are. NULL removes the constraint. setun_sampler_reset starts the text again. When no token is
 * left, sampling fails with SETUN_ERROR_STATE and the message says where. */
SETUN_API setun_status setun_sampler_constrain(setun_sampler *sampler, setun_constraint *allowed, setun_error *error);
/* The tokens that must follow, as setun_matcher_forced gives them, and the model's end token if nothing else may
 * follow. Use them like drawn tokens and accept them one by one; their logits need not be computed. Without a
 * constraint there are none. */
SETUN_API setun_status setun_sampler_forced(setun_sampler *sampler, setun_token *ids, size_t capacity, size_t *count,
                                            setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
