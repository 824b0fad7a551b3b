// JSON documents: the arena, and objects with their tables for finding members.
#include "base/json_document.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

struct st_json_chunk {
  st_json_chunk *next;
  max_align_t data[];
};

enum { FIRST_CHUNK = 1024, SCANNED = 8 }; // objects of more members than SCANNED have a table

static bool add_chunk(st_json_document *d, size_t bytes) {
  size_t size;
  st_json_chunk *chunk = st_add_size(bytes, sizeof *chunk, &size) ? st_malloc(size, 1) : NULL;
  if (!chunk) return false;
  chunk->next = d->chunks;
  d->chunks = chunk;
  d->at = (char *)chunk->data;
  d->left = bytes;
  d->taken += bytes;
  return true;
}

st_json_document *st_json_document_new(size_t expected) {
  st_json_document *d = st_calloc(1, sizeof *d);
  if (!d) return NULL;
  if (add_chunk(d, expected < FIRST_CHUNK ? FIRST_CHUNK : expected)) return d;
  st_free(d);
  return NULL;
}

void st_json_free(st_json *root) {
  if (!root) return;
  st_json_document *d = (st_json_document *)root;
  for (st_json_chunk *c = d->chunks, *next; c; c = next) {
    next = c->next;
    st_free(c);
  }
  st_free(d);
}

void *st_json_take(st_json_document *d, size_t bytes, bool aligned) {
  size_t skipped = aligned ? -(uintptr_t)d->at % _Alignof(st_json_member) : 0;
  if (d->left < skipped || d->left - skipped < bytes) {
    size_t usual = d->taken / 2;
    if (!add_chunk(d, bytes > usual ? bytes : usual)) {
      d->failed = true;
      return NULL;
    }
    skipped = 0;
  }
  char *block = d->at + skipped;
  d->at = block + bytes;
  d->left -= skipped + bytes;
  return block;
}

// ---- objects ----

// A table has a power of two of slots, at least twice the members; a slot holds a member's number plus one.
static size_t slots_of(uint32_t count) {
  size_t slots = 2 * SCANNED;
  while (slots < (size_t)count * 2) slots *= 2;
  return slots;
}

static bool same_key(const st_json_member *m, const char *key, size_t length) {
  return m->length == length && !memcmp(m->key, key, length);
}

// The slot that holds the key's member, or the free slot for it.
static uint32_t *find_slot(const st_json_member *members, uint32_t *table, size_t slots, const char *key,
                           size_t length) {
  size_t at = (size_t)st_hash(ST_HASH_START, key, length);
  while (table[at &= slots - 1] && !same_key(&members[table[at] - 1], key, length)) at++;
  return &table[at];
}

static uint32_t *table_of(st_json_member *members, uint32_t count) {
  return (uint32_t *)(void *)(members + count);
}

const st_json *st_json_find_n(const st_json *object, const char *key, size_t length) {
  if (!st_json_is_object(object)) return NULL;
  st_json_member *members = object->as.members;
  if (object->indexed) {
    uint32_t found = *find_slot(members, table_of(members, object->count), slots_of(object->count), key, length);
    return found ? &members[found - 1].value : NULL;
  }
  for (uint32_t i = 0; i < object->count; i++) {
    if (same_key(&members[i], key, length)) return &members[i].value;
  }
  return NULL;
}

// Builds a table after `n` members, where there is room for it. Their keys must differ.
static void index_members(st_json_member *members, uint32_t n) {
  uint32_t *table = table_of(members, n);
  size_t slots = slots_of(n);
  memset(table, 0, slots * sizeof *table);
  for (uint32_t i = 0; i < n; i++) *find_slot(members, table, slots, members[i].key, members[i].length) = i + 1;
}

// The member among the first `kept` with this one's key; if there is none, adds the new one to the table and returns
// NULL.
static st_json_member *find_same(st_json_member *members, uint32_t kept, const st_json_member *m, uint32_t *table,
                                 size_t slots) {
  if (table) {
    uint32_t *slot = find_slot(members, table, slots, m->key, m->length);
    if (*slot) return &members[*slot - 1];
    *slot = kept + 1;
    return NULL;
  }
  for (uint32_t i = 0; i < kept; i++) {
    if (same_key(&members[i], m->key, m->length)) return &members[i];
  }
  return NULL;
}

bool st_json_gather(st_json_document *d, const st_json_member *from, uint32_t n, bool refuse, st_json *object,
                    const st_json_member **duplicate) {
  *duplicate = NULL;
  *object = (st_json){.type = ST_JSON_OBJECT, .count = n};
  if (!n) return true;
  size_t slots = n > SCANNED ? slots_of(n) : 0;
  st_json_member *members = st_json_take(d, n * sizeof *members + slots * sizeof(uint32_t), true);
  if (!members) return false;
  uint32_t kept = 0, *table = slots ? table_of(members, n) : NULL;
  if (table) memset(table, 0, slots * sizeof *table);
  for (uint32_t i = 0; i < n; i++) {
    st_json_member *same = find_same(members, kept, &from[i], table, slots);
    if (!same) {
      members[kept++] = from[i];
    } else if (refuse) {
      *duplicate = &from[i];
      return false;
    } else {
      same->value = from[i].value;
    }
  }
  object->as.members = members;
  object->count = kept;
  object->indexed = kept > SCANNED;
  if (object->indexed && kept < n) index_members(members, kept);
  return true;
}
