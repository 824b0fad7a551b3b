// What a word that is being typed may become.
#ifndef SETUN_APP_COMPLETION_H
#define SETUN_APP_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Freed with completion_free.
typedef struct completion {
  char **names; // in order, words with a space behind them, directories with a slash
  size_t count;
  size_t begun;  // bytes of each that are there already
  size_t common; // bytes behind these that all of them have
} completion;

void completion_free(completion *c);
// Of `n` words those that begin with `length` bytes.
completion complete_word(const char *const *words, size_t n, const char *begun, size_t length);
// Files whose path begins so; at most a hundred, hidden ones only where their point is there.
completion complete_path(const char *begun, size_t length);

#endif
