// Sampling: the parameters, the chain of steps, and the draw. What the steps do is in sampler_candidates.c; what the
// text so far has to do with it, in sampler_history.c.
#include "runtime/sampler.h"

#include "base/memory.h"
#include "base/random.h"
#include "runtime/sampler_candidates.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct bias_entry {
  setun_token id;
  double bias;
} bias_entry;

struct st_sampler {
  setun_sampler_params params;
  st_random random;
  st_history history;
  st_tally repetitions; // what DRY found, during one call
  bias_entry *biases;   // by rising id
  size_t n_biases, biases_capacity;
  st_token_gaps excluded;
  st_candidates candidates; // of the call at hand
};

// ---- parameters ----

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
                                .dynatemp_exponent = 1};
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

static setun_status check(const setun_sampler_params *p, setun_error *err) {
  setun_status s = check_floats(p, err);
  if (s == SETUN_OK) s = check_integer("penalty_last_n", p->penalty_last_n, -1, err);
  if (s == SETUN_OK) s = check_integer("dry_penalty_last_n", p->dry_penalty_last_n, -1, err);
  if (s == SETUN_OK) s = check_integer("dry_allowed_length", p->dry_allowed_length, 1, err);
  if (s == SETUN_OK) s = check_integer("top_k", p->top_k, 0, err);
  return s;
}

static size_t window(int32_t last_n) {
  return last_n < 0 ? SIZE_MAX : (size_t)last_n;
}

static size_t penalty_window(const setun_sampler_params *p) {
  bool off = p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0;
  return off ? 0 : window(p->penalty_last_n);
}

static size_t dry_window(const setun_sampler_params *p) {
  return p->dry_multiplier == 0 ? 0 : window(p->dry_penalty_last_n);
}

// ---- life ----

setun_status st_sampler_new(const setun_sampler_params *params, st_sampler **sampler, setun_error *err) {
  setun_sampler_params p = params ? *params : st_sampler_params_default();
  setun_status s = check(&p, err);
  if (s != SETUN_OK) return s;
  st_sampler *n = st_calloc(1, sizeof *n);
  if (!n) return st_fail_memory(err, "the sampler");
  n->params = p;
  n->history.count_window = penalty_window(&p);
  n->history.window = n->history.count_window > dry_window(&p) ? n->history.count_window : dry_window(&p);
  st_random_seed(&n->random, p.seed);
  *sampler = n;
  return SETUN_OK;
}

uint64_t st_sampler_size(uint32_t n_vocab) {
  return (uint64_t)n_vocab * sizeof(st_candidate) / 8;
}

void st_sampler_free(st_sampler *s) {
  if (!s) return;
  st_history_free(&s->history);
  st_free(s->repetitions.entries);
  st_free(s->biases);
  st_token_gaps_free(&s->excluded);
  st_candidates_free(&s->candidates);
  st_free(s);
}

setun_status st_sampler_exclude(st_sampler *s, const st_token_gaps *gaps, setun_error *err) {
  if (!st_reserve(&s->excluded.items, &s->excluded.capacity, gaps->count, sizeof *gaps->items)) {
    return st_fail_memory(err, "the sampler");
  }
  if (gaps->count) memcpy(s->excluded.items, gaps->items, gaps->count * sizeof *gaps->items);
  s->excluded.count = gaps->count;
  return SETUN_OK;
}

setun_status st_sampler_add_bias(st_sampler *s, setun_token id, float bias, setun_error *err) {
  if (id < 0) return st_fail(err, SETUN_ERROR_ARGUMENT, "bias: expected a token id >= 0, found %d", (int)id);
  if (!(bias <= FLT_MAX)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "bias of token %d: expected a finite number or -inf, found %g", (int)id,
                   (double)bias);
  }
  if (!st_reserve(&s->biases, &s->biases_capacity, s->n_biases + 1, sizeof *s->biases)) {
    return st_fail_memory(err, "a bias");
  }
  size_t i = s->n_biases;
  while (i > 0 && s->biases[i - 1].id >= id) i--;
  if (i < s->n_biases && s->biases[i].id == id) {
    s->biases[i].bias += (double)bias;
    return SETUN_OK;
  }
  memmove(s->biases + i + 1, s->biases + i, (s->n_biases++ - i) * sizeof *s->biases);
  s->biases[i] = (bias_entry){id, (double)bias};
  return SETUN_OK;
}

