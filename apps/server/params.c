// Reading requests' parameters.
#define _POSIX_C_SOURCE 200809L
#include "params.h"

#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(generation, member)
#define SAMPLING(member) offsetof(generation, sampling.member)
enum { TOKENS_MOST = INT32_MAX - 1 };

const field sampling_fields[] = {
    {"temperature", FIELD_FLOAT, SAMPLING(temperature), 0, 1000, "0: always the likeliest token", NULL},
    {"top_k", FIELD_INTEGER, SAMPLING(top_k), -1, TOKENS_MOST, "only this many of the likeliest tokens; 0 or -1: all",
     NULL},
    {"top_p", FIELD_FLOAT, SAMPLING(top_p), 0, 1, "only the likeliest tokens that together have this probability",
     NULL},
    {"min_p", FIELD_FLOAT, SAMPLING(min_p), 0, 1, "only tokens at least this likely, relative to the likeliest", NULL},
    {"typical_p", FIELD_FLOAT, SAMPLING(typical_p), 0, 1,
     "only the tokens nearest to the expected surprise that together have this probability", NULL},
    {"repeat_penalty", FIELD_FLOAT, SAMPLING(repeat_penalty), 0.001, 1000, "divides the logits of recent tokens", NULL},
    {"repetition_penalty", FIELD_FLOAT, SAMPLING(repeat_penalty), 0.001, 1000, "the same", NULL},
    {"repeat_last_n", FIELD_INTEGER, SAMPLING(penalty_last_n), -1, TOKENS_MOST, "tokens that count as recent; -1: all",
     NULL},
    {"presence_penalty", FIELD_FLOAT, SAMPLING(presence_penalty), -1000, 1000,
     "subtracted from the logits of recent tokens", NULL},
    {"frequency_penalty", FIELD_FLOAT, SAMPLING(frequency_penalty), -1000, 1000,
     "the same, once for each time that a token occurs", NULL},
    {"dry_multiplier", FIELD_FLOAT, SAMPLING(dry_multiplier), 0, 1000, "strength of DRY", NULL},
    {"dry_base", FIELD_FLOAT, SAMPLING(dry_base), 1, 1000, "how fast DRY's penalty grows with the repetition's length",
     NULL},
    {"dry_allowed_length", FIELD_INTEGER, SAMPLING(dry_allowed_length), 1, TOKENS_MOST,
     "repetitions shorter than this are not penalized", NULL},
    {"dry_penalty_last_n", FIELD_INTEGER, SAMPLING(dry_penalty_last_n), -1, TOKENS_MOST,
     "how many tokens DRY looks back; -1: all", NULL},
    {"dry_sequence_breakers", FIELD_OTHER, 0, 0, 0, "texts across which DRY sees no repetition",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":64,\"pattern\":"
     "\"^[^\\\\u0000]*$\"},\"maxItems\":64}"},
    {"xtc_probability", FIELD_FLOAT, SAMPLING(xtc_probability), 0, 1, "how often XTC removes the likeliest tokens",
     NULL},
    {"xtc_threshold", FIELD_FLOAT, SAMPLING(xtc_threshold), 0, 1, "how likely a token must be for XTC to remove it",
     NULL},
    {"dynatemp_range", FIELD_FLOAT, SAMPLING(dynatemp_range), 0, 1000,
     "how far the temperature varies to either side, with the model's uncertainty", NULL},
    {"dynatemp_exponent", FIELD_FLOAT, SAMPLING(dynatemp_exponent), 0, 1000, "the exponent of that uncertainty", NULL},
    {"top_n_sigma", FIELD_FLOAT, SAMPLING(top_n_sigma), -1000, 1000,
     "only logits at most this many standard deviations below the highest", NULL},
    {"mirostat", FIELD_INTEGER, SAMPLING(mirostat), 0, 2, "keeps the surprise of the text near mirostat_tau", NULL},
    {"mirostat_tau", FIELD_FLOAT, SAMPLING(mirostat_tau), 0, 1000, "the surprise that Mirostat aims at, in bits", NULL},
    {"mirostat_eta", FIELD_FLOAT, SAMPLING(mirostat_eta), 0, 1000, "how fast Mirostat adapts", NULL},
    {"samplers", FIELD_OTHER, 0, 0, 0, "the sampling steps, in their order",
     "{\"type\":\"array\",\"items\":{\"enum\":[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\","
     "\"min_p\","
     "\"xtc\",\"temperature\"]},\"uniqueItems\":true,\"minItems\":1}"},
    {"seed", FIELD_SEED, SAMPLING(seed), 0, 0, "the same seed gives the same text; -1: a different one each time",
     NULL},
    {"logit_bias", FIELD_OTHER, 0, 0, 0, "added to tokens' logits: {\"ID\": BIAS}, or [[ID or text, BIAS or false]]",
     SCHEMA("Biases")},
    {"ignore_eos", FIELD_BOOL, AT(ignore_end), 0, 0, "tokens that end a text are never drawn", NULL},
    {"cache_prompt", FIELD_BOOL, AT(use_cache), 0, 0, "reuse what the cache has of the prompt (default true)", NULL},
    {"timings_per_token", FIELD_BOOL, AT(timings), 0, 0, "timings in each chunk of a stream", NULL},
    {"return_progress", FIELD_BOOL, AT(progress), 0, 0, "report in the stream how much of the prompt is processed",
     NULL},
    {"return_tokens", FIELD_BOOL, AT(tokens), 0, 0, "token ids in addition to the text", NULL},
    {"post_sampling_probs", FIELD_BOOL, AT(fresh_probabilities), 0, 0, "probabilities after all sampling steps", NULL},
    {"t_max_predict_ms", FIELD_DOUBLE, AT(time_limit), 0, 1e12,
     "time limit for an answer after its first token, in milliseconds", NULL},
    {"stream", FIELD_BOOL, AT(stream), 0, 0, "send the text as it is generated, as server-sent events", NULL},
    {"stop", FIELD_OTHER, 0, 0, 0, "texts that end the answer and are not part of it", SCHEMA("Stop")},
    {"lora", FIELD_REFUSED, 0, 0, 0, "adapters are chosen when the server starts (--lora)", NULL},
    {"n_discard", FIELD_REFUSED, 0, 0, 0, "a full context ends the answer; nothing is discarded", NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};

const field openai_fields[] = {
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), -1, TOKENS_MOST, "the most tokens of an answer; -1: as many as fit",
     NULL},
    {"max_completion_tokens", FIELD_INTEGER, AT(max_tokens), -1, TOKENS_MOST, "the same", NULL},
    {"n_predict", FIELD_INTEGER, AT(max_tokens), -1, TOKENS_MOST, "the same", NULL},
    {"n", FIELD_INTEGER, AT(n), 1, CHOICES_MOST, "answers to each prompt", NULL},
    {"stream_options", FIELD_OTHER, 0, 0, 0, "include_usage: end with a chunk that has the token counts",
     "{\"type\":\"object\",\"properties\":{\"include_usage\":{\"type\":[\"boolean\",\"null\"]}}}"},
    {"suffix", FIELD_REFUSED, 0, 0, 0, "suffix is not supported here; see /infill", NULL},
    {"audio", FIELD_REFUSED, 0, 0, 0, "audio is not supported", NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};

