// Rotary position embedding: tables of cosines and sines by position.
#ifndef SETUN_MODEL_ROPE_H
#define SETUN_MODEL_ROPE_H

#include "model/roles.h"

// The table for positions [0, rows): [rows][2][n_rot / 2] floats, cosines before sines, for a context with distances
// below n_ctx. `divisors` ([n_rot / 2],
// may be NULL) divide the frequencies (GGUF's rope_freqs). Angles are computed in float32, as the official
// implementations do. The caller frees the table with st_free; NULL when out of memory.
float *st_rope_table(const st_rope_params *params, uint32_t n_rot, uint32_t rows, uint32_t n_ctx, uint32_t n_ctx_train,
                     const float *divisors);

// Checks that divisors of frequencies are finite and positive; an error names the tensor and the first that is not.
setun_status st_rope_check_divisors(const char *name, const float *divisors, size_t n, setun_error *err);

#endif
