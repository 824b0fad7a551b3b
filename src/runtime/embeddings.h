// Embeddings of a context's sequences: what is pooled of each so far.
#ifndef SETUN_RUNTIME_EMBEDDINGS_H
#define SETUN_RUNTIME_EMBEDDINGS_H

#include "model/forward.h"

// What a sequence has: the sum of the states of tokens that follow one another, or the one state that counts.
typedef struct st_pooled {
  uint32_t begin, end; // positions of these tokens, those forgotten counted: [begin, end); the same: there are none
} st_pooled;

typedef struct st_embeddings {
  setun_pooling pooling;
  uint32_t width;    // n_embd
  st_pooled *pooled; // [n_seq]
  double *sums;      // [n_seq, n_embd]
  float *states;     // [ST_STATES_AT_ONCE, n_embd] scratch, and of one embedding
  uint32_t *rows;    // [n_batch]
} st_embeddings;

enum { ST_STATES_AT_ONCE = 64 };

// Bytes of all; 0 where the options have no pooling.
uint64_t st_embeddings_size(const st_model *model, const st_run_options *options);
setun_status st_embeddings_new(st_embeddings *e, const st_model *model, const st_run_options *options,
                               setun_error *err);
void st_embeddings_free(st_embeddings *e);

// The sequence of a number has other tokens now.
void st_embeddings_reset(st_embeddings *e, int sequence);
// Tokens [row, row + n) of the last pass, which are those of a sequence from `position` on, count. `last`: they end
// what the caller evaluates.
setun_status st_embeddings_add(st_embeddings *e, st_run *run, int sequence, uint32_t row, uint32_t n, uint32_t position,
                               bool last, setun_error *err);
// The embedding of a sequence of so many tokens.
setun_status st_embeddings_get(st_embeddings *e, st_run *run, int sequence, uint32_t position,
                               const setun_embedding_params *params, float *out, setun_error *err);

#endif
