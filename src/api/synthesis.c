// setun.h: synthetic models.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/pool.h"
#include "synthetic/presets.h"
#include "synthetic/synthesis.h"

static setun_status find_format(const char *what, const char *name, st_synthetic_part part, const st_format **format,
                                setun_error *err) {
  *format = name ? st_format_by_name(name) : st_format_of_synthetic(part);
  if (*format) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a tensor format, found \"%.40s\"", what, name);
}

static setun_status make(const setun_synthesis_params *p, st_synthetic_part matrices, st_synthesis **y,
                         setun_error *err) {
  st_synthesis_options o = {.shape = p->shape, .seed = p->seed};
  if (p->threads < 0 || p->threads > 1024) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "threads: expected 0 to 1024, found %d", p->threads);
  }
  setun_status s = find_format("format", p->format, matrices, &o.format, err);
  if (s == SETUN_OK) s = find_format("head", p->head, ST_SYNTHETIC_HEAD, &o.head, err);
  return s == SETUN_OK ? st_synthesis_new(&o, y, err) : s;
}

setun_status setun_synthesize(const char *path, const setun_synthesis_params *params, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  st_synthesis *y = NULL;
  setun_synthesis_params p;
  ST_NEED(path);
  setun_status s = st_take_synthesis_params(&p, params, error);
  if (s == SETUN_OK) s = make(&p, ST_SYNTHETIC_MATRICES, &y, error);
  if (s != SETUN_OK) return s;
  int threads = p.threads ? p.threads : st_default_threads();
  s = st_synthesis_save(y, path, threads, p.progress, p.user, error);
  st_synthesis_free(y);
  return s;
}

static setun_status read_bytes(const void *context, uint64_t offset, void *to, size_t n, setun_error *err) {
  return st_synthesis_read(context, offset, to, n, err);
}

setun_status st_api_open_synthetic(const setun_synthesis_params *params, const setun_model_params *model_params,
                                   st_next_fn next, void *context, st_memory_plan *plan, setun_model **model,
                                   setun_error *err) {
  st_synthesis *y = NULL;
  setun_synthesis_params p;
  setun_model_params loading;
  setun_status s = st_take_synthesis_params(&p, params, err);
  if (s == SETUN_OK) s = st_take_model_params(&loading, model_params, err);
  if (s == SETUN_OK && loading.source) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "setun_model_params.source: expected NULL for a synthetic model");
  }
  if (s == SETUN_OK) s = make(&p, plan ? ST_SYNTHETIC_PLANNED : ST_SYNTHETIC_MATRICES, &y, err);
  if (s != SETUN_OK) return s;
  st_file_source source = {.read = read_bytes, .context = y, .size = y->size};
  loading.no_stream = false; // there is no file to map
  s = st_api_open(p.shape, &loading, &source, next, context, plan, model, err);
  st_synthesis_free(y);
  return s;
}

setun_status setun_model_load_synthetic(const setun_synthesis_params *params, const setun_model_params *model_params,
                                        setun_model **model, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(model);
  return st_api_open_synthetic(params, model_params, st_api_load_weights, NULL, NULL, model, error);
}
