// Operations on the shapes of objects.
#include "constraint/schema_shapes.h"

#include <string.h>

// ---- sets of keys ----

bool st_keys_have(st_schema *s, const st_key_set *keys, st_text name) {
  for (uint32_t i = 0; i < keys->n_names; i++) {
    if (st_text_equal(keys->names[i], name)) return !keys->others;
  }
  for (uint32_t i = 0; i < keys->n_patterns; i++) {
    if (st_term_matches_text(st_grammar_terms(s->grammar), keys->patterns[i], name, ST_JSON)) return !keys->others;
  }
  return keys->others;
}

const st_key_set *st_keys_of_names(st_schema *s, const st_text *names, uint32_t n, bool others) {
  st_key_set *keys = st_schema_alloc(s, 1, sizeof *keys);
  if (keys) *keys = (st_key_set){.others = others, .n_names = n, .names = names};
  return keys;
}

static bool same_keys(const st_key_set *a, const st_key_set *b) {
  if (a == b) return true;
  if (a->others != b->others || a->n_names != b->n_names || a->n_patterns != b->n_patterns) return false;
  for (uint32_t i = 0; i < a->n_names; i++) {
    if (!st_text_equal(a->names[i], b->names[i])) return false;
  }
  return !a->n_patterns || !memcmp(a->patterns, b->patterns, a->n_patterns * sizeof *a->patterns);
}

// ---- intersection ----

// Both lists, without duplicates.
static const st_member_rule *join_rules(st_schema *s, const st_member_rule *a, uint32_t n_a, const st_member_rule *b,
                                        uint32_t n_b, uint32_t *n) {
  *n = n_a ? n_a : n_b;
  if (!n_a) return b;
  if (!n_b) return a;
  st_member_rule *out = st_schema_joined(s, a, n_a, b, n_b, sizeof *out);
  if (!out) return NULL;
  for (uint32_t i = 0; i < n_b; i++) {
    bool known = false;
    for (uint32_t k = 0; k < n_a && !known; k++) known = a[k].of == b[i].of && same_keys(a[k].keys, b[i].keys);
    if (!known) out[(*n)++] = b[i];
  }
  return out;
}

static bool has_text(const st_text *list, uint32_t n, st_text text) {
  for (uint32_t i = 0; i < n; i++) {
    if (st_text_equal(list[i], text)) return true;
  }
  return false;
}

st_object_shape st_object_intersect(st_schema *s, const st_object_shape *a, const st_object_shape *b) {
  st_object_shape out = *a;
  out.all = join_rules(s, a->all, a->n_all, b->all, b->n_all, &out.n_all);
  out.some = join_rules(s, a->some, a->n_some, b->some, b->n_some, &out.n_some);
  st_text *required = st_schema_joined(s, a->required, a->n_required, b->required, b->n_required, sizeof *required);
  out.needs = st_schema_joined(s, a->needs, a->n_needs, b->needs, b->n_needs, sizeof *out.needs);
  out.n_needs = a->n_needs + b->n_needs;
  out.evaluated = st_schema_joined(s, a->evaluated, a->n_evaluated, b->evaluated, b->n_evaluated, sizeof(void *));
  out.n_evaluated = a->n_evaluated + b->n_evaluated;
  if (s->status) return *a;
  for (uint32_t i = 0; i < b->n_required; i++) {
    if (!has_text(a->required, a->n_required, b->required[i])) required[out.n_required++] = b->required[i];
  }
  out.required = required;
  if (out.min < b->min) out.min = b->min;
  if (out.max > b->max) out.max = b->max;
  return out;
}

bool st_object_is_void(st_schema *s, const st_object_shape *o) {
  if (o->min > o->max || o->n_required > o->max) return true;
  for (uint32_t i = 0; i < o->n_all; i++) {
    if (o->all[i].of != ST_EXPR_FALSE) continue;
    for (uint32_t k = 0; k < o->n_required; k++) {
      if (st_keys_have(s, o->all[i].keys, o->required[k])) return true;
    }
  }
  for (uint32_t i = 0; i < o->n_some; i++) {
    if (o->some[i].of == ST_EXPR_FALSE) return true;
  }
  return false;
}

