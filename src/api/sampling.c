// setun.h: sampling.
#include "api/api.h"

#include "base/float_modes.h"
#include "runtime/logprobs.h"

#include <string.h>

setun_status setun_model_get_sampler_params(const setun_model *model, setun_sampler_params *params,
                                            setun_error *error) {
  ST_NEED(model);
  setun_sampler_params found = model->sampling;
  found.model = model;
  return ST_FILL(params, &found);
}

const char *setun_sampler_step_name(setun_sampler_step step) {
  return st_sampler_step_name(step);
}

setun_status setun_sampler_order_parse(const char *text, setun_sampler_order *order, setun_error *error) {
  ST_NEED(text);
  ST_NEED(order);
  return st_sampler_order_parse(text, strlen(text), order, error);
}

setun_status setun_sampler_new(const setun_sampler_params *params, setun_sampler **sampler, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_sampler *s = NULL;
  setun_sampler_params own;
  ST_NEED(sampler);
  setun_status status = st_take_sampler_params(&own, params, error);
  if (status == SETUN_OK) status = st_sampler_new(&own, &s, error);
  if (status == SETUN_OK && own.model) status = st_sampler_exclude(s, &own.model->gaps, error);
  if (status == SETUN_OK) {
    *sampler = (setun_sampler *)(void *)s;
  } else {
    st_sampler_free(s);
  }
  return status;
}

void setun_sampler_free(setun_sampler *sampler) {
  st_sampler_free(st_sampler_of(sampler));
}

setun_status setun_sampler_add_bias(setun_sampler *sampler, setun_token id, float bias, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(sampler);
  return st_sampler_add_bias(st_sampler_of(sampler), id, bias, error);
}

setun_status setun_sampler_add_breaker(setun_sampler *sampler, const setun_token *ids, size_t n, setun_error *error) {
  ST_NEED(sampler);
  ST_NEED(ids);
  return st_sampler_add_breaker(st_sampler_of(sampler), ids, n, error);
}

static void piece(const void *tokenizer, setun_token id, const char **bytes, size_t *length) {
  if (st_tokenizer_piece(tokenizer, id, false, bytes, length, NULL) == SETUN_OK) return;
  *bytes = "";
  *length = 0;
}

setun_status setun_sampler_add_breaker_text(setun_sampler *sampler, const setun_model *model, const char *text,
                                            size_t length, setun_error *error) {
  ST_NEED(sampler);
  ST_NEED(model);
  ST_NEED(text);
  return st_sampler_add_breaker_text(st_sampler_of(sampler), piece, model->tokenizer, text, length, error);
}

setun_status setun_sampler_accept(setun_sampler *sampler, setun_token id, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(sampler);
  return st_sampler_accept(st_sampler_of(sampler), id, error);
}

void setun_sampler_reset(setun_sampler *sampler) {
  if (sampler) st_sampler_reset(st_sampler_of(sampler));
}

setun_status setun_sampler_sample(setun_sampler *sampler, const float *logits, size_t n, setun_token *id,
                                  setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(sampler);
  ST_NEED(logits);
  ST_NEED(id);
  return st_sampler_sample(st_sampler_of(sampler), logits, n, id, error);
}

setun_status setun_sampler_probabilities(setun_sampler *sampler, const float *logits, size_t n,
                                         setun_candidate *candidates, size_t capacity, size_t *count,
                                         setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(sampler);
  ST_NEED(logits);
  ST_NEED_ARRAY(candidates, capacity);
  ST_NEED(count);
  return st_sampler_probabilities(st_sampler_of(sampler), logits, n, candidates, capacity, count, error);
}

setun_status setun_logprobs(const float *logits, size_t n, setun_token id, double *value, setun_logprob *top,
                            size_t capacity, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(logits);
  ST_NEED(value);
  ST_NEED_ARRAY(top, capacity);
  if (id < 0 || (size_t)id >= n)
    return st_fail(error, SETUN_ERROR_ARGUMENT, "expected a token id below %zu, found %d", n, (int)id);
  st_logprobs(logits, n, id, value, top, capacity < n ? capacity : n);
  return SETUN_OK;
}
