// Making grammars: nodes and rules. Regular parts are joined into one term as they are made.
#include "constraint/grammar_nodes.h"
#include "constraint/terms_table.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 1000, MOST_NODES = 4000000 };

static st_node grammar_fail(st_grammar *g, setun_status code, const char *message) {
  if (!g->failure.code) st_fail(&g->failure, code, "%s", message);
  return ST_NODE_EMPTY;
}

static bool reserve(st_grammar *g, void *items, size_t *capacity, size_t need, size_t size) {
  return !g->failure.code && st_terms_reserve(g->terms, items, capacity, need, size);
}

static st_node add_node(st_grammar *g, st_node_entry e, unsigned depth) {
  if (g->n_nodes >= MOST_NODES) return grammar_fail(g, SETUN_ERROR_LIMIT, "the grammar is too large");
  if (depth > MOST_DEPTH) return grammar_fail(g, SETUN_ERROR_LIMIT, "the grammar is nested too deeply");
  if (!st_terms_work(g->terms, 1)) return ST_NODE_EMPTY;
  if (!reserve(g, &g->nodes, &g->nodes_capacity, g->n_nodes + 1, sizeof *g->nodes)) return ST_NODE_EMPTY;
  e.depth = (uint16_t)depth;
  g->nodes[g->n_nodes] = e;
  return (st_node)g->n_nodes++;
}

setun_status st_grammar_new(const st_constraint_limits *limits, st_grammar **out, setun_error *err) {
  st_grammar *g = st_calloc(1, sizeof *g);
  if (!g) return st_fail_memory(err, "a grammar");
  setun_status status = st_terms_new(limits, &g->terms, err);
  if (!status) {
    g->space = g->gap = ST_TERM_EPSILON;
    add_node(g, (st_node_entry){.kind = ST_NODE_TERM, .a = ST_TERM_EMPTY}, 0);
    add_node(g, (st_node_entry){.kind = ST_NODE_TERM, .a = ST_TERM_EPSILON}, 0);
    status = st_grammar_status(g, err);
  }
  if (status) {
    st_grammar_free(g);
    return status;
  }
  *out = g;
  return SETUN_OK;
}

// ---- shapes of objects and arrays, copied and freed ----

static void *copy_items(st_grammar *g, const void *items, size_t n, size_t size) {
  void *copy = st_malloc(n, size);
  if (!copy) grammar_fail(g, SETUN_ERROR_MEMORY, "out of memory for a grammar");
  if (copy && n) memcpy(copy, items, n * size);
  return copy;
}

static void free_object(st_object_entry *e) {
  st_grammar_object *o = &e->shape;
  for (size_t i = 0; o->properties && i < o->n_properties; i++) {
    st_free((char *)o->properties[i].key.data), st_free((void *)o->properties[i].choices);
  }
  for (size_t i = 0; o->classes && i < o->n_classes; i++) st_free((void *)o->classes[i].choices);
  st_free((void *)o->properties), st_free((void *)o->classes), st_free((void *)o->dependencies);
  st_free((void *)o->counters), st_free(e->named), st_free(e->others), st_free(e->keys);
}
static void free_array(st_array_entry *e) {
  for (size_t i = 0; e->shape.prefix && i < e->shape.n_prefix; i++) st_free((void *)e->shape.prefix[i].choices);
  st_free((void *)e->shape.prefix), st_free((void *)e->shape.rest.choices), st_free((void *)e->shape.counters);
}

void st_grammar_free(st_grammar *g) {
  if (!g) return;
  for (size_t i = 0; i < g->n_rules; i++) st_free(g->rules[i].name);
  for (size_t i = 0; i < g->n_tokens; i++) st_free(g->tokens[i].ids);
  for (size_t i = 0; i < g->n_objects; i++) free_object(&g->objects[i]);
  for (size_t i = 0; i < g->n_arrays; i++) free_array(&g->arrays[i]);
  st_terms_free(g->terms);
  st_free(g->nodes), st_free(g->members), st_free(g->rules), st_free(g->tokens);
  st_free(g->objects), st_free(g->arrays), st_free(g);
}

st_terms *st_grammar_terms(st_grammar *g) {
  return g->terms;
}
setun_status st_grammar_status(const st_grammar *g, setun_error *err) {
  if (!g->failure.code) return st_terms_status(g->terms, err);
  if (err) *err = g->failure;
  return g->failure.code;
}
st_node st_grammar_root(const st_grammar *g) {
  return g->has_root ? g->root : ST_NODE_EMPTY;
}

