// Operations on the shapes of arrays.
#include "constraint/schema_shapes.h"

#include <string.h>

static st_expr item(const st_array_shape *a, uint32_t i) {
  return i < a->n_prefix ? a->prefix[i] : a->rest;
}

bool st_array_is_void(const st_array_shape *a) {
  if (a->min > a->max) return true;
  for (uint32_t i = 0; i < a->n_prefix && i < a->min; i++) {
    if (a->prefix[i] == ST_EXPR_FALSE) return true;
  }
  for (uint32_t i = 0; i < a->n_contains; i++) {
    const st_contains *c = &a->contains[i];
    if (c->min > c->max || (c->min && c->of == ST_EXPR_FALSE)) return true;
  }
  return a->min > a->n_prefix && a->rest == ST_EXPR_FALSE;
}

// Merges bounds on the same items.
static st_array_shape with_contains(st_schema *s, st_array_shape out, const st_array_shape *b) {
  st_contains *c = st_schema_joined(s, out.contains, out.n_contains, b->contains, b->n_contains, sizeof *c);
  if (!c) return out;
  uint32_t n = 0;
  for (uint32_t i = 0; i < out.n_contains + b->n_contains; i++) {
    uint32_t k = 0;
    while (k < n && (c[k].of != c[i].of || c[k].from != c[i].from)) k++;
    if (k == n) {
      c[n++] = c[i];
    } else {
      if (c[k].min < c[i].min) c[k].min = c[i].min;
      if (c[k].max > c[i].max) c[k].max = c[i].max;
    }
  }
  out.contains = c;
  out.n_contains = n;
  return out;
}

st_array_shape st_array_intersect(st_schema *s, const st_array_shape *a, const st_array_shape *b) {
  st_array_shape out = *a;
  uint32_t n = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix;
  st_expr *prefix = st_schema_alloc(s, n + 1, sizeof *prefix);
  if (!prefix) return out;
  for (uint32_t i = 0; i < n; i++) prefix[i] = st_expr_and2(s, item(a, i), item(b, i));
  out.prefix = prefix;
  out.n_prefix = n;
  out.rest = st_expr_and2(s, a->rest, b->rest);
  if (out.min < b->min) out.min = b->min;
  if (out.max > b->max) out.max = b->max;
  out.unique |= b->unique;
  if (out.evaluated < b->evaluated) out.evaluated = b->evaluated;
  out.evaluated_by =
      st_schema_joined(s, a->evaluated_by, a->n_evaluated_by, b->evaluated_by, b->n_evaluated_by, sizeof(st_expr));
  out.n_evaluated_by = a->n_evaluated_by + b->n_evaluated_by;
  return out.evaluated_by ? with_contains(s, out, b) : out;
}

static st_expr array_with(st_schema *s, st_array_shape a) {
  st_shape shape = {.type = ST_ARRAY, .as.array = a};
  return st_expr_shape(s, &shape);
}

// Arrays whose item i is not a value of `of`.
static st_expr other_item(st_schema *s, uint32_t i, st_expr of) {
  st_expr *prefix = st_schema_alloc(s, i + 1, sizeof *prefix);
  if (!prefix) return ST_EXPR_FALSE;
  for (uint32_t k = 0; k < i; k++) prefix[k] = ST_EXPR_TRUE;
  prefix[i] = st_expr_not(s, of);
  return array_with(
      s, (st_array_shape){.n_prefix = i + 1, .prefix = prefix, .rest = ST_EXPR_TRUE, .min = i + 1, .max = ST_MANY});
}

static st_expr other_count(st_schema *s, st_contains c, uint32_t min, uint32_t max) {
  st_contains *copy = st_schema_alloc(s, 1, sizeof *copy);
  if (!copy) return ST_EXPR_FALSE;
  *copy = (st_contains){c.of, c.from, min, max};
  return array_with(s, (st_array_shape){.rest = ST_EXPR_TRUE, .max = ST_MANY, .n_contains = 1, .contains = copy});
}

st_expr st_array_complement(st_schema *s, const st_array_shape *a) {
  if (a->unique) {
    st_schema_refuse(s, s->at, "uniqueItems", "its negation, which not and oneOf may need, cannot be enforced");
    return ST_EXPR_FALSE;
  }
  st_expr *parts = st_schema_alloc(s, a->n_prefix + 2 * a->n_contains + 3, sizeof *parts);
  if (!parts) return ST_EXPR_FALSE;
  uint32_t n = 0;
  st_array_shape all = {.rest = ST_EXPR_TRUE, .max = ST_MANY}, other = all;
  if (a->min) {
    other.max = a->min - 1;
    parts[n++] = array_with(s, other);
  }
  if (a->max != ST_MANY) {
    other = all;
    other.min = a->max + 1;
    parts[n++] = array_with(s, other);
  }
  for (uint32_t i = 0; i < a->n_prefix; i++) {
    if (a->prefix[i] != ST_EXPR_TRUE) parts[n++] = other_item(s, i, a->prefix[i]);
  }
  if (a->rest != ST_EXPR_TRUE) {
    st_contains rest = {.of = st_expr_not(s, a->rest), .from = a->n_prefix};
    parts[n++] = other_count(s, rest, 1, ST_MANY);
  }
  for (uint32_t i = 0; i < a->n_contains; i++) {
    const st_contains *c = &a->contains[i];
    if (c->min) parts[n++] = other_count(s, *c, 0, c->min - 1);
    if (c->max != ST_MANY) parts[n++] = other_count(s, *c, c->max + 1, ST_MANY);
  }
  return st_expr_or(s, parts, n);
}
