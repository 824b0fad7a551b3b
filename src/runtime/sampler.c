// Sampling: a chain of steps, each of which keeps a beginning of the candidates sorted by falling logit, or rescales them.
#include "runtime/sampler.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  float logit;
  setun_token id;
  double p; // after `weigh`
} candidate;

struct st_sampler {
  setun_sampler_params params;
  st_random random;
  candidate *candidates;
  size_t capacity;
};

static setun_status check(const setun_sampler_params *p, setun_error *err) {
  if (!(p->temperature >= 0) || !isfinite(p->temperature)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "temperature: expected a number >= 0, found %g", (double)p->temperature);
  }
  if (p->top_k < 0) return st_fail(err, SETUN_ERROR_ARGUMENT, "top_k: expected 0 or more, found %d", p->top_k);
  if (!(p->top_p >= 0 && p->top_p <= 1)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "top_p: expected a number from 0 to 1, found %g", (double)p->top_p);
  }
  if (!(p->min_p >= 0 && p->min_p <= 1)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "min_p: expected a number from 0 to 1, found %g", (double)p->min_p);
  }
  return SETUN_OK;
}

setun_status st_sampler_new(const setun_sampler_params *params, st_sampler **sampler, setun_error *err) {
  setun_status s = check(params, err);
  if (s != SETUN_OK) return s;
  st_sampler *n = st_calloc(1, sizeof *n);
  if (!n) return st_fail_memory(err, "the sampler");
  n->params = *params;
  st_random_seed(&n->random, params->seed);
  *sampler = n;
  return SETUN_OK;
}

void st_sampler_free(st_sampler *s) {
  if (!s) return;
  st_free(s->candidates);
  st_free(s);
}

// The first of the largest; -1 when none is above -inf.
static setun_token likeliest(const float *logits, size_t n) {
  setun_token best = -1;
  for (size_t i = 0; i < n; i++) {
    if (logits[i] > (best < 0 ? -INFINITY : logits[best])) best = (setun_token)i;
  }
  return best;
}

static int by_falling_logit(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

// Gathers the candidates above -inf; a count of 0 means that there is none.
static setun_status gather(st_sampler *s, const float *logits, size_t n, size_t *count, setun_error *err) {
  if (!st_reserve(&s->candidates, &s->capacity, n, sizeof *s->candidates)) return st_fail_memory(err, "sampling");
  size_t k = 0;
  for (size_t i = 0; i < n; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY) {
      return st_fail(err, SETUN_ERROR_FORMAT, "logit of token %zu: expected a finite number, found %g", i,
                     (double)logits[i]);
    }
    if (logits[i] != -INFINITY) s->candidates[k++] = (candidate){logits[i], (setun_token)i, 0};
  }
  *count = k;
  return SETUN_OK;
}

// Probabilities of the candidates among themselves, at a temperature.
static void weigh(candidate *c, size_t n, double temperature) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += c[i].p = exp((c[i].logit - c[0].logit) / temperature);
  for (size_t i = 0; i < n; i++) c[i].p /= sum;
}

static size_t top_k(size_t n, int32_t k) { return k > 0 && (size_t)k < n ? (size_t)k : n; }

// The fewest whose probabilities reach `p`.
static size_t top_p(const candidate *c, size_t n, double p) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) {
    sum += c[i].p;
    if (sum >= p) return i + 1;
  }
  return n;
}

// Those at least `p` times as likely as the likeliest.
static size_t min_p(const candidate *c, size_t n, double p) {
  size_t kept = 1;
  while (kept < n && c[kept].p >= p * c[0].p) kept++;
  return kept;
}

static setun_token draw(st_random *random, const candidate *c, size_t n) {
  double x = st_random_unit(random), sum = 0;
  for (size_t i = 0; i < n; i++) {
    sum += c[i].p;
    if (x < sum) return c[i].id;
  }
  return c[n - 1].id; // rounding left the sum just below one
}

setun_status st_sampler_sample(st_sampler *s, const float *logits, size_t n, setun_token *id, setun_error *err) {
  const setun_sampler_params *p = &s->params;
  size_t count = 0;
  setun_status status = gather(s, logits, n, &count, err);
  if (status != SETUN_OK) return status;
  if (!count) return st_fail(err, SETUN_ERROR_FORMAT, "logits: expected at least one above -inf, found none");
  if (p->temperature == 0) {
    *id = likeliest(logits, n);
    return SETUN_OK;
  }
  candidate *c = s->candidates;
  qsort(c, count, sizeof *c, by_falling_logit);
  count = top_k(count, p->top_k);
  weigh(c, count, 1);
  if (p->top_p < 1) count = top_p(c, count, p->top_p);
  if (p->min_p > 0) count = min_p(c, count, p->min_p);
  weigh(c, count, p->temperature);
  *id = draw(&s->random, c, count);
  return SETUN_OK;
}
