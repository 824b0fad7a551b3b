// How models write calls of tools: one row for each format. The row defines the syntax of calls, how a template that
// writes them is recognized, and what it supports of a conversation with tools. The code for calls depends on it only.
#ifndef SETUN_CHAT_TOOL_FORMATS_H
#define SETUN_CHAT_TOOL_FORMATS_H

#include "base/buffer.h"

#include <stdbool.h>

typedef enum st_tool_syntax {
  ST_TOOLS_JSON,   // objects {"name": ..., "arguments": {...}}, alone, in sequence, or in a list
  ST_TOOLS_NAMED,  // a name, a mark, and the arguments as JSON
  ST_TOOLS_FIELDS, // a name, and each argument between marks, as plain text where its type is a string
  ST_TOOLS_GEMMA,  // call:NAME{key:value,...} with its own mark for quotes
  ST_TOOLS_HARMONY // a message to functions.NAME, whose text is the arguments; chat/channels.h finds it
} st_tool_syntax;

enum { ST_TOOL_OPENS = 2, ST_TOOL_HINTS = 3 };

typedef struct st_tool_format {
  const char *name;
  st_tool_syntax syntax;
  const char *hints[ST_TOOL_HINTS]; // texts that a template for this format contains, all of them
  const char *unless;               // and a text that it does not contain; NULL: none

  // Marks: control tokens, or plain text where the vocabulary has no such control token.
  const char *opens[ST_TOOL_OPENS];   // either begins calls; NULL: there is none
  const char *call_open, *call_close; // around each call inside of that; NULL: nothing
  const char *close;                  // after the last call; NULL: nothing
  const char *stop;      // a token after calls that ends an answer, in addition to the model's own; NULL: none
  bool bare;             // JSON: an object at the beginning of an answer is a call, too
  bool list;             // JSON: calls are written as one list
  const char *arguments; // JSON: the key of the arguments
  const char *name_open, *name_close; // NAMED and FIELDS: around the name; name_open NULL: nothing before it
  const char *after;                  // NAMED: between the arguments and call_close; NULL: nothing
  const char *key_open, *key_close, *value_open, *value_close; // FIELDS: around an argument; value_open NULL: nothing
  const char *typed;  // FIELDS: after the key, before "true" or "false": whether the value is a string; NULL: none
  const char *quote;  // GEMMA: around strings
  const char *spacer; // FIELDS: white space between the parts of a call, as templates write it
  bool wraps_values;  // FIELDS: a newline before and after each value is not part of it

  // What the template supports.
  bool one_call;         // at most one call in a message, each followed by its result
  bool tools_in_message; // the tools as a text in the system message rather than as a variable
  size_t id_length;      // the exact length of ids, of letters and digits; 0: any
  const char *thoughts;  // the member of a message with its reasoning; NULL: reasoning_content
} st_tool_format;

// The format that a template of `length` bytes writes. If the template does not support tools, the last row: tools and
// calls are described in the messages themselves. Never NULL.
const st_tool_format *st_tool_format_of(const char *template_text, size_t length);
// Whether the row is that last one.
bool st_tool_format_is_described(const st_tool_format *format);

#endif
