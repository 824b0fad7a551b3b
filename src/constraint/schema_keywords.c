// Converts each keyword to an expression. Keywords about one type do not restrict values of other types.
#include "constraint/schema_shapes.h"

#include <string.h>

// A subschema while its keywords are read: one shape per type, and the other conditions.
typedef struct {
  st_schema *s;
  uint32_t node, scope;
  const st_json *json;
  uint8_t draft;
  uint8_t types; // one bit per type
  bool integers; // of numbers, only integers
  st_shape shapes[ST_N_TYPES];
  st_expr *also;
  size_t n_also;
} reading;

static const st_json *keyword(const reading *r, const char *name) {
  return st_json_find(r->json, name);
}

static void wrong(reading *r, const char *name, const char *expected, const st_json *found) {
  st_schema_fail(r->s, SETUN_ERROR_FORMAT, r->node, name, "expected %s, found %s", expected, st_json_kind(found));
}

static void also(reading *r, st_expr e) {
  st_expr *grown = st_schema_joined(r->s, r->also, r->n_also, &e, 1, sizeof e);
  if (!grown) return;
  r->also = grown;
  r->n_also++;
}

// The subschema at a value.
static st_expr subschema(reading *r, const char *name, const st_json *value) {
  uint32_t node = value ? st_schema_node_at(r->s, value) : UINT32_MAX;
  if (node == UINT32_MAX) {
    wrong(r, name, "a schema", value);
    return ST_EXPR_FALSE;
  }
  return st_expr_node(r->s, node, st_schema_enter(r->s, r->scope, node));
}

static st_expr *subschemas(reading *r, const char *name, const st_json *list, size_t *n) {
  *n = 0;
  if (!st_json_is_array(list)) {
    wrong(r, name, "an array of schemas", list);
    return NULL;
  }
  st_expr *out = st_schema_alloc(r->s, st_json_size(list) + 1, sizeof *out);
  for (size_t i = 0; out && i < st_json_size(list) && !r->s->status; i++) {
    out[(*n)++] = subschema(r, name, st_json_at(list, i));
  }
  return r->s->status ? NULL : out;
}

static const st_decimal *decimal(reading *r, const char *name, const st_json *v) {
  if (!st_json_is_number(v)) {
    wrong(r, name, "a number", v);
    return NULL;
  }
  return st_decimal_read(r->s, r->s->text + v->count);
}

// A count of characters, items or members; a count above 32 bits limits nothing.
static uint32_t count(reading *r, const char *name, uint32_t absent) {
  const st_json *v = keyword(r, name);
  const st_decimal *d = v ? decimal(r, name, v) : NULL;
  uint64_t value = absent;
  if (!d) return absent;
  if (d->negative || !st_decimal_is_integer(d)) {
    wrong(r, name, "an integer of at least 0", v);
  } else if (!st_decimal_unsigned(d, ST_MANY - 2, &value)) {
    value = absent == ST_MANY ? ST_MANY : ST_MANY - 2;
  }
  return (uint32_t)value;
}

// ---- types ----

static void one_type(reading *r, const st_json *v) {
  static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
  const char *name = st_json_string(v);
  for (int t = 0; name && t < ST_N_TYPES; t++) {
    if (strcmp(name, names[t])) continue;
    r->types |= (uint8_t)(1 << t);
    if (t == ST_NUMBER) r->integers = false;
    return;
  }
  if (name && !strcmp(name, "integer")) {
    if (!(r->types & 1 << ST_NUMBER)) r->integers = true;
    r->types |= 1 << ST_NUMBER;
  } else if (name) {
    st_schema_fail(r->s, SETUN_ERROR_FORMAT, r->node, "type", "expected a type of JSON, found \"%.100s\"", name);
  } else {
    wrong(r, "type", "a string or an array of strings", v);
  }
}

static void read_types(reading *r) {
  const st_json *v = keyword(r, "type");
  r->types = v ? 0 : (1 << ST_N_TYPES) - 1;
  if (!v) return;
  if (!st_json_is_array(v)) one_type(r, v);
  for (size_t i = 0; i < st_json_size(v); i++) one_type(r, st_json_at(v, i));
}