void st_grammar_set_root(st_grammar *g, st_node node) {
  g->root = node;
  g->has_root = true;
}
void st_grammar_set_space(st_grammar *g, st_term space, st_term gap) {
  g->space = space;
  g->gap = gap;
}
st_term st_term_json_space(st_terms *t, uint32_t most) {
  st_byte_set set = {{(uint64_t)1 << ' ' | (uint64_t)1 << '\t' | (uint64_t)1 << '\n' | (uint64_t)1 << '\r'}};
  return st_term_repeat(t, st_term_bytes(t, &set), 0, most);
}

st_term st_term_bare_key(st_terms *t) {
  static const st_range ends[] = {{'!', '+'}, {'-', '9'}, {';', ';'}, {'=', 'Z'},      {'\\', '\\'},
                                  {'^', 'z'}, {'|', '|'}, {'~', '~'}, {0x80, 0x10FFFF}};
  static const st_range all[] = {{' ', '+'}, {'-', '9'}, {';', ';'}, {'=', 'Z'},      {'\\', '\\'},
                                 {'^', 'z'}, {'|', '|'}, {'~', '~'}, {0x80, 0x10FFFF}};
  enum { RANGES = sizeof all / sizeof *all };
  st_term end = st_term_ranges(t, ends, RANGES, ST_PLAIN);
  st_term more = st_term_repeat(t, st_term_ranges(t, all, RANGES, ST_PLAIN), 0, ST_UNBOUNDED);
  return st_term_alt2(t, end, st_term_seq(t, end, st_term_seq(t, more, end)));
}

// ---- nodes ----

st_node st_node_term(st_grammar *g, st_term term) {
  if (term == ST_TERM_EMPTY) return ST_NODE_EMPTY;
  if (term == ST_TERM_EPSILON) return ST_NODE_EPSILON;
  return add_node(g, (st_node_entry){.kind = ST_NODE_TERM, .a = term}, 0);
}

bool st_node_as_term(const st_grammar *g, st_node node, st_term *term) {
  if (g->nodes[node].kind != ST_NODE_TERM) return false;
  *term = g->nodes[node].a;
  return true;
}

// A sequence or alternatives of the members from `base` on, which the node takes over.
static st_node list_node(st_grammar *g, st_node_kind kind, size_t base) {
  size_t n = g->n_members - base;
  if (n > UINT32_MAX || base > UINT32_MAX) return grammar_fail(g, SETUN_ERROR_LIMIT, "the grammar is too large");
  unsigned depth = 0;
  for (size_t i = base; i < g->n_members; i++) {
    if (g->nodes[g->members[i]].depth > depth) depth = g->nodes[g->members[i]].depth;
  }
  if (!n) return kind == ST_NODE_SEQ ? ST_NODE_EPSILON : ST_NODE_EMPTY;
  if (n == 1) return g->members[--g->n_members];
  return add_node(g, (st_node_entry){.kind = (uint8_t)kind, .a = (uint32_t)base, .b = (uint32_t)n}, depth + 1);
}

// Adds a member to the sequence from `base` on: two adjacent terms become one.
static void add_to_seq(st_grammar *g, size_t base, st_node node) {
  st_term last, term;
  if (g->n_members > base && st_node_as_term(g, node, &term) &&
      st_node_as_term(g, g->members[g->n_members - 1], &last)) {
    g->members[g->n_members - 1] = st_node_term(g, st_term_seq(g->terms, last, term));
    return;
  }
  if (node == ST_NODE_EPSILON) return;
  if (reserve(g, &g->members, &g->members_capacity, g->n_members + 1, sizeof *g->members))
    g->members[g->n_members++] = node;
}

st_node st_node_seq(st_grammar *g, const st_node *list, size_t n) {
  size_t base = g->n_members;
  for (size_t i = 0; i < n; i++) {
    st_node_entry e = g->nodes[list[i]];
    if (list[i] == ST_NODE_EMPTY) return g->n_members = base, ST_NODE_EMPTY;
    for (uint32_t k = 0; e.kind == ST_NODE_SEQ && k < e.b; k++) add_to_seq(g, base, g->members[e.a + k]);
    if (e.kind != ST_NODE_SEQ) add_to_seq(g, base, list[i]);
  }
  return list_node(g, ST_NODE_SEQ, base);
}

