// The choice of the expert to evict, over made traces of kinds that real texts have: at most 1 point of hits below the
// better of LRU and LFU, for any capacity; printed beside Belady's optimum. The other rules are computed here.
#include "placement/expert_policy.h"

#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
  LAYERS = 8,
  EXPERTS = 32,
  USED = 4,
  N = LAYERS * EXPERTS,
  TOKENS_MOST = 800,
  USES = TOKENS_MOST * LAYERS * USED
};

// How a trace's tokens choose experts: in each layer by Zipf's law with this exponent, with the ranks drawn anew every
// `drift` tokens (0: never); of the token before they keep each expert with the probability `stick`. The first `prompt`
// tokens of every `period` are one pass.
typedef struct trace_kind {
  const char *name;
  double exponent, stick;
  int drift, prompt, period;
} trace_kind;

static const trace_kind kinds[] = {
    {"steady", 1, 0, 0, 0, TOKENS_MOST},     {"even", 0.2, 0, 0, 0, TOKENS_MOST},
    {"changing", 1, 0, 100, 0, TOKENS_MOST}, {"lasting", 0.5, 0.7, 0, 0, TOKENS_MOST},
    {"topics", 1, 0.5, 200, 0, TOKENS_MOST}, {"prompts", 1, 0, 400, 128, 200},
};

// The demands of layers in order: uses [first, first + n) and the tokens of the pass.
typedef struct demand {
  int first, n, tokens;
  bool begins;
} demand;

typedef struct trace {
  int expert[USES], tokens[USES], next[USES]; // next: the use of the same expert that follows; USES: none
  demand demands[TOKENS_MOST * LAYERS];
  int n_uses, n_demands;
} trace;

static void draw_ranks(st_random *r, double exponent, double weights[EXPERTS]) {
  int rank[EXPERTS];
  for (int i = 0; i < EXPERTS; i++) {
    int at = (int)(st_random_u64(r) % (uint64_t)(i + 1));
    rank[i] = rank[at];
    rank[at] = i;
  }
  for (int i = 0; i < EXPERTS; i++) weights[i] = pow(rank[i] + 1, -exponent);
}

// USED distinct experts with chances proportional to the weights: those with the least -log(u) / weight.
static void choose(st_random *r, const double weights[EXPERTS], double stick, bool taken[EXPERTS]) {
  double key[EXPERTS];
  for (int e = 0; e < EXPERTS; e++) {
    bool keep = st_random_unit(r) < stick && taken[e];
    key[e] = keep ? -1 : -log(st_random_unit(r) + 1e-300) / weights[e];
  }
  for (int e = 0; e < EXPERTS; e++) {
    int before = 0;
    for (int i = 0; i < EXPERTS; i++) before += key[i] < key[e] || (key[i] == key[e] && i < e);
    taken[e] = before < USED;
  }
}

static void add_demand(trace *t, int layer, int counts[EXPERTS], int tokens) {
  demand *d = &t->demands[t->n_demands++];
  *d = (demand){.first = t->n_uses, .tokens = tokens, .begins = !layer};
  for (int e = 0; e < EXPERTS; e++) {
    if (!counts[e]) continue;
    t->expert[t->n_uses] = layer * EXPERTS + e;
    t->tokens[t->n_uses++] = counts[e];
    d->n++;
  }
}

static void make_trace(const trace_kind *k, trace *t) {
  static double weights[LAYERS][EXPERTS];
  static bool taken[LAYERS][EXPERTS];
  st_random r;
  st_random_seed(&r, 7);
  memset(taken, 0, sizeof taken);
  t->n_uses = t->n_demands = 0;
  for (int token = 0; token < TOKENS_MOST;) {
    int n = k->prompt && token % k->period == 0 ? k->prompt : 1, counts[LAYERS][EXPERTS] = {{0}};
    for (int i = 0; i < n; i++, token++) {
      bool anew = !token || (k->drift && token % k->drift == 0);
      for (int l = 0; l < LAYERS; l++) {
        if (anew) draw_ranks(&r, k->exponent, weights[l]);
        choose(&r, weights[l], k->stick, taken[l]);
        for (int e = 0; e < EXPERTS; e++) counts[l][e] += taken[l][e];
      }
    }
    for (int l = 0; l < LAYERS; l++) add_demand(t, l, counts[l], n);
  }
  int seen[N];
  for (int e = 0; e < N; e++) seen[e] = USES;
  for (int i = t->n_uses; i-- > 0;) {
    t->next[i] = seen[t->expert[i]];
    seen[t->expert[i]] = i;
  }
}

// ---- replaying ----------------------------------------------------------------------------------------------------

typedef enum rule { LRU, LFU, BELADY, OURS, RULES } rule;

typedef struct replayed {
  int cache[N], n, hits;
  bool in[N], pinned[N];
  double rank[N]; // LRU, LFU, Belady: the lowest is evicted
  st_expert_policy *policy;
} replayed;

static bool is_before(const replayed *c, rule by, int a, int b) {
  if (by == OURS) return st_expert_policy_before(c->policy, (uint32_t)a, (uint32_t)b);
  return c->rank[a] < c->rank[b];
}

static void use(replayed *c, rule by, int expert, int capacity) {
  if (c->in[expert]) {
    c->hits++;
    return;
  }
  int at = c->n;
  if (c->n == capacity) {
    at = -1;
    for (int i = 0; i < c->n; i++) {
      if (!c->pinned[c->cache[i]] && (at < 0 || is_before(c, by, c->cache[i], c->cache[at]))) at = i;
    }
    if (at < 0) return; // all are needed now: it is read and not kept
    c->in[c->cache[at]] = false;
  } else {
    c->n++;
  }
  c->cache[at] = expert;
  c->in[expert] = true;
}

