// setun.h: quantization.
#include "quantize/calibrate.h"

#include "api/api.h"
#include "base/float_modes.h"
#include "base/memory.h"
#include "runtime/vocabulary.h"

#include <stdio.h>
#include <string.h>

static setun_status read_recipe(const setun_quantize_params *p, st_recipe *recipe, setun_error *err) {
  if (!p->scheme == !p->recipe) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "scheme, recipe: expected one of them, found %s",
                   p->scheme ? "both" : "neither");
  }
  if (p->recipe) return st_recipe_load(p->recipe, recipe, err);
  return st_recipe_named(p->scheme, recipe, err);
}

// ---- calibration --------------------------------------------------------------------------------------------------

enum { TEXT_MOST = 1 << 30, WINDOWS = 128, WINDOW = 2048, WINDOW_LEAST = 16 };

// A quantization with its source as a GGUF file, and progress as parts of the whole.
typedef struct {
  const setun_quantize_params *p;
  const char *target;
  st_directory *source;
  st_rounding rounding;
  st_calibrated *calibrated;
  double from, part;
} work;

static bool report(double fraction, void *user) {
  const work *w = user;
  return !w->p->progress || w->p->progress(w->from + fraction * w->part, w->p->user);
}

// Windows of a text's tokens, each with a BOS where texts begin with one.
static setun_status cut_windows(const st_tokenizer *t, const st_token_list *ids, const char *path, st_calibration *c,
                                setun_error *err) {
  uint32_t bos = st_tokenizer_add_bos(t) ? 1 : 0, each = c->window - bos;
  if (ids->length / each < c->n_windows) {
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "%s: too short for calibration: expected at least %llu tokens, %u windows of %u, found %zu", path,
                   (unsigned long long)c->n_windows * each, c->n_windows, c->window, ids->length);
  }
  int32_t *windows = st_malloc((size_t)c->n_windows * c->window, sizeof *windows);
  if (!windows) return st_fail_memory(err, path);
  size_t step = ids->length / c->n_windows; // from all of the text
  for (uint32_t i = 0; i < c->n_windows; i++) {
    int32_t *out = windows + (size_t)i * c->window;
    if (bos) *out++ = st_tokenizer_bos(t);
    memcpy(out, ids->ids + i * step, each * sizeof *out);
  }
  c->ids = windows;
  return SETUN_OK;
}

static setun_status read_windows(const work *w, st_calibration *c, setun_error *err) {
  const char *path = w->p->calibration;
  st_tokenizer *t = NULL;
  st_token_list ids = {0};
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load(path, TEXT_MOST, &text, &length, err);
  if (s == SETUN_OK) s = st_vocabulary_load(w->source, st_default_pre(w->source), NULL, &t, err);
  if (s == SETUN_OK) {
    s = st_tokenizer_encode(t, text, length, false, &ids, err);
    if (s != SETUN_OK) st_fail_in(err, s, "%s", path);
  }
  if (s == SETUN_OK) s = cut_windows(t, &ids, path, c, err);
  st_tokenizer_free(t);
  st_token_list_free(&ids);
  st_free(text);
  return s;
}

static setun_status set_sizes(const work *w, st_calibration *c, setun_error *err) {
  st_hparams h = {0};
  const st_spec *spec = NULL;
  setun_status s = st_hparams_read(w->source, NULL, &spec, &h, err);
  uint32_t most = h.n_ctx_train < WINDOW ? h.n_ctx_train : WINDOW;
  c->window = w->p->window ? w->p->window : most;
  c->n_windows = w->p->windows ? w->p->windows : WINDOWS;
  if (s == SETUN_OK && (c->window < WINDOW_LEAST || c->window > h.n_ctx_train)) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "window: expected %d to %u tokens, found %u", WINDOW_LEAST, h.n_ctx_train,
                c->window);
  }
  st_hparams_free(&h);
  return s;
}

static setun_status calibrate(work *w, const st_log *log, setun_error *err) {
  const setun_model_params plain = setun_model_params_default();
  st_calibration c = {.recipe = w->rounding.recipe, .target = w->target, .force = w->p->force};
  c.placement = st_placement_options_of(&plain, log);
  c.placement.progress = report;
  c.placement.user = w;
  setun_status s = set_sizes(w, &c, err);
  if (s == SETUN_OK) s = read_windows(w, &c, err);
  if (s == SETUN_OK) s = st_calibrate(w->source, &c, &w->calibrated, err);
  st_free((void *)(uintptr_t)c.ids);
  w->rounding.calibrated = w->calibrated;
  return s;
}

// ---- all ----------------------------------------------------------------------------------------------------------