bool st_object_lacks_member(st_schema *s, const st_object_shape *o, uint32_t least) {
  for (uint32_t i = 0; i < o->n_required && !s->status; i++) {
    st_expr *all = st_schema_alloc(s, o->n_all + 1, sizeof *all);
    if (!all) return false;
    uint32_t n = 0;
    for (uint32_t k = 0; k < o->n_all; k++) {
      if (st_keys_have(s, o->all[k].keys, o->required[i])) all[n++] = o->all[k].of;
    }
    if (n >= least && st_expr_is_void(s, st_expr_and(s, all, n))) return true;
  }
  return false;
}

// ---- complement ----

static st_expr object_with(st_schema *s, st_object_shape o) {
  st_shape shape = {.type = ST_OBJECT, .as.object = o};
  return st_expr_shape(s, &shape);
}

// Objects in which `name` is present with a value of `of` or, if that is false, is absent.
static st_expr with_member(st_schema *s, st_text name, st_expr of, bool there, const st_text *without) {
  st_text *names = st_schema_alloc(s, 2, sizeof *names);
  st_member_rule *rules = st_schema_alloc(s, 2, sizeof *rules);
  if (!names || !rules) return ST_EXPR_FALSE;
  names[0] = name;
  st_object_shape o = {.max = ST_MANY, .all = rules};
  if (there) o.required = names, o.n_required = 1;
  if (of != ST_EXPR_TRUE) rules[o.n_all++] = (st_member_rule){st_keys_of_names(s, names, 1, false), of};
  if (without) {
    names[1] = *without;
    rules[o.n_all++] = (st_member_rule){st_keys_of_names(s, names + 1, 1, false), ST_EXPR_FALSE};
  }
  return s->status ? ST_EXPR_FALSE : object_with(s, o);
}

// Objects in which some member with a key of the set is not a value of `rule->of`.
static st_expr breaks_all(st_schema *s, const st_member_rule *rule) {
  const st_key_set *keys = rule->keys;
  st_expr other = st_expr_not(s, rule->of);
  if (!keys->others && !keys->n_patterns) {
    st_expr *parts = st_schema_alloc(s, keys->n_names + 1, sizeof *parts);
    for (uint32_t i = 0; parts && i < keys->n_names; i++) parts[i] = with_member(s, keys->names[i], other, true, NULL);
    return parts ? st_expr_or(s, parts, keys->n_names) : ST_EXPR_FALSE;
  }
  st_member_rule *some = st_schema_alloc(s, 1, sizeof *some);
  if (!some) return ST_EXPR_FALSE;
  *some = (st_member_rule){keys, other};
  return object_with(s, (st_object_shape){.max = ST_MANY, .some = some, .n_some = 1});
}

st_expr st_object_complement(st_schema *s, const st_object_shape *o) {
  st_expr *parts = st_schema_alloc(s, (size_t)o->n_all + o->n_some + o->n_required + o->n_needs + 2, sizeof *parts);
  if (!parts) return ST_EXPR_FALSE;
  uint32_t n = 0;
  if (o->min) parts[n++] = object_with(s, (st_object_shape){.max = o->min - 1});
  if (o->max != ST_MANY) parts[n++] = object_with(s, (st_object_shape){.min = o->max + 1, .max = ST_MANY});
  for (uint32_t i = 0; i < o->n_required; i++) {
    parts[n++] = with_member(s, o->required[i], ST_EXPR_FALSE, false, NULL);
  }
  for (uint32_t i = 0; i < o->n_needs; i++) {
    parts[n++] = with_member(s, o->needs[i].key, ST_EXPR_TRUE, true, &o->needs[i].needs);
  }
  for (uint32_t i = 0; i < o->n_all; i++) {
    if (o->all[i].of != ST_EXPR_TRUE) parts[n++] = breaks_all(s, &o->all[i]);
  }
  for (uint32_t i = 0; i < o->n_some; i++) {
    st_member_rule *all = st_schema_alloc(s, 1, sizeof *all);
    if (!all) return ST_EXPR_FALSE;
    *all = (st_member_rule){o->some[i].keys, st_expr_not(s, o->some[i].of)};
    parts[n++] = object_with(s, (st_object_shape){.max = ST_MANY, .all = all, .n_all = 1});
  }
  return st_expr_or(s, parts, n);
}
