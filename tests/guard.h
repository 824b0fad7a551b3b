// Memory that ends at a page which cannot be read: whoever reads past the end of what it was given dies there.
#ifndef SETUN_TESTS_GUARD_H
#define SETUN_TESTS_GUARD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct guarded {
  uint8_t *map;
  size_t length; // with the unreadable page
  uint8_t *data; // `n` bytes, the last of them before that page
} guarded;

// A copy of `n` bytes, or zeros when `bytes` is NULL.
static inline guarded guard_new(const void *bytes, size_t n) {
  size_t page = 65536, whole = (n + page - 1) / page * page;
  guarded g = {.length = whole + page};
  g.map = mmap(NULL, g.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (g.map == MAP_FAILED || mprotect(g.map + whole, page, PROT_NONE)) abort();
  g.data = g.map + whole - n;
  if (bytes) memcpy(g.data, bytes, n);
  return g;
}

static inline void guard_free(guarded *g) {
  munmap(g->map, g->length);
}

#endif
