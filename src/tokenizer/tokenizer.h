// Tokenizers: text to token ids and back, for every kind of vocabulary that the supported model families ship.
//
// A tokenizer is made from one of five neutral inputs (a GGUF file's arrays, tokenizer.json, tokenizer.model,
// vocab.json with merges.txt, and the small JSON files beside them that name special tokens). Once made and
// adjusted it is read-only: any number of threads may encode and decode with one at once.
//
// Encoding runs these steps, each of which a tokenizer may lack:
//   added tokens cut out (special.c) -> normalization (normalize.c) -> pre-tokenization (pretokenize.c)
//   -> the model: merges by rank or by score (bpe.c), or the likeliest segmentation (unigram.c).
#ifndef SETUN_TOKENIZER_TOKENIZER_H
#define SETUN_TOKENIZER_TOKENIZER_H

#include "base/buffer.h"
#include "setun.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct st_tokenizer st_tokenizer;

// The kinds of token, numbered as in GGUF's `tokenizer.ggml.token_type`.
typedef enum st_token_type {
  ST_TOKEN_NORMAL = 1,
  ST_TOKEN_UNKNOWN = 2,
  ST_TOKEN_CONTROL = 3,      // control token: found in text only if requested
  ST_TOKEN_USER_DEFINED = 4, // cut out of any text before the model sees it
  ST_TOKEN_UNUSED = 5,
  ST_TOKEN_BYTE = 6 // "<0x0A>": one byte of a character that the vocabulary lacks
} st_token_type;

enum { ST_ID_NONE = -2 };

// A vocabulary as a GGUF file holds it (keys `tokenizer.ggml.*`). Start from st_vocabulary_init. Nothing in it is
// kept: the tokenizer copies what it needs.
typedef struct st_vocabulary {
  const char *model; // "gpt2" (byte-level BPE), "gemma4" and "whitespace" (BPE without bytes), "llama" (BPE by scores),
                     // "t5" (Unigram)
  // `pre`, only for BPE; NULL if the key is absent: then "default", as in files older than the key.
  const char *pre;
  size_t n;
  const st_text *tokens;
  const float *scores;  // n of them, or NULL
  const int32_t *types; // n of them, or NULL: all normal
  size_t n_merges;
  const st_text *merges; // "left right"; may be empty. NULL: the key is absent, which BPE does not allow
  const char *charsmap;  // `precompiled_charsmap` (t5 only), or NULL
  size_t charsmap_length;
  int64_t bos, eos, unk, eot, eom; // ids; -1: the key is absent; ST_ID_NONE: the key says that there is none
  // 0, 1, or -1: the key is absent
  int add_bos, add_eos, add_space_prefix, remove_extra_whitespaces, lowercase;
} st_vocabulary;

void st_vocabulary_init(st_vocabulary *v);

// Makers. On success the caller owns *t and frees it with st_tokenizer_free; on failure *t is untouched. `name`
// identifies the text in messages. Unsupported features of a file are SETUN_ERROR_UNSUPPORTED, named.
setun_status st_tokenizer_from_vocabulary(const st_vocabulary *v, st_tokenizer **t, setun_error *err);
// tokenizer.json of the PyPI package `tokenizers`.
setun_status st_tokenizer_from_json(const char *text, size_t length, const char *name, st_tokenizer **t,
                                    setun_error *err);
// tokenizer.model: SentencePiece's ModelProto.
setun_status st_tokenizer_from_sentencepiece(const void *bytes, size_t length, const char *name, st_tokenizer **t,
                                             setun_error *err);
// vocab.json with merges.txt; `pre` is a name of patterns.c's table, such as "gpt-2" or "qwen2".
setun_status st_tokenizer_from_vocab_merges(const char *vocab, size_t vocab_length, const char *merges,
                                            size_t merges_length, const char *pre, st_tokenizer **t, setun_error *err);
void st_tokenizer_free(st_tokenizer *t); // NULL is fine

// Adjusts a tokenizer by tokenizer_config.json (bos_token, eos_token, unk_token, add_bos_token, add_eos_token,
// added_tokens_decoder) or special_tokens_map.json (the names alone). A named token that the vocabulary lacks is an
// error, except in added_tokens_decoder, whose unknown ids are ignored: models ship with entries for ids never used.
setun_status st_tokenizer_apply_config(st_tokenizer *t, const char *text, size_t length, const char *name,
                                       setun_error *err);

