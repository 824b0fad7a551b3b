// Left recursion: rules that begin with each other are read from their left corners. A goal begins with any alternative
// of its group that does not begin with the group itself; when a rule of the group ends, it may be the goal, or the
// corner of a further alternative. No rule is copied or rewritten, and no position is visited twice without progress.
#include "constraint/engine.h"

#include "base/memory.h"

#include <string.h>

enum { MOST_PRODUCTIONS = 100000 };

// ---- which rules begin with which ----

typedef struct st_edges {
  uint32_t *first; // for each rule, an offset into `to`; n_rules + 1
  st_rule *to;
  size_t n, capacity;
  st_node *pending; // nodes of one rule still to be visited
  size_t n_pending, pending_capacity;
  uint32_t *seen; // for each node: the last rule it was reached from, plus 1
} st_edges;

static void look_at(st_engine *e, st_edges *x, st_node node, st_rule from) {
  if (x->seen[node] == from + 1) return;
  x->seen[node] = from + 1;
  if (st_engine_reserve(e, &x->pending, &x->pending_capacity, x->n_pending + 1, sizeof *x->pending)) {
    x->pending[x->n_pending++] = node;
  }
}

// Adds the rules that `from` may begin with.
static void add_edges(st_engine *e, st_edges *x, st_rule from) {
  const st_grammar *g = e->g;
  look_at(e, x, g->rules[from].body, from);
  while (x->n_pending) {
    st_node_entry n = g->nodes[x->pending[--x->n_pending]];
    if (n.kind == ST_NODE_RULE && st_engine_reserve(e, &x->to, &x->capacity, x->n + 1, sizeof *x->to)) {
      x->to[x->n++] = n.a;
    }
    if (n.kind == ST_NODE_REPEAT) look_at(e, x, n.a, from);
    if (n.kind != ST_NODE_SEQ && n.kind != ST_NODE_ALT) continue;
    for (uint32_t i = 0; i < n.b; i++) {
      look_at(e, x, g->members[n.a + i], from);
      if (n.kind == ST_NODE_SEQ && !st_node_is_nullable(e, g->members[n.a + i])) break;
    }
  }
}

// ---- groups: strongly connected components (Tarjan, with an explicit stack) ----

typedef struct st_tarjan {
  uint32_t *index, *low, *stack, *path, *next;
  uint32_t n_stack, n_path, counter, components;
} st_tarjan;

static void close_component(st_engine *e, const st_edges *x, st_tarjan *t, st_rule v) {
  uint32_t size = 0, w;
  do {
    w = t->stack[--t->n_stack];
    e->rules[w].component = t->components;
    t->index[w] = UINT32_MAX; // done
    size++;
  } while (w != v);
  t->components++;
  bool itself = false;
  for (uint32_t i = x->first[v]; i < x->first[v + 1]; i++) itself |= x->to[i] == v;
  if (size == 1 && !itself) return;
  for (size_t i = 0; i < e->g->n_rules; i++) {
    if (e->rules[i].component == e->rules[v].component && t->index[i] == UINT32_MAX) e->rules[i].recursive_left = true;
  }
}

static void visit(st_engine *e, const st_edges *x, st_tarjan *t, st_rule root) {
  t->path[t->n_path++] = root;
  while (t->n_path) {
    st_rule v = t->path[t->n_path - 1];
    if (!t->index[v]) {
      t->index[v] = t->low[v] = ++t->counter;
      t->next[v] = x->first[v];
      t->stack[t->n_stack++] = v;
    }
    if (t->next[v] > x->first[v]) { // returns from the previous edge
      st_rule w = x->to[t->next[v] - 1];
      if (t->index[w] != UINT32_MAX && t->low[w] < t->low[v]) t->low[v] = t->low[w];
    }
    bool deeper = false;
    while (t->next[v] < x->first[v + 1] && !deeper) {
      st_rule w = x->to[t->next[v]++];
      if (!t->index[w])
        t->path[t->n_path++] = w, deeper = true;
      else if (t->index[w] != UINT32_MAX && t->index[w] < t->low[v])
        t->low[v] = t->index[w];
    }
    if (deeper) continue;
    t->n_path--;
    if (t->low[v] == t->index[v]) close_component(e, x, t, v);
  }
}

static void find_components(st_engine *e, const st_edges *x) {
  size_t n = e->g->n_rules;
  uint32_t *memory = st_calloc(n, 5 * sizeof *memory);
  if (!memory) {
    st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for a grammar");
    return;
  }
  st_tarjan t = {memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n, 0, 0, 0, 1};
  for (st_rule i = 0; i < n; i++) {
    if (!t.index[i]) visit(e, x, &t, i);
  }
  st_free(memory);
}

// ---- alternatives ----

// A part of an alternative: `first`, then `rest`.
typedef struct st_rule_part {
  st_node first, rest;
} st_rule_part;
typedef struct st_parts {
  st_rule_part *items;
  size_t n, capacity;
} st_parts;

