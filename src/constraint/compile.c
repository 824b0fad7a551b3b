// Compiling a grammar: checks its rules, turns regular parts into terms, and sets up the engine.
#include "constraint/engine.h"

#include "base/memory.h"

#include <string.h>

// ---- which rules can be finished, and which may be empty ----

typedef bool (*st_node_property)(const st_engine *e, st_node node);

static bool choices_have(const st_engine *e, const st_value_choice *choices, size_t n, st_node_property has) {
  for (size_t i = 0; i < n; i++) {
    if (has(e, choices[i].node)) return true;
  }
  return false;
}

static bool object_productive(const st_engine *e, const st_grammar_object *o, st_node_property has) {
  for (size_t i = 0; i < o->n_properties; i++) {
    const st_property *p = &o->properties[i];
    if (p->required && !choices_have(e, p->choices, p->n_choices, has)) return false;
  }
  return true;
}

// Can the node be finished, according to what is known about the rules so far?
static bool is_productive(const st_engine *e, st_node node) {
  const st_grammar *g = e->g;
  st_node_entry n = g->nodes[node];
  if (!st_terms_work(e->t, 1)) return false;
  switch ((st_node_kind)n.kind) {
  case ST_NODE_TERM: return n.a != ST_TERM_EMPTY;
  case ST_NODE_SEQ:
    for (uint32_t i = 0; i < n.b; i++) {
      if (!is_productive(e, g->members[n.a + i])) return false;
    }
    return true;
  case ST_NODE_ALT:
    for (uint32_t i = 0; i < n.b; i++) {
      if (is_productive(e, g->members[n.a + i])) return true;
    }
    return false;
  case ST_NODE_REPEAT: return !n.b || is_productive(e, n.a);
  case ST_NODE_RULE: return e->rules[n.a].productive;
  case ST_NODE_TOKENS: return g->tokens[n.a].n || g->tokens[n.a].negated;
  case ST_NODE_OBJECT: return object_productive(e, &g->objects[n.a].shape, is_productive);
  case ST_NODE_ARRAY: {
    const st_grammar_array *a = &g->arrays[n.a].shape;
    for (size_t i = 0; i < a->min && i <= a->n_prefix; i++) {
      size_t count;
      const st_value_choice *choices = st_array_choices(a, i, &count);
      if (!choices_have(e, choices, count, is_productive)) return false;
    }
    return true;
  }
  }
  return false;
}

bool st_node_is_nullable(const st_engine *e, st_node node) {
  const st_grammar *g = e->g;
  st_node_entry n = g->nodes[node];
  if (!st_terms_work(e->t, 1)) return false;
  switch ((st_node_kind)n.kind) {
  case ST_NODE_TERM: return st_term_is_nullable(e->t, n.a);
  case ST_NODE_SEQ:
    for (uint32_t i = 0; i < n.b; i++) {
      if (!st_node_is_nullable(e, g->members[n.a + i])) return false;
    }
    return true;
  case ST_NODE_ALT:
    for (uint32_t i = 0; i < n.b; i++) {
      if (st_node_is_nullable(e, g->members[n.a + i])) return true;
    }
    return false;
  case ST_NODE_REPEAT: return !n.b || st_node_is_nullable(e, n.a);
  case ST_NODE_RULE: return e->rules[n.a].nullable;
  default: return false;
  }
}

// Repeats until no rule's properties change.
static void find_rule_facts(st_engine *e) {
  for (bool changed = true; changed;) {
    changed = false;
    st_terms_work(e->t, e->g->n_rules);
    for (size_t i = e->g->n_rules; i-- > 0;) {
      st_rule_facts *r = &e->rules[i];
      st_node body = e->g->rules[i].body;
      if (!r->productive && is_productive(e, body)) r->productive = changed = true;
      if (!r->nullable && st_node_is_nullable(e, body)) r->nullable = changed = true;
    }
  }
}

// ---- rules that are regular become terms ----

