// setun.h: sampling.
#include "api/api.h"

#include "base/float_modes.h"

// A sampler is the runtime's own; the handle is that object.
static st_sampler *inner(setun_sampler *s) {
  return (st_sampler *)(void *)s;
}

setun_sampler_params setun_sampler_params_default(void) {
  return st_sampler_params_default();
}

setun_sampler_params setun_model_sampler_params(const setun_model *model) {
  return model->sampling;
}

setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_sampler *s = NULL;
  setun_status status = st_sampler_new(params, &s, error);
  if (status == SETUN_OK) *sampler = (setun_sampler *)(void *)s;
  return status;
}

void setun_sampler_free(setun_sampler *sampler) {
  st_sampler_free(inner(sampler));
}

setun_status setun_sampler_add_bias(setun_sampler *sampler, setun_token id, float bias, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  return st_sampler_add_bias(inner(sampler), id, bias, error);
}

setun_status setun_sampler_add_breaker(setun_sampler *sampler, const setun_token *ids, size_t n, setun_error *error) {
  return st_sampler_add_breaker(inner(sampler), ids, n, error);
}

static void piece(const void *tokenizer, setun_token id, const char **bytes, size_t *length) {
  if (st_tokenizer_piece(tokenizer, id, false, bytes, length, NULL) == SETUN_OK) return;
  *bytes = "";
  *length = 0;
}

setun_status setun_sampler_add_breaker_text(setun_sampler *sampler, const setun_model *model, const char *text,
                                            size_t length, setun_error *error) {
  return st_sampler_add_breaker_text(inner(sampler), piece, model->tokenizer, text, length, error);
}

setun_status setun_sampler_accept(setun_sampler *sampler, setun_token id, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  return st_sampler_accept(inner(sampler), id, error);
}

void setun_sampler_reset(setun_sampler *sampler) {
  st_sampler_reset(inner(sampler));
}

setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                  setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  return st_sampler_sample(inner(sampler), logits, n, id, error);
}

setun_status setun_sampler_probabilities(setun_sampler *sampler, const float *logits, size_t n,
                                         setun_candidate *candidates, size_t capacity, size_t *count,
                                         setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  return st_sampler_probabilities(inner(sampler), logits, n, candidates, capacity, count, error);
}
