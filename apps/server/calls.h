// Tool calls: the tools of a request, and the calls of an answer.
#ifndef SETUN_SERVER_CALLS_H
#define SETUN_SERVER_CALLS_H

#include "job.h"

// ---- requests ----

// Reads "tools", "tool_choice" and "parallel_tool_calls" from a body in the form of OpenAI's chat.
bool read_tools(job *j, const st_json *body, problem *p);
// A tool in that form, made from the members of another API's form; NULL: absent.
st_json tool_value(st_json *root, const st_json *name, const st_json *description, const st_json *parameters);

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
