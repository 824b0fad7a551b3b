// A growing byte buffer, and an open-addressing map from byte strings to integers.
#include "base/buffer.h"

#include "base/hash.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void st_buffer_free(st_buffer *b) {
  st_free(b->data);
  *b = (st_buffer){0};
}

bool st_buffer_append(st_buffer *b, const void *bytes, size_t n) {
  size_t need;
  if (!st_add_size(b->length, n, &need) || !st_add_size(need, 1, &need)) return false;
  if (!st_reserve(&b->data, &b->capacity, need, 1)) return false;
  if (n) memcpy(b->data + b->length, bytes, n);
  b->length += n;
  b->data[b->length] = '\0';
  return true;
}

bool st_buffer_text(st_buffer *b, const char *text) {
  return st_buffer_append(b, text, strlen(text));
}

bool st_buffer_format(st_buffer *b, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  bool ok = n >= 0 && st_reserve(&b->data, &b->capacity, b->length + (size_t)n + 1, 1);
  if (ok) {
    vsnprintf(b->data + b->length, (size_t)n + 1, format, again);
    b->length += (size_t)n;
  }
  va_end(again);
  va_end(args);
  return ok;
}

typedef struct {
  const char *key;
  size_t length;
  uint64_t hash;
  int64_t value; // -1: a free slot
} slot;

struct st_map {
  slot *slots;
  size_t mask, count;
};

static slot *new_slots(size_t count) {
  slot *s = st_malloc(count, sizeof *s);
  if (s) {
    for (size_t i = 0; i < count; i++) s[i].value = -1;
  }
  return s;
}

st_map *st_map_new(size_t expected) {
  size_t size = 16, need;
  if (!st_mul_size(expected, 2, &need)) return NULL;
  while (size < need) {
    if (!st_mul_size(size, 2, &size)) return NULL;
  }
  st_map *m = st_calloc(1, sizeof *m);
  if (!m) return NULL;
  m->slots = new_slots(size);
  m->mask = size - 1;
  if (!m->slots) {
    st_free(m);
    return NULL;
  }
  return m;
}

void st_map_free(st_map *m) {
  if (!m) return;
  st_free(m->slots);
  st_free(m);
}

// The key's slot, or the free slot for it.
static slot *find(const st_map *m, const char *key, size_t length, uint64_t hash) {
  size_t i = hash & m->mask;
  for (;;) {
    slot *s = &m->slots[i];
    if (s->value < 0) return s;
    if (s->hash == hash && s->length == length && (!length || !memcmp(s->key, key, length))) return s;
    i = (i + 1) & m->mask;
  }
}

static bool grow(st_map *m) {
  size_t size;
  if (!st_mul_size(m->mask + 1, 2, &size)) return false;
  slot *old = m->slots, *fresh = new_slots(size);
  if (!fresh) return false;
  size_t n = m->mask + 1;
  m->slots = fresh;
  m->mask = size - 1;
  for (size_t i = 0; i < n; i++) {
    if (old[i].value >= 0) *find(m, old[i].key, old[i].length, old[i].hash) = old[i];
  }
  st_free(old);
  return true;
}

bool st_map_add(st_map *m, const char *key, size_t length, int64_t value, int64_t *previous) {
  if ((m->count + 1) * 3 > (m->mask + 1) * 2 && !grow(m)) return false;
  uint64_t hash = st_hash(ST_HASH_START, key, length);
  slot *s = find(m, key, length, hash);
  if (previous) *previous = s->value;
  if (s->value < 0) {
    *s = (slot){key, length, hash, value};
    m->count++;
  }
  return true;
}

int64_t st_map_get(const st_map *m, const char *key, size_t length) {
  return find(m, key, length, st_hash(ST_HASH_START, key, length))->value;
}

int64_t st_map_get_hashed(const st_map *m, const char *key, size_t length, uint64_t hash) {
  return find(m, key, length, hash)->value;
}

void st_map_prefetch(const st_map *m, uint64_t hash) {
  __builtin_prefetch(&m->slots[hash & m->mask]);
}

void st_map_prefetch_key(const st_map *m, uint64_t hash) {
  const slot *s = &m->slots[hash & m->mask];
  if (s->value >= 0) __builtin_prefetch(s->key);
}
