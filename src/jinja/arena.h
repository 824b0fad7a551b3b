// Memory that is given out piece by piece and freed at once, up to a limit.
#ifndef SETUN_JINJA_ARENA_H
#define SETUN_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct st_jinja_chunk st_jinja_chunk;

// Zero-initialize and set `limit`, the most bytes that all its blocks may take.
typedef struct {
  st_jinja_chunk *chunks; // the newest first
  char *top, *end;        // what is free in it
  size_t total, limit;
  bool refused; // the limit, and not the system, said no
} st_jinja_arena;

void *st_jinja_arena_alloc(st_jinja_arena *arena, size_t size); // zeroed, aligned for any object; NULL: no memory
char *st_jinja_arena_bytes(st_jinja_arena *arena, size_t size); // unaligned and uninitialized; NULL: no memory
// Grows the bytes at `data` from `old` to `size` where they lie, when nothing was given out after them.
bool st_jinja_arena_extend(st_jinja_arena *arena, const char *data, size_t old, size_t size);
// Takes back what lies behind the first `size` of the `old` bytes at `data`, when nothing was given out after them.
void st_jinja_arena_shrink(st_jinja_arena *arena, const char *data, size_t old, size_t size);
void st_jinja_arena_free(st_jinja_arena *arena);

#endif