// ---- numbers ----

static void read_bound(reading *r, bool low) {
  st_number_shape *n = &r->shapes[ST_NUMBER].as.number;
  const char *closed_name = low ? "minimum" : "maximum", *open_name = low ? "exclusiveMinimum" : "exclusiveMaximum";
  const st_json *closed = keyword(r, closed_name), *open = keyword(r, open_name);
  const st_decimal *bound = closed ? decimal(r, closed_name, closed) : NULL;
  bool is_open = false;
  if (st_json_is_bool(open)) {
    if (r->draft != ST_DRAFT_4) wrong(r, open_name, "a number", open);
    is_open = bound && st_json_is(open, ST_JSON_TRUE);
  } else if (open) {
    const st_decimal *d = decimal(r, open_name, open);
    int order = d && bound ? st_decimal_compare(d, bound) : 0;
    if (d && (!bound || (low ? order >= 0 : order <= 0))) bound = d, is_open = true;
  }
  *(low ? &n->low : &n->high) = bound;
  *(low ? &n->low_open : &n->high_open) = is_open;
}

static void read_numbers(reading *r) {
  st_number_shape *n = &r->shapes[ST_NUMBER].as.number;
  read_bound(r, true);
  read_bound(r, false);
  st_multiple *multiples = st_schema_alloc(r->s, 2, sizeof *multiples);
  const st_json *v = keyword(r, "multipleOf");
  const st_decimal *of = v ? decimal(r, "multipleOf", v) : NULL;
  if (of && (of->negative || !of->n)) wrong(r, "multipleOf", "a number above 0", v);
  if (!multiples || r->s->status) return;
  if (of) multiples[n->n_multiples++] = (st_multiple){of, false};
  if (r->integers && r->draft == ST_DRAFT_4) {
    n->spelled = ST_SPELLED_WHOLE;
  } else if (r->integers) {
    multiples[n->n_multiples++] = (st_multiple){st_decimal_one(r->s), false};
  }
  n->multiples = multiples;
}

// ---- strings ----

static void read_strings(reading *r) {
  st_terms *t = st_grammar_terms(r->s->grammar);
  st_string_shape *string = &r->shapes[ST_STRING].as.string;
  const st_json *pattern = keyword(r, "pattern"), *format = keyword(r, "format");
  uint32_t min = count(r, "minLength", 0), max = count(r, "maxLength", ST_MANY);
  if (min > 0 || max != ST_MANY) {
    string->term = min > max
                       ? ST_TERM_EMPTY
                       : st_term_repeat(t, st_term_any_character(t, ST_JSON), min, max == ST_MANY ? ST_UNBOUNDED : max);
  }
  if (pattern && !st_json_is_string(pattern)) wrong(r, "pattern", "a string", pattern);
  if (format && !st_json_is_string(format)) wrong(r, "format", "a string", format);
  if (r->s->status || !(r->types & 1 << ST_STRING)) return;
  if (pattern) {
    st_term term = st_schema_pattern(r->s, r->node, "pattern", st_json_string(pattern), st_json_length(pattern));
    string->term = st_string_terms_both(r->s, string->term, term);
  }
  st_term term;
  if (format && st_schema_format(r->s, r->node, st_json_string(format), &term)) {
    string->term = st_string_terms_both(r->s, string->term, term);
  }
}

// ---- arrays ----

static void read_contains(reading *r, st_array_shape *a) {
  const st_json *v = keyword(r, "contains");
  if (!v || r->draft < ST_DRAFT_6) return;
  bool counts = r->draft >= ST_DRAFT_2019;
  st_contains c = {.of = subschema(r, "contains", v), .min = 1, .max = ST_MANY};
  if (counts) c.min = count(r, "minContains", 1), c.max = count(r, "maxContains", ST_MANY);
  st_contains *copy = st_schema_joined(r->s, &c, 1, NULL, 0, sizeof c);
  st_expr *by = st_schema_joined(r->s, &c.of, 1, NULL, 0, sizeof *by);
  if (!copy || !by) return;
  if (c.min > 0 || c.max != ST_MANY) a->contains = copy, a->n_contains = 1;
  if (r->draft >= ST_DRAFT_2020) a->evaluated_by = by, a->n_evaluated_by = 1;
}

