// Layers with a recurrent state in place of keys and values: gated DeltaNet (arXiv 2412.06464, as Qwen3-Next and
// Qwen 3.5 have it).
#ifndef SETUN_MODEL_DELTA_H
#define SETUN_MODEL_DELTA_H

#include "model/forward.h"

// Floats that a token takes in the arrays of a run; all 0 where the model has neither such layers nor gated attention.
typedef struct st_delta_widths {
  size_t mixed, channels, z, heads, switches;
} st_delta_widths;
st_delta_widths st_delta_widths_of(const st_hparams *h);

// Slots of states for a context of so many sequences: each has one, and one more while a pass goes on, so that it
// keeps what it had where the pass is stopped; the rest is for snapshots. 0: the model has no states.
uint32_t st_delta_slots(const st_hparams *h, uint32_t n_seq);
st_state_shape st_state_shape_of(const st_hparams *h, uint32_t n_slots);

// A recurrent layer's first half, from run->x to run->branch.
void st_delta_forward(st_run *run, uint32_t layer, const st_batch *batch);

#endif
