// Sampling: from logits to one token. The functions are those of setun.h, which documents them.
#ifndef SETUN_RUNTIME_SAMPLER_H
#define SETUN_RUNTIME_SAMPLER_H

#include "constraint/constraint.h"
#include "runtime/sampler_history.h"
#include "runtime/sampler_params.h"
#include "runtime/token_gaps.h"

typedef struct st_sampler st_sampler;

// NULL parameters mean the defaults.
setun_status st_sampler_new(const setun_sampler_params *params, st_sampler **sampler, setun_error *err);
void st_sampler_free(st_sampler *sampler);
// Bytes to reserve for a sampler's candidates: settings usually leave an eighth of a vocabulary of this size.
uint64_t st_sampler_size(uint32_t n_vocab);
// These tokens are never drawn, regardless of logits and biases. The gaps are copied and replace earlier ones.
setun_status st_sampler_exclude(st_sampler *sampler, const st_token_gaps *gaps, setun_error *err);
setun_status st_sampler_add_bias(st_sampler *sampler, setun_token id, float bias, setun_error *err);
setun_status st_sampler_add_breaker(st_sampler *sampler, const setun_token *ids, size_t n, setun_error *err);
// `user` must outlive the sampler; `piece` and `user` replace those of earlier calls.
setun_status st_sampler_add_breaker_text(st_sampler *sampler, st_piece_fn piece, const void *user, const char *text,
                                         size_t length, setun_error *err);
// The tokens accepted from now on must match the constraint; NULL: any text.
setun_status st_sampler_constrain(st_sampler *sampler, st_constraint *constraint, setun_error *err);
// The text's position in it; NULL: there is no constraint.
st_matcher *st_sampler_matcher(st_sampler *sampler);
setun_status st_sampler_accept(st_sampler *sampler, setun_token id, setun_error *err);
void st_sampler_reset(st_sampler *sampler);
setun_status st_sampler_sample(st_sampler *sampler, const float *logits, size_t n, setun_token *id, setun_error *err);
// How many of the largest logits decide what is drawn; SIZE_MAX: all may. And whether these are enough, as none of them
// is excluded; and the same draw from these.
size_t st_sampler_needs(const st_sampler *sampler);
bool st_sampler_can_use(const st_sampler *sampler, const int32_t *ids, uint32_t count);
setun_status st_sampler_sample_few(st_sampler *sampler, const int32_t *ids, const float *logits, uint32_t count,
                                   size_t n_vocab, setun_token *id, setun_error *err);
setun_status st_sampler_probabilities(st_sampler *sampler, const float *logits, size_t n, setun_candidate *candidates,
                                      size_t capacity, size_t *count, setun_error *err);

#endif
