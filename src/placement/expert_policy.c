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

enum { NONE = UINT32_MAX, STALE = UINT32_MAX - 1 };

// Experts that may be evicted, and the first to go of each layer, so that not all of them need be compared: what the
// order of layers changes is the same for all experts of one.
typedef struct expert_set {
  bool *has;       // [n]
  uint32_t *first; // [n_layer] NONE: the set has none of the layer; STALE: not known
} expert_set;

// The contents that the cache would have if one rule had decided from the start.
typedef struct shadow {
  bool *cached; // [n]
  uint32_t n_cached;
  expert_set free; // cached, and not wanted now
  double hits;     // recent
} shadow;

struct st_expert_policy {
  uint32_t n_layer, n_expert, n, capacity; // n_expert: of a layer; n: of all
  bool *is_wanted;                         // [n] those of `wanted`
  uint32_t *wanted, n_wanted;              // [n_expert] of the last call of st_expert_policy_want
  uint64_t *used;                          // [n] when the expert was used last, counted in uses; 0: never
  double *score;                           // [n] times `scale`, so that scores need not be multiplied for each token
  double *due; // [n_layer] when the layer is next reached: layers of all passes, counted from the start
  double passes;
  double scale, selected; // selected: what one token adds
  double seen;            // what the score of an expert would be that all tokens used
  double even;            // the score of an expert of a layer whose experts are used evenly, for EVEN_TOKENS
  double fade;            // factor of the hits for each use
  uint64_t uses;
  expert_set free; // of the cache itself
  shadow shadows[ST_EXPERT_RULES];
  st_expert_rule rule;
};

static bool make_set(const st_expert_policy *p, expert_set *s) {
  s->has = st_calloc(p->n, sizeof *s->has);
  s->first = st_malloc(p->n_layer, sizeof *s->first);
  for (uint32_t i = 0; s->first && i < p->n_layer; i++) s->first[i] = NONE;
  return s->has && s->first;
}

static void free_set(expert_set *s) {
  st_free(s->has);
  st_free(s->first);
}

setun_status st_expert_policy_new(uint32_t n_layer, uint32_t n_expert, uint32_t n_used, uint32_t capacity,
                                  st_expert_policy **policy, setun_error *err) {
  st_expert_policy *p = st_calloc(1, sizeof *p);
  if (!p) return st_fail_memory(err, "the experts' use");
  uint32_t n = n_layer * n_expert;
  *p = (st_expert_policy){.n_layer = n_layer, .n_expert = n_expert, .n = n, .capacity = capacity, .scale = 1};
  p->fade = 1 - 1 / ((double)USES_EACH * n + USES_LEAST);
  p->even = (1 - KEPT) * EVEN_TOKENS * n_used / n_expert;
  p->rule = ST_EXPERTS_BY_NEXT_USE;
  p->is_wanted = st_calloc(n, sizeof *p->is_wanted);
  p->wanted = st_malloc(n_expert, sizeof *p->wanted);
  p->used = st_calloc(n, sizeof *p->used);
  p->score = st_calloc(n, sizeof *p->score);
  p->due = st_malloc(n_layer, sizeof *p->due);
  for (uint32_t i = 0; p->due && i < n_layer; i++) p->due[i] = n_layer + i;
  bool whole = make_set(p, &p->free) && p->is_wanted && p->wanted && p->used && p->score && p->due;
  for (int i = 0; i < ST_EXPERT_RULES; i++) {
    p->shadows[i].cached = st_calloc(n, sizeof *p->shadows[i].cached);
    whole = make_set(p, &p->shadows[i].free) && whole && p->shadows[i].cached;
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
    free_set(&p->shadows[i].free);
  }
  free_set(&p->free);
  st_free(p->is_wanted);
  st_free(p->wanted);
  st_free(p->used);
  st_free(p->score);
  st_free(p->due);
  st_free(p);
}

// When the expert will be used again, on average, counted like `due`.
static double next_use(const st_expert_policy *p, uint32_t expert) {
  double all = p->seen + (1 - KEPT) * EVEN_TOKENS, mine = p->score[expert] + p->scale * p->even;
  return p->due[expert / p->n_expert] + p->n_layer * p->scale * all / mine; // one of all / mine tokens uses it
}

// The expert with the lowest value is replaced first; of equal ones, the one that was used less recently.
static double value(const st_expert_policy *p, st_expert_rule rule, uint32_t expert) {
  if (rule == ST_EXPERTS_BY_LRU) return (double)p->used[expert];
  return rule == ST_EXPERTS_BY_SCORE ? p->score[expert] : -next_use(p, expert);
}

static bool is_before(const st_expert_policy *p, st_expert_rule rule, uint32_t a, uint32_t b) {
  double value_a = value(p, rule, a), value_b = value(p, rule, b);
  return value_a != value_b ? value_a < value_b : p->used[a] < p->used[b];
}

