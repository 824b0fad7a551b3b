// Prompts: prefixes from a model's files for texts to embed, by intended use.
#ifndef SETUN_RUNTIME_PROMPTS_H
#define SETUN_RUNTIME_PROMPTS_H

#include "format/directory.h"

typedef struct st_prompts {
  char **names, **texts; // [n]
  size_t n;
  const char *chosen; // the default prompt's name; NULL: none
} st_prompts;

// The prompts in config_sentence_transformers.json; none if the file is absent. Members that are not read become
// notices. Freed with st_prompts_free, also after a failure.
setun_status st_prompts_load(const st_directory *directory, st_prompts *prompts, setun_error *err);
void st_prompts_free(st_prompts *prompts);

#endif
