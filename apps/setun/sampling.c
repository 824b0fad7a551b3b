// Sampling: options to parameters, biases and breakers from text, and printing of the settings.
#define _POSIX_C_SOURCE 200809L
#include "sampling.h"

#include "input.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_GIVEN INT64_MIN // an integer; a number is then NaN
enum { REASON_SIZE = SETUN_ERROR_SIZE + 32 };
#define AT(member) offsetof(sampling_options, member)

const option sampling_rows[26] = {
    {0, "temp", OPTION_NUMBER, AT(temperature), "T", 0, 1000,
     "temperature (default: the model's, or 0.8); 0: always the likeliest token"},
    {0, "top-k", OPTION_INTEGER, AT(top_k), "N", 0, INT32_MAX,
     "only the N likeliest tokens (default: the model's, or 40; 0: all)"},
    {0, "top-p", OPTION_NUMBER, AT(top_p), "P", 0, 1,
     "only the likeliest tokens up to this total probability (default: the model's, or 0.95; 1: all)"},
    {0, "min-p", OPTION_NUMBER, AT(min_p), "P", 0, 1,
     "only tokens at least this likely, relative to the likeliest (default: the model's, or 0.05; 0: all)"},
    {0, "top-n-sigma", OPTION_NUMBER, AT(top_n_sigma), "N", -1000, 1000,
     "only tokens whose logit is at most N standard deviations below the highest (default 0; 0 or less: all)"},
    {0, "typical", OPTION_NUMBER, AT(typical), "P", 0, 1,
     "only the tokens with a surprise nearest to the expected one, up to this total probability (default 1: all)"},
    {0, "repeat-penalty", OPTION_NUMBER, AT(repeat_penalty), "X", 0.001, 1000,
     "make tokens of the recent text less likely: divide their logits (default: the model's, or 1: off)"},
    {0, "repeat-last-n", OPTION_INTEGER, AT(repeat_last_n), "N", -1, INT32_MAX,
     "how many tokens the three penalties look back (default 64; 0: off; -1: all)"},
    {0, "presence-penalty", OPTION_NUMBER, AT(presence_penalty), "X", -1000, 1000,
     "subtracted from the logits of tokens of the recent text (default 0)"},
    {0, "frequency-penalty", OPTION_NUMBER, AT(frequency_penalty), "X", -1000, 1000,
     "the same, once per occurrence (default 0)"},
    {0, "dry-multiplier", OPTION_NUMBER, AT(dry_multiplier), "X", 0, 1000,
     "strength of DRY, which prevents repeated sequences (default 0: off)"},
    {0, "dry-base", OPTION_NUMBER, AT(dry_base), "X", 1, 1000,
     "how fast DRY's penalty grows with the repetition's length (default 1.75)"},
    {0, "dry-allowed-length", OPTION_INTEGER, AT(dry_allowed_length), "N", 1, INT32_MAX,
     "repetitions shorter than N tokens are not penalized (default 2)"},
    {0, "dry-penalty-last-n", OPTION_INTEGER, AT(dry_penalty_last_n), "N", -1, INT32_MAX,
     "how many tokens DRY looks back (default -1: all; 0: off)"},
    {0, "dry-sequence-breaker", OPTION_LIST, AT(breakers), "TEXT", 0, 0,
     "repetitions do not reach across this text, which may have escapes as with -e; may be given several times; none: "
     "no breakers (default: newline, colon, quote and asterisk)"},
    {0, "xtc-probability", OPTION_NUMBER, AT(xtc_probability), "P", 0, 1,
     "how often XTC removes the likeliest choices (default 0: never)"},
    {0, "xtc-threshold", OPTION_NUMBER, AT(xtc_threshold), "P", 0, 1,
     "how likely a token must be to count as one of them (default 0.1)"},
    {0, "dynatemp-range", OPTION_NUMBER, AT(dynatemp_range), "T", 0, 1000,
     "vary the temperature by this much to either side, with the model's uncertainty (default 0)"},
    {0, "dynatemp-exp", OPTION_NUMBER, AT(dynatemp_exponent), "X", 0, 1000, "exponent of that uncertainty (default 1)"},
    {0, "mirostat", OPTION_INTEGER, AT(mirostat), "N", 0, 2,
     "1 or 2: this version of Mirostat, which keeps the surprise of the text near a target; of the other samplers only "
     "penalties, DRY and temperature apply with it (default: the model's, or 0: off)"},
    {0, "mirostat-lr", OPTION_NUMBER, AT(mirostat_eta), "X", 0, 1000, "how fast Mirostat adapts (default 0.1)"},
    {0, "mirostat-ent", OPTION_NUMBER, AT(mirostat_tau), "X", 0, 1000,
     "the surprise that Mirostat aims at, in bits (default 5)"},
    {0, "samplers", OPTION_TEXT, AT(samplers), "NAMES", 0, 0,
     "the samplers, in order, after --logit-bias (default: "
     "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"},
    {0, "sampling-seq", OPTION_TEXT, AT(sequence), "LETTERS", 0, 0,
     "the same by letters: e penalties, d dry, s top_n_sigma, k top_k, y typ_p, p top_p, m min_p, x xtc, t "
     "temperature"},
    {0, "logit-bias", OPTION_LIST, AT(biases), "ID(+/-)BIAS", 0, 0,
     "add to a token's logit: 1234+2.5, 1234-1; 1234-inf: never this token; may be given several times"},
    {0, "seed", OPTION_SEED, AT(seed), "N", 0, 0,
     "the same seed produces the same text (default: a new one each time, shown by --verbose)"},
};