setun_status st_sampler_add_breaker(st_sampler *s, const setun_token *ids, size_t n, setun_error *err) {
  return st_history_add_breaker(&s->history, ids, n, err);
}

setun_status st_sampler_add_breaker_text(st_sampler *s, st_piece_fn piece, const void *user, const char *text,
                                         size_t length, setun_error *err) {
  return st_history_add_breaker_text(&s->history, piece, user, text, length, err);
}

setun_status st_sampler_accept(st_sampler *s, setun_token id, setun_error *err) {
  if (id < 0) return st_fail(err, SETUN_ERROR_ARGUMENT, "accept: expected a token id >= 0, found %d", (int)id);
  return st_history_add(&s->history, id, err);
}

void st_sampler_reset(st_sampler *s) {
  st_history_clear(&s->history);
  st_random_seed(&s->random, s->params.seed);
}

// ---- logits ----

// Where the three lists of tokens whose logits change stand.
typedef struct changes {
  size_t bias, penalty, repetition;
} changes;

// The next token that changes; SIZE_MAX when there is none.
static size_t next_change(const st_sampler *s, const changes *at) {
  const st_tally *counts = &s->history.counts, *repetitions = &s->repetitions;
  size_t id = SIZE_MAX;
  if (at->bias < s->n_biases) id = (size_t)s->biases[at->bias].id;
  if (at->penalty < counts->count && (size_t)counts->entries[at->penalty].id < id) {
    id = (size_t)counts->entries[at->penalty].id;
  }
  if (at->repetition < repetitions->count && (size_t)repetitions->entries[at->repetition].id < id) {
    id = (size_t)repetitions->entries[at->repetition].id;
  }
  return id;
}

static double penalize(const setun_sampler_params *p, double logit, uint32_t count) {
  logit = logit > 0 ? logit / (double)p->repeat_penalty : logit * (double)p->repeat_penalty;
  return logit - (double)p->presence_penalty - count * (double)p->frequency_penalty;
}

static double dry_penalty(const setun_sampler_params *p, uint32_t length) {
  double penalty = (double)p->dry_multiplier * pow((double)p->dry_base, (double)length - p->dry_allowed_length);
  return penalty < (double)FLT_MAX ? penalty : (double)FLT_MAX; // very unlikely, but no ban
}

// The logit of the token that next_change found, changed; moves past it.
static double change(const st_sampler *s, changes *at, setun_token id, double logit) {
  const st_tally *counts = &s->history.counts, *repetitions = &s->repetitions;
  if (at->bias < s->n_biases && s->biases[at->bias].id == id) logit += s->biases[at->bias++].bias;
  if (at->penalty < counts->count && counts->entries[at->penalty].id == id) {
    logit = penalize(&s->params, logit, counts->entries[at->penalty++].n);
  }
  if (at->repetition < repetitions->count && repetitions->entries[at->repetition].id == id) {
    logit -= dry_penalty(&s->params, repetitions->entries[at->repetition++].n);
  }
  return logit;
}

// Offers the tokens from `from` to before `to`, changed where they are to be; changes before them are left out.
static setun_status offer_changed(st_sampler *s, const float *logits, size_t from, size_t to, changes *at,
                                  setun_error *err) {
  setun_status status = SETUN_OK;
  while (from < to && status == SETUN_OK) {
    size_t id = next_change(s, at), stop = id < to ? id : to;
    if (id < from) {
      change(s, at, (setun_token)id, 0);
      continue;
    }
    status = st_candidates_offer_range(&s->candidates, logits, from, stop, err);
    if (status == SETUN_OK && stop < to) {
      double logit = change(s, at, (setun_token)id, (double)logits[id]);
      status = st_candidates_offer(&s->candidates, (setun_token)id, logit, err);
    }
    from = stop + 1;
  }
  return status;
}

