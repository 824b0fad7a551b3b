// Expands expressions to unions of shapes, each expression once, and checks whether one provably has no values.
#include "constraint/schema_shapes.h"

#include "base/memory.h"

#include <string.h>

// A list that grows while a union is built.
typedef struct {
  const st_shape **items;
  size_t n, capacity;
} shape_list;

static void add_shape(st_schema *s, shape_list *list, const st_shape *shape) {
  if (!shape || s->status) return;
  for (size_t i = 0; i < list->n; i++) {
    if (list->items[i] == shape) return;
  }
  if (list->n >= ST_SCHEMA_SHAPES_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "more than %d alternatives", ST_SCHEMA_SHAPES_MOST);
  } else if (!st_reserve(&list->items, &list->capacity, list->n + 1, sizeof *list->items)) {
    st_schema_fail_memory(s);
  } else {
    list->items[list->n++] = shape;
  }
}

static void add_shapes(st_schema *s, shape_list *list, const st_shapes *shapes) {
  for (uint32_t i = 0; shapes && i < shapes->n; i++) add_shape(s, list, shapes->items[i]);
}

// ---- conjunctions ----

static void expand_and(st_schema *s, st_expr e, bool track, shape_list *out) {
  uint32_t n = s->exprs[e].n;
  const st_expr *list = s->exprs[e].list;
  add_shapes(s, out, st_expr_expand(s, list[0], track));
  for (uint32_t i = 1; i < n && out->n && !s->status; i++) {
    const st_shapes *right = st_expr_expand(s, list[i], track);
    shape_list both = {0};
    for (size_t k = 0; right && k < out->n; k++) {
      for (uint32_t m = 0; m < right->n && !s->status; m++) {
        add_shape(s, &both, st_shape_intersect(s, out->items[k], right->items[m]));
      }
    }
    st_free(out->items);
    *out = both;
  }
}

// ---- disjunctions ----

static bool has_evaluated(const st_shape *shape) {
  return (shape->type == ST_OBJECT && shape->as.object.n_evaluated) ||
         (shape->type == ST_ARRAY && (shape->as.array.evaluated || shape->as.array.n_evaluated_by));
}

// The shape without its record of evaluated items and members.
static const st_shape *unevaluated(st_schema *s, const st_shape *shape) {
  if (!has_evaluated(shape)) return shape;
  st_shape *copy = st_schema_alloc(s, 1, sizeof *copy);
  if (!copy) return NULL;
  *copy = *shape;
  if (copy->type == ST_ARRAY) copy->as.array.evaluated = copy->as.array.n_evaluated_by = 0;
  if (copy->type == ST_OBJECT) copy->as.object.n_evaluated = 0;
  return copy;
}

// When evaluated items and members are tracked, a value of several alternatives has everything that any of them
// evaluates, so their intersections are alternatives too. An alternative that evaluates nothing adds nothing to others.
static void add_intersections(st_schema *s, const st_expr *list, uint32_t n, uint32_t first, const st_shape *with,
                              shape_list *out) {
  for (uint32_t i = first; i < n && !s->status; i++) {
    const st_shapes *shapes = st_expr_expand(s, list[i], true);
    for (uint32_t k = 0; shapes && k < shapes->n; k++) {
      const st_shape *one = shapes->items[k];
      if (!has_evaluated(one)) continue;
      const st_shape *both = with ? st_shape_intersect(s, with, one) : one;
      if (!both) continue;
      if (with) add_shape(s, out, both);
      add_intersections(s, list, n, i + 1, both, out);
    }
  }
}

static void expand_or(st_schema *s, st_expr e, bool track, shape_list *out) {
  uint32_t n = s->exprs[e].n;
  const st_expr *list = s->exprs[e].list;
  for (uint32_t i = 0; i < n && !s->status; i++) add_shapes(s, out, st_expr_expand(s, list[i], track));
  if (track) add_intersections(s, list, n, 0, NULL, out);
}

// ---- unevaluated items and members ----

static void expand_all(st_schema *s, shape_list *out) {
  st_expr_other_types(s, ST_N_TYPES);
  for (int t = 0; t < ST_N_TYPES && !s->status; t++) add_shape(s, out, s->exprs[s->full[t]].shape);
}

