// Sliding windows: one reader per container for all families. The family's rule decides which layers slide (attend only
// to the last h->window tokens), unless the file lists them.
#include "model/hparams_read.h"

#include <stdio.h>
#include <string.h>

// Every period-th layer attends to all: with period 1 all do, with 0 none.
static void by_period(st_hparams *h, uint32_t period) {
  for (uint32_t i = 0; i < h->n_layer; i++) h->sliding[i] = !period || (i + 1) % period != 0;
}

// Without a window no layer slides.
static void finish(st_hparams *h) {
  for (uint32_t i = 0; i < h->n_layer; i++) h->sliding[i] = h->sliding[i] && h->window;
}

// ---- config.json --------------------------------------------------------------------------------------------------

static setun_status by_rule(const st_json *c, const st_window_rule *rule, st_hparams *h, setun_error *err) {
  uint32_t period = rule->period, most = 28; // the default in all classes that have max_window_layers
  setun_status s = st_json_u32(c, "_sliding_window_pattern", 1, 1u << 20, &period, err);
  if (s == SETUN_OK) s = st_json_u32(c, "sliding_window_pattern", 1, 1u << 20, &period, err);
  if (s == SETUN_OK && rule->layers != ST_WINDOW_ALL) {
    s = st_json_u32(c, "max_window_layers", 0, 1u << 20, &most, err);
  }
  by_period(h, period);
  for (uint32_t i = 0; i < h->n_layer; i++) {
    if (rule->layers == ST_WINDOW_FROM) h->sliding[i] = h->sliding[i] && i >= most;
    if (rule->layers == ST_WINDOW_BELOW) h->sliding[i] = h->sliding[i] && i < most;
  }
  return s;
}

static setun_status by_list(const st_json *list, const st_window_rule *rule, st_hparams *h, setun_error *err) {
  if (!st_json_is_array(list) || st_json_size(list) != h->n_layer) {
    return st_fail(err, SETUN_ERROR_FORMAT, "layer_types: expected an array of %u strings, found %s of %zu", h->n_layer,
                   st_json_kind(list), st_json_size(list));
  }
  for (uint32_t i = 0; i < h->n_layer; i++) {
    const char *type = st_json_string(st_json_at(list, i));
    bool sliding = type && !strcmp(type, "sliding_attention");
    if (!sliding && (!type || strcmp(type, "full_attention"))) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "layer_types: expected full_attention or sliding_attention, found \"%.64s\" at index %u",
                     type ? type : st_json_kind(st_json_at(list, i)), i);
    }
    if (!rule->config_lists && (sliding && h->window) != (h->sliding[i] && h->window)) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "layer_types: expected %s at index %u, as in the official class, found \"%.64s\"",
                     h->sliding[i] ? "sliding_attention" : "full_attention", i, type);
    }
    h->sliding[i] = sliding;
  }
  return SETUN_OK;
}

setun_status st_hf_windows(const st_json *c, const st_spec *spec, st_hparams *h, setun_error *err) {
  const st_window_rule *rule = &spec->windows;
  const st_json *list = st_json_get(c, "layer_types");
  bool use = !rule->with_switch;
  if (!rule->config || h->n_layer > ST_MAX_LAYERS) return SETUN_OK; // refused later, with the number
  if (rule->config_window) h->window = rule->config_window;
  if (st_json_is_null(st_json_find(c, "sliding_window"))) h->window = 0;
  setun_status s = st_json_u32(c, "sliding_window", 0, 1u << 30, &h->window, err);
  if (s == SETUN_OK) s = st_json_bool(c, "use_sliding_window", &use, err);
  if (s == SETUN_OK && !use && !rule->with_switch && h->window) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "use_sliding_window: expected true with a sliding_window of %u, which the official class always "
                "uses, found false",
                h->window);
  }
  if (!use) h->window = 0;
  if (s == SETUN_OK) s = by_rule(c, rule, h, err);
  if (s == SETUN_OK && list) s = by_list(list, rule, h, err);
  if (s == SETUN_OK) finish(h);
  return s;
}

