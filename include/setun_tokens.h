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
  SETUN_TOKENIZE_SPECIAL = 1,    /* recognize control tokens in the text; otherwise they remain plain text */
  SETUN_TOKENIZE_BOS = 2,        /* begin with BOS, once, if the tokenizer is configured to */
  SETUN_TOKENIZE_BOS_ALWAYS = 4, /* begin with BOS, once, if the model has one */
  SETUN_TOKENIZE_EOS = 8 /* end with the end token, once, if the tokenizer is configured to; for embeddings, not for
                            text to be continued */
};

/* Writes the first `capacity` ids of the text to `ids` (which may be NULL when capacity is 0) and their total number to
 * *count. */
SETUN_API setun_status setun_tokenize(const setun_model *model, const char *text, size_t length, int flags,
                                      setun_token *ids, size_t capacity, size_t *count, setun_error *error);
/* The most bytes of memory that tokenizing a text of this many bytes takes, including the caller's list of ids. The
 * memory plan does not count them: for texts longer than the context, leave room for them in addition to the plan's
 * total. */
SETUN_API uint64_t setun_tokenize_memory(size_t length);

/* Special tokens; -1: the model has none. */
SETUN_API setun_token setun_token_bos(const setun_model *model);
SETUN_API setun_token setun_token_eos(const setun_model *model);
SETUN_API setun_token setun_token_unknown(const setun_model *model);
/* Whether the token ends a text or a turn, according to any of the model's files. There may be several such tokens. */
SETUN_API bool setun_token_is_end(const setun_model *model, setun_token id);

typedef enum setun_token_kind {
  SETUN_TOKEN_NORMAL,
  SETUN_TOKEN_CONTROL,      /* found in text only with SETUN_TOKENIZE_SPECIAL, shown only with SETUN_DECODE_SPECIAL */
  SETUN_TOKEN_USER_DEFINED, /* found in any text, before it is split */
  SETUN_TOKEN_BYTE,         /* one byte of a character not in the vocabulary */
  SETUN_TOKEN_UNKNOWN,      /* for text not in the vocabulary */
  SETUN_TOKEN_UNUSED
} setun_token_kind;

/* "normal", "control", "user-defined", "byte", "unknown", "unused"; NULL: not a setun_token_kind. */
SETUN_API const char *setun_token_kind_name(setun_token_kind kind);
SETUN_API setun_status setun_token_get_kind(const setun_model *model, setun_token id, setun_token_kind *kind,
                                            setun_error *error);
/* The bytes of the token within a text, for control tokens their own text: *length bytes, possibly a part of a
 * character; they live as long as the model. For text, see setun_detokenize. */
SETUN_API setun_status setun_token_get_text(const setun_model *model, setun_token id, const char **text, size_t *length,
                                            setun_error *error);

/* A streaming detokenizer: ids in, complete UTF-8 characters out. */
typedef struct setun_decoder setun_decoder;

enum {
  SETUN_DECODE_SPECIAL = 1,  /* show control tokens as their text; otherwise they are omitted */
  SETUN_DECODE_CONTINUES = 2 /* the text continues an earlier one: keep what is stripped from a text's beginning */
};

SETUN_API setun_status setun_decoder_new(const setun_model *model, int flags, setun_decoder **decoder,
                                         setun_error *error);
SETUN_API void setun_decoder_free(setun_decoder *decoder);
/* Adds one id. *text and *length are the completed text, possibly empty, valid until the next call. An id beyond the
 * vocabulary is an error. */
SETUN_API setun_status setun_decoder_push(setun_decoder *decoder, setun_token id, const char **text, size_t *length,
                                          setun_error *error);
/* At the end of the text: returns what was held back, as U+FFFD where it is not a character, and resets the decoder. */
SETUN_API setun_status setun_decoder_finish(setun_decoder *decoder, const char **text, size_t *length,
                                            setun_error *error);

/* The text of `n` ids in one call, as from a decoder with these flags: writes its first `capacity` bytes to `text`
 * (which may be NULL when capacity is 0), without a 0 byte, and the total number of bytes to *length. */
SETUN_API setun_status setun_detokenize(const setun_model *model, const setun_token *ids, size_t n, int flags,
                                        char *text, size_t capacity, size_t *length, setun_error *error);

/* Loads only a tokenizer, without weights, as a model for setun_tokenize and the like; it cannot have sessions.
 * `params` may be NULL. */
SETUN_API setun_status setun_model_load_vocabulary(const char *path, const setun_model_params *params,
                                                   setun_model **model, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