static void add_to_alt(st_grammar *g, size_t base, st_node node, st_term *terms) {
  st_term term;
  if (st_node_as_term(g, node, &term)) {
    *terms = st_term_alt2(g->terms, *terms, term);
    return;
  }
  for (size_t i = base; i < g->n_members && g->n_members - base < 64; i++) {
    if (g->members[i] == node) return;
  }
  if (reserve(g, &g->members, &g->members_capacity, g->n_members + 1, sizeof *g->members))
    g->members[g->n_members++] = node;
}

st_node st_node_alt(st_grammar *g, const st_node *list, size_t n) {
  size_t base = g->n_members;
  st_term terms = ST_TERM_EMPTY;
  for (size_t i = 0; i < n; i++) {
    st_node_entry e = g->nodes[list[i]];
    for (uint32_t k = 0; e.kind == ST_NODE_ALT && k < e.b; k++) add_to_alt(g, base, g->members[e.a + k], &terms);
    if (e.kind != ST_NODE_ALT) add_to_alt(g, base, list[i], &terms);
  }
  if (terms != ST_TERM_EMPTY) {
    st_node joined = st_node_term(g, terms);
    if (reserve(g, &g->members, &g->members_capacity, g->n_members + 1, sizeof joined))
      g->members[g->n_members++] = joined;
  }
  return list_node(g, ST_NODE_ALT, base);
}

st_node st_node_repeat(st_grammar *g, st_node node, uint32_t min, uint32_t max) {
  st_term term;
  if (min > max) return ST_NODE_EMPTY;
  if (st_node_as_term(g, node, &term)) return st_node_term(g, st_term_repeat(g->terms, term, min, max));
  if (!max) return ST_NODE_EPSILON;
  if (min == 1 && max == 1) return node;
  st_node_entry e = {.kind = ST_NODE_REPEAT, .a = node, .b = min, .c = max};
  return add_node(g, e, g->nodes[node].depth + 1u);
}

