// Embeddings of a context's sequences: the pooled states so far.
#ifndef SETUN_RUNTIME_EMBEDDINGS_H
#define SETUN_RUNTIME_EMBEDDINGS_H

#include "model/forward.h"

// Per sequence: the sum of the states of consecutive tokens, or the single state that matters.
typedef struct st_pooled {
  uint32_t begin, end; // positions of these tokens, including forgotten ones: [begin, end); empty if equal
} st_pooled;

typedef struct st_embeddings {
  setun_pooling pooling;
  uint32_t width;    // n_embd
  st_pooled *pooled; // [n_seq]
  double *sums;      // [n_seq, n_embd]
  float *states;     // [ST_STATES_AT_ONCE, n_embd] scratch, and one embedding
  float *tokens;     // not pooled: [n_seq, n_ctx, n_embd] the states of each sequence's tokens; otherwise NULL
  uint32_t n_ctx;
  uint32_t *rows; // [n_batch]
} st_embeddings;

enum { ST_STATES_AT_ONCE = 64 };

// The bytes that it will take; 0 without a pooling in the options.
uint64_t st_embeddings_size(const st_model *model, const st_run_options *options);
setun_status st_embeddings_new(st_embeddings *e, const st_model *model, const st_run_options *options,
                               setun_error *err);
void st_embeddings_free(st_embeddings *e);

// The sequence with this number now has other tokens.
void st_embeddings_reset(st_embeddings *e, int sequence);
// Adds tokens [row, row + n) of the last pass, which are at `position` and after in a sequence. `last`: they end what
// the caller evaluates.
setun_status st_embeddings_add(st_embeddings *e, st_run *run, int sequence, uint32_t row, uint32_t n, uint32_t position,
                               bool last, setun_error *err);
// The number of embeddings of a text of n tokens.
size_t st_embeddings_vectors(const st_embeddings *e, size_t n);
// The embedding of a sequence with this many tokens, or those of all of them.
setun_status st_embeddings_get(st_embeddings *e, st_run *run, int sequence, uint32_t position,
                               const setun_embedding_params *params, float *out, setun_error *err);

#endif