static void add_part(st_engine *e, st_parts *parts, st_node first, st_node rest) {
  if (first == ST_NODE_EPSILON) {
    if (rest == ST_NODE_EPSILON) return; // the empty text is handled separately
    first = rest;
    rest = ST_NODE_EPSILON;
  }
  if (st_engine_reserve(e, &parts->items, &parts->capacity, parts->n + 1, sizeof *parts->items)) {
    parts->items[parts->n++] = (st_rule_part){first, rest};
  }
}

static void add_production(st_engine *e, st_rule rule, st_rule corner, st_node first, bool guarded, st_node rest) {
  st_grammar *g = e->g;
  if (e->n_productions >= MOST_PRODUCTIONS) {
    st_engine_fail(e, SETUN_ERROR_LIMIT, "left-recursive rules have too many alternatives");
  }
  if (!st_engine_reserve(e, &g->members, &g->members_capacity, g->n_members + 1, sizeof *g->members) ||
      !st_engine_reserve(e, &e->productions, &e->productions_capacity, e->n_productions + 1, sizeof *e->productions)) {
    return;
  }
  g->members[g->n_members] = rest;
  e->productions[e->n_productions++] = (st_production){rule, corner, first, guarded, (uint32_t)g->n_members++};
}

static st_node pair(st_engine *e, st_node a, st_node b) {
  return st_node_seq(e->g, (st_node[]){a, b}, 2);
}

static void split_part(st_engine *e, st_parts *parts, st_rule rule, st_rule_part p) {
  st_grammar *g = e->g;
  st_node_entry n = g->nodes[p.first];
  bool nullable = st_node_is_nullable(e, p.first);
  switch ((st_node_kind)n.kind) {
  case ST_NODE_ALT:
    for (uint32_t i = 0; i < n.b; i++) add_part(e, parts, g->members[n.a + i], p.rest);
    return;
  case ST_NODE_SEQ: {
    st_node tail = p.rest;
    for (uint32_t i = n.b; i-- > 1;) tail = pair(e, g->members[n.a + i], tail);
    add_part(e, parts, g->members[n.a], tail);
    return;
  }
  case ST_NODE_REPEAT:
    if (st_node_is_nullable(e, n.a)) {
      st_engine_fail(e, SETUN_ERROR_UNSUPPORTED,
                     "a left-recursive rule begins with a repeat of an item that may be empty");
      return;
    }
    if (!n.b) add_part(e, parts, p.rest, ST_NODE_EPSILON);
    add_part(e, parts, n.a,
             pair(e, st_node_repeat(g, n.a, n.b ? n.b - 1 : 0, n.c == ST_UNBOUNDED ? n.c : n.c - 1), p.rest));
    return;
  case ST_NODE_TERM:
    if (nullable) {
      add_part(e, parts, p.rest, ST_NODE_EPSILON);
      st_term some = st_term_and2(e->t, n.a, st_term_not(e->t, ST_TERM_EPSILON));
      if (st_term_is_empty(e->t, some)) return;
      p.first = st_node_term(g, some);
    }
    add_production(e, rule, ST_RULE_NONE, p.first, false, p.rest);
    return;
  default: {
    bool corner = n.kind == ST_NODE_RULE && e->rules[n.a].component == e->rules[rule].component;
    if (nullable) add_part(e, parts, p.rest, ST_NODE_EPSILON);
    add_production(e, rule, corner ? n.a : ST_RULE_NONE, p.first, nullable && !corner, p.rest);
    return;
  }
  }
}

static void make_productions(st_engine *e) {
  st_parts parts = {0};
  for (st_rule i = 0; i < e->g->n_rules; i++) {
    if (!e->rules[i].recursive_left) continue;
    add_part(e, &parts, e->g->rules[i].body, ST_NODE_EPSILON);
    while (parts.n && !e->failure.code && !e->g->failure.code) split_part(e, &parts, i, parts.items[--parts.n]);
  }
  st_free(parts.items);
}

setun_status st_engine_productions(st_engine *e, setun_error *err) {
  size_t n = e->g->n_rules;
  st_edges x = {.first = st_calloc(n + 1, sizeof *x.first), .seen = st_calloc(e->g->n_nodes, sizeof *x.seen)};
  if (!x.first || !x.seen) {
    st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for a grammar");
  } else {
    for (st_rule i = 0; i < n; i++) {
      x.first[i] = (uint32_t)x.n;
      add_edges(e, &x, i);
    }
    x.first[n] = (uint32_t)x.n;
    if (!e->failure.code) find_components(e, &x);
    if (!e->failure.code) make_productions(e);
  }
  st_free(x.first), st_free(x.to), st_free(x.pending), st_free(x.seen);
  if (e->failure.code && err) *err = e->failure;
  return e->failure.code ? e->failure.code : st_grammar_status(e->g, err);
}
