// Grammars of whole answers: thoughts that come first, and then a text or calls of tools as the model's format has
// them.
#ifndef SETUN_RUNTIME_ANSWER_GRAMMAR_H
#define SETUN_RUNTIME_ANSWER_GRAMMAR_H

#include "base/json.h"
#include "chat/tool_formats.h"
#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

typedef struct st_answer_place {
  const st_tokenizer *tokenizer;
  const st_tool_format *format;
  st_text template_text; // of the whole template: which thoughts it knows
  st_text tail;          // the template's own text at the end of the prompt
} st_answer_place;

// What calls there are to be.
typedef struct st_answer_calls {
  const st_json *tools; // an array, as the template was given it
  const char *only;     // of this tool alone; NULL: of any
  bool one;
} st_answer_calls;

// The node of calls; of Harmony with their message's header. SETUN_ERROR_UNSUPPORTED or SETUN_ERROR_FORMAT: a schema of
// a strict tool, which is named.
setun_status st_answer_calls_node(st_grammar *g, const st_answer_place *place, const st_answer_calls *calls,
                                  st_node *out, setun_error *err);
// A text as the answer's own: of Harmony with its message's header.
st_node st_answer_text_node(st_grammar *g, const st_answer_place *place, st_node text);
// The node of the whole answer: `body` with the thoughts that may or must come before it.
st_node st_answer_node(st_grammar *g, const st_answer_place *place, st_node body);

#endif
