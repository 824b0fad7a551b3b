// How strings end.
#ifndef SETUN_BASE_SUFFIX_H
#define SETUN_BASE_SUFFIX_H

#include <stdbool.h>
#include <string.h>

static inline bool st_has_suffix(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && !memcmp(text + n - m, suffix, m);
}

#endif