// Makes the `keep` likeliest of the tokens the candidates, after biases, penalties and DRY.
static setun_status gather(st_sampler *s, const float *logits, size_t n, size_t keep, setun_error *err) {
  if (n > INT32_MAX) return st_fail(err, SETUN_ERROR_ARGUMENT, "logits: expected at most %d, found %zu", INT32_MAX, n);
  if (s->n_biases && (size_t)s->biases[s->n_biases - 1].id >= n) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "bias of token %d: expected an id below %zu",
                   (int)s->biases[s->n_biases - 1].id, n);
  }
  st_candidates_begin(&s->candidates, keep);
  changes at = {0};
  setun_status status = SETUN_OK;
  size_t from = 0;
  for (size_t i = 0; i < s->excluded.count && status == SETUN_OK; from = s->excluded.items[i++].end) {
    size_t to = s->excluded.items[i].begin;
    status = offer_changed(s, logits, from, to < n ? to : n, &at, err);
  }
  if (status == SETUN_OK) status = offer_changed(s, logits, from, n, &at, err);
  if (status != SETUN_OK) return status;
  st_candidates_end(&s->candidates);
  if (s->candidates.count) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "logits of %zu tokens: expected at least one above -inf, found none", n);
}

// ---- the chain ----

// The temperature for the candidates that are left.
static double temperature(const setun_sampler_params *p, st_candidates *c) {
  double t = (double)p->temperature, range = (double)p->dynatemp_range;
  if (range == 0 || c->count < 2) return t;
  st_candidates_weigh(c, 1);
  double evenness = st_candidates_entropy(c) / log((double)c->count);
  double low = t > range ? t - range : 0, high = t + range;
  return low + (high - low) * pow(evenness < 1 ? evenness : 1, (double)p->dynatemp_exponent);
}

// Leaves the candidates with their final weights.
static setun_status run_chain(st_sampler *s, const float *logits, size_t n, st_random *random, setun_error *err) {
  const setun_sampler_params *p = &s->params;
  st_candidates *c = &s->candidates;
  bool greedy = p->temperature == 0;
  size_t keep = greedy ? 1 : p->top_k ? (size_t)p->top_k : SIZE_MAX;
  setun_status status =
      st_history_repetitions(&s->history, dry_window(p), (size_t)p->dry_allowed_length, &s->repetitions, err);
  if (status == SETUN_OK) status = gather(s, logits, n, keep, err);
  if (status != SETUN_OK) return status;
  if (!greedy) {
    if (p->typical_p < 1) st_candidates_typical(c, (double)p->typical_p);
    if (p->top_p < 1) st_candidates_top_p(c, (double)p->top_p);
    if (p->min_p > 0) st_candidates_min_p(c, (double)p->min_p);
    if (p->xtc_probability > 0 && st_random_unit(random) < (double)p->xtc_probability) {
      st_candidates_xtc(c, (double)p->xtc_threshold);
    }
  }
  double t = greedy ? 0 : temperature(p, c);
  if (t <= 0) st_candidates_greedy(c);
  st_candidates_weigh(c, t > 0 ? t : 1);
  return SETUN_OK;
}

static setun_token draw(st_random *random, const st_candidates *c) {
  double x = st_random_unit(random) * c->sum, sum = 0;
  setun_token last = c->items[0].id;
  for (size_t i = 0; i < c->count; i++) {
    sum += c->items[i].weight;
    if (x < sum) return c->items[i].id;
    if (c->items[i].weight > 0) last = c->items[i].id;
  }
  return last; // only if rounding put x at the sum itself
}

setun_status st_sampler_sample(st_sampler *s, const float *logits, size_t n, setun_token *id, setun_error *err) {
  st_random random = s->random;
  setun_status status = run_chain(s, logits, n, &random, err);
  if (status != SETUN_OK) return status;
  *id = draw(&random, &s->candidates);
  s->random = random;
  return SETUN_OK;
}

setun_status st_sampler_probabilities(st_sampler *s, const float *logits, size_t n, setun_candidate *candidates,
                                      size_t capacity, size_t *count, setun_error *err) {
  st_random random = s->random;
  st_candidates *c = &s->candidates;
  setun_status status = run_chain(s, logits, n, &random, err);
  if (status != SETUN_OK) return status;
  st_candidates_order(c, capacity);
  for (size_t i = 0; i < capacity && i < c->count; i++) {
    candidates[i] = (setun_candidate){c->items[i].id, c->items[i].weight / c->sum};
  }
  *count = c->count;
  return SETUN_OK;
}
