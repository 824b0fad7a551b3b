// Expressions: hash-consed, so that equal ones have the same number, with simplifications that cost nothing.
#include "constraint/schema_shape.h"

#include "base/hash.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// ---- the table ----

static uint64_t hash_entry(const st_expr_entry *e) {
  uint32_t head[4] = {e->kind, e->a, e->b, e->n};
  uint64_t h = st_hash(ST_HASH_START, head, sizeof head);
  if (e->n) h = st_hash(h, e->list, e->n * sizeof *e->list);
  return e->shape ? st_hash(h, &e->shape, sizeof e->shape) : h;
}

static bool equal_entries(const st_expr_entry *x, const st_expr_entry *y) {
  return x->kind == y->kind && x->a == y->a && x->b == y->b && x->n == y->n && x->shape == y->shape &&
         (!x->n || !memcmp(x->list, y->list, x->n * sizeof *x->list));
}

static bool grow_slots(st_schema *s) {
  size_t n = s->n_slots ? s->n_slots * 2 : 256;
  uint32_t *slots = st_calloc(n, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < s->n_exprs; i++) {
    size_t at = hash_entry(&s->exprs[i]) & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = (uint32_t)i + 1;
  }
  st_free(s->slots);
  s->slots = slots;
  s->n_slots = n;
  return true;
}

// The number of an entry; its list is copied.
static st_expr intern(st_schema *s, st_expr_entry e) {
  if (s->status) return ST_EXPR_FALSE;
  if (s->n_exprs * 2 >= s->n_slots && !grow_slots(s)) {
    st_schema_fail_memory(s);
    return ST_EXPR_FALSE;
  }
  size_t at = hash_entry(&e) & (s->n_slots - 1);
  for (; s->slots[at]; at = (at + 1) & (s->n_slots - 1)) {
    if (equal_entries(&s->exprs[s->slots[at] - 1], &e)) return s->slots[at] - 1;
  }
  if (s->n_exprs >= ST_SCHEMA_EXPRESSIONS_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "the schema takes more than %d expressions to compile",
                   ST_SCHEMA_EXPRESSIONS_MOST);
    return ST_EXPR_FALSE;
  }
  st_expr *list = e.n ? st_schema_alloc(s, e.n, sizeof *list) : NULL;
  if (!st_reserve(&s->exprs, &s->exprs_capacity, s->n_exprs + 1, sizeof *s->exprs) ||
      !st_reserve(&s->memos, &s->memos_capacity, s->n_exprs + 1, sizeof *s->memos)) {
    st_schema_fail_memory(s);
  }
  if (s->status) return ST_EXPR_FALSE;
  if (e.n) memcpy(list, e.list, e.n * sizeof *list);
  e.list = list;
  e.node = s->at;
  s->exprs[s->n_exprs] = e;
  s->memos[s->n_exprs] = (st_expr_memo){0};
  s->slots[at] = (uint32_t)++s->n_exprs;
  return (st_expr)s->n_exprs - 1;
}

// Creates the constants on the first call.
static void begin(st_schema *s) {
  for (uint32_t i = 0; i < 2 && s->n_exprs < 2; i++) intern(s, (st_expr_entry){.kind = ST_EXPR_CONSTANT, .a = i});
}

// ---- constructors ----

st_expr st_expr_shape(st_schema *s, const st_shape *shape) {
  begin(s);
  if (st_shape_is_void(s, shape)) return ST_EXPR_FALSE;
  st_shape *copy = st_schema_alloc(s, 1, sizeof *copy);
  if (!copy) return ST_EXPR_FALSE;
  *copy = *shape;
  return intern(s, (st_expr_entry){.kind = ST_EXPR_SHAPE, .shape = copy});
}

st_expr st_expr_node(st_schema *s, uint32_t node, uint32_t scope) {
  begin(s);
  const st_json *json = s->nodes[node].json;
  if (st_json_is_bool(json)) return st_json_is(json, ST_JSON_TRUE) ? ST_EXPR_TRUE : ST_EXPR_FALSE;
  return intern(s, (st_expr_entry){.kind = ST_EXPR_NODE, .a = node, .b = scope});
}

static int compare(const void *a, const void *b) {
  st_expr x = *(const st_expr *)a, y = *(const st_expr *)b;
  return (x > y) - (x < y);
}

// AND or OR: flattened, sorted, without duplicates. `neutral` has no effect, `zero` determines the result.
static st_expr combine(st_schema *s, st_expr_kind kind, const st_expr *list, size_t n, st_expr neutral, st_expr zero) {
  begin(s);
  size_t total = 0;
  for (size_t i = 0; i < n; i++) total += s->exprs[list[i]].kind == kind ? s->exprs[list[i]].n : 1;
  st_expr *flat = st_malloc(total + 1, sizeof *flat);
  if (!flat || s->status) {
    st_free(flat);
    if (!s->status) st_schema_fail_memory(s);
    return ST_EXPR_FALSE;
  }
  size_t m = 0;
  for (size_t i = 0; i < n; i++) {
    const st_expr_entry *e = &s->exprs[list[i]];
    if (e->kind == kind) {
      memcpy(flat + m, e->list, e->n * sizeof *flat);
      m += e->n;
    } else if (list[i] != neutral) {
      flat[m++] = list[i];
    }
  }
  qsort(flat, m, sizeof *flat, compare);
  size_t kept = 0;
  bool decided = false;
  for (size_t i = 0; i < m; i++) {
    if (!kept || flat[kept - 1] != flat[i]) flat[kept++] = flat[i];
    decided |= flat[i] == zero;
  }
  st_expr out = decided     ? zero
                : kept == 0 ? neutral
                : kept == 1 ? flat[0]
                            : intern(s, (st_expr_entry){.kind = kind, .n = (uint32_t)kept, .list = flat});
  st_free(flat);
  return out;
}

