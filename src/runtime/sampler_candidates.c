// The sampler's candidates: selection of the likeliest in one pass, sorting only as far as needed (a heap that yields
// its best one by one), and the steps that exclude candidates.
#include "runtime/sampler_candidates.h"

#include "base/memory.h"

#include <float.h>
#include <math.h>

void st_candidates_free(st_candidates *c) {
  st_free(c->items);
}

// ---- order ----

static bool before(const st_candidate *a, const st_candidate *b) {
  return a->rank > b->rank || (a->rank == b->rank && a->id < b->id);
}

// The heap grows from the end of the list towards its beginning, so that elements that leave it extend the sorted part.
static st_candidate *node(const st_candidates *c, size_t i) {
  return &c->items[c->count - 1 - i];
}

static void sift_down(st_candidates *c, size_t i, size_t size) {
  st_candidate moved = *node(c, i);
  for (size_t child; (child = 2 * i + 1) < size; i = child) {
    if (child + 1 < size && before(node(c, child + 1), node(c, child))) child++;
    if (!before(node(c, child), &moved)) break;
    *node(c, i) = *node(c, child);
  }
  *node(c, i) = moved;
}

void st_candidates_order(st_candidates *c, size_t n) {
  if (n > c->count) n = c->count;
  if (c->sorted >= n) return;
  size_t size = c->count - c->sorted;
  if (!c->heaped) {
    for (size_t i = size / 2; i-- > 0;) sift_down(c, i, size);
    c->heaped = true;
  }
  for (; c->sorted < n; c->sorted++) {
    st_candidate best = *node(c, 0);
    *node(c, 0) = c->items[c->sorted];
    c->items[c->sorted] = best;
    if (--size) sift_down(c, 0, size);
  }
}

static void truncate_to(st_candidates *c, size_t n) {
  if (n == c->count) return;
  c->count = n;
  if (c->sorted > n) c->sorted = n;
  c->heaped = false;
}

// ---- gathering ----

void st_candidates_begin(st_candidates *c, size_t keep) {
  c->count = c->sorted = 0;
  c->heaped = false;
  c->keep = keep;
  c->temperature = 1;
  c->threshold = -INFINITY;
  c->threshold_below = -INFINITY;
}

// More than `keep` are admitted before the list is cut back, to amortize the cost.
static size_t gathering_limit(size_t keep) {
  return keep > SIZE_MAX / 4 ? SIZE_MAX : 2 * keep + 64;
}

// Finite if one of that sign is, so that a bound of FLT_MAX still separates +inf from the rest.
static float largest_float_up_to(double x) {
  if (x >= (double)FLT_MAX) return FLT_MAX;
  if (x < -(double)FLT_MAX) return -INFINITY;
  float f = (float)x;
  return (double)f > x ? nextafterf(f, -INFINITY) : f;
}

static void cut_to_keep(st_candidates *c) {
  c->sorted = 0;
  c->heaped = false;
  st_candidates_order(c, c->keep);
  truncate_to(c, c->keep);
  c->threshold = c->items[c->keep - 1].logit;
  c->threshold_below = largest_float_up_to(c->threshold);
}

setun_status st_candidates_offer(st_candidates *c, setun_token id, double logit, setun_error *err) {
  if (!(logit <= DBL_MAX)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "logit of token %d: expected a finite number or -inf, found %g", (int)id,
                   logit);
  }
  if (logit <= c->threshold) return SETUN_OK;
  if (!st_reserve(&c->items, &c->capacity, c->count + 1, sizeof *c->items)) return st_fail_memory(err, "sampling");
  c->items[c->count++] = (st_candidate){logit, logit, 0, id};
  if (c->count == gathering_limit(c->keep)) cut_to_keep(c);
  return SETUN_OK;
}

// False also when one of them is NaN. Without early exit, so that it becomes vector code.
static bool all_at_most(const float *x, size_t n, float bound) {
  int other = 0;
  for (size_t i = 0; i < n; i++) other |= !(x[i] <= bound);
  return !other;
}

setun_status st_candidates_offer_range(st_candidates *c, const float *logits, size_t from, size_t to,
                                       setun_error *err) {
  enum { BLOCK = 32 };
  for (size_t i = from; i < to; i += BLOCK) {
    size_t n = to - i < BLOCK ? to - i : BLOCK;
    if (n == BLOCK ? all_at_most(logits + i, BLOCK, c->threshold_below)
                   : all_at_most(logits + i, n, c->threshold_below)) {
      continue;
    }
    for (size_t j = i; j < i + n; j++) {
      setun_status s = st_candidates_offer(c, (setun_token)j, (double)logits[j], err);
      if (s != SETUN_OK) return s;
    }
  }
  return SETUN_OK;
}

void st_candidates_end(st_candidates *c) {
  if (c->count > c->keep) cut_to_keep(c);
}

// ---- probabilities ----

static double highest_logit(const st_candidates *c) {
  double highest = c->items[0].logit;
  if (c->sorted) return highest;
  for (size_t i = 1; i < c->count; i++) {
    if (c->items[i].logit > highest) highest = c->items[i].logit;
  }
  return highest;
}