// A number's offsets in the options and in the parameters, its name, and its step.
typedef struct field {
  const char *name;
  size_t from, to;
  bool integer;
  int step; // a setun_sampler_step; NO_STEP: Mirostat
} field;

enum { NO_STEP = -1 };
#define FIELD(name, from, to, integer, step)                                                                           \
  { name, AT(from), offsetof(setun_sampler_params, to), integer, step }
static const field fields[] = {
    FIELD("temperature", temperature, temperature, false, SETUN_STEP_TEMPERATURE),
    FIELD("top-k", top_k, top_k, true, SETUN_STEP_TOP_K),
    FIELD("top-p", top_p, top_p, false, SETUN_STEP_TOP_P),
    FIELD("min-p", min_p, min_p, false, SETUN_STEP_MIN_P),
    FIELD("top-n-sigma", top_n_sigma, top_n_sigma, false, SETUN_STEP_TOP_N_SIGMA),
    FIELD("typical", typical, typical_p, false, SETUN_STEP_TYPICAL),
    FIELD("repeat-penalty", repeat_penalty, repeat_penalty, false, SETUN_STEP_PENALTIES),
    FIELD("repeat-last-n", repeat_last_n, penalty_last_n, true, SETUN_STEP_PENALTIES),
    FIELD("presence-penalty", presence_penalty, presence_penalty, false, SETUN_STEP_PENALTIES),
    FIELD("frequency-penalty", frequency_penalty, frequency_penalty, false, SETUN_STEP_PENALTIES),
    FIELD("dry-multiplier", dry_multiplier, dry_multiplier, false, SETUN_STEP_DRY),
    FIELD("dry-base", dry_base, dry_base, false, SETUN_STEP_DRY),
    FIELD("dry-allowed-length", dry_allowed_length, dry_allowed_length, true, SETUN_STEP_DRY),
    FIELD("dry-penalty-last-n", dry_penalty_last_n, dry_penalty_last_n, true, SETUN_STEP_DRY),
    FIELD("xtc-probability", xtc_probability, xtc_probability, false, SETUN_STEP_XTC),
    FIELD("xtc-threshold", xtc_threshold, xtc_threshold, false, SETUN_STEP_XTC),
    FIELD("dynatemp-range", dynatemp_range, dynatemp_range, false, SETUN_STEP_TEMPERATURE),
    FIELD("dynatemp-exp", dynatemp_exponent, dynatemp_exponent, false, SETUN_STEP_TEMPERATURE),
    FIELD("mirostat", mirostat, mirostat, true, NO_STEP),
    FIELD("mirostat-ent", mirostat_tau, mirostat_tau, false, NO_STEP),
    FIELD("mirostat-lr", mirostat_eta, mirostat_eta, false, NO_STEP),
};
enum { FIELDS = sizeof fields / sizeof *fields, ALWAYS_SHOWN = 4 };

