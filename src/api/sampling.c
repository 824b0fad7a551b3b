// setun.h: sampling.
#include "api/api.h"

// A sampler is the runtime's own; the handle is that object.
static st_sampler *inner(setun_sampler *s) { return (st_sampler *)(void *)s; }

setun_sampler_params setun_sampler_params_default(void) {
  return (setun_sampler_params){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler, setun_error *error) {
  setun_sampler_params defaults = setun_sampler_params_default();
  st_sampler *s = NULL;
  setun_status status = st_sampler_new(params ? params : &defaults, &s, error);
  if (status == SETUN_OK) *sampler = (setun_sampler *)(void *)s;
  return status;
}

void setun_sampler_free(setun_sampler *sampler) { st_sampler_free(inner(sampler)); }

setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                  setun_error *error) {
  return st_sampler_sample(inner(sampler), logits, n, id, error);
}
