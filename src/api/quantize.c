// setun.h: quantization.
#include "quantize/quantize.h"

#include "api/api.h"
#include "base/float_modes.h"

static setun_status read_recipe(const setun_quantize_params *p, st_recipe *recipe, setun_error *err) {
  if (!p->scheme == !p->recipe) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "scheme, recipe: expected one of them, found %s",
                   p->scheme ? "both" : "neither");
  }
  if (p->recipe) return st_recipe_load(p->recipe, recipe, err);
  const st_format *f = st_scheme_by_name(p->scheme);
  if (f) return st_recipe_single(f, recipe, err);
  return st_fail(err, SETUN_ERROR_ARGUMENT,
                 "scheme: expected a format that is quantized to, such as q4_k or zp4-64, found "
                 "\"%.40s\"",
                 p->scheme);
}

setun_status setun_quantize(const char *source, const char *target, const setun_quantize_params *given,
                            setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_quantize_params own, *const params = &own;
  ST_NEED(source);
  ST_NEED(target);
  setun_status s = st_take_quantize_params(&own, given, error);
  if (s != SETUN_OK) return s;
  if (!st_is_gguf_name(target)) {
    return st_fail(error, SETUN_ERROR_UNSUPPORTED, "%s: expected a name that ends in .gguf", target);
  }
  st_recipe recipe = {0};
  st_log log = {params->log, params->user};
  st_rounding rounding = {.recipe = &recipe};
  const st_quantizer quantizer = st_rounding_quantizer(&rounding);
  st_convert_options o = {.quantizer = &quantizer,
                          .to = st_format_of_floats(),
                          .log = &log,
                          .progress = params->progress,
                          .user = params->user};
  st_open_options open = {.assume = params->assume,
                          .ignore_keys = params->ignore_keys,
                          .n_ignore_keys = params->n_ignore_keys,
                          .log = &log};
  s = st_check_reading(params->assume, params->ignore_keys, params->n_ignore_keys, error);
  if (s == SETUN_OK) s = st_find_end_format("embedding", params->embedding, &o.embedding, &o.keep_embedding, error);
  if (s == SETUN_OK) s = st_find_end_format("head", params->head, &o.head, &o.keep_head, error);
  if (s == SETUN_OK) s = read_recipe(params, &recipe, error);
  if (s == SETUN_OK) s = st_pool_new(NULL, st_default_threads(), &rounding.pool, error);
  if (s == SETUN_OK) s = st_convert_whole(source, target, &open, &o, error);
  st_pool_free(rounding.pool);
  st_recipe_free(&recipe);
  return s;
}
