// const and enum: the values that are equal to the given ones.
#include "constraint/schema_shapes.h"

#include <string.h>

static st_expr one_shape(st_schema *s, st_shape shape) {
  return st_expr_shape(s, &shape);
}

static st_expr number_value(st_schema *s, const st_json *value) {
  const st_decimal *d = st_decimal_read(s, s->text + value->count);
  return one_shape(s, (st_shape){.type = ST_NUMBER, .as.number = {.low = d, .high = d}});
}

static st_expr array_value(st_schema *s, const st_json *value) {
  uint32_t n = (uint32_t)st_json_size(value);
  st_expr *items = st_schema_alloc(s, (size_t)n + 1, sizeof *items);
  if (!items) return ST_EXPR_FALSE;
  for (uint32_t i = 0; i < n && !s->status; i++) items[i] = st_schema_value(s, st_json_at(value, i));
  st_array_shape a = {.n_prefix = n, .prefix = items, .rest = ST_EXPR_FALSE, .min = n, .max = n};
  return one_shape(s, (st_shape){.type = ST_ARRAY, .as.array = a});
}

static st_expr object_value(st_schema *s, const st_json *value) {
  uint32_t n = (uint32_t)st_json_members(value);
  st_text *names = st_schema_alloc(s, (size_t)n + 1, sizeof *names);
  st_member_rule *rules = st_schema_alloc(s, (size_t)n + 1, sizeof *rules);
  if (!names || !rules) return ST_EXPR_FALSE;
  for (uint32_t i = 0; i < n && !s->status; i++) {
    const st_json_member *m = st_json_member_at(value, i);
    names[i] = (st_text){m->key, m->length};
    rules[i] = (st_member_rule){st_keys_of_names(s, names + i, 1, false), st_schema_value(s, &m->value)};
  }
  rules[n] = (st_member_rule){st_keys_of_names(s, names, n, true), ST_EXPR_FALSE};
  st_object_shape o = {.all = rules, .n_all = n + 1, .required = names, .n_required = n, .min = n, .max = n};
  return s->status ? ST_EXPR_FALSE : one_shape(s, (st_shape){.type = ST_OBJECT, .as.object = o});
}

st_expr st_schema_value(st_schema *s, const st_json *value) {
  if (s->depth >= ST_SCHEMA_DEPTH_MOST) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL, "a value nests more than %d deep", ST_SCHEMA_DEPTH_MOST);
    return ST_EXPR_FALSE;
  }
  s->depth++;
  st_expr out = ST_EXPR_FALSE;
  switch ((st_json_type_id)value->type) {
  case ST_JSON_NULL: out = one_shape(s, (st_shape){.type = ST_NULL}); break;
  case ST_JSON_FALSE: out = one_shape(s, (st_shape){.type = ST_BOOLEAN, .as.boolean = 1}); break;
  case ST_JSON_TRUE: out = one_shape(s, (st_shape){.type = ST_BOOLEAN, .as.boolean = 2}); break;
  case ST_JSON_INTEGER:
  case ST_JSON_REAL: out = number_value(s, value); break;
  case ST_JSON_STRING: {
    st_text text = {st_json_string(value), st_json_length(value)};
    out = one_shape(s, (st_shape){.type = ST_STRING, .as.string = st_string_listed(s, &text, 1)});
    break;
  }
  case ST_JSON_ARRAY: out = array_value(s, value); break;
  case ST_JSON_OBJECT: out = object_value(s, value); break;
  }
  s->depth--;
  return out;
}

st_expr st_schema_values(st_schema *s, const st_json *list) {
  size_t n = st_json_size(list), n_texts = 0, n_parts = 0;
  st_text *texts = st_schema_alloc(s, n + 1, sizeof *texts);
  st_expr *parts = st_schema_alloc(s, n + 1, sizeof *parts);
  if (!texts || !parts) return ST_EXPR_FALSE;
  for (size_t i = 0; i < n && !s->status; i++) {
    const st_json *v = st_json_at(list, i);
    if (st_json_is_string(v)) {
      texts[n_texts++] = (st_text){st_json_string(v), st_json_length(v)};
    } else {
      parts[n_parts++] = st_schema_value(s, v);
    }
  }
  if (n_texts) {
    st_string_shape strings = st_string_listed(s, texts, (uint32_t)n_texts);
    parts[n_parts++] = one_shape(s, (st_shape){.type = ST_STRING, .as.string = strings});
  }
  return st_expr_or(s, parts, n_parts);
}
