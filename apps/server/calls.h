// Calls of tools: what a request says of them, and those of an answer.
#ifndef SETUN_SERVER_CALLS_H
#define SETUN_SERVER_CALLS_H

#include "job.h"

// ---- requests ----

// Reads "tools", "tool_choice" and "parallel_tool_calls" of a body in the form of OpenAI's chat.
bool read_tools(job *j, const st_json *body, problem *p);
// A tool in that form of members that another API has elsewhere; NULL: absent.
st_json tool_value(st_json *root, const st_json *name, const st_json *description, const st_json *parameters);

// ---- answers ----

// A call begins; more of the arguments of the last one. False: out of memory.
bool call_begin(choice *c, const char *name, size_t n);
bool call_append(choice *c, const char *arguments, size_t n);
void calls_free(choice *c);

// What of a stream's calls is new: one call at a time. False: nothing is.
typedef struct call_news {
  tool_call *call;
  size_t index;
  bool begins, ends; // it was not told of before; nothing of it follows
  const char *arguments;
  size_t length; // of what is new
} call_news;
bool next_call_news(choice *c, call_news *n);

#endif
