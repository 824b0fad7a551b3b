// Converts JSON schemas to grammars.
#ifndef SETUN_CONSTRAINT_SCHEMA_H
#define SETUN_CONSTRAINT_SCHEMA_H

#include "constraint/grammar.h"

// How values are written in a format other than JSON. Terms of texts are over UTF-8.
typedef struct st_schema_style {
  void *user;
  // Any string; NULL: as in JSON. Otherwise objects have keys without quotes, and no white space is allowed.
  st_node (*string)(void *user, st_term texts);
  // A member of the object that the whole schema is about, which is one of `texts`, or another value (in JSON): one
  // after another in the order of the schema. NULL: such an object is written like others.
  st_node (*member)(void *user, st_text key, st_term texts, st_node others);
  bool (*is_key)(void *user, st_text key); // whether the key can be written
} st_schema_style;

typedef struct st_schema_options {
  bool ordered; // members in the order of the schema's `properties`, others after them; otherwise in any order
  bool objects; // only those of its values that are objects
  const st_schema_style *style; // NULL: JSON
} st_schema_options;

// Adds a JSON schema to a grammar: `*out` matches the texts of its values, with the grammar's white space. Drafts 4, 6,
// 7, 2019-09 and 2020-12, by "$schema" (2020-12 if there is none). A keyword that cannot be enforced is
// SETUN_ERROR_UNSUPPORTED, a malformed one SETUN_ERROR_FORMAT; the messages give the keyword's JSON pointer. A schema
// that no value satisfies is SETUN_ERROR_FORMAT. `options` may be NULL.
setun_status st_grammar_add_schema(st_grammar *g, const char *text, size_t length, const st_schema_options *options,
                                   st_node *out, setun_error *err);

// The same as a complete grammar, without white space unless the caller sets it. The caller frees *out or has it
// compiled.
setun_status st_grammar_from_schema(const char *text, size_t length, const st_schema_options *options,
                                    const st_constraint_limits *limits, st_grammar **out, setun_error *err);

#endif
