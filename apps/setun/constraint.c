// Reading the options for constrained text.
#include "constraint.h"

#include "base/suffix.h"
#include "output.h"

#include <string.h>

enum { CONSTRAINT_BYTES_MOST = 16 << 20 };

static setun_grammar kind_of_grammar(const char *path, const input_text *text) {
  if (st_has_suffix(path, ".gbnf")) return SETUN_GRAMMAR_GBNF;
  if (st_has_suffix(path, ".lark")) return SETUN_GRAMMAR_LARK;
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
    return usage_error(self, "--ignore-eos cannot be used with a constraint, which determines where the text ends");
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