static void read_arrays(reading *r) {
  st_array_shape *a = &r->shapes[ST_ARRAY].as.array;
  const st_json *items = keyword(r, "items"), *prefix = keyword(r, "prefixItems"), *rest = items;
  const char *rest_name = "items";
  if (st_json_is_array(items)) { // the form before 2020-12
    prefix = items;
    rest_name = "additionalItems";
    rest = keyword(r, rest_name);
  }
  if (prefix) {
    size_t n;
    a->prefix = subschemas(r, prefix == items ? "items" : "prefixItems", prefix, &n);
    a->n_prefix = (uint32_t)n;
    a->evaluated = (uint32_t)n;
  }
  if (rest) {
    a->rest = subschema(r, rest_name, rest);
    a->evaluated = ST_MANY;
  }
  a->min = count(r, "minItems", 0);
  a->max = count(r, "maxItems", ST_MANY);
  const st_json *unique = keyword(r, "uniqueItems");
  if (unique && !st_json_is_bool(unique)) wrong(r, "uniqueItems", "a boolean", unique);
  a->unique = st_json_is(unique, ST_JSON_TRUE);
  read_contains(r, a);
}

// ---- objects ----

static st_text key_text(const st_json_member *m) {
  return (st_text){m->key, m->length};
}

static void add_rule(st_object_shape *o, st_member_rule *rules, const st_key_set *keys, st_expr of) {
  if (keys) rules[o->n_all++] = (st_member_rule){keys, of};
}

// The rules of properties, patternProperties and additionalProperties; `named` gets the keys of the first two.
static void read_members(reading *r, st_object_shape *o, st_member_rule *rules, st_key_set *named) {
  const st_json *properties = keyword(r, "properties"), *patterns = keyword(r, "patternProperties");
  const st_json *additional = keyword(r, "additionalProperties");
  if (properties && !st_json_is_object(properties)) wrong(r, "properties", "an object", properties);
  if (patterns && !st_json_is_object(patterns)) wrong(r, "patternProperties", "an object", patterns);
  st_text *names = st_schema_alloc(r->s, st_json_members(properties) + 1, sizeof *names);
  st_term *terms = st_schema_alloc(r->s, st_json_members(patterns) + 1, sizeof *terms);
  if (!names || !terms || r->s->status) return;
  for (size_t i = 0; i < st_json_members(properties) && !r->s->status; i++) {
    const st_json_member *m = st_json_member_at(properties, i);
    names[i] = key_text(m);
    add_rule(o, rules, st_keys_of_names(r->s, names + i, 1, false), subschema(r, "properties", &m->value));
  }
  for (size_t i = 0; i < st_json_members(patterns) && !r->s->status; i++) {
    const st_json_member *m = st_json_member_at(patterns, i);
    terms[i] = st_schema_pattern(r->s, r->node, "patternProperties", m->key, m->length);
    st_key_set *keys = st_schema_alloc(r->s, 1, sizeof *keys);
    if (!keys) return;
    *keys = (st_key_set){.n_patterns = 1, .patterns = terms + i};
    add_rule(o, rules, keys, subschema(r, "patternProperties", &m->value));
  }
  *named = (st_key_set){.n_names = (uint32_t)st_json_members(properties),
                        .names = names,
                        .n_patterns = (uint32_t)st_json_members(patterns),
                        .patterns = terms};
  if (!additional) return;
  st_key_set *others = st_schema_alloc(r->s, 1, sizeof *others);
  if (!others) return;
  *others = *named;
  others->others = true;
  add_rule(o, rules, others, subschema(r, "additionalProperties", additional));
}

