// Rotary position embedding: tables of cosines and sines by position.
#ifndef SETUN_MODEL_ROPE_H
#define SETUN_MODEL_ROPE_H

#include "model/hparams.h"

// The table of positions [0, n_ctx): [n_ctx][2][head_dim / 2] floats, cosines before sines. `divisors` ([head_dim / 2],
// may be NULL) divide the frequencies (GGUF's rope_freqs). Angles are computed in float32, as the official
// implementations do. The caller frees the table with st_free; NULL when out of memory.
float *st_rope_table(const st_rope_params *params, uint32_t head_dim, uint32_t n_ctx, uint32_t n_ctx_train,
                     const float *divisors);

#endif