void st_candidates_changed(st_candidates *c) {
  for (size_t i = 0; i < c->count; i++) c->items[i].rank = c->items[i].logit;
  c->sorted = 0;
  c->heaped = false;
}

void st_candidates_scale(st_candidates *c) {
  for (size_t i = 0; i < c->count; i++) c->items[i].logit /= c->temperature;
  c->temperature = 1;
  st_candidates_changed(c);
}

void st_candidates_weigh(st_candidates *c) {
  double highest = highest_logit(c), sum = 0;
  for (size_t i = 0; i < c->count; i++) {
    sum += c->items[i].weight = exp((c->items[i].logit - highest) / c->temperature);
  }
  c->sum = sum;
}

double st_candidates_entropy(const st_candidates *c) {
  double highest = highest_logit(c), log_sum = log(c->sum), entropy = 0;
  for (size_t i = 0; i < c->count; i++) {
    const st_candidate *x = &c->items[i];
    if (x->weight > 0) entropy += x->weight / c->sum * (log_sum - (x->logit - highest) / c->temperature);
  }
  return entropy;
}

// ---- steps ----

void st_candidates_top_k(st_candidates *c, size_t k) {
  if (k >= c->count) return;
  st_candidates_order(c, k);
  truncate_to(c, k);
}

// Keeps candidates with at least that logit, including the likeliest. A prefix of the sorted part stays in place.
static void keep_from(st_candidates *c, double low) {
  size_t kept = 0;
  for (size_t i = 0; i < c->count; i++) {
    if (c->items[i].logit >= low) c->items[kept++] = c->items[i];
  }
  truncate_to(c, kept);
}

void st_candidates_top_n_sigma(st_candidates *c, double n) {
  double count = (double)c->count, mean = 0, square = 0;
  for (size_t i = 0; i < c->count; i++) mean += c->items[i].logit / count;
  for (size_t i = 0; i < c->count; i++) square += (c->items[i].logit - mean) * (c->items[i].logit - mean) / count;
  keep_from(c, highest_logit(c) - n * sqrt(square));
}

// The shortest prefix, in order, whose probabilities add up to at least `p`.
static void keep_mass(st_candidates *c, double p) {
  double sum = 0;
  for (size_t i = 0; i < c->count; i++) {
    st_candidates_order(c, i + 1);
    sum += c->items[i].weight / c->sum;
    if (sum >= p) {
      truncate_to(c, i + 1);
      return;
    }
  }
}

void st_candidates_typical(st_candidates *c, double p) {
  st_candidates_weigh(c);
  double highest = highest_logit(c), log_sum = log(c->sum), entropy = st_candidates_entropy(c);
  for (size_t i = 0; i < c->count; i++) {
    c->items[i].rank = -fabs(log_sum - (c->items[i].logit - highest) / c->temperature - entropy);
  }
  c->sorted = 0;
  c->heaped = false;
  keep_mass(c, p);
  st_candidates_changed(c);
}

void st_candidates_top_p(st_candidates *c, double p) {
  st_candidates_weigh(c);
  keep_mass(c, p);
}

void st_candidates_min_p(st_candidates *c, double p) {
  keep_from(c, highest_logit(c) + log(p) * c->temperature);
}

void st_candidates_xtc(st_candidates *c, double threshold) {
  st_candidates_weigh(c);
  // Few candidates reach the threshold unless it is near 0, and they come first in order.
  size_t above = 0;
  for (size_t i = 0; i < c->count; i++) above += c->items[i].weight >= threshold * c->sum;
  if (above < 2) return;
  st_candidates_order(c, above);
  for (size_t i = above - 1; i < c->count; i++) c->items[i - (above - 1)] = c->items[i];
  truncate_to(c, c->count - (above - 1));
  c->sorted = 1;
}

// The exponent of Zipf's law that fits the likeliest tokens: the least-squares slope, through the origin, of the
// logarithms of neighbouring probability ratios over those of rank ratios.
static double zipf_exponent(st_candidates *c) {
  enum { FITTED = 100 };
  double products = 0, squares = 0;
  st_candidates_order(c, FITTED);
  for (size_t i = 0; i + 1 < FITTED && i + 1 < c->count; i++) {
    double places = log((double)(i + 2) / (double)(i + 1));
    products += places * (c->items[i].logit - c->items[i + 1].logit) / c->temperature;
    squares += places * places;
  }
  return products / squares;
}

void st_candidates_mirostat(st_candidates *c, double mu, size_t n_vocab) {
  if (c->count < 2) return;
  double s = zipf_exponent(c), e = s - 1, log_n = log((double)n_vocab);
  // e / (1 - n_vocab^-e), which is 1 / log_n in the limit
  double share = e == 0 ? 1 / log_n : e / -expm1(-e * log_n);
  double k = pow(share * exp2(mu), 1 / s);
  if (!(k >= (double)c->count)) st_candidates_top_k(c, k >= 1 ? (size_t)k : 1);
}

void st_candidates_surprise(st_candidates *c, double mu) {
  size_t kept = 0;
  st_candidates_weigh(c);
  for (size_t i = 0; i < c->count; i++) kept += c->items[i].weight >= c->sum * exp2(-mu);
  st_candidates_top_k(c, kept ? kept : 1);
}
