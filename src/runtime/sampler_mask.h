// A sampler's constraint: the place in the text that it accepts, and the tokens that may come next.
#ifndef SETUN_RUNTIME_SAMPLER_MASK_H
#define SETUN_RUNTIME_SAMPLER_MASK_H

#include "constraint/constraint.h"
#include "runtime/token_gaps.h"

// Zero-initialize; freed with st_sampler_mask_free. Without a matcher any token may come.
typedef struct st_sampler_mask {
  st_matcher *matcher;
  uint32_t *bits;
  size_t words, capacity;
  bool known; // the bits are up to date
  size_t allowed;
} st_sampler_mask;

void st_sampler_mask_free(st_sampler_mask *m);
// Texts must match this constraint from now on; NULL: none.
setun_status st_sampler_mask_set(st_sampler_mask *m, st_constraint *constraint, setun_error *err);
setun_status st_sampler_mask_accept(st_sampler_mask *m, int32_t id, setun_error *err);
void st_sampler_mask_reset(st_sampler_mask *m);
// Computes the bits of `n` tokens, without those of the gaps. SETUN_ERROR_STATE: no token is left.
setun_status st_sampler_mask_find(st_sampler_mask *m, size_t n, const st_token_gaps *gaps, setun_error *err);
// The first token in [from, n) that may come, and the first after it that may not. False: none.
bool st_sampler_mask_run(const st_sampler_mask *m, size_t from, size_t n, size_t *begin, size_t *end);

#endif
