// Prompts: what a model's files would have put before texts that become embeddings, by the use that is made of them.
#ifndef SETUN_RUNTIME_PROMPTS_H
#define SETUN_RUNTIME_PROMPTS_H

#include "format/directory.h"

typedef struct st_prompts {
  char **names, **texts; // [n]
  size_t n;
  const char *chosen; // the name of the one that is meant where none is named; NULL: none is
} st_prompts;

// Those of config_sentence_transformers.json; none where there is no such file. What of it is not read is a notice.
// Freed with st_prompts_free, also after a failure.
setun_status st_prompts_load(const st_directory *directory, st_prompts *prompts, setun_error *err);
void st_prompts_free(st_prompts *prompts);

#endif
