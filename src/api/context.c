// setun.h: contexts.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/process.h"

setun_status setun_context_new(const setun_model *model, const setun_context_params *params, setun_context **context,
                               setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_context_params own;
  st_context *c = NULL;
  ST_NEED(model);
  ST_NEED(context);
  if (!model->model) {
    return st_fail(error, SETUN_ERROR_STATE, "context: expected a model with weights, found only a vocabulary");
  }
  setun_status status = st_process_check(model->maker, "context: the model", error);
  if (status == SETUN_OK) status = st_take_context_params(&own, params, error);
  if (status == SETUN_OK) status = st_context_new(model->model, &own, "context", &c, error);
  if (status == SETUN_OK) *context = (setun_context *)(void *)c;
  return status;
}

void setun_context_free(setun_context *context) {
  st_context_free(st_context_of(context));
}

setun_status setun_context_use_adapters(setun_context *context, const setun_adapters *adapters, float scale,
                                        setun_error *error) {
  ST_NEED(context);
  st_adapting adapting;
  setun_status s = st_take_adapters(st_context_model(st_context_of(context)), adapters, scale, &adapting, error);
  return s == SETUN_OK ? st_context_adapt(st_context_of(context), &adapting, error) : s;
}

setun_status setun_context_get_info(const setun_context *context, setun_context_info *info, setun_error *error) {
  ST_NEED(context);
  setun_context_info found;
  st_context_info((const st_context *)(const void *)context, &found);
  return ST_FILL(info, &found);
}

setun_status setun_context_add(setun_context *context, int *sequence, setun_error *error) {
  ST_NEED(context);
  ST_NEED(sequence);
  return st_context_add(st_context_of(context), sequence, error);
}

setun_status setun_context_drop(setun_context *context, int sequence, setun_error *error) {
  ST_NEED(context);
  return st_context_drop(st_context_of(context), sequence, error);
}

setun_status setun_context_fork(setun_context *context, int sequence, int *copy, setun_error *error) {
  ST_NEED(context);
  ST_NEED(copy);
  return st_context_fork(st_context_of(context), sequence, copy, error);
}

setun_status setun_context_truncate(setun_context *context, int sequence, uint32_t n, setun_error *error) {
  ST_NEED(context);
  return st_context_truncate(st_context_of(context), sequence, n, error);
}

setun_status setun_context_reuse(setun_context *context, const setun_token *ids, size_t n, int *sequence,
                                 uint32_t *position, setun_error *error) {
  ST_NEED(context);
  ST_NEED_ARRAY(ids, n);
  ST_NEED(sequence);
  ST_NEED(position);
  return st_context_reuse(st_context_of(context), ids, n, sequence, position, error);
}

uint32_t setun_context_position(const setun_context *context, int sequence) {
  return context ? st_context_position((const st_context *)(const void *)context, sequence) : 0;
}

uint32_t setun_context_forgotten(const setun_context *context, int sequence) {
  return context ? st_context_forgotten((const st_context *)(const void *)context, sequence) : 0;
}

const setun_token *setun_context_tokens(const setun_context *context, int sequence) {
  return context ? st_context_tokens((const st_context *)(const void *)context, sequence) : NULL;
}

setun_status setun_context_save(setun_context *context, int sequence, const char *path, setun_error *error) {
  ST_NEED(context);
  ST_NEED(path);
  return st_context_save(st_context_of(context), sequence, path, error);
}

setun_status setun_context_load(setun_context *context, int sequence, const char *path, setun_error *error) {
  ST_NEED(context);
  ST_NEED(path);
  return st_context_load(st_context_of(context), sequence, path, error);
}

setun_status setun_context_save_memory(setun_context *context, int sequence, void *bytes, size_t capacity,
                                       size_t *length, setun_error *error) {
  ST_NEED(context);
  ST_NEED_ARRAY(bytes, capacity);
  ST_NEED(length);
  return st_context_save_memory(st_context_of(context), sequence, bytes, capacity, length, error);
}

setun_status setun_context_load_memory(setun_context *context, int sequence, const void *bytes, size_t length,
                                       setun_error *error) {
  ST_NEED(context);
  ST_NEED(bytes);
  return st_context_load_memory(st_context_of(context), sequence, bytes, length, error);
}

setun_status setun_context_eval(setun_context *context, const setun_batch_entry *entries, size_t n,
                                const setun_eval_params *params, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_eval_params own;
  ST_NEED(context);
  ST_NEED_ARRAY(entries, n);
  setun_status s = st_take_eval_params(&own, params, error);
  if (s != SETUN_OK) return s;
  if (own.on_logits || own.on_hidden) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "%s: expected NULL for a context, found a function",
                   own.on_logits ? "on_logits" : "on_hidden");
  }
  return st_context_eval(st_context_of(context), entries, n, &own, error);
}

const float *setun_context_logits(const setun_context *context, size_t entry, size_t i) {
  return context ? st_context_logits((const st_context *)(const void *)context, entry, i) : NULL;
}

void setun_context_stop(setun_context *context) {
  if (context) st_context_stop(st_context_of(context));
}
