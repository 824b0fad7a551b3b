// Converts texts to grammars: expressions, GBNF and Lark. The caller frees *out (or has it compiled). `limits` may be
// NULL. The message for a syntax error or an unsupported feature gives `name`, the line and the column (for an
// expression: the character) and what was found.
#ifndef SETUN_CONSTRAINT_FRONTENDS_H
#define SETUN_CONSTRAINT_FRONTENDS_H

#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

// A regular expression of ECMA 262 with its flag u, as a term over texts in that spelling. `search`: matches every text
// in which the expression matches somewhere (as a schema's `pattern` does); otherwise the whole text must match.
// Look-ahead at the beginning of an alternative is an intersection (or with a complement). Look-behind, word
// boundaries, back references and other look-ahead are SETUN_ERROR_UNSUPPORTED.
setun_status st_expression_term(st_terms *t, const char *text, size_t length, bool search, st_spelling spelling,
                                st_term *out, setun_error *err);
// The whole output matches the expression.
setun_status st_grammar_from_expression(const char *text, size_t length, const st_constraint_limits *limits,
                                        st_grammar **out, setun_error *err);
// llama.cpp's GBNF. Token names, as in <think>, are looked up in the tokenizer (NULL: refused).
setun_status st_grammar_from_gbnf(const char *text, size_t length, const char *name, const st_tokenizer *tokenizer,
                                  const st_constraint_limits *limits, st_grammar **out, setun_error *err);
// The commonly used subset of Lark: rules, terminals, %ignore, %import common.
setun_status st_grammar_from_lark(const char *text, size_t length, const char *name, const st_tokenizer *tokenizer,
                                  const st_constraint_limits *limits, st_grammar **out, setun_error *err);

#endif
