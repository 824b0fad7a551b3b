/* Text to tokens and back. A part of setun.h, which states the conventions. */
#ifndef SETUN_TOKENS_H
#define SETUN_TOKENS_H

#include "setun_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokens ------------------------------------------------------------------------------------------------ */

typedef int32_t setun_token;

enum {
  SETUN_TOKENIZE_SPECIAL = 1,    /* recognize control tokens in the text; otherwise they stay plain text */
  SETUN_TOKENIZE_BOS = 2,        /* begin with BOS, once, if the model's tokenizer says that texts begin with it */
  SETUN_TOKENIZE_BOS_ALWAYS = 4, /* begin with BOS, once, if the model has one */
  SETUN_TOKENIZE_EOS = 8         /* end with the token that the model's tokenizer says texts end with, once, if it says
                                    so; for embeddings, not for text that goes on */
};

/* Writes the first `capacity` ids of the text to `ids` (which may be NULL when capacity is 0) and the number
 * that there are in all to *count. */
SETUN_API setun_status setun_tokenize(const setun_model *model, const char *text, size_t length, int flags,
                                      setun_token *ids, size_t capacity, size_t *count, setun_error *error);
/* Bytes that tokenizing a text of so many bytes takes at most, the caller's list of its ids included. The memory plan
 * does not count them: for texts longer than the context see to it that the budget has them beside the plan's total. */
SETUN_API uint64_t setun_tokenize_memory(size_t length);

/* Tokens with a meaning of their own; -1: the model has none. */
SETUN_API setun_token setun_token_bos(const setun_model *model);
SETUN_API setun_token setun_token_eos(const setun_model *model);
SETUN_API setun_token setun_token_unknown(const setun_model *model);
/* Does the token end a text or a turn (from every source in the model's files)? There may be several such tokens. */
SETUN_API bool setun_token_is_end(const setun_model *model, setun_token id);

typedef enum setun_token_kind {
  SETUN_TOKEN_NORMAL,
  SETUN_TOKEN_CONTROL,      /* found in text only with SETUN_TOKENIZE_SPECIAL, and shown with SETUN_DECODE_SPECIAL */
  SETUN_TOKEN_USER_DEFINED, /* found in any text, before it is split */
  SETUN_TOKEN_BYTE,         /* one byte of a character that the vocabulary lacks */
  SETUN_TOKEN_UNKNOWN,      /* used for text that the vocabulary lacks */
  SETUN_TOKEN_UNUSED
} setun_token_kind;

/* "normal", "control", "user-defined", "byte", "unknown", "unused"; NULL: no setun_token_kind. */
SETUN_API const char *setun_token_kind_name(setun_token_kind kind);
SETUN_API setun_status setun_token_get_kind(const setun_model *model, setun_token id, setun_token_kind *kind,
                                            setun_error *error);
/* The bytes of the token inside a text, a control token's own text included: *length bytes, which may
 * be a part of a character; they live as long as the model. For text, see setun_detokenize. */
SETUN_API setun_status setun_token_get_text(const setun_model *model, setun_token id, const char **text, size_t *length,
                                            setun_error *error);

/* A streaming detokenizer: ids in, whole UTF-8 characters out. */
typedef struct setun_decoder setun_decoder;

enum {
  SETUN_DECODE_SPECIAL = 1,  /* show control tokens as their text; otherwise they are left out */
  SETUN_DECODE_CONTINUES = 2 /* the text continues an earlier one: what is stripped from a text's beginning is kept */
};

SETUN_API setun_status setun_decoder_new(const setun_model *model, int flags, setun_decoder **decoder,
                                         setun_error *error);
SETUN_API void setun_decoder_free(setun_decoder *decoder);
/* Adds one id. *text and *length are what is complete now, possibly nothing; they are valid until the next call.
 * An id beyond the vocabulary is an error. */
SETUN_API setun_status setun_decoder_push(setun_decoder *decoder, setun_token id, const char **text, size_t *length,
                                          setun_error *error);
/* What was held back, as U+FFFD where it is not a character, at the end of the text; the decoder is then as new. */
SETUN_API setun_status setun_decoder_finish(setun_decoder *decoder, const char **text, size_t *length,
                                            setun_error *error);

/* The text of `n` ids in one call, as a decoder with these flags gives it: writes its first `capacity` bytes to `text`
 * (which may be NULL when capacity is 0), without a 0 byte, and the number that there are in all to *length. */
SETUN_API setun_status setun_detokenize(const setun_model *model, const setun_token *ids, size_t n, int flags,
                                        char *text, size_t capacity, size_t *length, setun_error *error);

/* A tokenizer by itself, without loading any weights: setun_tokenize and the like take a model; a model loaded by
 * this function has no weights and no sessions. `params` may be NULL. */
SETUN_API setun_status setun_model_load_vocabulary(const char *path, const setun_model_params *params,
                                                   setun_model **model, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
