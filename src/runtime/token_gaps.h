// Ids that a model's logits have but its vocabulary lacks: published models pad their embeddings. Such a token has no
// text, so samplers never draw it.
#ifndef SETUN_RUNTIME_TOKEN_GAPS_H
#define SETUN_RUNTIME_TOKEN_GAPS_H

#include "format/directory.h"
#include "tokenizer/tokenizer.h"

// The ids [begin, end).
typedef struct st_token_gap {
  uint32_t begin, end;
} st_token_gap;

// By ascending id; gaps are not adjacent. Zero-initialize; freed with st_token_gaps_free.
typedef struct st_token_gaps {
  st_token_gap *items;
  size_t count, capacity;
} st_token_gaps;

void st_token_gaps_free(st_token_gaps *gaps);
// Adds the ids below `n_vocab` that have no text.
setun_status st_token_gaps_find(const st_tokenizer *tokenizer, uint32_t n_vocab, st_token_gaps *gaps, setun_error *err);
// Adds a notice that lists them: as information if they are the padding of an embedding, else as a warning.
setun_status st_token_gaps_notice(const st_token_gaps *gaps, uint32_t n_vocab, const st_directory *directory,
                                  setun_error *err);

#endif
