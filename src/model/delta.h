// Layers with a recurrent state instead of keys and values: gated DeltaNet (arXiv 2412.06464, as in Qwen3-Next and
// Qwen 3.5).
#ifndef SETUN_MODEL_DELTA_H
#define SETUN_MODEL_DELTA_H

#include "model/forward.h"

// Floats per token in the arrays of a run; all 0 where the model has neither such layers nor gated attention.
typedef struct st_delta_widths {
  size_t mixed, channels, z, heads, switches;
} st_delta_widths;
st_delta_widths st_delta_widths_of(const st_hparams *h);

// State slots for a context with this many sequences: each sequence has one, and a second one during a pass, so that
// its state survives a pass that is stopped; the rest are for snapshots. 0: the model has no states.
uint32_t st_delta_slots(const st_hparams *h, uint32_t n_seq);
st_state_shape st_state_shape_of(const st_hparams *h, uint32_t n_slots);

// The first half of a recurrent layer, from run->x to run->branch.
void st_delta_forward(st_run *run, uint32_t layer, const st_batch *batch);

#endif
