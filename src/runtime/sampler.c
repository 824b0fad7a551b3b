// Sampling: the chain of steps, and the draw. The steps themselves are in sampler_candidates.c, the effect of the text
// so far in sampler_history.c, the parameters in sampler_params.c.
#include "runtime/sampler.h"

#include "base/memory.h"
#include "base/random.h"
#include "runtime/sampler_candidates.h"
#include "runtime/sampler_mask.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct bias_entry {
  setun_token id;
  double bias;
} bias_entry;

struct st_sampler {
  setun_sampler_params params;
  setun_sampler_order chain; // the steps that do something
  size_t leading;            // leading steps, which change each logit independently of the others
  double mu;                 // Mirostat's
  st_random random;
  st_history history;
  st_tally repetitions; // what DRY found, during one call
  bias_entry *biases;   // by ascending id
  size_t n_biases, biases_capacity;
  st_token_gaps excluded;
  st_candidates candidates; // of the current call
  st_sampler_mask mask;     // of the constraint
};

// All logits of a vocabulary, or a few of them.
typedef struct logit_list {
  const float *logits;
  const int32_t *ids; // NULL: logits has all
  size_t count, n_vocab;
} logit_list;

// ---- life ----

static size_t window(int32_t last_n) {
  return last_n < 0 ? SIZE_MAX : (size_t)last_n;
}

static bool is_off(const setun_sampler_params *p, setun_sampler_step step) {
  switch (step) {
  case SETUN_STEP_PENALTIES:
    return p->penalty_last_n == 0 || (p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0);
  case SETUN_STEP_DRY: return p->dry_multiplier == 0 || p->dry_penalty_last_n == 0;
  case SETUN_STEP_TOP_N_SIGMA: return p->top_n_sigma <= 0;
  case SETUN_STEP_TOP_K: return p->top_k == 0;
  case SETUN_STEP_TYPICAL: return p->typical_p == 1;
  case SETUN_STEP_TOP_P: return p->top_p == 1;
  case SETUN_STEP_MIN_P: return p->min_p == 0;
  case SETUN_STEP_XTC: return p->xtc_probability == 0;
  case SETUN_STEP_TEMPERATURE: break;
  }
  return false;
}

// Whether a step changes the logits of the text's tokens, each independently.
static bool is_about_text(setun_sampler_step step) {
  return step == SETUN_STEP_PENALTIES || step == SETUN_STEP_DRY;
}

static bool has_step(const st_sampler *s, setun_sampler_step step) {
  return memchr(s->chain.steps, step, s->chain.n) != NULL;
}

// Omits the steps that have no effect: those that are off, those that Mirostat replaces and, at temperature 0, those
// that keep the likeliest token; the temperature is then the last step.
static void choose_chain(st_sampler *s) {
  const setun_sampler_params *p = &s->params;
  setun_sampler_order *chain = &s->chain;
  bool draws = !memchr(p->order.steps, SETUN_STEP_TEMPERATURE, p->order.n) || p->temperature > 0;
  for (size_t i = 0; i < p->order.n; i++) {
    setun_sampler_step step = (setun_sampler_step)p->order.steps[i];
    bool used = is_about_text(step) || (draws && (step == SETUN_STEP_TEMPERATURE || !p->mirostat));
    if (used && !is_off(p, step)) chain->steps[chain->n++] = (uint8_t)step;
  }
  if (!draws) chain->steps[chain->n++] = SETUN_STEP_TEMPERATURE;
  while (s->leading < chain->n && is_about_text((setun_sampler_step)chain->steps[s->leading])) s->leading++;
}

static size_t dry_window(const st_sampler *s) {
  return has_step(s, SETUN_STEP_DRY) ? window(s->params.dry_penalty_last_n) : 0;
}