st_expr st_expr_and(st_schema *s, const st_expr *list, size_t n) {
  return combine(s, ST_EXPR_AND, list, n, ST_EXPR_TRUE, ST_EXPR_FALSE);
}

st_expr st_expr_or(st_schema *s, const st_expr *list, size_t n) {
  return combine(s, ST_EXPR_OR, list, n, ST_EXPR_FALSE, ST_EXPR_TRUE);
}

st_expr st_expr_mute(st_schema *s, st_expr e) {
  begin(s);
  return e <= ST_EXPR_TRUE ? e : intern(s, (st_expr_entry){.kind = ST_EXPR_MUTE, .a = e});
}

st_expr st_expr_anything(st_schema *s) {
  begin(s);
  return intern(s, (st_expr_entry){.kind = ST_EXPR_MUTE, .a = ST_EXPR_TRUE});
}

st_expr st_expr_unevaluated(st_schema *s, st_expr e, st_expr properties, st_expr items) {
  begin(s);
  if (e == ST_EXPR_FALSE) return e;
  return intern(s, (st_expr_entry){.kind = ST_EXPR_UNEVALUATED, .a = e, .b = properties, .n = 1, .list = &items});
}

st_expr st_expr_other_types(st_schema *s, st_schema_type type) {
  st_expr list[ST_N_TYPES];
  size_t n = 0;
  begin(s);
  for (int t = 0; t < ST_N_TYPES; t++) {
    if (!s->full[t]) {
      st_shape all = st_shape_all(s, (st_schema_type)t);
      s->full[t] = st_expr_shape(s, &all);
    }
    if (t != (int)type) list[n++] = s->full[t];
  }
  return st_expr_or(s, list, n);
}

// ---- negation ----

static st_expr negate_list(st_schema *s, st_expr e) {
  uint32_t n = s->exprs[e].n;
  bool conjunction = s->exprs[e].kind == ST_EXPR_AND;
  st_expr *list = st_schema_alloc(s, n, sizeof *list);
  for (uint32_t i = 0; list && i < n; i++) list[i] = st_expr_not(s, s->exprs[e].list[i]);
  if (!list) return ST_EXPR_FALSE;
  return conjunction ? st_expr_or(s, list, n) : st_expr_and(s, list, n);
}

static st_expr negate(st_schema *s, st_expr e) {
  st_expr_entry x = s->exprs[e];
  switch ((st_expr_kind)x.kind) {
  case ST_EXPR_CONSTANT: return e == ST_EXPR_FALSE ? ST_EXPR_TRUE : ST_EXPR_FALSE;
  case ST_EXPR_SHAPE: return st_shape_complement(s, x.shape);
  case ST_EXPR_NODE: return intern(s, (st_expr_entry){.kind = ST_EXPR_NOT, .a = e});
  case ST_EXPR_NOT: return x.a;
  case ST_EXPR_AND:
  case ST_EXPR_OR: return negate_list(s, e);
  case ST_EXPR_MUTE: return st_expr_mute(s, st_expr_not(s, x.a));
  case ST_EXPR_UNEVALUATED: break;
  }
  // The negation of an expression whose shapes are known only as a whole.
  const st_shapes *shapes = st_expr_expand(s, e, false);
  st_expr *list = shapes ? st_schema_alloc(s, shapes->n + 1, sizeof *list) : NULL;
  if (!list) return ST_EXPR_FALSE;
  uint32_t n = shapes->n;
  for (uint32_t i = 0; i < n; i++) list[i] = st_shape_complement(s, shapes->items[i]);
  return st_expr_and(s, list, n);
}

st_expr st_expr_not(st_schema *s, st_expr e) {
  begin(s);
  if (s->status) return ST_EXPR_FALSE;
  if (s->memos[e].negated) return s->memos[e].negated - 1;
  if (s->depth >= ST_SCHEMA_DEPTH_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "subschemas nest more than %d deep", ST_SCHEMA_DEPTH_MOST);
    return ST_EXPR_FALSE;
  }
  s->depth++;
  uint32_t at = s->at;
  if (s->exprs[e].kind == ST_EXPR_SHAPE) s->at = s->exprs[e].node;
  st_expr out = negate(s, e);
  s->at = at;
  s->depth--;
  if (!s->status && !s->blocked) s->memos[e].negated = out + 1;
  return out;
}
