// A request's constraints on its answers: response_format, llama.cpp's grammar and json_schema, and tool_choice.
#ifndef SETUN_SERVER_CONSTRAINTS_H
#define SETUN_SERVER_CONSTRAINTS_H

#include "job.h"

// Reads "response_format", "grammar" and "json_schema" of a body into the job, which already has its prompts and tools.
bool constrain_job(job *j, const st_json *body, problem *p);

#endif