sampling_options sampling_unset(void) {
  sampling_options o = {0};
  for (size_t i = 0; i < FIELDS; i++) {
    char *to = (char *)&o + fields[i].from;
    if (fields[i].integer)
      *(int64_t *)(void *)to = NOT_GIVEN;
    else
      *(double *)(void *)to = (double)NAN;
  }
  return o;
}

// Applies the option's value if given.
static bool overlay(const field *f, const sampling_options *o, setun_sampler_params *p) {
  const void *from = (const char *)o + f->from;
  void *to = (char *)p + f->to;
  if (f->integer) {
    int64_t value = *(const int64_t *)from;
    if (value == NOT_GIVEN) return false;
    *(int32_t *)to = (int32_t)value;
  } else {
    double value = *(const double *)from;
    if (isnan(value)) return false;
    *(float *)to = (float)value;
  }
  return true;
}

static double value_of(const field *f, const setun_sampler_params *p) {
  const void *at = (const char *)p + f->to;
  return f->integer ? (double)*(const int32_t *)at : (double)*(const float *)at;
}

// "1234-0.5", "1234+2", "1234-inf".
static bool parse_bias(const char *text, setun_token *id, float *bias) {
  char *end = NULL;
  if (!(text[0] >= '0' && text[0] <= '9')) return false;
  unsigned long long value = strtoull(text, &end, 10);
  if (value > INT32_MAX || (*end != '+' && *end != '-')) return false;
  char first = end[1];
  if (!((first >= '0' && first <= '9') || first == '.' || strcmp(end, "-inf") == 0)) return false;
  *id = (setun_token)value;
  *bias = (float)strtod(end, &end);
  return !*end && !isnan(*bias) && !(isinf(*bias) && *bias > 0);
}

// "edskypmxt". An unknown or repeated letter ends it: *wrong.
static bool parse_sequence(const char *letters, setun_sampler_order *order, char *wrong) {
  static const char known[] = "edskypmxt"; // in the order of setun_sampler_step
  order->n = 0;
  for (; *letters; letters++) {
    const char *found = strchr(known, *letters);
    *wrong = *letters;
    if (!found || memchr(order->steps, (int)(found - known), order->n)) return false;
    order->steps[order->n++] = (uint8_t)(found - known);
  }
  return true;
}

// Applies the given order, if any; false if invalid, with the reason.
static bool take_order(const sampling_options *o, setun_sampler_order *order, char reason[REASON_SIZE]) {
  setun_error error;
  char wrong;
  if (o->samplers && setun_sampler_order_parse(o->samplers, order, &error) != SETUN_OK) {
    snprintf(reason, REASON_SIZE, "--samplers: %s", error.message);
    return false;
  }
  if (!o->sequence || parse_sequence(o->sequence, order, &wrong)) return true;
  snprintf(reason, REASON_SIZE, "--sampling-seq expects each of the letters edskypmxt at most once, not '%c' in '%s'",
           wrong, o->sequence);
  return false;
}

static const char *option_of(const field *f) {
  const option *row = sampling_rows;
  while (row->offset != f->from) row++;
  return row->name;
}

// Whether every given option has an effect with these parameters; else the reason for the first without.
static bool all_used(const sampling_options *o, const setun_sampler_params *p, char reason[REASON_SIZE]) {
  setun_sampler_params scratch = *p;
  for (size_t i = 0; i < FIELDS; i++) {
    const field *f = &fields[i];
    if (f->step == NO_STEP || !overlay(f, o, &scratch)) continue;
    const char *name = setun_sampler_step_name((setun_sampler_step)f->step);
    if (!memchr(p->order.steps, f->step, p->order.n)) {
      snprintf(reason, REASON_SIZE, "--%s has no effect: the samplers do not include %s", option_of(f), name);
      return false;
    }
    bool beside = f->step == SETUN_STEP_PENALTIES || f->step == SETUN_STEP_DRY || f->step == SETUN_STEP_TEMPERATURE;
    if (p->mirostat && !beside) {
      snprintf(reason, REASON_SIZE, "--%s has no effect: Mirostat replaces %s", option_of(f), name);
      return false;
    }
  }
  return true;
}

