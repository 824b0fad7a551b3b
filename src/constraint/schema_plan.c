// Plans of arrays and objects.
#include "constraint/schema_plan.h"

#include <string.h>

// A counter of values of `of`. `exact`: it counts each of them and no other value.
typedef struct {
  st_expr of;
  uint32_t bit;
  bool exact;
} counted;

static uint32_t add_counter(st_schema *s, st_shape_plan *p, uint32_t min, uint32_t max) {
  if (p->n_counters == ST_COUNTERS_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "more than %d counts of items or members at once",
                   ST_COUNTERS_MOST);
    return 0;
  }
  p->counters[p->n_counters] = (st_counter){min, max};
  return (uint32_t)1 << p->n_counters++;
}

// Splits the values of `of` by the counters that they add to.
static st_plan_choices choices_of(st_schema *s, st_expr of, const counted *counts, uint32_t n_counts) {
  st_plan_choice all[ST_CHOICES_MOST] = {{of, 0}};
  uint32_t n = 1;
  for (uint32_t i = 0; i < n_counts && !s->status; i++) {
    const counted *c = &counts[i];
    if (c->of == ST_EXPR_TRUE) {
      for (uint32_t k = 0; k < n; k++) all[k].counters |= c->bit;
      continue;
    }
    if (2 * n > ST_CHOICES_MOST) {
      st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "more than %d ways to count one value", ST_CHOICES_MOST);
      break;
    }
    for (uint32_t k = 0; k < n; k++) {
      all[n + k] = (st_plan_choice){st_expr_and2(s, all[k].of, c->of), all[k].counters | c->bit};
      if (c->exact) all[k].of = st_expr_and2(s, all[k].of, st_expr_not(s, c->of));
    }
    n *= 2;
  }
  st_plan_choices out = {.items = st_schema_alloc(s, n, sizeof *out.items)};
  for (uint32_t k = 0; out.items && k < n; k++) {
    if (all[k].of != ST_EXPR_FALSE) out.items[out.n++] = all[k];
  }
  return out;
}

// ---- arrays ----

static st_plan_choices item_choices(st_schema *s, const st_array_shape *a, const counted *counts, uint32_t i) {
  counted *here = st_schema_alloc(s, a->n_contains + 1, sizeof *here);
  uint32_t n = 0;
  if (!here) return (st_plan_choices){0};
  for (uint32_t k = 0; k < a->n_contains; k++) {
    if (i >= a->contains[k].from) here[n++] = counts[k];
  }
  return choices_of(s, i < a->n_prefix ? a->prefix[i] : a->rest, here, n);
}

static void plan_array(st_schema *s, const st_array_shape *a, st_shape_plan *p) {
  counted *counts = st_schema_alloc(s, a->n_contains + 1, sizeof *counts);
  if (!counts) return;
  p->max = st_array_most(s, a);
  p->n_prefix = a->n_prefix;
  for (uint32_t k = 0; k < a->n_contains; k++) {
    const st_contains *c = &a->contains[k];
    counts[k] = (counted){c->of, add_counter(s, p, c->min, c->max), c->max != ST_MANY};
    if (c->from > p->n_prefix) p->n_prefix = c->from;
  }
  p->prefix = st_schema_alloc(s, (size_t)p->n_prefix + 1, sizeof *p->prefix);
  for (uint32_t i = 0; p->prefix && i < p->n_prefix && !s->status; i++) p->prefix[i] = item_choices(s, a, counts, i);
  p->rest = item_choices(s, a, counts, p->n_prefix);
}

// ---- objects ----

// The conditions on the value of one key.
typedef struct bound {
  struct bound *next;
  st_expr of;
} bound;

typedef struct {
  st_schema *s;
  const st_object_shape *o;
  st_shape_plan *p;
  st_map *names; // a key -> its property
  bound **bounds;
  counted *counts; // of o->some
  st_term patterns[ST_SCHEMA_PATTERNS_MOST];
  uint32_t n_patterns;
} object_plan;

static uint32_t property_of(object_plan *x, st_text name) {
  int64_t found = st_map_get(x->names, name.data, name.length);
  if (found >= 0) return (uint32_t)found;
  uint32_t n = x->p->n_properties++;
  x->p->properties[n] = (st_plan_property){.key = name};
  if (!st_map_add(x->names, name.data, name.length, n, NULL)) st_schema_fail_memory(x->s);
  return n;
}