typedef struct st_simplifier {
  st_engine *e;
  st_node *known; // the simplified form of each node, or UINT32_MAX
  size_t n_known;
  uint8_t *rules; // 0: not looked at, 1: being looked at, 2: done
  int depth;      // nesting depth of rules
} st_simplifier;

static st_node simplify(st_simplifier *s, st_node node);

static st_node simplify_list(st_simplifier *s, st_node_entry n) {
  st_grammar *g = s->e->g;
  st_node *list = st_malloc(n.b, sizeof *list);
  if (!list) return st_engine_fail(s->e, SETUN_ERROR_MEMORY, "out of memory for a grammar");
  for (uint32_t i = 0; i < n.b; i++) list[i] = simplify(s, g->members[n.a + i]);
  st_node result = n.kind == ST_NODE_SEQ ? st_node_seq(g, list, n.b) : st_node_alt(g, list, n.b);
  st_free(list);
  return result;
}

static void simplify_choices(st_simplifier *s, const st_value_choice *choices, size_t n) {
  for (size_t i = 0; i < n; i++)
    ((st_value_choice *)choices)[i].node = simplify(s, choices[i].node); // the grammar owns the choices
}

// Turns a regular rule into a term; others remain rules. A rule that is reached while it is being simplified is
// recursive.
static bool rule_term(st_simplifier *s, st_rule rule, st_term *term) {
  enum { MOST_NESTED = 64 }; // deeper rules would overflow the stack; they remain rules here
  if (s->rules[rule] == 1 || (!s->rules[rule] && s->depth >= MOST_NESTED)) return false;
  if (!s->rules[rule]) {
    s->rules[rule] = 1;
    s->depth++;
    st_node body = simplify(s, s->e->g->rules[rule].body);
    s->depth--;
    s->e->g->rules[rule].body = body;
    s->rules[rule] = 2;
  }
  return st_node_as_term(s->e->g, s->e->g->rules[rule].body, term);
}

static st_node simplify_new(st_simplifier *s, st_node node) {
  st_grammar *g = s->e->g;
  st_node_entry n = g->nodes[node];
  st_term term;
  switch ((st_node_kind)n.kind) {
  case ST_NODE_TERM:
  case ST_NODE_TOKENS: return node;
  case ST_NODE_SEQ:
  case ST_NODE_ALT: return simplify_list(s, n);
  case ST_NODE_REPEAT: {
    uint32_t min = st_node_is_nullable(s->e, n.a) ? 0 : n.b;
    return st_node_repeat(g, simplify(s, n.a), min, n.c);
  }
  case ST_NODE_RULE:
    if (!s->e->rules[n.a].productive) return ST_NODE_EMPTY;
    return rule_term(s, n.a, &term) ? st_node_term(g, term) : node;
  case ST_NODE_OBJECT: {
    const st_grammar_object *o = &g->objects[n.a].shape;
    size_t n_properties = o->n_properties, n_classes = o->n_classes, count;
    for (size_t i = 0; i < n_properties + n_classes; i++) {
      const st_value_choice *choices = st_object_choices(&g->objects[n.a].shape, i, &count);
      simplify_choices(s, choices, count);
    }
    return node;
  }
  case ST_NODE_ARRAY:
    for (size_t i = 0; i <= g->arrays[n.a].shape.n_prefix; i++) {
      size_t count;
      const st_value_choice *choices = st_array_choices(&g->arrays[n.a].shape, i, &count);
      simplify_choices(s, choices, count);
    }
    return node;
  }
  return node;
}

static st_node simplify(st_simplifier *s, st_node node) {
  if (node < s->n_known && s->known[node] != UINT32_MAX) return s->known[node];
  st_node result = simplify_new(s, node);
  if (node < s->n_known) s->known[node] = result;
  return result;
}

