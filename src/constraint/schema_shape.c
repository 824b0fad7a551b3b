// Operations on shapes: booleans, numbers and strings here, arrays and objects in separate files.
#include "constraint/schema_shapes.h"
#include "constraint/terms_table.h"

#include <stdlib.h>
#include <string.h>

st_shape st_shape_all(st_schema *s, st_schema_type type) {
  st_shape shape = {.type = type};
  switch (type) {
  case ST_BOOLEAN: shape.as.boolean = 3; break;
  case ST_STRING: shape.as.string.term = st_term_any_text(st_grammar_terms(s->grammar), ST_JSON); break;
  case ST_ARRAY: shape.as.array = (st_array_shape){.rest = ST_EXPR_TRUE, .max = ST_MANY}; break;
  case ST_OBJECT: shape.as.object.max = ST_MANY; break;
  default: break;
  }
  return shape;
}

bool st_text_equal(st_text a, st_text b) {
  return a.length == b.length && (!a.length || !memcmp(a.data, b.data, a.length));
}

void *st_schema_joined(st_schema *s, const void *a, size_t n_a, const void *b, size_t n_b, size_t size) {
  char *out = st_schema_alloc(s, n_a + n_b + 1, size);
  if (!out) return NULL;
  if (n_a) memcpy(out, a, n_a * size);
  if (n_b) memcpy(out + n_a * size, b, n_b * size);
  return out;
}

// ---- numbers ----

static bool number_is_void(const st_number_shape *n) {
  if (n->spelled == (ST_SPELLED_WHOLE | ST_SPELLED_OTHERWISE)) return true;
  if (!n->low || !n->high) return false;
  int order = st_decimal_compare(n->low, n->high);
  return order > 0 || (order == 0 && (n->low_open || n->high_open));
}

static st_number_shape intersect_numbers(st_schema *s, const st_number_shape *a, const st_number_shape *b) {
  st_number_shape out = *a;
  out.spelled |= b->spelled;
  int order = !b->low ? 1 : !a->low ? -1 : st_decimal_compare(a->low, b->low);
  if (order < 0) out.low = b->low, out.low_open = b->low_open;
  if (order == 0) out.low_open |= b->low_open;
  order = !b->high ? -1 : !a->high ? 1 : st_decimal_compare(a->high, b->high);
  if (order > 0) out.high = b->high, out.high_open = b->high_open;
  if (order == 0) out.high_open |= b->high_open;
  st_multiple *m = st_schema_joined(s, a->multiples, a->n_multiples, b->multiples, b->n_multiples, sizeof *m);
  if (!m) return out;
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->n_multiples + b->n_multiples; i++) {
    bool known = false;
    for (uint32_t k = 0; k < n; k++) {
      known |= m[k].negated == m[i].negated && !st_decimal_compare(m[k].of, m[i].of);
    }
    if (!known) m[n++] = m[i];
  }
  out.multiples = m;
  out.n_multiples = n;
  return out;
}

static st_expr number_complement(st_schema *s, const st_number_shape *n) {
  st_expr *parts = st_schema_alloc(s, n->n_multiples + 3, sizeof *parts);
  if (!parts) return ST_EXPR_FALSE;
  uint32_t count = 0;
  st_shape shape = {.type = ST_NUMBER};
  if (n->spelled) {
    shape.as.number = (st_number_shape){.spelled = n->spelled ^ (ST_SPELLED_WHOLE | ST_SPELLED_OTHERWISE)};
    parts[count++] = st_expr_shape(s, &shape);
  }
  if (n->low) {
    shape.as.number = (st_number_shape){.high = n->low, .high_open = !n->low_open};
    parts[count++] = st_expr_shape(s, &shape);
  }
  if (n->high) {
    shape.as.number = (st_number_shape){.low = n->high, .low_open = !n->high_open};
    parts[count++] = st_expr_shape(s, &shape);
  }
  for (uint32_t i = 0; i < n->n_multiples; i++) {
    st_multiple *m = st_schema_alloc(s, 1, sizeof *m);
    if (!m) return ST_EXPR_FALSE;
    *m = (st_multiple){n->multiples[i].of, !n->multiples[i].negated};
    shape.as.number = (st_number_shape){.multiples = m, .n_multiples = 1};
    parts[count++] = st_expr_shape(s, &shape);
  }
  return st_expr_or(s, parts, count);
}

// ---- strings ----

st_term st_string_term(st_schema *s, const st_string_shape *string, st_spelling spelling) {
  if (!string->listed) return string->term;
  st_text *texts = st_schema_joined(s, string->texts, string->n_texts, NULL, 0, sizeof *texts);
  return texts ? st_term_strings(st_grammar_terms(s->grammar), texts, string->n_texts, spelling) : ST_TERM_EMPTY;
}