// Applies the given options to the parameters. False with the reason if they conflict.
static bool take_options(const sampling_options *o, setun_sampler_params *p, char reason[REASON_SIZE]) {
  const char *given = o->samplers ? "--samplers" : "--sampling-seq";
  for (size_t i = 0; i < FIELDS; i++) overlay(&fields[i], o, p);
  if (!take_order(o, &p->order, reason)) return false;
  if (o->samplers && o->sequence) {
    snprintf(reason, REASON_SIZE, "--samplers and --sampling-seq exclude each other");
    return false;
  }
  if (p->mirostat && (o->samplers || o->sequence)) {
    snprintf(reason, REASON_SIZE, "%s cannot be used with Mirostat, which replaces most samplers", given);
    return false;
  }
  return all_used(o, p, reason);
}

int check_sampling(const command *self, const sampling_options *o) {
  setun_token id = 0;
  float bias = 0;
  for (size_t i = 0; i < o->biases.count; i++) {
    if (parse_bias(o->biases.items[i], &id, &bias)) continue;
    return usage_error(self, "--logit-bias expects a token id, a sign and a number such as 1234-0.5, not '%s'",
                       o->biases.items[i]);
  }
  for (size_t i = 0; i < o->breakers.count; i++) {
    size_t length = strlen(o->breakers.items[i]);
    if (length < 1 || length > 64) {
      return usage_error(self, "--dry-sequence-breaker expects 1 to 64 bytes, not %zu", length);
    }
  }
  char reason[REASON_SIZE];
  setun_sampler_params params = setun_sampler_params_default();
  return take_options(o, &params, reason) ? 0 : usage_error(self, "%s", reason);
}

static setun_status add_breakers(setun_sampler *sampler, const setun_model *model, const text_list *given,
                                 setun_error *error) {
  static const char *const usual[] = {"\n", ":", "\"", "*"};
  size_t n = given->count ? given->count : sizeof usual / sizeof *usual;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    const char *from = given->count ? given->items[i] : usual[i];
    char text[65];
    if (strcmp(from, "none") == 0) continue;
    size_t length = strlen(from);
    memcpy(text, from, length + 1);
    s = setun_sampler_add_breaker_text(sampler, model, text, unescape(text, length), error);
  }
  return s;
}

static bool add_biases(setun_sampler *sampler, const setun_model *model, const text_list *given, setun_error *error) {
  uint32_t n_vocab = setun_model_n_vocab(model);
  for (size_t i = 0; i < given->count; i++) {
    setun_token id = 0;
    float bias = 0;
    parse_bias(given->items[i], &id, &bias);
    if ((uint32_t)id >= n_vocab) {
      failure("--logit-bias %s: expected a token id below %u, found %d", given->items[i], (unsigned)n_vocab, (int)id);
      return false;
    }
    if (setun_sampler_add_bias(sampler, id, bias, error) != SETUN_OK) {
      report(error);
      return false;
    }
  }
  return true;
}

static uint64_t chosen_seed(const sampling_options *o) {
  struct timespec t;
  if (o->seed.given) return o->seed.value;
  clock_gettime(CLOCK_REALTIME, &t);
  return ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec ^ (uint64_t)getpid() << 20) % 1000000007u;
}

// The model's own parameters, else the defaults.
static setun_sampler_params sampling_of(const setun_model *model) {
  setun_sampler_params params = setun_sampler_params_default();
  setun_model_get_sampler_params(model, &params, NULL);
  return params;
}

bool sampling_params(const setun_model *model, const sampling_options *o, setun_sampler_params *params) {
  char reason[REASON_SIZE];
  *params = sampling_of(model);
  if (!take_options(o, params, reason)) {
    failure("%s, from the model's own files", reason); // check_sampling checked the rest
    return false;
  }
  if (o->seed.given) params->seed = o->seed.value;
  return true;
}

