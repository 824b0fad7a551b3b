// Grammars of whole answers: reasoning first, then a text or tool calls in the model's format.
#ifndef SETUN_RUNTIME_ANSWER_GRAMMAR_H
#define SETUN_RUNTIME_ANSWER_GRAMMAR_H

#include "base/json.h"
#include "chat/tool_formats.h"
#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

typedef struct st_answer_place {
  const st_tokenizer *tokenizer;
  const st_tool_format *format;
  st_text template_text; // of the whole template, which shows how it marks reasoning
  st_text tail;          // the template's own text at the end of the prompt
} st_answer_place;

// The calls that an answer has.
typedef struct st_answer_calls {
  const st_json *tools; // the array that the template received
  const char *only;     // only of this tool; NULL: of any
  bool one;
} st_answer_calls;

// The node of calls; in Harmony with their message's header. SETUN_ERROR_UNSUPPORTED or SETUN_ERROR_FORMAT: the schema
// of a strict tool, which the message names.
setun_status st_answer_calls_node(st_grammar *g, const st_answer_place *place, const st_answer_calls *calls,
                                  st_node *out, setun_error *err);
// A text as the answer; in Harmony with its message's header.
st_node st_answer_text_node(st_grammar *g, const st_answer_place *place, st_node text);
// The node of the whole answer: `body` after the reasoning that may or must precede it.
st_node st_answer_node(st_grammar *g, const st_answer_place *place, st_node body);

#endif