// ---- GGUF ---------------------------------------------------------------------------------------------------------

// An array with one integer, or boolean for flags, per layer.
static setun_status check_array(const st_meta *item, uint32_t n_layer, const char *elements, bool flags,
                                setun_error *err) {
  char kind[32];
  bool numbers = st_meta_is_integer(item->element) || (flags && item->element == ST_META_BOOL);
  if (numbers && item->count == n_layer) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "%s: expected a number, or an array of %u %s, one per layer, found %s of %llu", item->key, n_layer,
                 elements, st_meta_kind(item, kind), (unsigned long long)item->count);
}

// One window for all layers, or an array: there is one size, and layers with 0 attend to all.
static setun_status read_window(const st_metadata *m, const char *key, st_hparams *h, bool full[ST_MAX_LAYERS],
                                setun_error *err) {
  const st_meta *item = st_metadata_find(m, key);
  if (!item || item->type != ST_META_ARRAY) return st_metadata_u32(m, key, 0, 1u << 30, &h->window, err);
  setun_status s = check_array(item, h->n_layer, "integers", false, err);
  h->window = 0;
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) {
    double x = st_meta_number(item, i);
    full[i] = x == 0;
    if (x < 0 || x > 1u << 30) {
      s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected integers from 0 to %u, found %.0f", key, 1u << 30, x);
    } else if (x > 0 && h->window && x != (double)h->window) {
      s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected one size for all layers with a window, found %u and %.0f",
                  key, h->window, x);
    } else if (x > 0) {
      h->window = (uint32_t)x;
    }
  }
  return s;
}

static setun_status read_pattern(const st_meta *item, st_hparams *h, setun_error *err) {
  if (item->type != ST_META_ARRAY) {
    if (!st_meta_is_integer(item->type) || item->as.u > 1u << 20) { // negative values become large
      char kind[32];
      return st_fail(err, SETUN_ERROR_FORMAT,
                     "%s: expected a period from 0 to %u, or an array with one flag per layer, found %s%s", item->key,
                     1u << 20, st_meta_is_integer(item->type) ? "another number, " : "", st_meta_kind(item, kind));
    }
    by_period(h, (uint32_t)item->as.u);
    return SETUN_OK;
  }
  setun_status s = check_array(item, h->n_layer, "flags", true, err);
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) h->sliding[i] = st_meta_number(item, i) != 0;
  return s;
}

setun_status st_gguf_windows(const st_metadata *m, const char *architecture, const st_spec *spec, st_hparams *h,
                             setun_error *err) {
  static const char name[] = "attention.sliding_window";
  bool full[ST_MAX_LAYERS] = {false};
  char window[128], pattern[128];
  if (h->n_layer > ST_MAX_LAYERS) return SETUN_OK; // refused later, with the number
  snprintf(window, sizeof window, "%s.%s", architecture, name);
  snprintf(pattern, sizeof pattern, "%s.%s_pattern", architecture, name);
  const st_meta *layers = st_metadata_find(m, pattern);
  bool some = false; // layers with windows of 0
  setun_status s = read_window(m, window, h, full, err);
  if (s != SETUN_OK) return s;
  for (uint32_t i = 0; i < h->n_layer; i++) some = some || full[i];
  by_period(h, some ? 0 : spec->windows.period); // an array with zeros shows which layers slide
  if (layers) {
    s = read_pattern(layers, h, err);
  } else if (h->window && !some && !spec->windows.gguf) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "%s: expected this key with a window of %u, to say which layers have it, found none", pattern,
                h->window);
  }
  for (uint32_t i = 0; i < h->n_layer; i++) h->sliding[i] = h->sliding[i] && !full[i];
  if (s == SETUN_OK) finish(h);
  return s;
}
