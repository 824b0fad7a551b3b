// Exporting a tokenizer: as in a GGUF file, as tokenizer.json, or as tokenizer.model.
#ifndef SETUN_TOKENIZER_EXPORT_H
#define SETUN_TOKENIZER_EXPORT_H

#include "tokenizer/tokenizer.h"

// A vocabulary and the memory that it points into. Zero-initialize; freed with st_vocabulary_export_free.
typedef struct st_vocabulary_export {
  st_vocabulary vocabulary; // tokens and merges point into the tokenizer and into the members below
  st_text *tokens, *merges;
  float *scores;
  int32_t *types;
  char *storage; // texts that are not in the tokenizer
} st_vocabulary_export;

void st_vocabulary_export_free(st_vocabulary_export *e);

// The arrays and keys of the same tokenizer, with at least `size` tokens: unused ids become "[PADn]", which no text
// produces. What GGUF cannot state is named in SETUN_ERROR_UNSUPPORTED.
setun_status st_tokenizer_export(const st_tokenizer *t, uint32_t size, st_vocabulary_export *out, setun_error *err);

// The text of a tokenizer.json that makes the same tokenizer, appended to `out`. Byte-level BPE only; others are
// SETUN_ERROR_UNSUPPORTED.
setun_status st_tokenizer_export_json(const st_tokenizer *t, st_buffer *out, setun_error *err);

// The bytes of a tokenizer.model that makes the same tokenizer, appended to `out`. Pieces with scores only (GGUF's
// "llama"); others are SETUN_ERROR_UNSUPPORTED.
setun_status st_tokenizer_export_sentencepiece(const st_tokenizer *t, st_buffer *out, setun_error *err);

// Whether a tokenizer is written as tokenizer.model, and not as tokenizer.json.
bool st_tokenizer_has_scores(const st_tokenizer *t);

#endif
