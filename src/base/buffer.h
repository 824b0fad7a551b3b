// A growing byte buffer, and a map from byte strings to integers.
#ifndef SETUN_BASE_BUFFER_H
#define SETUN_BASE_BUFFER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A string inside other bytes; it need not end with 0.
typedef struct st_text {
  const char *data;
  size_t length;
} st_text;

// Zero-initialize. After the first append, `data` ends with a 0 byte that `length` does not count.
typedef struct st_buffer {
  char *data;
  size_t length, capacity;
} st_buffer;

void st_buffer_free(st_buffer *b);
bool st_buffer_append(st_buffer *b, const void *bytes, size_t n); // false: out of memory, unchanged
bool st_buffer_text(st_buffer *b, const char *text);
bool st_buffer_format(st_buffer *b, const char *format, ...) ST_PRINTF(2, 3);

// A hash map from byte strings to non-negative integers. Keys are not copied: they live as long as the map.
typedef struct st_map st_map;
st_map *st_map_new(size_t expected);
void st_map_free(st_map *m);
// False when out of memory. `*previous` (may be NULL) is the key's existing value, which is kept, or -1.
bool st_map_add(st_map *m, const char *key, size_t length, int64_t value, int64_t *previous);
int64_t st_map_get(const st_map *m, const char *key, size_t length); // -1 when absent
// For many look-ups at once: look-up by the key's st_hash, and prefetching of what a look-up will read, first the slot
// and later the key in it.
int64_t st_map_get_hashed(const st_map *m, const char *key, size_t length, uint64_t hash);
void st_map_prefetch(const st_map *m, uint64_t hash);
void st_map_prefetch_key(const st_map *m, uint64_t hash);

#endif
