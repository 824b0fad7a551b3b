// Conversations with tools, as OpenAI's API has them, in the form that a template takes: arguments as values rather
// than as text, ids of the length that the template demands, one call per message if it supports no more, and
// everything in the messages' own text if it does not support tools.
#ifndef SETUN_CHAT_TOOL_HISTORY_H
#define SETUN_CHAT_TOOL_HISTORY_H

#include "base/json.h"
#include "chat/tool_formats.h"

typedef struct st_tool_template {
  const st_tool_format *format;
  bool takes_tools;   // it writes the tools
  bool takes_calls;   // it writes calls
  bool takes_results; // it writes the results of calls
  bool calls_alone;   // it writes calls only of messages without a text
} st_tool_template;

// Determines what a template supports.
void st_tool_template_of(const char *text, size_t length, st_tool_template *t);

// Differences between templates: combinations to try in the order 0 to ST_TOOL_FORMS - 1 until one of them renders.
enum {
  ST_TOOL_TEXT_ARGUMENTS = 1, // arguments as JSON text rather than as an object
  ST_TOOL_EMPTY_TEXT = 2,     // an answer of calls alone has an empty text, rather than null
  ST_TOOL_FORMS = 4
};

// Changes "messages" and "tools" of the context; `form` is a combination of the flags above. SETUN_ERROR_ARGUMENT: a
// tool or a call is malformed.
setun_status st_tool_adapt(const st_tool_template *t, int form, st_json *context, setun_error *err);

#endif