static int compare_ids(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

st_node st_node_tokens(st_grammar *g, const int32_t *ids, size_t n, bool negated) {
  if (!reserve(g, &g->tokens, &g->tokens_capacity, g->n_tokens + 1, sizeof *g->tokens)) return ST_NODE_EMPTY;
  st_token_set set = {.ids = copy_items(g, ids, n, sizeof *ids), .n = n, .negated = negated};
  if (!set.ids) return ST_NODE_EMPTY;
  if (n) qsort(set.ids, n, sizeof *set.ids, compare_ids);
  g->tokens[g->n_tokens++] = set;
  return add_node(g, (st_node_entry){.kind = ST_NODE_TOKENS, .a = (uint32_t)g->n_tokens - 1}, 0);
}

// ---- rules ----

st_rule st_grammar_rule(st_grammar *g, const char *name, size_t length) {
  if (!reserve(g, &g->rules, &g->rules_capacity, g->n_rules + 1, sizeof *g->rules)) return 0;
  char *copy = st_strndup(name, length);
  if (!copy) return grammar_fail(g, SETUN_ERROR_MEMORY, "out of memory for a grammar");
  g->rules[g->n_rules] = (st_rule_entry){.name = copy};
  return (st_rule)g->n_rules++;
}
void st_grammar_define(st_grammar *g, st_rule rule, st_node node) {
  if (rule >= g->n_rules) return; // the grammar has failed
  g->rules[rule].body = node;
  g->rules[rule].defined = true;
}
bool st_grammar_is_defined(const st_grammar *g, st_rule rule) {
  return rule < g->n_rules && g->rules[rule].defined;
}
st_node st_node_rule(st_grammar *g, st_rule rule) {
  if (rule >= g->n_rules) return grammar_fail(g, SETUN_ERROR_ARGUMENT, "a rule that was not declared");
  return add_node(g, (st_node_entry){.kind = ST_NODE_RULE, .a = rule}, 0);
}

// ---- objects and arrays ----

const st_value_choice *st_object_choices(const st_grammar_object *o, size_t i, size_t *n) {
  bool named = i < o->n_properties;
  *n = named ? o->properties[i].n_choices : o->classes[i - o->n_properties].n_choices;
  return named ? o->properties[i].choices : o->classes[i - o->n_properties].choices;
}
const st_value_choice *st_array_choices(const st_grammar_array *a, size_t i, size_t *n) {
  const st_grammar_item *item = i < a->n_prefix ? &a->prefix[i] : &a->rest;
  *n = item->n_choices;
  return item->choices;
}

static bool choices_valid(const st_grammar *g, const st_value_choice *choices, size_t n, size_t n_counters,
                          unsigned *depth) {
  if (n_counters > ST_MOST_COUNTERS) return false;
  for (size_t i = 0; i < n; i++) {
    if (choices[i].node >= g->n_nodes || (uint64_t)choices[i].counters >> n_counters) return false;
    if (g->nodes[choices[i].node].depth > *depth) *depth = g->nodes[choices[i].node].depth;
  }
  return true;
}

st_node st_node_object(st_grammar *g, const st_grammar_object *object) {
  if (!reserve(g, &g->objects, &g->objects_capacity, g->n_objects + 1, sizeof *g->objects)) return ST_NODE_EMPTY;
  st_object_entry e = {.shape = *object};
  st_grammar_object *o = &e.shape;
  st_property *properties = copy_items(g, o->properties, o->n_properties, sizeof *properties);
  st_key_class *classes = copy_items(g, o->classes, o->n_classes, sizeof *classes);
  o->properties = properties;
  o->classes = classes;
  o->dependencies = copy_items(g, o->dependencies, o->n_dependencies, sizeof *o->dependencies);
  o->counters = copy_items(g, o->counters, o->n_counters, sizeof *o->counters);
  unsigned depth = 0;
  bool valid = true;
  for (size_t i = 0; properties && i < o->n_properties; i++) {
    st_property *p = &properties[i];
    valid &= choices_valid(g, p->choices, p->n_choices, o->n_counters, &depth);
    p->key.data = copy_items(g, p->key.data, p->key.length, 1);
    p->choices = copy_items(g, p->choices, p->n_choices, sizeof *p->choices);
  }
  for (size_t i = 0; classes && i < o->n_classes; i++) {
    valid &= choices_valid(g, classes[i].choices, classes[i].n_choices, o->n_counters, &depth);
    classes[i].choices = copy_items(g, classes[i].choices, classes[i].n_choices, sizeof *classes[i].choices);
  }
  for (size_t i = 0; o->dependencies && i < o->n_dependencies; i++) {
    valid &= o->dependencies[i].property < o->n_properties && o->dependencies[i].needs < o->n_properties;
  }
  g->objects[g->n_objects++] = e;
  if (!valid) return grammar_fail(g, SETUN_ERROR_ARGUMENT, "an object's choices, counters or dependencies");
  if (g->failure.code) return ST_NODE_EMPTY;
  return add_node(g, (st_node_entry){.kind = ST_NODE_OBJECT, .a = (uint32_t)g->n_objects - 1}, depth + 1);
}

st_node st_node_array(st_grammar *g, const st_grammar_array *array) {
  if (!reserve(g, &g->arrays, &g->arrays_capacity, g->n_arrays + 1, sizeof *g->arrays)) return ST_NODE_EMPTY;
  st_array_entry e = {.shape = *array};
  st_grammar_array *a = &e.shape;
  unsigned depth = 0;
  bool valid = choices_valid(g, a->rest.choices, a->rest.n_choices, a->n_counters, &depth);
  st_grammar_item *prefix = copy_items(g, a->prefix, a->n_prefix, sizeof *prefix);
  for (size_t i = 0; prefix && i < a->n_prefix; i++) {
    valid &= choices_valid(g, prefix[i].choices, prefix[i].n_choices, a->n_counters, &depth);
    prefix[i].choices = copy_items(g, prefix[i].choices, prefix[i].n_choices, sizeof *prefix[i].choices);
  }
  a->prefix = prefix;
  a->rest.choices = copy_items(g, a->rest.choices, a->rest.n_choices, sizeof *a->rest.choices);
  a->counters = copy_items(g, a->counters, a->n_counters, sizeof *a->counters);
  g->arrays[g->n_arrays++] = e;
  if (!valid) return grammar_fail(g, SETUN_ERROR_ARGUMENT, "an array's choices or counters");
  if (g->failure.code) return ST_NODE_EMPTY;
  return add_node(g, (st_node_entry){.kind = ST_NODE_ARRAY, .a = (uint32_t)g->n_arrays - 1}, depth + 1);
}
