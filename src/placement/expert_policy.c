// The eviction rules, and the choice between them.
#include "placement/expert_policy.h"

#include "base/memory.h"

#include <math.h>

static const double KEPT = 0.999; // factor of a score for each token
// Even use that an expected use is estimated from besides the tokens seen, as long as that of so many tokens: of few
// tokens, most differences between experts are by chance.
enum { EVEN_TOKENS = 100 };
static const double SCALE_MOST = 1e200;
// Uses that are recent: fewer differ by chance.
enum { USES_EACH = 16, USES_LEAST = 2000 };
enum { TOKENS_MOST = 100000 };      // of a pass that are counted: beyond them, older ones have no weight
static const double MARGIN = 1.005; // another rule must be better by this factor to take over: changing costs misses

// The contents that the cache would have if one rule had decided from the start.
typedef struct shadow {
  uint32_t *cached; // [capacity] experts
  uint32_t *place;  // [n] 1 + the expert's index in `cached`; 0: it is not there
  uint32_t n_cached;
  double hits; // recent
} shadow;

struct st_expert_policy {
  uint32_t n_layer, n_expert, n, capacity; // n_expert: of a layer; n: of all
  uint64_t *wanted, wants; // [n] the last call of st_expert_policy_want with the expert; the number of calls
  uint64_t *used;          // [n] when the expert was used last, counted in uses; 0: never
  double *score;           // [n] times `scale`, so that scores need not be multiplied for each token
  double *due;             // [n] when the expert's layer is next reached: layers of all passes, counted from the start
  double passes;
  double scale, selected; // selected: what one token adds
  double seen;            // what the score of an expert would be that all tokens used
  double even;            // the score of an expert of a layer whose experts are used evenly, for EVEN_TOKENS
  double fade;            // factor of the hits for each use
  uint64_t uses;
  shadow shadows[ST_EXPERT_RULES];
  st_expert_rule rule;
};

setun_status st_expert_policy_new(uint32_t n_layer, uint32_t n_expert, uint32_t n_used, uint32_t capacity,
                                  st_expert_policy **policy, setun_error *err) {
  st_expert_policy *p = st_calloc(1, sizeof *p);
  if (!p) return st_fail_memory(err, "the experts' use");
  uint32_t n = n_layer * n_expert;
  *p = (st_expert_policy){.n_layer = n_layer, .n_expert = n_expert, .n = n, .capacity = capacity, .scale = 1};
  p->fade = 1 - 1 / ((double)USES_EACH * n + USES_LEAST);
  p->even = (1 - KEPT) * EVEN_TOKENS * n_used / n_expert;
  p->rule = ST_EXPERTS_BY_NEXT_USE;
  p->wanted = st_calloc(n, sizeof *p->wanted);
  p->used = st_calloc(n, sizeof *p->used);
  p->score = st_calloc(n, sizeof *p->score);
  p->due = st_calloc(n, sizeof *p->due);
  for (uint32_t i = 0; p->due && i < n; i++) p->due[i] = n_layer + i / n_expert;
  bool whole = p->wanted && p->used && p->score && p->due;
  for (int i = 0; i < ST_EXPERT_RULES; i++) {
    p->shadows[i].cached = st_calloc(capacity, sizeof *p->shadows[i].cached);
    p->shadows[i].place = st_calloc(n, sizeof *p->shadows[i].place);
    whole = whole && p->shadows[i].cached && p->shadows[i].place;
  }
  if (!whole) {
    st_expert_policy_free(p);
    return st_fail_memory(err, "the experts' use");
  }
  *policy = p;
  return SETUN_OK;
}

void st_expert_policy_free(st_expert_policy *p) {
  if (!p) return;
  for (int i = 0; i < ST_EXPERT_RULES; i++) {
    st_free(p->shadows[i].cached);
    st_free(p->shadows[i].place);
  }
  st_free(p->wanted);
  st_free(p->used);
  st_free(p->score);
  st_free(p->due);
  st_free(p);
}