setun_status st_sampler_new(const setun_sampler_params *params, st_sampler **sampler, setun_error *err) {
  setun_sampler_params p = params ? *params : st_sampler_params_default();
  setun_status s = st_sampler_params_check(&p, err);
  if (s != SETUN_OK) return s;
  st_sampler *n = st_calloc(1, sizeof *n);
  if (!n) return st_fail_memory(err, "the sampler");
  n->params = p;
  choose_chain(n);
  n->history.count_window = has_step(n, SETUN_STEP_PENALTIES) ? window(p.penalty_last_n) : 0;
  n->history.window = n->history.count_window > dry_window(n) ? n->history.count_window : dry_window(n);
  st_sampler_reset(n);
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
  st_sampler_mask_free(&s->mask);
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
  setun_status status = st_sampler_mask_accept(&s->mask, id, err);
  return status == SETUN_OK ? st_history_add(&s->history, id, err) : status;
}

setun_status st_sampler_constrain(st_sampler *s, st_constraint *constraint, setun_error *err) {
  return st_sampler_mask_set(&s->mask, constraint, err);
}

st_matcher *st_sampler_matcher(st_sampler *s) {
  return s->mask.matcher;
}

void st_sampler_reset(st_sampler *s) {
  st_history_clear(&s->history);
  st_sampler_mask_reset(&s->mask);
  st_random_seed(&s->random, s->params.seed);
  s->mu = 2 * (double)s->params.mirostat_tau;
}

// ---- logits ----

// Positions in the three lists of tokens whose logits change.
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
  return penalty < (double)FLT_MAX ? penalty : (double)FLT_MAX; // very unlikely, but not a ban
}

// The logit after that step, for a token with this count in the step's tally.
static double change_by(const st_sampler *s, setun_sampler_step step, double logit, uint32_t n) {
  return step == SETUN_STEP_PENALTIES ? penalize(&s->params, logit, n) : logit - dry_penalty(&s->params, n);
}

static const st_tally *tally_of(const st_sampler *s, setun_sampler_step step) {
  return step == SETUN_STEP_PENALTIES ? &s->history.counts : &s->repetitions;
}

// The changed logit of the token that next_change found; advances past it.
static double change(const st_sampler *s, changes *at, setun_token id, double logit) {
  if (at->bias < s->n_biases && s->biases[at->bias].id == id) logit += s->biases[at->bias++].bias;
  for (size_t i = 0; i < s->leading; i++) {
    setun_sampler_step step = (setun_sampler_step)s->chain.steps[i];
    const st_tally *tally = tally_of(s, step);
    size_t *next = step == SETUN_STEP_PENALTIES ? &at->penalty : &at->repetition;
    if (*next < tally->count && tally->entries[*next].id == id) {
      logit = change_by(s, step, logit, tally->entries[(*next)++].n);
    }
  }
  return logit;
}

// The starting positions; steps that come later make no changes here.
static changes first_changes(const st_sampler *s) {
  changes at = {0, s->history.counts.count, s->repetitions.count};
  if (memchr(s->chain.steps, SETUN_STEP_PENALTIES, s->leading)) at.penalty = 0;
  if (memchr(s->chain.steps, SETUN_STEP_DRY, s->leading)) at.repetition = 0;
  return at;
}

// Offers the tokens [from, to) with their changes; changes before them are skipped.
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

// How many tokens the step after the leading ones keeps.
static size_t first_keep(const st_sampler *s) {
  setun_sampler_step step = s->leading < s->chain.n ? (setun_sampler_step)s->chain.steps[s->leading] : SETUN_STEP_DRY;
  if (step == SETUN_STEP_TOP_K) return (size_t)s->params.top_k;
  return step == SETUN_STEP_TEMPERATURE && s->params.temperature == 0 ? 1 : SIZE_MAX;
}

// Offers what the constraint allows.
static setun_status offer_allowed(st_sampler *s, const float *logits, size_t n, changes *at, setun_error *err) {
  size_t begin = 0, end = 0;
  setun_status status = st_sampler_mask_find(&s->mask, n, &s->excluded, err);
  while (status == SETUN_OK && st_sampler_mask_run(&s->mask, end, n, &begin, &end)) {
    status = offer_changed(s, logits, begin, end, at, err);
  }
  return status;
}

