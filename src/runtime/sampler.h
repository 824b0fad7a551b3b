// Sampling: from logits to one token.
#ifndef SETUN_RUNTIME_SAMPLER_H
#define SETUN_RUNTIME_SAMPLER_H

#include "base/error.h"

typedef struct st_sampler st_sampler;

setun_status st_sampler_new(const setun_sampler_params *params, st_sampler **sampler, setun_error *err);
void st_sampler_free(st_sampler *sampler);
setun_status st_sampler_sample(st_sampler *sampler, const float *logits, size_t n, setun_token *id, setun_error *err);

#endif