static void note_keys(object_plan *x, const st_key_set *keys) {
  for (uint32_t i = 0; i < keys->n_names; i++) property_of(x, keys->names[i]);
  for (uint32_t i = 0; i < keys->n_patterns; i++) {
    uint32_t k = 0;
    while (k < x->n_patterns && x->patterns[k] != keys->patterns[i]) k++;
    if (k < x->n_patterns) continue;
    if (k == ST_SCHEMA_PATTERNS_MOST) {
      st_schema_fail(x->s, SETUN_ERROR_LIMIT, x->s->at, "patternProperties",
                     "more than %d patterns bound the keys of one object", ST_SCHEMA_PATTERNS_MOST);
      return;
    }
    x->patterns[x->n_patterns++] = keys->patterns[i];
  }
}

static size_t count_names(const st_object_shape *o) {
  size_t n = (size_t)o->n_required + 2 * (size_t)o->n_needs;
  for (uint32_t i = 0; i < o->n_all; i++) n += o->all[i].keys->n_names;
  for (uint32_t i = 0; i < o->n_some; i++) n += o->some[i].keys->n_names;
  return n;
}

// Every key that is named anywhere becomes a property.
static void note_names(object_plan *x) {
  const st_object_shape *o = x->o;
  for (uint32_t i = 0; i < o->n_all; i++) note_keys(x, o->all[i].keys);
  for (uint32_t i = 0; i < o->n_some; i++) note_keys(x, o->some[i].keys);
  for (uint32_t i = 0; i < o->n_required; i++) x->p->properties[property_of(x, o->required[i])].required = true;
  for (uint32_t i = 0; i < o->n_needs; i++) {
    uint32_t property = property_of(x, o->needs[i].key), needs = property_of(x, o->needs[i].needs);
    if (property == needs) continue;
    x->p->dependencies[x->p->n_dependencies++] = (st_dependency){property, needs};
  }
}

static void add_bound(object_plan *x, uint32_t property, st_expr of) {
  bound *b = st_schema_alloc(x->s, 1, sizeof *b);
  if (!b) return;
  *b = (bound){x->bounds[property], of};
  x->bounds[property] = b;
}

static st_plan_choices member_choices(object_plan *x, st_expr of, const uint32_t *some, uint32_t n_some) {
  counted *here = st_schema_alloc(x->s, n_some + 1, sizeof *here);
  if (!here) return (st_plan_choices){0};
  for (uint32_t i = 0; i < n_some; i++) here[i] = x->counts[some[i]];
  return choices_of(x->s, of, here, n_some);
}

static void plan_property(object_plan *x, uint32_t property, st_expr *list, uint32_t *some) {
  st_plan_property *p = &x->p->properties[property];
  uint32_t n = 0, n_some = 0;
  for (const bound *b = x->bounds[property]; b; b = b->next) list[n++] = b->of;
  for (uint32_t i = 0; i < x->o->n_some; i++) {
    if (st_keys_have(x->s, x->o->some[i].keys, p->key)) some[n_some++] = i;
  }
  p->choices = member_choices(x, st_expr_and(x->s, list, n), some, n_some);
}

static void plan_properties(object_plan *x) {
  const st_object_shape *o = x->o;
  for (uint32_t i = 0; i < o->n_all; i++) {
    const st_key_set *keys = o->all[i].keys;
    bool few = !keys->others && !keys->n_patterns;
    for (uint32_t k = 0; few && k < keys->n_names; k++) add_bound(x, property_of(x, keys->names[k]), o->all[i].of);
    for (uint32_t k = 0; !few && k < x->p->n_properties; k++) {
      if (st_keys_have(x->s, keys, x->p->properties[k].key)) add_bound(x, k, o->all[i].of);
    }
  }
  st_expr *list = st_schema_alloc(x->s, o->n_all + 1, sizeof *list);
  uint32_t *some = st_schema_alloc(x->s, o->n_some + 1, sizeof *some);
  for (uint32_t i = 0; list && some && i < x->p->n_properties && !x->s->status; i++) plan_property(x, i, list, some);
}

