// Prompts of requests to continue texts: a text, tokens, or both mixed; one or several.
#ifndef SETUN_SERVER_PROMPTS_H
#define SETUN_SERVER_PROMPTS_H

#include "job.h"

// Adds the prompts of a member: a string, an array of token ids and strings, which are one prompt, or an array of such.
// Strings begin with BOS as the tokenizer specifies, with control tokens recognized; token ids are used unchanged.
bool job_add_prompts(job *j, const st_json *value, const char *key, problem *p);

#endif