bool st_expert_policy_before(const st_expert_policy *p, uint32_t a, uint32_t b) {
  return is_before(p, p->rule, a, b);
}

st_expert_rule st_expert_policy_rule(const st_expert_policy *p) {
  return p->rule;
}

// ---- which is first -----------------------------------------------------------------------------------------------

static void set_has(const st_expert_policy *p, expert_set *s, uint32_t expert, bool has) {
  if (s->has[expert] == has) return;
  s->has[expert] = has;
  s->first[expert / p->n_expert] = STALE;
}

// The expert's use has changed.
static void set_used(const st_expert_policy *p, expert_set *s, uint32_t expert) {
  if (s->has[expert]) s->first[expert / p->n_expert] = STALE;
}

// Within a layer, the next use is expected last of the expert with the lowest score.
static uint32_t find_first(const st_expert_policy *p, const expert_set *s, st_expert_rule rule, uint32_t layer) {
  uint32_t first = NONE;
  st_expert_rule within = rule == ST_EXPERTS_BY_NEXT_USE ? ST_EXPERTS_BY_SCORE : rule;
  for (uint32_t i = layer * p->n_expert; i < (layer + 1) * p->n_expert; i++) {
    if (s->has[i] && (first == NONE || is_before(p, within, i, first))) first = i;
  }
  return first;
}

// The first to go of all layers but one (NONE: of all); NONE: there is none.
static uint32_t first_of(const st_expert_policy *p, expert_set *s, st_expert_rule rule, uint32_t but) {
  uint32_t first = NONE;
  for (uint32_t l = 0; l < p->n_layer; l++) {
    if (l == but) continue;
    if (s->first[l] == STALE) s->first[l] = find_first(p, s, rule, l);
    if (s->first[l] != NONE && (first == NONE || is_before(p, rule, s->first[l], first))) first = s->first[l];
  }
  return first;
}

void st_expert_policy_offer(st_expert_policy *p, uint32_t expert, bool may_go) {
  set_has(p, &p->free, expert, may_go);
}

uint32_t st_expert_policy_first(st_expert_policy *p, uint32_t kept_layer) {
  return first_of(p, &p->free, p->rule, kept_layer);
}

// ---- what is used -------------------------------------------------------------------------------------------------

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
  for (uint32_t i = 0; i < p->n_wanted; i++) {
    uint32_t e = p->wanted[i];
    p->is_wanted[e] = false;
    for (int k = 0; k < ST_EXPERT_RULES; k++) set_has(p, &p->shadows[k].free, e, p->shadows[k].cached[e]);
  }
  for (uint32_t i = 0; i < n; i++) {
    p->is_wanted[p->wanted[i] = experts[i]] = true;
    for (int k = 0; k < ST_EXPERT_RULES; k++) set_has(p, &p->shadows[k].free, experts[i], false);
  }
  p->n_wanted = n;
  uint32_t layer = n ? experts[0] / p->n_expert : 0;
  if (n) p->due[layer] = (p->passes + 1) * p->n_layer + layer;
}

static void follow(st_expert_policy *p, st_expert_rule rule, uint32_t expert) {
  shadow *s = &p->shadows[rule];
  s->hits *= p->fade;
  if (s->cached[expert]) {
    s->hits += 1;
    return;
  }
  if (s->n_cached < p->capacity) {
    s->n_cached++;
  } else {
    uint32_t first = first_of(p, &s->free, rule, NONE);
    if (first == NONE) return; // all are wanted
    s->cached[first] = false;
    set_has(p, &s->free, first, false);
  }
  s->cached[expert] = true;
  set_has(p, &s->free, expert, !p->is_wanted[expert]);
}

// The rule with the most hits decides. The cache's own experts are ranked anew where it is another one.
static void choose(st_expert_policy *p) {
  st_expert_rule best = p->rule;
  double most = p->shadows[p->rule].hits * MARGIN + 1;
  for (int i = 0; i < ST_EXPERT_RULES; i++) {
    if (p->shadows[i].hits <= most) continue;
    best = (st_expert_rule)i;
    most = p->shadows[i].hits;
  }
  for (uint32_t i = 0; best != p->rule && i < p->n_layer; i++) p->free.first[i] = STALE;
  p->rule = best;
}

void st_expert_policy_use(st_expert_policy *p, uint32_t expert, uint32_t selected) {
  for (int i = 0; i < ST_EXPERT_RULES; i++) follow(p, (st_expert_rule)i, expert);
  p->used[expert] = ++p->uses;
  p->score[expert] += p->selected * selected;
  for (int i = 0; i < ST_EXPERT_RULES; i++) set_used(p, &p->shadows[i].free, expert);
  set_used(p, &p->free, expert);
  choose(p);
}

const char *st_expert_rule_name(st_expert_rule rule) {
  static const char *const names[] = {"lru", "score", "next"};
  return names[rule];
}
