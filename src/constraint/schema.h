// Converts JSON schemas to grammars.
#ifndef SETUN_CONSTRAINT_SCHEMA_H
#define SETUN_CONSTRAINT_SCHEMA_H

#include "constraint/grammar.h"

typedef struct st_schema_options {
  bool ordered; // members in the order of the schema's `properties`, others after them; otherwise in any order
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