// An option that changes what another one switches on, which is off unless it or the model's files say otherwise.
static const struct {
  size_t option, needs; // of sampling_options
} dependents[] = {
    {AT(dry_base), AT(dry_multiplier)},
    {AT(dry_allowed_length), AT(dry_multiplier)},
    {AT(dry_penalty_last_n), AT(dry_multiplier)},
    {AT(xtc_threshold), AT(xtc_probability)},
    {AT(dynatemp_exponent), AT(dynatemp_range)},
    {AT(mirostat_eta), AT(mirostat)},
    {AT(mirostat_tau), AT(mirostat)},
};

static const field *field_at(size_t offset) {
  const field *f = fields;
  while (f->from != offset) f++;
  return f;
}

// Whether every option that was given has an effect, as far as that depends on other options; false after a report. If
// an option is switched off by name, those that depend on it are ignored.
static bool check_dependents(const sampling_options *o, const setun_sampler_params *params) {
  setun_sampler_params scratch = *params;
  for (size_t i = 0; i < sizeof dependents / sizeof *dependents; i++) {
    const field *f = field_at(dependents[i].option), *needs = field_at(dependents[i].needs);
    if (!overlay(f, o, &scratch) || overlay(needs, o, &scratch) || value_of(needs, params) != 0) continue;
    failure("--%s has no effect without --%s", option_of(f), option_of(needs));
    return false;
  }
  if (!o->breakers.count || params->dry_multiplier > 0 || overlay(field_at(AT(dry_multiplier)), o, &scratch))
    return true;
  failure("--dry-sequence-breaker has no effect without --dry-multiplier");
  return false;
}

bool make_sampler(const setun_model *model, const sampling_options *o, setun_sampler **sampler,
                  setun_sampler_params *params) {
  setun_error error;
  if (!sampling_params(model, o, params) || !check_dependents(o, params)) return false;
  params->seed = chosen_seed(o);
  setun_status s = setun_sampler_new(params, sampler, &error);
  if (s == SETUN_OK && params->dry_multiplier > 0) s = add_breakers(*sampler, model, &o->breakers, &error);
  if (s == SETUN_OK) return add_biases(*sampler, model, &o->biases, &error);
  report(&error);
  return false;
}

// Appends ", name value" to a line with enough room.
static void add_value(char *line, size_t size, const field *f, const setun_sampler_params *p) {
  size_t length = strlen(line);
  snprintf(line + length, size - length, "%s%s %.6g", length ? ", " : "", f->name, value_of(f, p));
}

// Appends ", samplers a;b" to a line with enough room.
static void add_order(char *line, size_t size, const setun_sampler_order *order) {
  size_t length = strlen(line);
  length += (size_t)snprintf(line + length, size - length, ", samplers ");
  for (size_t i = 0; i < order->n; i++) {
    length += (size_t)snprintf(line + length, size - length, "%s%s", i ? ";" : "",
                               setun_sampler_step_name((setun_sampler_step)order->steps[i]));
  }
}

static bool same_order(const setun_sampler_params *a, const setun_sampler_params *b) {
  return a->order.n == b->order.n && memcmp(a->order.steps, b->order.steps, a->order.n) == 0;
}

void print_sampling(const setun_model *model, const sampling_options *o, const setun_sampler_params *params) {
  setun_sampler_params base = setun_sampler_params_default(), own = sampling_of(model), scratch = own;
  char line[1024] = "", from_model[1024] = "";
  for (size_t i = 0; i < FIELDS; i++) {
    const field *f = &fields[i];
    bool given = overlay(f, o, &scratch), changed = value_of(f, params) != value_of(f, &base);
    if (i < ALWAYS_SHOWN || changed || given) add_value(line, sizeof line, f, params);
    if (!given && value_of(f, &own) != value_of(f, &base)) add_value(from_model, sizeof from_model, f, &own);
  }
  if (!same_order(params, &base)) add_order(line, sizeof line, &params->order);
  if (!same_order(&own, &base) && same_order(&own, params)) add_order(from_model, sizeof from_model, &own.order);
  note("%s, seed %llu%s", line, (unsigned long long)params->seed,
       params->temperature > 0 ? "" : " (temperature 0: always the likeliest token)");
  if (*from_model) note("of these, from the model's own files: %s", from_model + (*from_model == ',' ? 2 : 0));
}
