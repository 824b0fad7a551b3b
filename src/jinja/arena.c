// Arenas: blocks from the system, allocated in pieces.
#include "jinja/arena.h"

#include "base/memory.h"

#include <string.h>

struct st_jinja_chunk {
  st_jinja_chunk *next;
  _Alignas(max_align_t) char data[];
};

enum { FIRST_CHUNK = 4096, MOST_GROWTH = 4 << 20, ALIGNMENT = _Alignof(max_align_t) };

static bool add_chunk(st_jinja_arena *arena, size_t need) {
  // Each block is as large as all before it together, so that few are needed, within reason.
  size_t size = arena->total < FIRST_CHUNK ? FIRST_CHUNK : arena->total > MOST_GROWTH ? MOST_GROWTH : arena->total;
  if (size < need) {
    // Room to extend a large string in place, so that appending piece by piece stays linear.
    if (!st_add_size(need, need, &size)) return false;
  }
  size_t left = arena->limit - arena->total;
  if (size > left) size = left;
  if (size < need) {
    arena->refused = true;
    return false;
  }
  size_t bytes;
  if (!st_add_size(size, sizeof(st_jinja_chunk), &bytes)) return false;
  st_jinja_chunk *chunk = st_malloc(bytes, 1);
  if (!chunk) return false;
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  arena->top = chunk->data;
  arena->end = chunk->data + size;
  arena->total += size;
  return true;
}

void *st_jinja_arena_alloc(st_jinja_arena *arena, size_t size) {
  size_t rounded;
  if (!st_add_size(size, ALIGNMENT - 1, &rounded)) return NULL;
  rounded &= ~(size_t)(ALIGNMENT - 1);
  if ((size_t)(arena->end - arena->top) < rounded || !arena->top) {
    if (!add_chunk(arena, rounded)) return NULL;
  }
  void *block = arena->top;
  arena->top += rounded;
  memset(block, 0, rounded);
  return block;
}

char *st_jinja_arena_bytes(st_jinja_arena *arena, size_t size) {
  if ((size_t)(arena->end - arena->top) < size || !arena->top) {
    if (!add_chunk(arena, size)) return NULL;
  }
  char *block = arena->top;
  arena->top += size;
  return block;
}

bool st_jinja_arena_extend(st_jinja_arena *arena, const char *data, size_t old, size_t size) {
  if (!arena->chunks || data < arena->chunks->data || data > arena->end || data + old != arena->top) return false;
  if ((size_t)(arena->end - arena->top) < size - old) return false;
  arena->top += size - old;
  return true;
}

void st_jinja_arena_shrink(st_jinja_arena *arena, const char *data, size_t old, size_t size) {
  if (data && data + old == arena->top) arena->top -= old - size;
}

void st_jinja_arena_free(st_jinja_arena *arena) {
  while (arena->chunks) {
    st_jinja_chunk *next = arena->chunks->next;
    st_free(arena->chunks);
    arena->chunks = next;
  }
  arena->top = arena->end = NULL;
  arena->total = 0;
}
