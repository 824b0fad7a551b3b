// The intermediate representation of a constraint: what the front ends (JSON schemas, expressions, GBNF, Lark) build
// and the engine compiles. A grammar is a context-free language over bytes and special tokens whose leaves are regular
// terms (terms.h), with nodes of their own for JSON's objects and arrays: which keys were seen, how many members there
// are and the values of counters are a state of the parser, not an expansion into 2^n rules.
//
// Nodes are made bottom-up and never change; rules are declared first and defined later, so that they may refer to each
// other, including left recursion. Regular parts are joined into one term automatically. As with terms, constructors do
// not report failures themselves: see st_grammar_status.
#ifndef SETUN_CONSTRAINT_GRAMMAR_H
#define SETUN_CONSTRAINT_GRAMMAR_H

#include "constraint/terms.h"

typedef struct st_grammar st_grammar;
typedef uint32_t st_node;
typedef uint32_t st_rule;

enum { ST_NODE_EMPTY = 0, ST_NODE_EPSILON = 1 }; // nothing; the empty text

// `limits` may be NULL. The time to compile the constraint begins here.
setun_status st_grammar_new(const st_constraint_limits *limits, st_grammar **out, setun_error *err);
void st_grammar_free(st_grammar *g); // NULL is fine
st_terms *st_grammar_terms(st_grammar *g);
// The first failure, including those of its terms.
setun_status st_grammar_status(const st_grammar *g, setun_error *err);

st_node st_node_term(st_grammar *g, st_term term);
st_node st_node_seq(st_grammar *g, const st_node *list, size_t n);
st_node st_node_alt(st_grammar *g, const st_node *list, size_t n);
st_node st_node_repeat(st_grammar *g, st_node node, uint32_t min, uint32_t max); // max: ST_UNBOUNDED
// One special token of these ids, or with `negated` one token, special or not, that is none of them.
st_node st_node_tokens(st_grammar *g, const int32_t *ids, size_t n, bool negated);
// Is the node one regular term (rules are not looked into)?
bool st_node_as_term(const st_grammar *g, st_node node, st_term *term);

// The name is used in messages; it is copied.
st_rule st_grammar_rule(st_grammar *g, const char *name, size_t length);
void st_grammar_define(st_grammar *g, st_rule rule, st_node node);
bool st_grammar_is_defined(const st_grammar *g, st_rule rule);
st_node st_node_rule(st_grammar *g, st_rule rule);
void st_grammar_set_root(st_grammar *g, st_node node);
st_node st_grammar_root(const st_grammar *g); // for building a larger root around it; ST_NODE_EMPTY: none was set

// The white space of objects and arrays, regular terms: `space` after an opening bracket and before all other
// punctuation, `gap` after colons and commas. ST_TERM_EPSILON (the default): none. Both st_term_json_space(t, 8): as
// JSON allows it, within bounds. Only `gap` a fixed " ": as json.dumps writes it, and still forced text.
void st_grammar_set_space(st_grammar *g, st_term space, st_term gap);
// At most that many of JSON's four white-space characters.
st_term st_term_json_space(st_terms *t, uint32_t most);

// One form of a value: a node, and which of the counters it adds 1 to (bit i: counter i).
typedef struct st_value_choice {
  st_node node;
  uint32_t counters;
} st_value_choice;
// Bounds on how many times such choices occur in one object or array. At most 16 counters.
typedef struct st_counter {
  uint32_t min, max;
} st_counter;

// A JSON object. Its members come in any order, or with `ordered` the properties in the order of the list, then the
// others. No key comes twice, however it is spelled. Where several choices fit, all are followed.
typedef struct st_property {
  st_text key; // decoded
  bool required;
  const st_value_choice *choices; // none: the key is not allowed (not even if it belongs to a class)
  size_t n_choices;
} st_property;
typedef struct st_key_class {
  st_term keys; // of ST_JSON, without quotes. Classes are disjoint; the properties' keys are taken out of them here
  const st_value_choice *choices;
  size_t n_choices;
} st_key_class;
typedef struct st_dependency {
  uint32_t property, needs; // if the first is present, the second must be: indexes of properties
} st_dependency;
typedef struct st_grammar_object {
  const st_property *properties;
  size_t n_properties;
  const st_key_class *classes;
  size_t n_classes;
  const st_dependency *dependencies;
  size_t n_dependencies;
  const st_counter *counters;
  size_t n_counters;
  uint32_t min, max; // members; max: ST_UNBOUNDED
  bool ordered;
  bool bare; // keys without quotes, as plain text, see st_term_bare_key; no white space
} st_grammar_object;
// Keys that can be read without quotes: texts without control characters and {}[]:,< and without blanks at the ends.
st_term st_term_bare_key(st_terms *t);
st_node st_node_object(st_grammar *g, const st_grammar_object *object);

// A JSON array: items of `prefix` by position, then of `rest`. With `unique`, no two items are equal as JSON values: a
// number is equal to its other spellings, a string is compared decoded, an object whatever the order of its keys.
typedef struct st_grammar_item {
  const st_value_choice *choices; // none: no item is allowed
  size_t n_choices;
} st_grammar_item;
typedef struct st_grammar_array {
  const st_grammar_item *prefix;
  size_t n_prefix;
  st_grammar_item rest;
  const st_counter *counters;
  size_t n_counters;
  uint32_t min, max; // items; max: ST_UNBOUNDED
  bool unique;
  bool bare; // no white space
} st_grammar_array;
st_node st_node_array(st_grammar *g, const st_grammar_array *array);

#endif