static void read_evaluated(reading *r, st_object_shape *o, const st_key_set *named) {
  const st_key_set **evaluated = st_schema_alloc(r->s, 1, sizeof *evaluated);
  st_key_set *copy = st_schema_alloc(r->s, 1, sizeof *copy);
  if (!evaluated || !copy) return;
  *copy = *named;
  if (keyword(r, "additionalProperties")) *copy = (st_key_set){.others = true};
  if (!copy->others && !copy->n_names && !copy->n_patterns) return;
  evaluated[0] = copy;
  o->evaluated = evaluated;
  o->n_evaluated = 1;
}

// The set of keys that are values of the schema: a union of terms over strings.
static void read_property_names(reading *r, st_object_shape *o, st_member_rule *rules) {
  const st_json *v = keyword(r, "propertyNames");
  if (!v || r->draft < ST_DRAFT_6) return;
  const st_shapes *shapes = st_expr_expand(r->s, subschema(r, "propertyNames", v), false);
  st_term *terms = shapes ? st_schema_alloc(r->s, shapes->n + 1, sizeof *terms) : NULL;
  st_key_set *keys = terms ? st_schema_alloc(r->s, 1, sizeof *keys) : NULL;
  if (!keys) return;
  size_t n = 0;
  for (uint32_t i = 0; i < shapes->n; i++) {
    const st_shape *shape = shapes->items[i];
    if (shape->type == ST_STRING) terms[n++] = st_string_term(r->s, &shape->as.string, ST_JSON);
  }
  terms[0] = st_term_alt(st_grammar_terms(r->s->grammar), terms, n);
  if (terms[0] == st_term_any_text(st_grammar_terms(r->s->grammar), ST_JSON)) return;
  *keys = (st_key_set){.others = true, .n_patterns = 1, .patterns = terms};
  add_rule(o, rules, keys, ST_EXPR_FALSE);
}

static const st_text *read_names(reading *r, const char *name, const st_json *list, uint32_t *n) {
  *n = 0;
  if (!st_json_is_array(list)) {
    wrong(r, name, "an array of strings", list);
    return NULL;
  }
  st_text *out = st_schema_alloc(r->s, st_json_size(list) + 1, sizeof *out);
  for (size_t i = 0; out && i < st_json_size(list); i++) {
    const st_json *v = st_json_at(list, i);
    if (!st_json_is_string(v)) {
      wrong(r, name, "an array of strings", v);
      return NULL;
    }
    bool known = false;
    st_text text = {st_json_string(v), st_json_length(v)};
    for (uint32_t k = 0; k < *n && !known; k++) known = st_text_equal(out[k], text);
    if (!known) out[(*n)++] = text;
  }
  return out;
}

static void add_needs(reading *r, st_object_shape *o, st_text key, const char *name, const st_json *list) {
  uint32_t n;
  const st_text *texts = read_names(r, name, list, &n);
  st_needs *needs = st_schema_alloc(r->s, o->n_needs + n + 1, sizeof *needs);
  if (!needs || !texts) return;
  if (o->n_needs) memcpy(needs, o->needs, o->n_needs * sizeof *needs);
  for (uint32_t i = 0; i < n; i++) needs[o->n_needs++] = (st_needs){key, texts[i]};
  o->needs = needs;
}

// Objects without the key, and values that are not objects.
static st_expr without(reading *r, st_text key) {
  st_text *names = st_schema_joined(r->s, &key, 1, NULL, 0, sizeof key);
  st_member_rule *rule = st_schema_alloc(r->s, 1, sizeof *rule);
  if (!names || !rule) return ST_EXPR_FALSE;
  *rule = (st_member_rule){st_keys_of_names(r->s, names, 1, false), ST_EXPR_FALSE};
  st_shape shape = {.type = ST_OBJECT, .as.object = {.max = ST_MANY, .all = rule, .n_all = 1}};
  return st_expr_or2(r->s, st_expr_shape(r->s, &shape), st_expr_other_types(r->s, ST_OBJECT));
}