static st_expr item_of(const st_array_shape *a, uint32_t i) {
  return i < a->n_prefix ? a->prefix[i] : a->rest;
}

// unevaluatedItems: items that no other keyword evaluated must be values of `of`.
static st_array_shape rest_of_items(st_schema *s, st_array_shape a, st_expr of) {
  if (a.evaluated == ST_MANY) return a;
  st_expr *either = st_schema_joined(s, a.evaluated_by, a.n_evaluated_by, &of, 1, sizeof *either);
  uint32_t n = a.n_prefix > a.evaluated ? a.n_prefix : a.evaluated;
  st_expr *prefix = st_schema_alloc(s, n + 1, sizeof *prefix);
  if (!either || !prefix) return a;
  st_expr bound = st_expr_or(s, either, a.n_evaluated_by + 1);
  for (uint32_t i = 0; i < n; i++) {
    prefix[i] = i < a.evaluated ? item_of(&a, i) : st_expr_and2(s, item_of(&a, i), bound);
  }
  a.rest = st_expr_and2(s, a.rest, bound);
  a.prefix = prefix;
  a.n_prefix = n;
  return a;
}

// unevaluatedProperties: members that no other keyword evaluated must be values of `of`. Their keys are in none of the
// sets.
static st_object_shape rest_of_members(st_schema *s, st_object_shape o, st_expr of) {
  uint32_t n_names = 0, n_patterns = 0;
  for (uint32_t i = 0; i < o.n_evaluated; i++) {
    const st_key_set *k = o.evaluated[i];
    // A set of all other keys evaluates every key that it does not name; a key that it names was evaluated by that
    // key's
    // own keyword.
    if (k->others) return o;
    n_names += k->n_names;
    n_patterns += k->n_patterns;
  }
  st_text *names = st_schema_alloc(s, n_names + 1, sizeof *names);
  st_term *patterns = st_schema_alloc(s, n_patterns + 1, sizeof *patterns);
  st_key_set *keys = st_schema_alloc(s, 1, sizeof *keys);
  if (!names || !patterns || !keys) return o;
  *keys = (st_key_set){.others = true, .names = names, .patterns = patterns};
  for (uint32_t i = 0; i < o.n_evaluated; i++) {
    const st_key_set *k = o.evaluated[i];
    if (k->n_names) memcpy(names + keys->n_names, k->names, k->n_names * sizeof *names);
    if (k->n_patterns) memcpy(patterns + keys->n_patterns, k->patterns, k->n_patterns * sizeof *patterns);
    keys->n_names += k->n_names;
    keys->n_patterns += k->n_patterns;
  }
  st_member_rule rule = {keys, of};
  o.all = st_schema_joined(s, o.all, o.n_all, &rule, 1, sizeof rule);
  if (o.all) o.n_all++;
  return o;
}

static void expand_unevaluated(st_schema *s, st_expr e, bool track, shape_list *out) {
  st_expr_entry x = s->exprs[e];
  const st_shapes *inside = st_expr_expand(s, x.a, true);
  st_expr items = x.list[0], properties = x.b;
  for (uint32_t i = 0; inside && i < inside->n && !s->status; i++) {
    st_shape *copy = st_schema_alloc(s, 1, sizeof *copy);
    if (!copy) return;
    *copy = *inside->items[i];
    if (copy->type == ST_ARRAY && items != ST_EXPR_ABSENT) {
      copy->as.array = rest_of_items(s, copy->as.array, items);
      copy->as.array.evaluated = ST_MANY;
    }
    if (copy->type == ST_OBJECT && properties != ST_EXPR_ABSENT) {
      copy->as.object = rest_of_members(s, copy->as.object, properties);
      const st_key_set **all = st_schema_alloc(s, 1, sizeof *all);
      if (!all) return;
      all[0] = st_keys_of_names(s, NULL, 0, true);
      copy->as.object.evaluated = all;
      copy->as.object.n_evaluated = 1;
    }
    if (!st_shape_is_void(s, copy)) add_shape(s, out, track ? copy : unevaluated(s, copy));
  }
}