const field constraint_fields[] = {
    {"grammar", FIELD_OTHER, 0, 0, 0, "a grammar in GBNF or Lark that the text must match", "{\"type\":\"string\"}"},
    {"json_schema", FIELD_OTHER, 0, 0, 0, "a JSON schema that the text must match",
     "{\"type\":[\"object\",\"boolean\"]}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};

const field llama_fields[] = {
    {"n_predict", FIELD_INTEGER, AT(max_tokens), -1, TOKENS_MOST, "the most tokens of an answer; -1: as many as fit",
     NULL},
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), -1, TOKENS_MOST, "the same", NULL},
    {"n", FIELD_INTEGER, AT(n), 1, CHOICES_MOST, "answers to each prompt", NULL},
    {"n_probs", FIELD_INTEGER, AT(top), 0, TOP_MOST, "log-probabilities of this many of the likeliest tokens", NULL},
    {"logprobs", FIELD_INTEGER, AT(top), 0, TOP_MOST, "the same", NULL},
    {"image_data", FIELD_REFUSED, 0, 0, 0, "images are not supported", NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};

const char *kind_of(const st_json *value) {
  return value ? st_json_kind(value) : "nothing";
}

const char *shown_value(const st_json *value, char text[32]) {
  if (!st_json_is_number(value)) return kind_of(value);
  snprintf(text, 32, "%.15g", st_json_number(value));
  return text;
}

bool require_string(const st_json *object, const char *param, const char *key, problem *p) {
  const st_json *v = st_json_get(object, key);
  if (st_json_is_string(v)) return true;
  if (!param) return invalid(p, key, "%s: expected a string, found %s", key, kind_of(v));
  return invalid(p, param, "%s: %s: expected a string, found %s", param, key, kind_of(v));
}

bool optional_string(const st_json *object, const char *key, problem *p) {
  return !st_json_get(object, key) || require_string(object, NULL, key, p);
}

st_json *read_body(exchange *x, problem *p) {
  st_json *root = x->parsed;
  setun_error error;
  x->parsed = NULL;
  if (root) return root;
  setun_status s = st_json_parse_values(x->body.data ? x->body.data : "", x->body.length, "the body", &root, &error);
  st_buffer_free(&x->body);
  x->body = (st_buffer){0};
  if (s != SETUN_OK) fail_with(p, NULL, &error);
  return root;
}

static void free_texts(char **texts, size_t n) {
  for (size_t i = 0; i < n; i++) free(texts[i]);
  free(texts);
}

void generation_free(generation *g) {
  free_texts(g->stops, g->n_stops);
  free_texts(g->breakers, g->n_breakers);
  free(g->biases);
}

void generation_default(const server *s, generation *g) {
  *g = (generation){.sampling = s->sampling, .max_tokens = -1, .n = 1, .top = -1, .use_cache = true};
  g->seeded = s->options.fixed_seed;
}

// ---- rows ----

static bool read_whole(const st_json *v, const field *f, double *out, problem *p) {
  double x = st_json_number(v);
  if (!st_json_is_number(v)) return invalid(p, f->name, "%s: expected an integer, found %s", f->name, kind_of(v));
  if (x != floor(x)) return invalid(p, f->name, "%s: expected an integer, found %.9g", f->name, x);
  *out = x;
  return true;
}

static bool in_range(const field *f, double x, problem *p) {
  if (x >= f->low && x <= f->high) return true;
  return invalid(p, f->name, "%s: expected %.10g to %.10g, found %.10g", f->name, f->low, f->high, x);
}

static bool read_seed(const st_json *v, const field *f, generation *g, problem *p) {
  double x = 0;
  if (!read_whole(v, f, &x, p)) return false;
  if (!st_json_is(v, ST_JSON_INTEGER) && (x < -0x1p63 || x >= 0x1p63))
    return invalid(p, f->name, "%s: expected a 64-bit integer, found %.10g", f->name, x);
  int64_t seed = st_json_is(v, ST_JSON_INTEGER) ? v->as.integer : (int64_t)x;
  g->seeded = seed != -1;
  if (g->seeded) g->sampling.seed = (uint64_t)seed;
  return true;
}

static bool is_empty(const st_json *v) {
  return st_json_is_null(v) || st_json_is(v, ST_JSON_FALSE) || (st_json_is_number(v) && st_json_number(v) == 0) ||
         (st_json_is_string(v) && !v->count) || (st_json_is_array(v) && !v->count) ||
         (st_json_is_object(v) && !v->count);
}

static bool read_field(const st_json *v, const field *f, generation *g, problem *p) {
  void *to = (char *)g + f->offset;
  double x = 0;
  switch (f->kind) {
  case FIELD_BOOL:
    if (!st_json_is_bool(v)) return invalid(p, f->name, "%s: expected true or false, found %s", f->name, kind_of(v));
    *(bool *)to = st_json_is(v, ST_JSON_TRUE);
    return true;
  case FIELD_INTEGER:
  case FIELD_NEEDED:
    if (!read_whole(v, f, &x, p) || !in_range(f, x, p)) return false;
    *(int32_t *)to = (int32_t)x;
    return true;
  case FIELD_SEED: return read_seed(v, f, g, p);
  case FIELD_FLOAT:
  case FIELD_DOUBLE:
    if (!st_json_is_number(v)) return invalid(p, f->name, "%s: expected a number, found %s", f->name, kind_of(v));
    x = st_json_number(v);
    if (!in_range(f, x, p)) return false;
    if (f->kind == FIELD_FLOAT)
      *(float *)to = (float)x;
    else
      *(double *)to = x;
    return true;
  case FIELD_OTHER: return true;
  case FIELD_REFUSED: return is_empty(v) || invalid(p, f->name, "%s: %s", f->name, f->help);
  }
  return true;
}

// Reads the fields of a table that the body has; null leaves the default. False: `p` says why.
static bool read_fields(const st_json *body, const field *fields, generation *g, problem *p) {
  for (const field *f = fields; f->name; f++) {
    const st_json *v = st_json_get(body, f->name);
    if (!v && f->kind == FIELD_NEEDED) return invalid(p, f->name, "%s: expected an integer, found nothing", f->name);
    if (v && !read_field(v, f, g, p)) return false;
  }
  if (g->sampling.top_k < 0) g->sampling.top_k = 0;
  return true;
}

// ---- what has several forms ----

static char *copy_of(const st_json *text) {
  char *copy = malloc(st_json_length(text) + 1);
  if (copy) memcpy(copy, st_json_string(text), st_json_length(text) + 1);
  return copy;
}

size_t count_characters(const char *text, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
  return count;
}

// Adds a text of 1 to `longest` characters, none of them U+0000, to a list of at most `most`.
static bool add_text(const st_json *v, const char *key, size_t longest, size_t most, char ***texts, size_t *n,
                     problem *p) {
  size_t count = count_characters(st_json_string(v), st_json_length(v));
  if (!st_json_is_string(v)) return invalid(p, key, "%s: expected a string, found %s", key, kind_of(v));
  if (count < 1 || count > longest || strlen(st_json_string(v)) != st_json_length(v))
    return invalid(p, key, "%s: expected 1 to %zu characters without U+0000, found %zu", key, longest, count);
  if (*n == most) return invalid(p, key, "%s: expected at most %zu texts", key, most);
  char *copy = copy_of(v), **grown = copy ? realloc(*texts, (*n + 1) * sizeof *grown) : NULL;
  if (!grown) {
    free(copy);
    return fail_memory(p);
  }
  *texts = grown;
  grown[(*n)++] = copy;
  return true;
}

bool read_stops(const st_json *body, const char *key, generation *g, problem *p) {
  const st_json *v = st_json_get(body, key);
  if (!v) return true;
  if (!st_json_is_array(v)) return add_text(v, key, STOP_CHARACTERS_MOST, STOPS_MOST, &g->stops, &g->n_stops, p);
  for (size_t i = 0; i < st_json_size(v); i++) {
    if (!add_text(st_json_at(v, i), key, STOP_CHARACTERS_MOST, STOPS_MOST, &g->stops, &g->n_stops, p)) return false;
  }
  return true;
}

static bool read_breakers(const st_json *body, generation *g, problem *p) {
  const char *key = "dry_sequence_breakers";
  const st_json *v = st_json_get(body, key);
  if (!v) return true;
  if (!st_json_is_array(v)) return invalid(p, key, "%s: expected an array, found %s", key, kind_of(v));
  g->breakers_given = true;
  for (size_t i = 0; i < st_json_size(v); i++) {
    if (!add_text(st_json_at(v, i), key, BREAKER_CHARACTERS_MOST, BREAKERS_MOST, &g->breakers, &g->n_breakers, p))
      return false;
  }
  return true;
}

static bool add_bias(const server *s, double id, float bias, generation *g, problem *p) {
  if (!(id >= 0 && id < s->info.n_vocab && id == floor(id)))
    return invalid(p, "logit_bias", "logit_bias: expected a token id below %u, found %.10g", s->info.n_vocab, id);
  if (g->n_biases == BIASES_MOST)
    return invalid(p, "logit_bias", "logit_bias: expected at most %d tokens", BIASES_MOST);
  token_bias *grown = realloc(g->biases, (g->n_biases + 1) * sizeof *grown);
  if (!grown) return fail_memory(p);
  g->biases = grown;
  grown[g->n_biases++] = (token_bias){(setun_token)id, bias};
  return true;
}

// A bias: a number, or false, which forbids the token.
static bool read_bias(const st_json *v, float *bias, problem *p) {
  double x = st_json_number(v);
  if (st_json_is(v, ST_JSON_FALSE))
    x = -HUGE_VAL;
  else if (!st_json_is_number(v))
    return invalid(p, "logit_bias", "logit_bias: expected a number or false, found %s", kind_of(v));
  else if (!(fabs(x) <= 1e6))
    return invalid(p, "logit_bias", "logit_bias: expected -1000000 to 1000000, found %.10g", x);
  *bias = (float)x;
  return true;
}

// All tokens of a text get the bias.
static bool add_text_bias(const server *s, const char *text, size_t length, float bias, generation *g, problem *p) {
  size_t n = 0;
  setun_token *ids = prompt_tokens_of(s, text, length, 0, &n, p);
  bool fine = ids;
  for (size_t i = 0; fine && i < n; i++) fine = add_bias(s, ids[i], bias, g, p);
  free(ids);
  return fine;
}

static bool read_member(const server *s, const st_json_member *m, generation *g, problem *p) {
  char *end = NULL;
  float bias;
  if (!read_bias(&m->value, &bias, p)) return false;
  double id = strtod(m->key, &end);
  if (m->length && strspn(m->key, "0123456789") == m->length) return add_bias(s, id, bias, g, p);
  return add_text_bias(s, m->key, m->length, bias, g, p);
}

static bool read_pair(const server *s, const st_json *pair, generation *g, problem *p) {
  const st_json *token = st_json_at(pair, 0);
  float bias;
  if (st_json_size(pair) != 2)
    return invalid(p, "logit_bias", "logit_bias: expected pairs of a token and a bias, found %s", kind_of(pair));
  if (!read_bias(st_json_at(pair, 1), &bias, p)) return false;
  if (st_json_is_string(token)) return add_text_bias(s, st_json_string(token), st_json_length(token), bias, g, p);
  if (!st_json_is_number(token))
    return invalid(p, "logit_bias", "logit_bias: expected a token id or a string, found %s", kind_of(token));
  return add_bias(s, st_json_number(token), bias, g, p);
}

// logit_bias: an object, or pairs.
static bool read_biases(const server *s, const st_json *body, generation *g, problem *p) {
  const st_json *v = st_json_get(body, "logit_bias");
  if (!v) return true;
  if (st_json_is_object(v)) {
    for (size_t i = 0; i < st_json_members(v); i++) {
      if (!read_member(s, st_json_member_at(v, i), g, p)) return false;
    }
    return true;
  }
  if (!st_json_is_array(v)) return invalid(p, "logit_bias", "logit_bias: expected an object, found %s", kind_of(v));
  for (size_t i = 0; i < st_json_size(v); i++) {
    if (!read_pair(s, st_json_at(v, i), g, p)) return false;
  }
  return true;
}

// "samplers": names in their order.
static bool read_order(const st_json *body, generation *g, problem *p) {
  const st_json *v = st_json_get(body, "samplers");
  st_buffer names = {0};
  setun_error error;
  bool fine = true;
  if (!v) return true;
  if (!st_json_is_array(v)) return invalid(p, "samplers", "samplers: expected an array, found %s", kind_of(v));
  for (size_t i = 0; fine && i < st_json_size(v); i++) {
    const st_json *name = st_json_at(v, i);
    fine = st_json_is_string(name) || invalid(p, "samplers", "samplers: expected strings, found %s", kind_of(name));
    if (fine) fine = (!i || st_buffer_text(&names, ";")) && st_buffer_text(&names, st_json_string(name));
    if (!fine && !p->status) fail_memory(p);
  }
  setun_status s =
      fine ? setun_sampler_order_parse(names.data ? names.data : "", &g->sampling.order, &error) : SETUN_OK;
  st_buffer_free(&names);
  return s == SETUN_OK ? fine : fail_with(p, "samplers", &error);
}

bool read_generation(const server *s, const st_json *body, const field *const *tables, generation *g, problem *p) {
  bool samples = false; // otherwise the endpoint has none of the fields below
  for (; *tables; tables++) {
    samples |= *tables == sampling_fields;
    if (!read_fields(body, *tables, g, p)) return false;
  }
  if (!samples) return true;
  return read_stops(body, "stop", g, p) && read_biases(s, body, g, p) && read_breakers(body, g, p) &&
         read_order(body, g, p);
}

bool read_stream_options(const st_json *body, generation *g, problem *p) {
  const st_json *o = st_json_get(body, "stream_options"), *wanted = st_json_get(o, "include_usage");
  if (o && !st_json_is_object(o))
    return invalid(p, "stream_options", "stream_options: expected an object, found %s", kind_of(o));
  if (wanted && !st_json_is_bool(wanted))
    return invalid(p, "stream_options", "stream_options.include_usage: expected true or false, found %s",
                   kind_of(wanted));
  g->include_usage = st_json_is(wanted, ST_JSON_TRUE);
  return true;
}