// ---- classes of keys, by the patterns that they match ----

static bool class_has(const object_plan *x, const st_key_set *keys, uint32_t matched) {
  for (uint32_t i = 0; i < keys->n_patterns; i++) {
    for (uint32_t k = 0; k < x->n_patterns; k++) {
      if (x->patterns[k] == keys->patterns[i] && (matched >> k & 1)) return !keys->others;
    }
  }
  return keys->others;
}

static bool same_choices(const st_plan_choices *a, const st_plan_choices *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++) {
    same = a->items[i].of == b->items[i].of && a->items[i].counters == b->items[i].counters;
  }
  return same;
}

// The keys that match exactly these patterns.
static void add_class(object_plan *x, uint32_t matched, st_term keys) {
  const st_object_shape *o = x->o;
  st_expr *list = st_schema_alloc(x->s, o->n_all + 1, sizeof *list);
  uint32_t *some = st_schema_alloc(x->s, o->n_some + 1, sizeof *some), n = 0, n_some = 0;
  if (!list || !some) return;
  for (uint32_t i = 0; i < o->n_all; i++) {
    if (class_has(x, o->all[i].keys, matched)) list[n++] = o->all[i].of;
  }
  for (uint32_t i = 0; i < o->n_some; i++) {
    if (class_has(x, o->some[i].keys, matched)) some[n_some++] = i;
  }
  st_plan_choices choices = member_choices(x, st_expr_and(x->s, list, n), some, n_some);
  if (!choices.n) return;
  for (uint32_t i = 0; i < x->p->n_classes; i++) {
    st_plan_class *c = &x->p->classes[i];
    if (!same_choices(&c->choices, &choices)) continue;
    c->keys = st_term_alt2(st_grammar_terms(x->s->grammar), c->keys, keys);
    return;
  }
  x->p->classes[x->p->n_classes++] = (st_plan_class){keys, choices};
}

static void split_classes(object_plan *x, uint32_t pattern, uint32_t matched, st_term keys) {
  st_terms *t = st_grammar_terms(x->s->grammar);
  if (x->s->status || (pattern > 0 && st_term_is_empty(t, keys))) return;
  if (pattern == x->n_patterns) {
    add_class(x, matched, keys);
    return;
  }
  st_term one = x->patterns[pattern];
  split_classes(x, pattern + 1, matched | (uint32_t)1 << pattern, st_term_and2(t, keys, one));
  split_classes(x, pattern + 1, matched, st_term_and2(t, keys, st_term_other_text(t, one, ST_JSON)));
}

static void plan_object(st_schema *s, const st_object_shape *o, st_shape_plan *p) {
  object_plan x = {.s = s, .o = o, .p = p};
  size_t n = count_names(o);
  p->properties = st_schema_alloc(s, n + 1, sizeof *p->properties);
  p->dependencies = st_schema_alloc(s, o->n_needs + 1, sizeof *p->dependencies);
  x.bounds = st_schema_alloc(s, n + 1, sizeof *x.bounds);
  x.counts = st_schema_alloc(s, o->n_some + 1, sizeof *x.counts);
  x.names = st_map_new(n);
  if (!x.names) st_schema_fail_memory(s);
  if (!s->status) note_names(&x);
  for (uint32_t i = 0; i < o->n_some && !s->status; i++) {
    x.counts[i] = (counted){o->some[i].of, add_counter(s, p, 1, ST_MANY), false};
  }
  if (!s->status) plan_properties(&x);
  if (!s->status) p->classes = st_schema_alloc(s, (size_t)1 << x.n_patterns, sizeof *p->classes);
  if (!s->status) split_classes(&x, 0, 0, st_term_any_text(st_grammar_terms(s->grammar), ST_JSON));
  st_map_free(x.names);
}

st_shape_plan *st_schema_plan(st_schema *s, const st_shape *shape) {
  st_shape_plan *p = st_schema_alloc(s, 1, sizeof *p);
  if (!p) return NULL;
  if (shape->type == ST_ARRAY) {
    plan_array(s, &shape->as.array, p);
  } else {
    plan_object(s, &shape->as.object, p);
  }
  return s->status ? NULL : p;
}