// Offers all tokens but the excluded ones.
static setun_status offer_all(st_sampler *s, const float *logits, size_t n, changes *at, setun_error *err) {
  setun_status status = SETUN_OK;
  size_t from = 0;
  for (size_t i = 0; i < s->excluded.count && status == SETUN_OK; from = s->excluded.items[i++].end) {
    size_t to = s->excluded.items[i].begin;
    status = offer_changed(s, logits, from, to < n ? to : n, at, err);
  }
  return status == SETUN_OK ? offer_changed(s, logits, from, n, at, err) : status;
}

static setun_status offer_few(st_sampler *s, const logit_list *l, setun_error *err) {
  setun_status status = SETUN_OK;
  for (size_t i = 0; i < l->count && status == SETUN_OK; i++) {
    status = st_candidates_offer(&s->candidates, l->ids[i], (double)l->logits[i], err);
  }
  if (status == SETUN_OK) st_candidates_end(&s->candidates);
  return status;
}

// Gathers the candidates: tokens after biases and the leading steps; only as many as the next step keeps.
static setun_status gather(st_sampler *s, const logit_list *l, setun_error *err) {
  const float *logits = l->logits;
  size_t n = l->n_vocab;
  if (n > INT32_MAX) return st_fail(err, SETUN_ERROR_ARGUMENT, "logits: expected at most %d, found %zu", INT32_MAX, n);
  if (s->n_biases && (size_t)s->biases[s->n_biases - 1].id >= n) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "bias of token %d: expected an id below %zu",
                   (int)s->biases[s->n_biases - 1].id, n);
  }
  st_candidates_begin(&s->candidates, first_keep(s));
  if (l->ids) return offer_few(s, l, err);
  changes at = first_changes(s);
  setun_status status = s->mask.matcher ? offer_allowed(s, logits, n, &at, err) : offer_all(s, logits, n, &at, err);
  if (status != SETUN_OK) return status;
  st_candidates_end(&s->candidates);
  if (s->candidates.count) return SETUN_OK;
  if (s->mask.matcher) {
    return st_fail(err, SETUN_ERROR_STATE,
                   "constraint: expected one of the %zu tokens that may come after %zu tokens of the text to be above "
                   "-inf, found none",
                   s->mask.allowed, st_matcher_accepted(s->mask.matcher));
  }
  return st_fail(err, SETUN_ERROR_FORMAT, "logits of %zu tokens: expected at least one above -inf, found none", n);
}

// ---- the chain ----

// Penalties or DRY after another step.
static void change_candidates(st_sampler *s, setun_sampler_step step) {
  st_candidates *c = &s->candidates;
  const st_tally *tally = tally_of(s, step);
  st_candidates_scale(c);
  for (size_t i = 0; i < c->count; i++) {
    const st_tally_entry *found = st_tally_find(tally, c->items[i].id);
    if (found) c->items[i].logit = change_by(s, step, c->items[i].logit, found->n);
  }
  st_candidates_changed(c);
}

// The temperature for the remaining candidates.
static double temperature(const setun_sampler_params *p, st_candidates *c) {
  double t = (double)p->temperature, range = (double)p->dynatemp_range;
  if (range == 0 || c->count < 2 || t == 0) return t;
  st_candidates_weigh(c);
  double evenness = st_candidates_entropy(c) / log((double)c->count);
  double low = t > range ? t - range : 0, high = t + range;
  return low + (high - low) * pow(evenness < 1 ? evenness : 1, (double)p->dynatemp_exponent);
}

static void apply_temperature(const setun_sampler_params *p, st_candidates *c) {
  double t = temperature(p, c);
  if (t > 0) {
    c->temperature = t;
  } else {
    st_candidates_top_k(c, 1);
  }
}

static void apply(st_sampler *s, setun_sampler_step step, st_random *random) {
  const setun_sampler_params *p = &s->params;
  st_candidates *c = &s->candidates;
  switch (step) {
  case SETUN_STEP_PENALTIES:
  case SETUN_STEP_DRY: change_candidates(s, step); break;
  case SETUN_STEP_TOP_N_SIGMA: st_candidates_top_n_sigma(c, (double)p->top_n_sigma); break;
  case SETUN_STEP_TOP_K: st_candidates_top_k(c, (size_t)p->top_k); break;
  case SETUN_STEP_TYPICAL: st_candidates_typical(c, (double)p->typical_p); break;
  case SETUN_STEP_TOP_P: st_candidates_top_p(c, (double)p->top_p); break;
  case SETUN_STEP_MIN_P: st_candidates_min_p(c, (double)p->min_p); break;
  case SETUN_STEP_XTC:
    if (st_random_unit(random) < (double)p->xtc_probability) st_candidates_xtc(c, (double)p->xtc_threshold);
    break;
  case SETUN_STEP_TEMPERATURE: apply_temperature(p, c); break;
  }
}

