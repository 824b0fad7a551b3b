// Shapes, which are the values of one type that satisfy a conjunction of constraints, and operations on them.
#ifndef SETUN_CONSTRAINT_SCHEMA_SHAPE_H
#define SETUN_CONSTRAINT_SCHEMA_SHAPE_H

#include "constraint/schema_context.h"
#include "constraint/schema_decimal.h"

typedef enum { ST_NULL, ST_BOOLEAN, ST_NUMBER, ST_STRING, ST_ARRAY, ST_OBJECT, ST_N_TYPES } st_schema_type;
enum { ST_MANY = UINT32_MAX }; // no upper bound on items or members

// Integers are the multiples of 1, in any spelling.
typedef struct {
  const st_decimal *of;
  bool negated;
} st_multiple;

// Draft 4 defines integers by their spelling: without point and exponent. 0: any spelling.
enum { ST_SPELLED_WHOLE = 1, ST_SPELLED_OTHERWISE = 2 };

struct st_number_shape {
  uint8_t spelled;
  const st_decimal *low, *high; // NULL: none
  bool low_open, high_open;
  uint32_t n_multiples;
  const st_multiple *multiples;
};

// Strings are either a regular term over their texts (of ST_JSON, without quotes) or a short list of texts.
typedef struct {
  bool listed;
  st_term term;         // if there is no list
  uint32_t n_texts;     // if there is a list
  const st_text *texts; // sorted
} st_string_shape;

// At least `min` and at most `max` items from position `from` on are values of `of`.
typedef struct {
  st_expr of;
  uint32_t from, min, max;
} st_contains;

typedef struct {
  uint32_t n_prefix;
  const st_expr *prefix;
  st_expr rest;
  uint32_t min, max; // items
  bool unique;
  uint32_t n_contains;
  const st_contains *contains;
  // The evaluated items, which unevaluatedItems ignores: the first ones, and items that are values of these.
  uint32_t evaluated; // ST_MANY: all
  uint32_t n_evaluated_by;
  const st_expr *evaluated_by;
} st_array_shape;

// A set of keys: those given by names and patterns (terms of ST_JSON), or with `others` all except those.
typedef struct {
  bool others;
  uint32_t n_names, n_patterns;
  const st_text *names;
  const st_term *patterns;
} st_key_set;

// About the members with a key of the set: all of them, or at least one, are values of `of`.
typedef struct {
  const st_key_set *keys;
  st_expr of;
} st_member_rule;

typedef struct {
  st_text key, needs;
} st_needs;

typedef struct {
  uint32_t n_all, n_some, n_required, n_needs, n_evaluated;
  const st_member_rule *all;  // rules for all members of a set of keys
  const st_member_rule *some; // rules for at least one
  const st_text *required;
  const st_needs *needs;
  uint32_t min, max;            // members
  const st_key_set **evaluated; // the evaluated members, which unevaluatedProperties ignores
} st_object_shape;

struct st_shape {
  st_schema_type type;
  union {
    uint8_t boolean; // bit 0: false, bit 1: true
    st_number_shape number;
    st_string_shape string;
    st_array_shape array;
    st_object_shape object;
  } as;
};

// All values of a type.
st_shape st_shape_all(st_schema *s, st_schema_type type);
// The values that both shapes (of one type) have, with everything that either evaluated; NULL: obviously none, or a
// failure.
const st_shape *st_shape_intersect(st_schema *s, const st_shape *a, const st_shape *b);
// All values, of all types, that are not in the shape, as an expression; a failure if this is not decidable.
st_expr st_shape_complement(st_schema *s, const st_shape *shape);
// Is the shape obviously empty? (False: it may still be empty.)
bool st_shape_is_void(st_schema *s, const st_shape *shape);

bool st_keys_have(st_schema *s, const st_key_set *keys, st_text name);
const st_key_set *st_keys_of_names(st_schema *s, const st_text *names, uint32_t n, bool others);
bool st_text_equal(st_text a, st_text b);

// The strings that are one of these texts.
st_string_shape st_string_listed(st_schema *s, const st_text *texts, uint32_t n);
st_term st_string_term(st_schema *s, const st_string_shape *string, st_spelling spelling);
// The texts that both terms of strings match. Each matches only spellings of valid texts.
st_term st_string_terms_both(st_schema *s, st_term a, st_term b);
// A term for the numbers of a shape as JSON writes them.
st_term st_number_term(st_schema *s, const st_number_shape *number);

// ---- expressions (schema_formula.c) ----

st_expr st_expr_shape(st_schema *s, const st_shape *shape); // copied
st_expr st_expr_node(st_schema *s, uint32_t node, uint32_t scope);
st_expr st_expr_and(st_schema *s, const st_expr *list, size_t n);
st_expr st_expr_or(st_schema *s, const st_expr *list, size_t n);
st_expr st_expr_not(st_schema *s, st_expr e);
st_expr st_expr_mute(st_schema *s, st_expr e);
// All values, as an alternative that keeps what other alternatives evaluated.
st_expr st_expr_anything(st_schema *s);
st_expr st_expr_unevaluated(st_schema *s, st_expr e, st_expr properties, st_expr items);
static inline st_expr st_expr_and2(st_schema *s, st_expr a, st_expr b) {
  return st_expr_and(s, (st_expr[]){a, b}, 2);
}
static inline st_expr st_expr_or2(st_schema *s, st_expr a, st_expr b) {
  return st_expr_or(s, (st_expr[]){a, b}, 2);
}
// All values of all types except this one.
st_expr st_expr_other_types(st_schema *s, st_schema_type type);

// ---- expansion (schema_expand.c) ----

// Expands an expression to its union of shapes; with `track`, shapes record what they evaluated.
const st_shapes *st_expr_expand(st_schema *s, st_expr e, bool track);
// The number of items that the arrays have at most, as far as uniqueItems and the number of their values say.
uint32_t st_array_most(st_schema *s, const st_array_shape *a);
// Does the expression provably have no values?
bool st_expr_is_void(st_schema *s, st_expr e);

// ---- keywords (schema_keywords.c, schema_values.c) ----

st_expr st_schema_formula(st_schema *s, uint32_t node, uint32_t scope);
// The values equal to a JSON value.
st_expr st_schema_value(st_schema *s, const st_json *value);
// The values equal to one of a list.
st_expr st_schema_values(st_schema *s, const st_json *list);
// The term of the texts of a format; false: the name does not restrict them, or a failure.
bool st_schema_format(st_schema *s, uint32_t node, const char *name, st_term *term);
// The term of a pattern, which matches anywhere in a text.
st_term st_schema_pattern(st_schema *s, uint32_t node, const char *keyword, const char *text, size_t length);

#endif
