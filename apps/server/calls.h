// Tool calls: the tools of a request, and the calls of an answer.
#ifndef SETUN_SERVER_CALLS_H
#define SETUN_SERVER_CALLS_H

#include "job.h"

// ---- requests ----

// Reads "tools", "tool_choice" and "parallel_tool_calls" from a body in the form of OpenAI's chat.
bool read_tools(job *j, const st_json *body, problem *p);
// Whether a tool is one of those that a tool_choice of type allowed_tools lists; true with other choices.
bool tool_is_allowed(const st_json *wanted, const st_json *tool);
// A tool in that form, made from another API's form: its name, parameters, and the object with the description and with
// strict. NULL: absent.
st_json tool_value(st_json *root, const st_json *name, const st_json *parameters, const st_json *members);

// ---- answers ----

// Begins a call; appends to the arguments of the last one. False: out of memory.
bool call_begin(choice *c, const char *name, size_t n);
bool call_append(choice *c, const char *arguments, size_t n);
void calls_free(choice *c);

// The part of a stream's calls that is new, one call at a time. False: nothing is new.
typedef struct call_news {
  tool_call *call;
  size_t index;
  bool begins, ends; // begins: not announced before; ends: complete
  const char *arguments;
  size_t length; // of the new part of the arguments
} call_news;
bool next_call_news(choice *c, call_news *n);

#endif
