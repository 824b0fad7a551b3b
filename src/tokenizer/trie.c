// A trie of byte strings as one hash table: (node, byte) -> next node. Nodes are numbered in the order of creation.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

typedef struct {
  uint32_t node, next; // next 0: the slot is free
  unsigned char byte;
} edge;

struct st_trie {
  edge *edges;
  size_t mask;
  int32_t *ids; // by node
  uint32_t n_nodes, capacity;
};

st_trie *st_trie_new(size_t total_bytes) {
  if (total_bytes >= UINT32_MAX / 4) return NULL;
  size_t size = 64;
  while (size < total_bytes + total_bytes / 2) size *= 2;
  st_trie *t = st_calloc(1, sizeof *t);
  if (!t) return NULL;
  t->mask = size - 1;
  t->capacity = (uint32_t)total_bytes + 1;
  t->edges = st_calloc(size, sizeof *t->edges);
  t->ids = st_malloc(t->capacity, sizeof *t->ids);
  if (!t->edges || !t->ids) {
    st_trie_free(t);
    return NULL;
  }
  t->ids[0] = -1;
  t->n_nodes = 1;
  return t;
}

void st_trie_free(st_trie *t) {
  if (!t) return;
  st_free(t->edges);
  st_free(t->ids);
  st_free(t);
}

static edge *find(const st_trie *t, uint32_t node, unsigned char byte) {
  uint64_t h = ((uint64_t)node << 8 | byte) * 0x9E3779B97F4A7C15u;
  for (size_t i = h >> 32 & t->mask;; i = (i + 1) & t->mask) {
    edge *e = &t->edges[i];
    if (!e->next || (e->node == node && e->byte == byte)) return e;
  }
}

bool st_trie_add(st_trie *t, const char *key, size_t length, int32_t id) {
  uint32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    edge *e = find(t, node, (unsigned char)key[i]);
    if (!e->next) {
      if (t->n_nodes == t->capacity) return false;
      *e = (edge){node, t->n_nodes, (unsigned char)key[i]};
      t->ids[t->n_nodes++] = -1;
    }
    node = e->next;
  }
  t->ids[node] = id;
  return true;
}

uint32_t st_trie_step(const st_trie *t, uint32_t node, unsigned char byte) {
  return find(t, node, byte)->next;
}

int32_t st_trie_id(const st_trie *t, uint32_t node) {
  return t->ids[node];
}

int32_t st_trie_longest(const st_trie *t, const char *text, size_t length, size_t *matched) {
  int32_t id = -1;
  uint32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    node = st_trie_step(t, node, (unsigned char)text[i]);
    if (!node) break;
    if (t->ids[node] >= 0) id = t->ids[node], *matched = i + 1;
  }
  return id;
}