static st_expr with(reading *r, st_text key) {
  st_text *names = st_schema_joined(r->s, &key, 1, NULL, 0, sizeof key);
  st_shape shape = {.type = ST_OBJECT, .as.object = {.max = ST_MANY, .required = names, .n_required = 1}};
  return st_expr_shape(r->s, &shape);
}

static void read_dependencies(reading *r, st_object_shape *o, const char *name) {
  const st_json *v = keyword(r, name);
  if (v && !st_json_is_object(v)) wrong(r, name, "an object", v);
  for (size_t i = 0; i < st_json_members(v) && !r->s->status; i++) {
    const st_json_member *m = st_json_member_at(v, i);
    if (st_json_is_array(&m->value)) {
      add_needs(r, o, key_text(m), name, &m->value);
    } else {
      st_expr there = st_expr_and2(r->s, with(r, key_text(m)), subschema(r, name, &m->value));
      also(r, st_expr_or2(r->s, without(r, key_text(m)), there));
    }
  }
}

static void read_objects(reading *r) {
  st_object_shape *o = &r->shapes[ST_OBJECT].as.object;
  size_t n = st_json_members(keyword(r, "properties")) + st_json_members(keyword(r, "patternProperties"));
  st_member_rule *rules = st_schema_alloc(r->s, n + 3, sizeof *rules);
  st_key_set named = {0};
  if (!rules) return;
  o->all = rules;
  read_members(r, o, rules, &named);
  if (r->s->status) return;
  read_evaluated(r, o, &named);
  read_property_names(r, o, rules);
  o->min = count(r, "minProperties", 0);
  o->max = count(r, "maxProperties", ST_MANY);
  const st_json *required = keyword(r, "required");
  if (required) o->required = read_names(r, "required", required, &o->n_required);
  if (r->draft >= ST_DRAFT_2019) read_dependencies(r, o, "dependentRequired");
  if (r->draft >= ST_DRAFT_2019) read_dependencies(r, o, "dependentSchemas");
  read_dependencies(r, o, "dependencies");
}

// ---- combinations ----

// Exactly one: each alternative excludes the others, unless they are disjoint.
static st_expr read_one_of(reading *r, const st_json *v) {
  size_t n;
  st_expr *list = subschemas(r, "oneOf", v, &n);
  st_expr *parts = list ? st_schema_alloc(r->s, n + 1, sizeof *parts) : NULL;
  st_expr *one = parts ? st_schema_alloc(r->s, n + 1, sizeof *one) : NULL;
  for (size_t i = 0; one && i < n && !r->s->status; i++) {
    size_t m = 0;
    one[m++] = list[i];
    for (size_t k = 0; k < n && !r->s->status; k++) {
      if (k == i || st_expr_is_void(r->s, st_expr_and2(r->s, list[i], list[k]))) continue;
      one[m++] = st_expr_mute(r->s, st_expr_not(r->s, list[k]));
    }
    parts[i] = st_expr_and(r->s, one, m);
  }
  return one && !r->s->status ? st_expr_or(r->s, parts, n) : ST_EXPR_FALSE;
}

static void read_conditions(reading *r) {
  const st_json *condition = keyword(r, "if"), *then = keyword(r, "then"), *other = keyword(r, "else");
  if (!condition || r->draft < ST_DRAFT_7) return;
  if (!then && !other && !r->s->has_unevaluated) return; // then it only determines what was evaluated
  st_expr holds = subschema(r, "if", condition);
  st_expr contrary = st_expr_mute(r->s, st_expr_not(r->s, holds));
  st_expr yes = then ? st_expr_and2(r->s, holds, subschema(r, "then", then)) : holds;
  st_expr no = other ? st_expr_and2(r->s, contrary, subschema(r, "else", other)) : contrary;
  also(r, st_expr_or2(r->s, yes, no));
}

