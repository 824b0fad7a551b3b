// Memory that is given out piece by piece and freed at once, up to a limit.
#ifndef SETUN_JINJA_ARENA_H
#define SETUN_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct st_jchunk st_jchunk;

// Zero-initialize and set `limit`, the most bytes that all its blocks may take.
typedef struct {
  st_jchunk *chunks; // the newest first
  char *top, *end;   // what is free in it
  size_t total, limit;
  bool refused; // the limit, and not the system, said no
} st_jarena;

void *st_j_arena_alloc(st_jarena *arena, size_t size); // zeroed, aligned for any object; NULL: no memory
char *st_j_arena_bytes(st_jarena *arena, size_t size); // unaligned and uninitialized; NULL: no memory
// Grows the bytes at `data` from `old` to `size` where they lie, when nothing was given out after them.
bool st_j_arena_extend(st_jarena *arena, const char *data, size_t old, size_t size);
// Takes back what lies behind the first `size` of the `old` bytes at `data`, when nothing was given out after them.
void st_j_arena_shrink(st_jarena *arena, const char *data, size_t old, size_t size);
void st_j_arena_free(st_jarena *arena);

#endif
