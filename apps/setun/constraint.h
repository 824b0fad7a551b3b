// The options that constrain new text: a JSON schema, a regular expression, or a grammar.
#ifndef SETUN_APP_CONSTRAINT_H
#define SETUN_APP_CONSTRAINT_H

#include "input.h"

typedef struct constraint_options {
  const char *schema, *expression, *grammar; // a file, a text, a file
} constraint_options;

#define CONSTRAINT_ROWS(type)                                                                                          \
  {0,           "json-schema",                                                                                         \
   OPTION_FILE, offsetof(type, constraint.schema),                                                                     \
   "FILE",      0,                                                                                                     \
   0,           "the new text is JSON that satisfies this schema"},                                                    \
      {0,                                                                                                              \
       "regex",                                                                                                        \
       OPTION_TEXT,                                                                                                    \
       offsetof(type, constraint.expression),                                                                          \
       "EXPRESSION",                                                                                                   \
       0,                                                                                                              \
       0,                                                                                                              \
       "the whole new text matches this regular expression (ECMA 262)"},                                               \
  {                                                                                                                    \
    0, "grammar", OPTION_FILE, offsetof(type, constraint.grammar), "FILE", 0, 0,                                       \
        "the new text matches this grammar, in GBNF or Lark: by the suffix .gbnf or .lark, else GBNF if it has "       \
        "\"::=\""                                                                                                      \
  }

// The constraint that was read; `text.data` is freed with free. params.text NULL: none was requested.
typedef struct constraint_text {
  setun_constraint_params params;
  input_text text;
} constraint_text;

// Reads the file. 0, or the exit status after a report. `ignore_end`: whether --ignore-eos was given too.
int read_constraint(const command *self, const constraint_options *o, bool ignore_end, constraint_text *text);

#endif
