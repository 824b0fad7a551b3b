// The parts of embeddings: the hidden states of a pass after the final norm, and the dense matrices after the pooling.
#ifndef SETUN_MODEL_STATES_H
#define SETUN_MODEL_STATES_H

#include "model/forward.h"

// Reads the states of `n` tokens of the last pass after the final norm, given as rows of its batch, at most n_batch:
// out
// [n, n_embd].
setun_status st_run_states(st_run *run, const uint32_t *rows, uint32_t n, float *out, setun_error *err);

// Applies the model's dense matrices to a pooled state, [n_embd] floats: out [st_embedding_width]. The run was made
// with a pooling.
setun_status st_run_project(st_run *run, const float *pooled, float *out, setun_error *err);

// The largest input or output width of a dense matrix; 0: there are none.
uint32_t st_dense_width(const st_hparams *h);

#endif
