// The possible completions of a word.
#ifndef SETUN_APP_COMPLETION_H
#define SETUN_APP_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Freed with completion_free.
typedef struct completion {
  char **names; // sorted, words followed by a space, directories by a slash
  size_t count;
  size_t begun;  // bytes of each that are typed already
  size_t common; // bytes after these that all of them share
} completion;

void completion_free(completion *c);
// The words, of `n`, that begin with `length` given bytes.
completion complete_word(const char *const *words, size_t n, const char *begun, size_t length);
// Files whose path begins so; at most a hundred, hidden ones only if their dot is typed.
completion complete_path(const char *begun, size_t length);

#endif
