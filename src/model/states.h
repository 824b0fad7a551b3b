// What embeddings are made of: the states of a pass's tokens behind the final norm, and the dense matrices that what is
// pooled goes through.
#ifndef SETUN_MODEL_STATES_H
#define SETUN_MODEL_STATES_H

#include "model/forward.h"

// Reads the states of `n` tokens of the last pass behind the final norm, rows of its batch, at most n_batch: out
// [n, n_embd].
setun_status st_run_states(st_run *run, const uint32_t *rows, uint32_t n, float *out, setun_error *err);

// What is pooled, [n_embd] floats, through the model's dense matrices: out [st_embedding_width]. The run was made with
// a pooling.
setun_status st_run_project(st_run *run, const float *pooled, float *out, setun_error *err);

// The width of the widest input or output of a dense matrix; 0: there are none.
uint32_t st_dense_width(const st_hparams *h);

#endif
