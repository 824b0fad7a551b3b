// Reading the options for constrained text.
#include "constraint.h"

#include "output.h"

#include <string.h>

enum { CONSTRAINT_BYTES_MOST = 16 << 20 };

static bool has_ending(const char *path, const char *ending) {
  size_t n = strlen(path), m = strlen(ending);
  return n > m && !strcmp(path + n - m, ending);
}

static setun_grammar kind_of_grammar(const char *path, const input_text *text) {
  if (has_ending(path, ".gbnf")) return SETUN_GRAMMAR_GBNF;
  if (has_ending(path, ".lark")) return SETUN_GRAMMAR_LARK;
  for (size_t i = 0; i + 3 <= text->length; i++) {
    if (!memcmp(text->data + i, "::=", 3)) return SETUN_GRAMMAR_GBNF;
  }
  return SETUN_GRAMMAR_LARK;
}

int read_constraint(const command *self, const constraint_options *o, bool ignore_end, constraint_text *text) {
  const char *path = o->schema ? o->schema : o->grammar;
  *text = (constraint_text){.params = setun_constraint_params_default()};
  if ((o->schema != NULL) + (o->expression != NULL) + (o->grammar != NULL) > 1)
    return usage_error(self, "--json-schema, --regex and --grammar exclude each other");
  if (!path && !o->expression) return 0;
  if (ignore_end)
    return usage_error(self, "--ignore-eos does not go with a constraint, which says where the text ends");
  int status = path ? read_file(path, CONSTRAINT_BYTES_MOST, &text->text) : 0;
  if (status) return status;
  setun_constraint_params *p = &text->params;
  p->grammar = o->schema       ? SETUN_GRAMMAR_JSON_SCHEMA
               : o->expression ? SETUN_GRAMMAR_EXPRESSION
                               : kind_of_grammar(path, &text->text);
  p->text = path ? text->text.data : o->expression;
  p->length = path ? text->text.length : strlen(o->expression);
  p->name = path ? path : "--regex";
  if (!p->text) p->text = "";
  return 0;
}