// Ids run from 0 to size-1.
uint32_t st_tokenizer_size(const st_tokenizer *t);
int32_t st_tokenizer_bos(const st_tokenizer *t); // -1: none
int32_t st_tokenizer_eos(const st_tokenizer *t);
int32_t st_tokenizer_unk(const st_tokenizer *t);
bool st_tokenizer_add_bos(const st_tokenizer *t); // whether texts begin with BOS (only if there is one)
// The token that ends complete texts: EOS, or the one in tokenizer.json's template; -1: none is added.
int32_t st_tokenizer_suffix(const st_tokenizer *t);
// Overrides, from config.json; an id that is not in the vocabulary is an error. -1 removes it.
setun_status st_tokenizer_set_bos(st_tokenizer *t, int64_t id, setun_error *err);

// End of a text or of a turn. From the start these are EOS, EOT, EOM and the control tokens whose text is a known
// end of turn; the caller adds what config.json and generation_config.json list.
bool st_tokenizer_is_end(const st_tokenizer *t, int32_t id); // false for ids beyond the vocabulary
setun_status st_tokenizer_add_end(st_tokenizer *t, int64_t id, setun_error *err);

// Normal for ids beyond the vocabulary.
st_token_type st_tokenizer_type(const st_tokenizer *t, int32_t id);
// False for ids beyond the vocabulary, and for those within that no token has.
bool st_tokenizer_has_text(const st_tokenizer *t, int32_t id);
// False for ids beyond the vocabulary.
bool st_tokenizer_is_control(const st_tokenizer *t, int32_t id);
// The id of a token by its text as the vocabulary spells it (byte-level tokens in their printable form); -1: none.
int32_t st_tokenizer_find(const st_tokenizer *t, const char *text, size_t length);
// The token's text as the vocabulary spells it; it lives as long as the tokenizer.
setun_status st_tokenizer_text(const st_tokenizer *t, int32_t id, st_text *text, setun_error *err);
// The token's bytes inside a text, possibly part of a character; none for control tokens unless `special`. They live as
// long as the tokenizer. An id beyond the vocabulary is an error.
setun_status st_tokenizer_piece(const st_tokenizer *t, int32_t id, bool special, const char **bytes, size_t *length,
                                setun_error *err);

// Zero-initialize; freed with st_token_list_free.
typedef struct st_token_list {
  int32_t *ids;
  size_t length, capacity;
} st_token_list;

void st_token_list_free(st_token_list *list);
bool st_token_list_append(st_token_list *list, int32_t id); // false: out of memory

// Appends the text's ids to `out`; neither BOS nor EOS is added. With `special`, control tokens are recognized by their
// text; without, they remain plain text. The text must be UTF-8. On failure `out` is unchanged.
setun_status st_tokenizer_encode(const st_tokenizer *t, const char *text, size_t length, bool special,
                                 st_token_list *out, setun_error *err);

// The same with control tokens recognized, but only if none of their bytes is in one of the `n` guarded parts of the
// text, which are in ascending order: for example users' text within a template's. Apart from that, the parts change
// nothing: words may cross their boundaries.
setun_status st_tokenizer_encode_guarded(const st_tokenizer *t, const char *text, size_t length,
                                         const setun_span *guards, size_t n, st_token_list *out, setun_error *err);
// The most bytes of the list of a text's ids: at most one id for each byte of the text.
static inline uint64_t st_tokenizer_memory(size_t length) {
  return (uint64_t)length * sizeof(int32_t);
}

// A streaming decoder: ids in, whole UTF-8 characters out. It belongs to one thread at a time, and the tokenizer must
// outlive it. Bytes that can no longer become a character come out as U+FFFD at once, one for each maximal part of
// one (Unicode 15, section 3.9, as Python's errors="replace").
typedef struct st_decoder st_decoder;

// With `special`, control tokens show their text. `continues` says that the text continues an earlier one, so that
// what a tokenizer strips from a text's beginning (a SentencePiece vocabulary's leading space) is kept.
setun_status st_decoder_new(const st_tokenizer *t, bool special, bool continues, st_decoder **d, setun_error *err);
void st_decoder_free(st_decoder *d); // NULL is fine
// *text is the text that is now complete (*length bytes, followed by a 0 byte), valid until the decoder's next call.
setun_status st_decoder_push(st_decoder *d, int32_t id, const char **text, size_t *length, setun_error *err);
// Returns the rest and resets the decoder, to the beginning of a text unless it was made to continue one.
setun_status st_decoder_finish(st_decoder *d, const char **text, size_t *length, setun_error *err);

#endif