static void read_reference(reading *r, const char *name) {
  const st_json *v = keyword(r, name);
  const char *text = st_json_string(v);
  uint32_t node;
  if (!v) return;
  if (!text) {
    wrong(r, name, "a string", v);
  } else if (st_schema_resolve(r->s, r->node, name, text, &node)) {
    if (!strcmp(name, "$dynamicRef")) node = st_schema_resolve_dynamic(r->s, r->scope, text, node);
    also(r, st_expr_node(r->s, node, st_schema_enter(r->s, r->scope, node)));
  }
}

static void read_combinations(reading *r) {
  const st_json *v;
  size_t n;
  if ((v = keyword(r, "allOf"))) {
    st_expr *list = subschemas(r, "allOf", v, &n);
    for (size_t i = 0; list && i < n; i++) also(r, list[i]);
  }
  if ((v = keyword(r, "anyOf"))) {
    st_expr *list = subschemas(r, "anyOf", v, &n);
    for (size_t i = 0; list && r->s->has_unevaluated && i < n; i++) {
      if (list[i] == ST_EXPR_TRUE) list[i] = st_expr_anything(r->s);
    }
    if (list) also(r, st_expr_or(r->s, list, n));
  }
  if ((v = keyword(r, "oneOf"))) also(r, read_one_of(r, v));
  if ((v = keyword(r, "not"))) also(r, st_expr_mute(r->s, st_expr_not(r->s, subschema(r, "not", v))));
  read_conditions(r);
}

static void read_values(reading *r) {
  const st_json *list = keyword(r, "enum"), *constant = keyword(r, "const");
  if (constant && r->draft >= ST_DRAFT_6) also(r, st_schema_value(r->s, constant));
  if (!list) return;
  if (!st_json_is_array(list)) {
    wrong(r, "enum", "an array", list);
  } else {
    also(r, st_schema_values(r->s, list));
  }
}

// Keywords of other drafts are refused by name; "$recursiveRef" is a plain reference where no anchor is recursive.
static void refuse_others(reading *r) {
  static const char *const refused[] = {"$recursiveAnchor", "disallow", "extends", "divisibleBy"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const st_json *v = keyword(r, refused[i]);
    if (v && !st_json_is(v, ST_JSON_FALSE)) {
      st_schema_refuse(r->s, r->node, refused[i], "this keyword of another draft cannot be enforced");
    }
  }
}

// ---- all keywords ----

st_expr st_schema_formula(st_schema *s, uint32_t node, uint32_t scope) {
  reading r = {.s = s, .node = node, .scope = scope, .json = s->nodes[node].json, .draft = s->nodes[node].draft};
  for (int t = 0; t < ST_N_TYPES; t++) r.shapes[t] = st_shape_all(s, (st_schema_type)t);
  if (r.draft <= ST_DRAFT_7 && keyword(&r, "$ref")) { // its siblings are ignored
    read_reference(&r, "$ref");
    return s->status ? ST_EXPR_FALSE : r.also[0];
  }
  refuse_others(&r);
  read_types(&r);
  read_numbers(&r);
  read_strings(&r);
  read_arrays(&r);
  read_objects(&r);
  read_reference(&r, "$ref");
  read_reference(&r, r.draft == ST_DRAFT_2019 ? "$recursiveRef" : "$dynamicRef");
  if (!s->status) read_values(&r);
  if (!s->status) read_combinations(&r);
  if (s->status) return ST_EXPR_FALSE;
  st_expr types[ST_N_TYPES];
  size_t n = 0;
  for (int t = 0; t < ST_N_TYPES; t++) {
    if (r.types & 1 << t) types[n++] = st_expr_shape(s, &r.shapes[t]);
  }
  also(&r, st_expr_or(s, types, n));
  st_expr out = st_expr_and(s, r.also, r.n_also);
  if (r.draft < ST_DRAFT_2019) return out;
  const st_json *members = keyword(&r, "unevaluatedProperties"), *items = keyword(&r, "unevaluatedItems");
  if (!members && !items) return out;
  return st_expr_unevaluated(s, out, members ? subschema(&r, "unevaluatedProperties", members) : ST_EXPR_ABSENT,
                             items ? subschema(&r, "unevaluatedItems", items) : ST_EXPR_ABSENT);
}