static void simplify_all(st_engine *e) {
  st_simplifier s = {.e = e, .n_known = e->g->n_nodes};
  s.known = st_malloc(s.n_known, sizeof *s.known);
  s.rules = st_calloc(e->g->n_rules, 1);
  if (!s.known || !s.rules) {
    st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for a grammar");
  } else {
    st_term term;
    memset(s.known, 0xff, s.n_known * sizeof *s.known);
    for (st_rule i = 0; i < e->g->n_rules; i++) rule_term(&s, i, &term);
    e->g->root = simplify(&s, e->g->root);
  }
  st_free(s.known), st_free(s.rules);
}

// ---- the keys of objects ----

static void name_keys(st_engine *e, st_object_entry *entry) {
  const st_grammar_object *o = &entry->shape;
  st_text *keys = st_malloc(o->n_properties, sizeof *keys);
  entry->named = st_calloc(o->n_properties, sizeof *entry->named);
  entry->others = st_calloc(o->n_classes, sizeof *entry->others);
  entry->keys = st_calloc(o->n_classes, sizeof *entry->keys);
  if (!keys || !entry->named || !entry->others || !entry->keys) {
    st_free(keys);
    st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for an object's keys");
    return;
  }
  for (size_t i = 0; i < o->n_properties; i++) {
    keys[i] = o->properties[i].key;
    st_term key = o->bare ? st_term_string(e->t, keys[i], ST_PLAIN)
                          : st_term_quoted(e->t, st_term_string(e->t, keys[i], ST_JSON_TIGHT));
    entry->named[i] = st_term_seq(e->t, key, st_object_colon(e, o->bare, (uint32_t)i));
  }
  st_term named = o->n_classes ? st_term_strings(e->t, keys, o->n_properties, ST_JSON) : ST_TERM_EMPTY;
  for (size_t i = 0; i < o->n_classes; i++) {
    st_term keys_left = o->classes[i].keys;
    if (named) keys_left = st_term_and2(e->t, keys_left, st_term_not(e->t, named));
    entry->keys[i] = o->bare ? st_term_and2(e->t, st_term_decoded(e->t, keys_left), st_term_bare_key(e->t))
                             : st_term_quoted(e->t, keys_left);
    entry->others[i] = st_term_seq(e->t, entry->keys[i], st_object_colon(e, o->bare, (uint32_t)(o->n_properties + i)));
  }
  st_free(keys);
}

// ---- the engine ----

static setun_status check_rules(st_engine *e, setun_error *err) {
  for (size_t i = 0; i < e->g->n_rules; i++) {
    if (!e->g->rules[i].defined) {
      return st_fail(err, SETUN_ERROR_FORMAT, "rule \"%s\" is used but not defined", e->g->rules[i].name);
    }
  }
  if (!e->g->has_root) return st_fail(err, SETUN_ERROR_FORMAT, "the grammar has no root");
  find_rule_facts(e);
  bool productive = is_productive(e, e->g->root);
  setun_status status = st_grammar_status(e->g, err);
  if (status || productive) return status;
  for (size_t i = 0; i < e->g->n_rules; i++) {
    if (e->rules[i].productive) continue;
    return st_fail(err, SETUN_ERROR_FORMAT, "no finite text matches the rule \"%s\"", e->g->rules[i].name);
  }
  return st_fail(err, SETUN_ERROR_FORMAT, "no text matches the constraint");
}

setun_status st_engine_open(st_engine *e, st_grammar *g, setun_error *err) {
  e->g = g;
  e->t = g->terms;
  e->stamp = 1;
  e->limits = e->t->limits;
  e->rules = st_calloc(g->n_rules, sizeof *e->rules);
  if (!e->rules) return st_fail_memory(err, "a constraint");
  setun_status status = st_grammar_status(g, err);
  if (!status) status = check_rules(e, err);
  if (status) return status;
  simplify_all(e);
  for (size_t i = 0; i < g->n_objects; i++) name_keys(e, &g->objects[i]);
  st_engine_frame(e, (st_frame){ST_FRAME_ROOT, 0, 0, 0, 0});
  status = st_grammar_status(g, err);
  if (!status && e->failure.code) {
    if (err) *err = e->failure;
    status = e->failure.code;
  }
  return status ? status : st_engine_productions(e, err);
}