// An expansion needs one that is in progress: a reference leads to itself, or a check has no result.
static void cannot_expand(st_schema *s, setun_status status, uint32_t node, const char *why) {
  if (s->asking) {
    s->blocked = true;
  } else {
    st_schema_fail(s, status, node, NULL, "%s", why);
  }
}

static const char CYCLE[] = "it refers to itself without descending into a value";

static st_expr formula_of(st_schema *s, st_expr e) {
  if (s->memos[e].formula) return s->memos[e].formula - 1;
  uint32_t node = s->exprs[e].a;
  if (s->memos[e].reading) {
    cannot_expand(s, SETUN_ERROR_FORMAT, node, CYCLE);
    return ST_EXPR_FALSE;
  }
  s->memos[e].reading = true;
  st_expr formula = st_schema_formula(s, node, s->exprs[e].b);
  s->memos[e].reading = false;
  if (!s->blocked) s->memos[e].formula = formula + 1;
  return formula;
}

static void expand_kind(st_schema *s, st_expr e, bool track, shape_list *out) {
  st_expr_entry x = s->exprs[e];
  switch ((st_expr_kind)x.kind) {
  case ST_EXPR_CONSTANT:
    if (e == ST_EXPR_TRUE) expand_all(s, out);
    break;
  case ST_EXPR_SHAPE: add_shape(s, out, track ? x.shape : unevaluated(s, x.shape)); break;
  case ST_EXPR_NODE: add_shapes(s, out, st_expr_expand(s, formula_of(s, e), track)); break;
  case ST_EXPR_NOT: {
    uint32_t node = s->exprs[x.a].a;
    s->at = node;
    add_shapes(s, out, st_expr_expand(s, st_expr_not(s, formula_of(s, x.a)), track));
    break;
  }
  case ST_EXPR_AND: expand_and(s, e, track, out); break;
  case ST_EXPR_OR: expand_or(s, e, track, out); break;
  case ST_EXPR_MUTE: add_shapes(s, out, st_expr_expand(s, x.a, false)); break;
  case ST_EXPR_UNEVALUATED: expand_unevaluated(s, e, track, out); break;
  }
}

const st_shapes *st_expr_expand(st_schema *s, st_expr e, bool track) {
  if (s->status || s->blocked) return NULL;
  if (s->memos[e].state[track] == 2) return s->memos[e].shapes[track];
  if (s->memos[e].state[track] == 1) {
    cannot_expand(s, SETUN_ERROR_FORMAT, s->exprs[e].kind == ST_EXPR_NODE ? s->exprs[e].a : s->at, CYCLE);
    return NULL;
  }
  if (s->depth >= ST_SCHEMA_DEPTH_MOST) {
    cannot_expand(s, SETUN_ERROR_LIMIT, s->at, "its subschemas refer to each other too deeply");
    return NULL;
  }
  uint32_t at = s->at;
  shape_list out = {0};
  s->memos[e].state[track] = 1;
  s->depth++;
  if (s->exprs[e].kind == ST_EXPR_NODE) s->at = s->exprs[e].a;
  expand_kind(s, e, track, &out);
  s->at = at;
  s->depth--;
  st_shapes *shapes = st_schema_alloc(s, 1, sizeof *shapes);
  const st_shape **items = st_schema_joined(s, out.items, out.n, NULL, 0, sizeof *out.items);
  if (shapes && items) *shapes = (st_shapes){(uint32_t)out.n, items};
  st_free(out.items);
  s->memos[e].state[track] = 0;
  if (s->status || s->blocked) return NULL;
  s->memos[e].state[track] = 2;
  s->memos[e].shapes[track] = shapes;
  return shapes;
}

// ---- emptiness ----

static bool item_is_void(st_schema *s, const st_array_shape *a) {
  for (uint32_t i = 0; i < a->min && i <= a->n_prefix; i++) {
    if (st_expr_is_void(s, item_of(a, i))) return true;
  }
  return false;
}

// ---- how many values there are ----

enum { MOST_COUNTED = 8 }; // levels of values whose number is asked for

static uint32_t times(uint32_t a, uint32_t b) {
  uint64_t product = (uint64_t)a * b;
  return a == ST_MANY || b == ST_MANY || product >= ST_MANY ? ST_MANY : (uint32_t)product;
}