// The part of the uses that a cache has.
static double replay(const trace *t, rule by, int capacity) {
  static replayed c;
  setun_error err;
  memset(&c, 0, sizeof c);
  assert_int_equal(st_expert_policy_new(LAYERS, EXPERTS, USED, (uint32_t)capacity, &c.policy, &err), SETUN_OK);
  for (int d = 0; d < t->n_demands; d++) {
    const demand *m = &t->demands[d];
    if (m->begins) st_expert_policy_pass(c.policy, (uint32_t)m->tokens);
    uint32_t wanted[EXPERTS];
    for (int i = 0; i < m->n; i++) c.pinned[wanted[i] = (uint32_t)t->expert[m->first + i]] = true;
    st_expert_policy_want(c.policy, wanted, (uint32_t)m->n);
    for (int i = m->first; i < m->first + m->n; i++) {
      int e = t->expert[i];
      st_expert_policy_use(c.policy, (uint32_t)e, (uint32_t)t->tokens[i]);
      c.rank[e] = by == LRU ? i : by == LFU ? c.rank[e] + t->tokens[i] + 1e-9 * i : -t->next[i];
      use(&c, by, e, capacity);
    }
    for (int i = m->first; i < m->first + m->n; i++) c.pinned[t->expert[i]] = false;
  }
  st_expert_policy_free(c.policy);
  return (double)c.hits / t->n_uses;
}

static void check_capacity(const trace_kind *k, const trace *t, int capacity) {
  double rates[RULES];
  for (int by = 0; by < RULES; by++) rates[by] = replay(t, (rule)by, capacity);
  double better = rates[LRU] > rates[LFU] ? rates[LRU] : rates[LFU];
  print_message("%-9s %3d of %d: LRU %.1f %%, LFU %.1f %%, this policy %.1f %%, Belady %.1f %%\n", k->name, capacity, N,
                100 * rates[LRU], 100 * rates[LFU], 100 * rates[OURS], 100 * rates[BELADY]);
  assert_true(rates[OURS] > better - 0.01);
  assert_true(rates[OURS] <= rates[BELADY] && better <= rates[BELADY]);
}

static void policy(void **state) {
  (void)state;
  static trace t;
  static const int capacities[] = {8, 16, 31, 32, 40, 128, 200}; // a token uses 32
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    make_trace(&kinds[k], &t);
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) check_capacity(&kinds[k], &t, capacities[i]);
  }
}

// In a cache of three, two layers' demands {a, b} and {c, d} in turn: one of each two is there if what a layer wants is
// not evicted for the other, as LRU would do. In the simulated caches too, or else the score wins, which keeps an
// expert that every fifth token uses, by long-term frequency, and misses all others.
static void wanted_together(void **state) {
  (void)state;
  enum { RARE = 63, TOKENS = 3000, BLOCK = 20, BLOCKS = 15 };
  st_expert_policy *p = NULL;
  setun_error err;
  assert_int_equal(st_expert_policy_new(1, 64, 2, 3, &p, &err), SETUN_OK);
  for (uint32_t i = 0; i < TOKENS; i++) {
    uint32_t first = i / BLOCK % BLOCKS * 4 + i % 5 % 2 * 2, n = i % 5 == 4 ? 1 : 2;
    const uint32_t wanted[] = {n == 1 ? RARE : first, first + 1};
    st_expert_policy_pass(p, 1);
    st_expert_policy_want(p, wanted, n);
    for (uint32_t k = 0; k < n; k++) st_expert_policy_use(p, wanted[k], 1);
  }
  assert_int_equal(st_expert_policy_rule(p), ST_EXPERTS_BY_LRU);
  st_expert_policy_free(p);
}

// By the next use, of experts used equally often the one whose layer was reached last is replaced first, and one that
// every fourth token uses before all of them, though its layer comes next.
static void order_of_layers(void **state) {
  (void)state;
  enum { LAYER = 4, EACH = 3 };
  st_expert_policy *p = NULL;
  setun_error err;
  assert_int_equal(st_expert_policy_new(LAYER, EACH, 2, LAYER * EACH, &p, &err), SETUN_OK);
  assert_int_equal(st_expert_policy_rule(p), ST_EXPERTS_BY_NEXT_USE);
  for (uint32_t token = 0; token < 100; token++) {
    st_expert_policy_pass(p, 1);
    for (uint32_t l = 0; l < (token == 99 ? 2 : LAYER); l++) { // the last pass has reached layer 1
      const uint32_t wanted[] = {l * EACH, l * EACH + 1 + (token % 4 == 0)};
      st_expert_policy_want(p, wanted, 2);
      for (int i = 0; i < 2; i++) st_expert_policy_use(p, wanted[i], 1);
    }
  }
  assert_true(st_expert_policy_before(p, 1 * EACH, 0 * EACH)); // next reached after 4 layers, after 3
  assert_true(st_expert_policy_before(p, 0 * EACH, 3 * EACH)); // after 3, after 2
  assert_true(st_expert_policy_before(p, 3 * EACH, 2 * EACH));
  assert_true(st_expert_policy_before(p, 2 * EACH + 2, 1 * EACH)); // after 1 and about 3 tokens, after 4 layers
  assert_false(st_expert_policy_before(p, 1 * EACH, 2 * EACH + 2));
  st_expert_policy_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(policy), cmocka_unit_test(wanted_together),
                                     cmocka_unit_test(order_of_layers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
