// The parameters of a sampler: defaults, ranges, and the names and the order of the steps.
#include "runtime/sampler_params.h"

#include <float.h>
#include <string.h>

setun_sampler_params st_sampler_params_default(void) {
  return (setun_sampler_params){.penalty_last_n = 64,
                                .repeat_penalty = 1,
                                .dry_base = 1.75f,
                                .dry_allowed_length = 2,
                                .dry_penalty_last_n = -1,
                                .top_k = 40,
                                .typical_p = 1,
                                .top_p = 0.95f,
                                .min_p = 0.05f,
                                .xtc_threshold = 0.1f,
                                .temperature = 0.8f,
                                .dynatemp_exponent = 1,
                                .order = {ST_SAMPLER_STEPS, {0, 1, 2, 3, 4, 5, 6, 7, 8}}, // setun_sampler_step
                                .mirostat_tau = 5,
                                .mirostat_eta = 0.1f};
}

typedef struct float_range {
  const char *name;
  float value, low, high;
} float_range;

static setun_status check_float(float_range r, setun_error *err) {
  if (r.value >= r.low && r.value <= r.high) return SETUN_OK;
  if (r.high < FLT_MAX) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a number from %g to %g, found %g", r.name, (double)r.low,
                   (double)r.high, (double)r.value);
  }
  if (r.low > -FLT_MAX) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a finite number >= %g, found %g", r.name, (double)r.low,
                   (double)r.value);
  }
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a finite number, found %g", r.name, (double)r.value);
}

static setun_status check_floats(const setun_sampler_params *p, setun_error *err) {
  const float_range ranges[] = {
      {"presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
      {"frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
      {"dry_multiplier", p->dry_multiplier, 0, FLT_MAX},
      {"dry_base", p->dry_base, 1, FLT_MAX},
      {"typical_p", p->typical_p, 0, 1},
      {"top_p", p->top_p, 0, 1},
      {"min_p", p->min_p, 0, 1},
      {"xtc_probability", p->xtc_probability, 0, 1},
      {"xtc_threshold", p->xtc_threshold, 0, 1},
      {"temperature", p->temperature, 0, FLT_MAX},
      {"dynatemp_range", p->dynatemp_range, 0, FLT_MAX},
      {"dynatemp_exponent", p->dynatemp_exponent, 0, FLT_MAX},
      {"top_n_sigma", p->top_n_sigma, -FLT_MAX, FLT_MAX},
      {"mirostat_tau", p->mirostat_tau, 0, FLT_MAX},
      {"mirostat_eta", p->mirostat_eta, 0, FLT_MAX},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    setun_status s = check_float(ranges[i], err);
    if (s != SETUN_OK) return s;
  }
  if (!(p->repeat_penalty > 0 && p->repeat_penalty <= FLT_MAX)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "repeat_penalty: expected a finite number above 0, found %g",
                   (double)p->repeat_penalty);
  }
  return SETUN_OK;
}

static setun_status check_integer(const char *name, int32_t value, int32_t low, setun_error *err) {
  if (value >= low) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected %d or more, found %d", name, (int)low, (int)value);
}

static setun_status check_order(const setun_sampler_order *order, setun_error *err) {
  unsigned seen = 0;
  if (order->n > ST_SAMPLER_STEPS) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "order: expected at most %d steps, found %d", ST_SAMPLER_STEPS, order->n);
  }
  for (size_t i = 0; i < order->n; i++) {
    unsigned step = order->steps[i];
    if (step >= ST_SAMPLER_STEPS) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "order: expected steps from 0 to %d, found %u", ST_SAMPLER_STEPS - 1,
                     step);
    }
    if (seen >> step & 1) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "order: expected each step once, found %s again",
                     st_sampler_step_name((setun_sampler_step)step));
    }
    seen |= 1u << step;
  }
  return SETUN_OK;
}

setun_status st_sampler_params_check(const setun_sampler_params *p, setun_error *err) {
  setun_status s = check_floats(p, err);
  if (s == SETUN_OK) s = check_integer("penalty_last_n", p->penalty_last_n, -1, err);
  if (s == SETUN_OK) s = check_integer("dry_penalty_last_n", p->dry_penalty_last_n, -1, err);
  if (s == SETUN_OK) s = check_integer("dry_allowed_length", p->dry_allowed_length, 1, err);
  if (s == SETUN_OK) s = check_integer("top_k", p->top_k, 0, err);
  if (s == SETUN_OK) s = check_order(&p->order, err);
  if (s == SETUN_OK && (p->mirostat < 0 || p->mirostat > 2)) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "mirostat: expected 0, 1 or 2, found %d", (int)p->mirostat);
  }
  return s;
}

// ---- names of steps ----

// One of a step's names; the first one is printed.
typedef struct step_name {
  const char *name;
  setun_sampler_step step;
} step_name;

static const step_name names[] = {
    {"penalties", SETUN_STEP_PENALTIES}, {"dry", SETUN_STEP_DRY},       {"top_n_sigma", SETUN_STEP_TOP_N_SIGMA},
    {"top_k", SETUN_STEP_TOP_K},         {"typ_p", SETUN_STEP_TYPICAL}, {"top_p", SETUN_STEP_TOP_P},
    {"min_p", SETUN_STEP_MIN_P},         {"xtc", SETUN_STEP_XTC},       {"temperature", SETUN_STEP_TEMPERATURE},
    {"temp", SETUN_STEP_TEMPERATURE},    {"typ", SETUN_STEP_TYPICAL},   {"typical", SETUN_STEP_TYPICAL},
    {"nucleus", SETUN_STEP_TOP_P},
};
enum { NAMES = sizeof names / sizeof *names };

const char *st_sampler_step_name(setun_sampler_step step) {
  for (size_t i = 0; i < NAMES; i++) {
    if (names[i].step == step) return names[i].name;
  }
  return NULL;
}

// "top_k" is also "top-k", "topk" and "Top-K".
static bool is_name(const char *name, const char *text, size_t length) {
  size_t at = 0;
  for (; *name; name++) {
    char c = at < length ? text[at] : 0;
    if (*name == '_') {
      at += c == '_' || c == '-';
      continue;
    }
    if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
    if (c != *name) return false;
    at++;
  }
  return at == length;
}

static const step_name *find_step(const char *text, size_t length) {
  for (size_t i = 0; i < NAMES; i++) {
    if (is_name(names[i].name, text, length)) return &names[i];
  }
  return NULL;
}

setun_status st_sampler_order_parse(const char *text, size_t length, setun_sampler_order *order, setun_error *err) {
  setun_sampler_order found = {0};
  for (const char *at = text, *end = text + length;; at++) {
    const char *stop = memchr(at, ';', (size_t)(end - at));
    size_t part = (size_t)((stop ? stop : end) - at);
    const step_name *row = find_step(at, part);
    if (!row) {
      return st_fail(err, SETUN_ERROR_ARGUMENT,
                     "expected names of samplers separated by ';' (penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
                     "min_p, xtc, temperature), found '%.*s'",
                     part < 64 ? (int)part : 64, at);
    }
    if (memchr(found.steps, row->step, found.n)) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "expected each sampler once, found %s again", row->name);
    }
    found.steps[found.n++] = (uint8_t)row->step;
    if (!stop) break;
    at = stop;
  }
  *order = found;
  return SETUN_OK;
}
