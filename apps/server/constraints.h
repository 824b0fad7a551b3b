// A request's constraints on its answers: response_format, llama.cpp's grammar and json_schema, and tool_choice.
#ifndef SETUN_SERVER_CONSTRAINTS_H
#define SETUN_SERVER_CONSTRAINTS_H

#include "job.h"

// What the answers of a job must match.
typedef struct constraint_request {
  const char *param; // the member that requests it; static text
  bool has_text;     // a text of this grammar; otherwise only calls
  setun_grammar grammar;
  st_buffer text; // the grammar's
  bool calls;     // answers may be tool calls; without has_text they must be
  char *key;      // see setun_answer_key
  size_t key_length;
} constraint_request;

// Reads "response_format", "grammar" and "json_schema" of a body into the job's request; NULL if there are none. The
// job already has its prompts and tools.
bool constrain_job(job *j, const st_json *body, problem *p);
void constraint_request_free(constraint_request *r); // NULL is fine

typedef struct constraint_limits {
  uint64_t bytes;
  uint32_t milliseconds; // of processor time
} constraint_limits;
// Compiles a job's request, on any thread. On success the caller owns *out.
setun_status constraint_compile(const job *j, const constraint_limits *limits, setun_constraint **out, problem *p);

#endif
