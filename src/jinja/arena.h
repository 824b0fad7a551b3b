// Memory that is allocated piece by piece and freed at once, up to a limit.
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
  bool refused; // the limit was reached, not the system's memory
} st_jinja_arena;

void *st_jinja_arena_alloc(st_jinja_arena *arena, size_t size); // zeroed, aligned for any object; NULL: no memory
char *st_jinja_arena_bytes(st_jinja_arena *arena, size_t size); // unaligned and uninitialized; NULL: no memory
// Grows the bytes at `data` from `old` to `size` in place, if nothing was allocated after them.
bool st_jinja_arena_extend(st_jinja_arena *arena, const char *data, size_t old, size_t size);
// Frees what follows the first `size` of the `old` bytes at `data`, if nothing was allocated after them.
void st_jinja_arena_shrink(st_jinja_arena *arena, const char *data, size_t old, size_t size);
void st_jinja_arena_free(st_jinja_arena *arena);

#endif