static uint32_t values_most(st_schema *s, st_expr e, int depth);

static uint32_t arrays_most(st_schema *s, const st_array_shape *a, int depth) {
  if (a->min != a->max || a->max > a->n_prefix) return a->max ? ST_MANY : 1;
  uint32_t most = 1;
  for (uint32_t i = 0; i < a->max; i++) most = times(most, values_most(s, a->prefix[i], depth));
  return most;
}

// Objects that have the required members and no others.
static uint32_t objects_most(st_schema *s, const st_object_shape *o, int depth) {
  if (o->max != o->n_required) return o->max ? ST_MANY : 1;
  uint32_t most = 1;
  for (uint32_t i = 0; i < o->n_required; i++) {
    uint32_t least = ST_MANY;
    for (uint32_t k = 0; k < o->n_all; k++) {
      if (!st_keys_have(s, o->all[k].keys, o->required[i])) continue;
      uint32_t n = values_most(s, o->all[k].of, depth);
      if (n < least) least = n;
    }
    most = times(most, least);
  }
  return most;
}

static uint32_t shapes_most(st_schema *s, const st_shape *shape, int depth) {
  const st_number_shape *n = &shape->as.number;
  switch (shape->type) {
  case ST_NULL: return 1;
  case ST_BOOLEAN: return (shape->as.boolean & 1) + (shape->as.boolean >> 1 & 1);
  case ST_NUMBER: return n->low && n->high && !st_decimal_compare(n->low, n->high) ? 1 : ST_MANY;
  case ST_STRING: return shape->as.string.listed ? shape->as.string.n_texts : ST_MANY;
  case ST_ARRAY: return arrays_most(s, &shape->as.array, depth);
  case ST_OBJECT: return objects_most(s, &shape->as.object, depth);
  default: return ST_MANY;
  }
}

static uint32_t values_most(st_schema *s, st_expr e, int depth) {
  if (s->status || s->blocked || e == ST_EXPR_TRUE || depth >= MOST_COUNTED) return ST_MANY;
  s->asking++;
  const st_shapes *shapes = st_expr_expand(s, e, false);
  s->asking--;
  s->blocked = false;
  uint64_t most = shapes ? 0 : ST_MANY;
  for (uint32_t i = 0; shapes && i < shapes->n && most < ST_MANY; i++)
    most += shapes_most(s, shapes->items[i], depth + 1);
  return most < ST_MANY ? (uint32_t)most : ST_MANY;
}

uint32_t st_array_most(st_schema *s, const st_array_shape *a) {
  if (!a->unique || a->max <= a->n_prefix) return a->max;
  uint32_t most = values_most(s, a->rest, 0);
  return most < a->max - a->n_prefix ? most + a->n_prefix : a->max;
}

static bool shape_is_void(st_schema *s, const st_shape *shape) {
  if (st_shape_is_void(s, shape)) return true;
  st_terms *t = st_grammar_terms(s->grammar);
  switch (shape->type) {
  case ST_NUMBER: return st_number_term(s, &shape->as.number) == ST_TERM_EMPTY;
  case ST_STRING: return !shape->as.string.listed && st_term_is_empty(t, shape->as.string.term);
  case ST_ARRAY: return item_is_void(s, &shape->as.array) || st_array_most(s, &shape->as.array) < shape->as.array.min;
  case ST_OBJECT: return st_object_lacks_member(s, &shape->as.object, 1);
  default: return false;
  }
}

bool st_expr_is_void(st_schema *s, st_expr e) {
  if (s->status || s->blocked || e == ST_EXPR_TRUE) return false;
  if (s->memos[e].empty) return s->memos[e].empty == 3; // in progress: not proven
  if (s->depth >= ST_SCHEMA_DEPTH_MOST) return false;
  s->memos[e].empty = 1;
  s->asking++;
  s->depth++;
  const st_shapes *shapes = st_expr_expand(s, e, false);
  bool empty = shapes;
  for (uint32_t i = 0; empty && i < shapes->n; i++) empty = shape_is_void(s, shapes->items[i]);
  s->depth--;
  s->asking--;
  s->memos[e].empty = s->blocked ? 0 : empty ? 3 : 2;
  s->blocked = false;
  return empty && !s->status;
}