static int compare_texts(st_text a, st_text b) {
  size_t n = a.length < b.length ? a.length : b.length;
  int order = n ? memcmp(a.data, b.data, n) : 0;
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

static bool list_has(const st_string_shape *list, st_text text) {
  uint32_t low = 0, high = list->n_texts;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = compare_texts(list->texts[middle], text);
    if (!order) return true;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return false;
}

static int compare_text_items(const void *a, const void *b) {
  return compare_texts(*(const st_text *)a, *(const st_text *)b);
}

st_string_shape st_string_listed(st_schema *s, const st_text *texts, uint32_t n) {
  st_text *sorted = st_schema_joined(s, texts, n, NULL, 0, sizeof *sorted);
  if (!sorted) return (st_string_shape){.listed = true};
  if (n) qsort(sorted, n, sizeof *sorted, compare_text_items);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!kept || !st_text_equal(sorted[kept - 1], sorted[i])) sorted[kept++] = sorted[i];
  }
  return (st_string_shape){.listed = true, .n_texts = kept, .texts = sorted};
}

st_term st_string_terms_both(st_schema *s, st_term a, st_term b) {
  st_terms *t = st_grammar_terms(s->grammar);
  st_term any = st_term_any_text(t, ST_JSON);
  if (a == any || b == any) return a == any ? b : a; // not an intersection, which would be searched for a text
  return st_term_and2(t, a, b);
}

static st_string_shape intersect_strings(st_schema *s, const st_string_shape *a, const st_string_shape *b) {
  st_terms *t = st_grammar_terms(s->grammar);
  if (!a->listed && !b->listed) return (st_string_shape){.term = st_string_terms_both(s, a->term, b->term)};
  const st_string_shape *list = a->listed ? a : b, *other = a->listed ? b : a;
  st_text *texts = st_schema_alloc(s, list->n_texts + 1, sizeof *texts);
  if (!texts) return *list;
  uint32_t n = 0;
  for (uint32_t i = 0; i < list->n_texts; i++) {
    bool both =
        other->listed ? list_has(other, list->texts[i]) : st_term_matches_text(t, other->term, list->texts[i], ST_JSON);
    if (both) texts[n++] = list->texts[i];
  }
  return (st_string_shape){.listed = true, .n_texts = n, .texts = texts};
}

static st_expr string_complement(st_schema *s, const st_string_shape *string) {
  st_shape shape = {.type = ST_STRING};
  st_term term = st_string_term(s, string, ST_JSON);
  shape.as.string.term = st_term_other_text(st_grammar_terms(s->grammar), term, ST_JSON);
  return st_expr_shape(s, &shape);
}

// ---- all types ----

bool st_shape_is_void(st_schema *s, const st_shape *shape) {
  switch (shape->type) {
  case ST_BOOLEAN: return !shape->as.boolean;
  case ST_NUMBER: return number_is_void(&shape->as.number);
  case ST_STRING: return shape->as.string.listed ? !shape->as.string.n_texts : shape->as.string.term == ST_TERM_EMPTY;
  case ST_ARRAY: return st_array_is_void(&shape->as.array);
  case ST_OBJECT: return st_object_is_void(s, &shape->as.object);
  default: return false;
  }
}

const st_shape *st_shape_intersect(st_schema *s, const st_shape *a, const st_shape *b) {
  if (a->type != b->type) return NULL;
  st_terms_work(st_grammar_terms(s->grammar), 16);
  if (++s->work > ST_SCHEMA_WORK_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "its alternatives have more than %d combinations",
                   ST_SCHEMA_WORK_MOST);
    return NULL;
  }
  st_shape out = {.type = a->type};
  switch (a->type) {
  case ST_BOOLEAN: out.as.boolean = a->as.boolean & b->as.boolean; break;
  case ST_NUMBER: out.as.number = intersect_numbers(s, &a->as.number, &b->as.number); break;
  case ST_STRING: out.as.string = intersect_strings(s, &a->as.string, &b->as.string); break;
  case ST_ARRAY: out.as.array = st_array_intersect(s, &a->as.array, &b->as.array); break;
  case ST_OBJECT: out.as.object = st_object_intersect(s, &a->as.object, &b->as.object); break;
  default: break;
  }
  if (s->status || st_shape_is_void(s, &out)) return NULL;
  if (out.type == ST_OBJECT && st_object_lacks_member(s, &out.as.object, 2)) return NULL;
  st_shape *copy = st_schema_alloc(s, 1, sizeof *copy);
  if (copy) *copy = out;
  return copy;
}

st_expr st_shape_complement(st_schema *s, const st_shape *shape) {
  st_expr inside = ST_EXPR_FALSE;
  switch (shape->type) {
  case ST_BOOLEAN: {
    st_shape other = {.type = ST_BOOLEAN, .as.boolean = shape->as.boolean ^ 3};
    inside = st_expr_shape(s, &other);
    break;
  }
  case ST_NUMBER: inside = number_complement(s, &shape->as.number); break;
  case ST_STRING: inside = string_complement(s, &shape->as.string); break;
  case ST_ARRAY: inside = st_array_complement(s, &shape->as.array); break;
  case ST_OBJECT: inside = st_object_complement(s, &shape->as.object); break;
  default: break;
  }
  return st_expr_or2(s, inside, st_expr_other_types(s, shape->type));
}