// Applies all steps; the candidates then have their final weights.
static setun_status run_chain(st_sampler *s, const logit_list *l, st_random *random, setun_error *err) {
  const setun_sampler_params *p = &s->params;
  st_candidates *c = &s->candidates;
  setun_status status =
      st_history_repetitions(&s->history, dry_window(s), (size_t)p->dry_allowed_length, &s->repetitions, err);
  if (status == SETUN_OK) status = gather(s, l, err);
  if (status != SETUN_OK) return status;
  for (size_t i = s->leading; i < s->chain.n; i++) apply(s, (setun_sampler_step)s->chain.steps[i], random);
  if (p->mirostat == 1) st_candidates_mirostat(c, s->mu, l->n_vocab);
  if (p->mirostat == 2) st_candidates_surprise(c, s->mu);
  st_candidates_weigh(c);
  return SETUN_OK;
}

static const st_candidate *draw(st_random *random, const st_candidates *c) {
  double x = st_random_unit(random) * c->sum, sum = 0;
  const st_candidate *last = c->items;
  for (size_t i = 0; i < c->count; i++) {
    sum += c->items[i].weight;
    if (x < sum) return &c->items[i];
    if (c->items[i].weight > 0) last = &c->items[i];
  }
  return last; // only if rounding put x at the sum itself
}

static setun_status sample(st_sampler *s, const logit_list *l, setun_token *id, setun_error *err) {
  st_random random = s->random;
  setun_status status = run_chain(s, l, &random, err);
  if (status != SETUN_OK) return status;
  const st_candidate *drawn = draw(&random, &s->candidates);
  *id = drawn->id;
  s->random = random;
  if (s->params.mirostat) {
    double surprise = -log2(drawn->weight / s->candidates.sum);
    s->mu -= (double)s->params.mirostat_eta * (surprise - (double)s->params.mirostat_tau);
  }
  return SETUN_OK;
}

setun_status st_sampler_sample(st_sampler *s, const float *logits, size_t n, setun_token *id, setun_error *err) {
  return sample(s, &(logit_list){logits, NULL, n, n}, id, err);
}

size_t st_sampler_needs(const st_sampler *s) {
  return s->mask.matcher || s->n_biases || s->leading ? SIZE_MAX : first_keep(s);
}

bool st_sampler_can_use(const st_sampler *s, const int32_t *ids, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    for (size_t g = 0; g < s->excluded.count; g++) {
      const st_token_gap *gap = &s->excluded.items[g];
      if ((uint32_t)ids[i] >= gap->begin && (uint32_t)ids[i] < gap->end) return false;
    }
  }
  return true;
}

setun_status st_sampler_sample_few(st_sampler *s, const int32_t *ids, const float *logits, uint32_t count,
                                   size_t n_vocab, setun_token *id, setun_error *err) {
  return sample(s, &(logit_list){logits, ids, count, n_vocab}, id, err);
}

setun_status st_sampler_probabilities(st_sampler *s, const float *logits, size_t n, setun_candidate *candidates,
                                      size_t capacity, size_t *count, setun_error *err) {
  st_random random = s->random;
  st_candidates *c = &s->candidates;
  setun_status status = run_chain(s, &(logit_list){logits, NULL, n, n}, &random, err);
  if (status != SETUN_OK) return status;
  st_candidates_order(c, capacity);
  for (size_t i = 0; i < capacity && i < c->count; i++) {
    candidates[i] = (setun_candidate){c->items[i].id, c->items[i].weight / c->sum};
  }
  *count = c->count;
  return SETUN_OK;
}
