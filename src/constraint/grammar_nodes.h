// The nodes of a grammar, for the files of this directory.
#ifndef SETUN_CONSTRAINT_GRAMMAR_NODES_H
#define SETUN_CONSTRAINT_GRAMMAR_NODES_H

#include "constraint/grammar.h"

typedef enum st_node_kind {
  ST_NODE_TERM,   // a: the term
  ST_NODE_SEQ,    // b members from members[a]
  ST_NODE_ALT,    // the same
  ST_NODE_REPEAT, // a, b to c times
  ST_NODE_RULE,   // a: the rule
  ST_NODE_TOKENS, // a: index into token sets
  ST_NODE_OBJECT, // a: index into objects
  ST_NODE_ARRAY,  // a: index into arrays
} st_node_kind;

typedef struct st_node_entry {
  uint8_t kind;
  uint16_t depth;
  uint32_t a, b, c;
} st_node_entry;

typedef struct st_rule_entry {
  char *name;
  st_node body;
  bool defined;
} st_rule_entry;

typedef struct st_token_set {
  int32_t *ids; // sorted
  size_t n;
  bool negated;
} st_token_set;

// A copy of an st_grammar_object that owns all its texts.
typedef struct st_object_entry {
  st_grammar_object shape; // its pointers are owned by this entry
  // Filled when the grammar is compiled: of each property and class, a key in quotes with its colon and mark, without
  // the properties' keys in the classes; and the classes' keys in quotes alone.
  st_term *named, *others, *keys;
  // A frame's values once an object has begun: its beginning, and its first state.
  bool has_begun;
  st_term begin;
  uint32_t state;
} st_object_entry;
typedef struct st_array_entry {
  st_grammar_array shape;
} st_array_entry;

struct st_grammar {
  st_terms *terms;
  setun_error failure;
  st_node_entry *nodes;
  size_t n_nodes, nodes_capacity;
  st_node *members;
  size_t n_members, members_capacity;
  st_rule_entry *rules;
  size_t n_rules, rules_capacity;
  st_token_set *tokens;
  size_t n_tokens, tokens_capacity;
  st_object_entry *objects;
  size_t n_objects, objects_capacity;
  st_array_entry *arrays;
  size_t n_arrays, arrays_capacity;
  st_term space, gap;
  st_node root;
  bool has_root;
};

enum { ST_MOST_COUNTERS = 16 };

// The choices of entry `i`: first the properties' (or the prefix's), then the classes' (or the rest's).
const st_value_choice *st_object_choices(const st_grammar_object *o, size_t i, size_t *n);
const st_value_choice *st_array_choices(const st_grammar_array *a, size_t i, size_t *n);

#endif