// When the expert will be used again, on average, counted like `due`.
static double next_use(const st_expert_policy *p, uint32_t expert) {
  double all = p->seen + (1 - KEPT) * EVEN_TOKENS, mine = p->score[expert] + p->scale * p->even;
  return p->due[expert] + p->n_layer * p->scale * all / mine; // one of all / mine tokens uses it
}

// The expert with the lowest value is replaced first.
static double value(const st_expert_policy *p, st_expert_rule rule, uint32_t expert) {
  if (rule == ST_EXPERTS_BY_LRU) return (double)p->used[expert];
  return rule == ST_EXPERTS_BY_SCORE ? p->score[expert] : -next_use(p, expert);
}

bool st_expert_policy_before(const st_expert_policy *p, uint32_t a, uint32_t b) {
  double value_a = value(p, p->rule, a), value_b = value(p, p->rule, b);
  return value_a != value_b ? value_a < value_b : p->used[a] < p->used[b];
}

st_expert_rule st_expert_policy_rule(const st_expert_policy *p) {
  return p->rule;
}

void st_expert_policy_pass(st_expert_policy *p, uint32_t tokens) {
  p->passes++;
  double faded = pow(KEPT, tokens < TOKENS_MOST ? tokens : TOKENS_MOST);
  p->scale /= faded;
  p->seen = 1 - (1 - p->seen) * faded;
  p->selected = tokens ? p->scale * (1 - faded) / tokens : 0; // as if the pass's selections were spread evenly
  if (p->scale < SCALE_MOST) return;
  for (uint32_t i = 0; i < p->n; i++) p->score[i] /= p->scale;
  p->selected /= p->scale;
  p->scale = 1;
}

void st_expert_policy_want(st_expert_policy *p, const uint32_t *experts, uint32_t n) {
  p->wants++;
  for (uint32_t i = 0; i < n; i++) p->wanted[experts[i]] = p->wants;
  uint32_t layer = n ? experts[0] / p->n_expert : 0;
  for (uint32_t i = 0; n && i < p->n_expert; i++) {
    p->due[layer * p->n_expert + i] = (p->passes + 1) * p->n_layer + layer;
  }
}

static bool is_wanted(const st_expert_policy *p, uint32_t expert) {
  return p->wants && p->wanted[expert] == p->wants;
}

// The place of the expert that a full shadow evicts for another; `n_cached`: all are wanted.
static uint32_t first_to_go(const st_expert_policy *p, st_expert_rule rule) {
  const shadow *s = &p->shadows[rule];
  uint32_t first = s->n_cached;
  double lowest = INFINITY;
  for (uint32_t i = 0; i < s->n_cached; i++) {
    uint32_t expert = s->cached[i];
    double v = value(p, rule, expert);
    if (v > lowest || (v == lowest && p->used[expert] >= p->used[s->cached[first]]) || is_wanted(p, expert)) continue;
    first = i;
    lowest = v;
  }
  return first;
}

static void follow(st_expert_policy *p, st_expert_rule rule, uint32_t expert) {
  shadow *s = &p->shadows[rule];
  s->hits *= p->fade;
  if (s->place[expert]) {
    s->hits += 1;
    return;
  }
  uint32_t at = s->n_cached;
  if (at < p->capacity) {
    s->n_cached++;
  } else {
    at = first_to_go(p, rule);
    if (at == s->n_cached) return;
    s->place[s->cached[at]] = 0;
  }
  s->cached[at] = expert;
  s->place[expert] = at + 1;
}

void st_expert_policy_use(st_expert_policy *p, uint32_t expert, uint32_t selected) {
  for (int i = 0; i < ST_EXPERT_RULES; i++) follow(p, (st_expert_rule)i, expert);
  p->used[expert] = ++p->uses;
  p->score[expert] += p->selected * selected;
  st_expert_rule best = p->rule;
  double most = p->shadows[p->rule].hits * MARGIN + 1;
  for (int i = 0; i < ST_EXPERT_RULES; i++) {
    if (p->shadows[i].hits <= most) continue;
    best = (st_expert_rule)i;
    most = p->shadows[i].hits;
  }
  p->rule = best;
}

const char *st_expert_rule_name(st_expert_rule rule) {
  static const char *const names[] = {"lru", "score", "next"};
  return names[rule];
}
