// From generation_config.json, or a GGUF file's general.sampling keys, to sampler parameters.
#include "runtime/sampler_defaults.h"

#include "runtime/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct value_row {
  const char *json, *gguf; // NULL: no such key
  size_t offset;
  bool integer;
  double low, high;
} value_row;

#define AT(member) offsetof(setun_sampler_params, member)
static const value_row rows[] = {
    {"temperature", "general.sampling.temp", AT(temperature), false, 0, FLT_MAX},
    {"top_k", "general.sampling.top_k", AT(top_k), true, 0, INT32_MAX},
    {"top_p", "general.sampling.top_p", AT(top_p), false, 0, 1},
    {"min_p", "general.sampling.min_p", AT(min_p), false, 0, 1},
    {"typical_p", NULL, AT(typical_p), false, 0, 1},
    {"repetition_penalty", "general.sampling.penalty_repeat", AT(repeat_penalty), false, FLT_MIN, FLT_MAX},
    {NULL, "general.sampling.penalty_last_n", AT(penalty_last_n), true, -1, INT32_MAX},
    {NULL, "general.sampling.xtc_probability", AT(xtc_probability), false, 0, 1},
    {NULL, "general.sampling.xtc_threshold", AT(xtc_threshold), false, 0, 1},
    {NULL, "general.sampling.mirostat", AT(mirostat), true, 0, 2},
    {NULL, "general.sampling.mirostat_tau", AT(mirostat_tau), false, 0, FLT_MAX},
    {NULL, "general.sampling.mirostat_eta", AT(mirostat_eta), false, 0, FLT_MAX},
};

// True if the key exists; a value that is not a number becomes one outside every range.
static bool find_json(const st_json *config, const char *key, double *value) {
  const st_json *found = config && key ? st_json_get(config, key) : NULL;
  if (!found) return false;
  *value = st_json_is_number(found) ? st_json_number(found) : (double)NAN;
  return true;
}

static bool find_gguf(const st_metadata *m, const char *key, double *value) {
  const st_meta *found = key ? st_metadata_find(m, key) : NULL;
  if (!found) return false;
  switch (found->type) {
  case ST_META_F32:
  case ST_META_F64: *value = found->as.f; break;
  case ST_META_I8:
  case ST_META_I16:
  case ST_META_I32:
  case ST_META_I64: *value = (double)found->as.i; break;
  case ST_META_U8:
  case ST_META_U16:
  case ST_META_U32:
  case ST_META_U64: *value = (double)found->as.u; break;
  default: *value = (double)NAN;
  }
  return true;
}

static bool fits(const value_row *row, double value) {
  return value >= row->low && value <= row->high && (!row->integer || value == (double)(int64_t)value);
}

static void store(const value_row *row, double value, setun_sampler_params *p) {
  char *to = (char *)p + row->offset;
  if (row->integer) {
    memcpy(to, &(int32_t){(int32_t)value}, sizeof(int32_t));
  } else {
    memcpy(to, &(float){(float)value}, sizeof(float));
  }
}

// The order of the steps, if the file has one.
static void take_order(const st_directory *d, const st_log *log, setun_sampler_order *order) {
  static const char key[] = "general.sampling.sequence";
  setun_error error;
  st_text text = {0};
  if (d->container != ST_GGUF || !st_metadata_find(&d->metadata, key)) return;
  setun_status s = st_metadata_text(&d->metadata, key, &text, &error);
  if (s == SETUN_OK) s = st_sampler_order_parse(text.data, text.length, order, &error);
  if (s == SETUN_OK) return;
  st_log_write(log, SETUN_LOG_WARNING, "%s: %s: %s; ignored", d->path, key, error.message);
}

setun_sampler_params st_sampler_defaults(const st_directory *d, const st_log *log) {
  setun_sampler_params p = st_sampler_params_default();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool gguf = d->container == ST_GGUF;
    double value = 0;
    if (!(gguf ? find_gguf(&d->metadata, rows[i].gguf, &value)
               : find_json(d->generation_config, rows[i].json, &value))) {
      continue;
    }
    if (fits(&rows[i], value)) {
      store(&rows[i], value, &p);
    } else {
      st_log_write(log, SETUN_LOG_WARNING, "%s: %s%s: expected a%s number from %g to %g, found %g; ignored", d->path,
                   gguf ? "" : "generation_config.json: ", gguf ? rows[i].gguf : rows[i].json,
                   rows[i].integer ? " whole" : "", rows[i].low, rows[i].high, value);
    }
  }
  // there the penalty applies to every token of the text
  if (d->container != ST_GGUF && p.repeat_penalty != 1) p.penalty_last_n = -1;
  take_order(d, log, &p.order);
  return p;
}