// Calibration runs GGUF files, whose rows are in the target's order: a directory becomes one, beside the target.
static setun_status open_gguf(work *w, const char **source, st_buffer *own, const st_open_options *open,
                              const st_log *log, setun_error *err) {
  setun_status s = st_directory_open(*source, open, &w->source, err);
  if (s != SETUN_OK || w->source->container == ST_GGUF) return s;
  st_convert_options exact = {.to = st_format_of_floats(), .log = log, .progress = report, .user = w};
  st_directory_free(w->source);
  w->source = NULL;
  if (!st_buffer_format(own, "%s.source.gguf", w->target)) return st_fail_memory(err, w->target);
  w->part = 0;
  s = st_convert_whole(*source, own->data, open, &exact, err);
  w->part = 0.98;
  *source = own->data;
  return s == SETUN_OK ? st_directory_open(*source, open, &w->source, err) : s;
}

static setun_status quantize(work *w, const char *source, st_convert_options *o, const st_open_options *open,
                             setun_error *err) {
  const st_quantizer quantizer = st_rounding_quantizer(&w->rounding);
  setun_status s = st_pool_new(NULL, st_default_threads(), &w->rounding.pool, err);
  w->from = 0, w->part = w->p->calibration ? 0.98 : 1;
  st_buffer own = {0};
  if (s == SETUN_OK && w->p->calibration) {
    s = open_gguf(w, &source, &own, open, o->log, err);
    if (s == SETUN_OK) s = calibrate(w, o->log, err);
    w->from = 0.98, w->part = 0.02;
  }
  o->quantizer = &quantizer;
  if (s == SETUN_OK) s = st_convert_whole(source, w->target, open, o, err);
  st_calibrated_free(w->calibrated, s == SETUN_OK);
  st_directory_free(w->source);
  st_pool_free(w->rounding.pool);
  if (own.length) remove(own.data);
  st_buffer_free(&own);
  return s;
}

// A directory holds integers with zero points, as GPTQ's tensors: they are made as a GGUF file beside it first.
static setun_status quantize_directory(work *w, const char *source, st_convert_options *o, const st_open_options *open,
                                       setun_error *err) {
  const char *target = w->target;
  const st_recipe *r = w->rounding.recipe;
  st_buffer file = {0};
  for (size_t i = 0; i < r->n; i++) {
    const st_format *f = r->lines[i].format;
    if (!f || f->ops->zero_points) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: a directory holds zpB-G, as GPTQ's tensors, but not %s; expected a name that ends in .gguf",
                   target, f->name);
  }
  if (!st_buffer_format(&file, "%s.gguf", target)) return st_fail_memory(err, target);
  w->target = file.data;
  setun_status s = quantize(w, source, o, open, err);
  if (s == SETUN_OK) {
    const st_open_options plain = {.log = o->log};
    st_convert_options exact = {.to = st_format_of_floats(), .integers = true, .log = o->log, .user = w};
    s = st_convert_whole(file.data, target, &plain, &exact, err);
    remove(file.data);
  }
  st_buffer_free(&file);
  return s;
}

setun_status setun_quantize(const char *source, const char *target, const setun_quantize_params *given,
                            setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_quantize_params own, *const params = &own;
  ST_NEED(source);
  ST_NEED(target);
  setun_status s = st_take_quantize_params(&own, given, error);
  if (s != SETUN_OK) return s;
  st_recipe recipe = {0};
  st_log log = {params->log, params->user};
  work w = {.p = params, .target = target, .rounding = {.recipe = &recipe, .force = params->force, .log = &log}};
  st_convert_options o = {.to = st_format_of_floats(), .log = &log, .progress = report, .user = &w};
  st_open_options open = {.assume = params->assume,
                          .ignore_keys = params->ignore_keys,
                          .n_ignore_keys = params->n_ignore_keys,
                          .log = &log};
  s = st_check_reading(params->assume, params->ignore_keys, params->n_ignore_keys, error);
  if (s == SETUN_OK) s = st_find_end_format("embedding", params->embedding, &o.embedding, &o.keep_embedding, error);
  if (s == SETUN_OK) s = st_find_end_format("head", params->head, &o.head, &o.keep_head, error);
  if (s == SETUN_OK) s = read_recipe(params, &recipe, error);
  if (s == SETUN_OK && !params->embedding && params->scheme) o.embedding = st_recipe_embedding(params->scheme);
  if (s == SETUN_OK)
    s = st_is_gguf_name(target) ? quantize(&w, source, &o, &open, error)
                                : quantize_directory(&w, source, &o, &open, error);
  st_recipe_free(&recipe);
  return s;
}
