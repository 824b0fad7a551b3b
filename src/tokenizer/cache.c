// The cache of an encoding: words recur, and so do short pieces of text between two stages of pre-tokenization. Their
// ids are found in the output, where they occurred first.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

enum {
  SLOTS = 1 << 15,
  MAX_KEYS = 1 << 21, // bytes of all keys
  PROBES = 4
};

setun_status st_cache_make(st_encoder *e, size_t length) {
  size_t size = 64;
  while (size < length / 4 && size < SLOTS) size *= 2;
  e->cache = st_calloc(size, sizeof *e->cache);
  e->cache_mask = size - 1;
  return e->cache ? SETUN_OK : st_fail_memory(e->err, "the word cache");
}

static uint64_t hash_key(const char *text, size_t length, unsigned kind) {
  uint64_t h = (length << 8 | kind) * 0x9E3779B97F4A7C15u;
  while (length >= 8) {
    uint64_t w;
    memcpy(&w, text, 8);
    h = (h ^ w) * 0xD6E8FEB86659FD93u;
    h ^= h >> 29;
    text += 8, length -= 8;
  }
  uint64_t w = 0;
  memcpy(&w, text, length);
  h = (h ^ w) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  return h | 1; // 0: a free slot
}

st_cached *st_cache_find(st_encoder *e, const char *text, size_t length, unsigned kind, bool *found) {
  uint64_t hash = hash_key(text, length, kind);
  size_t first = hash >> 8 & e->cache_mask;
  *found = false;
  for (size_t k = 0; k < PROBES; k++) {
    st_cached *c = &e->cache[(first + k) & e->cache_mask];
    if (!c->hash) return c;
    if (c->hash != hash || c->length != length || c->kind != kind) continue;
    *found = !memcmp(e->keys.data + c->key, text, length);
    if (*found) return c;
  }
  return &e->cache[first];
}

setun_status st_cache_emit(st_encoder *e, const st_cached *c) {
  st_token_list *out = e->out;
  uint32_t skip = c->n && e->t->fuse_unk && e->unk_at == out->length && out->ids[c->ids] == e->t->text_unk;
  uint32_t n = c->n - skip;
  if (n > out->capacity - out->length && !st_reserve(&out->ids, &out->capacity, out->length + n, sizeof *out->ids)) {
    return st_fail_memory(e->err, "the tokens");
  }
  for (uint32_t i = 0; i < n; i++) out->ids[out->length + i] = out->ids[c->ids + skip + i];
  out->length += n;
  if (n && out->ids[out->length - 1] == e->t->text_unk) e->unk_at = out->length;
  return SETUN_OK;
}

setun_status st_cache_keep(st_encoder *e, st_cached *slot, const char *text, size_t length, unsigned kind, size_t ids) {
  if (e->keys.length > MAX_KEYS) return SETUN_OK;
  size_t key = e->keys.length;
  if (!st_buffer_append(&e->keys, text, length)) return st_fail_memory(e->err, "the word cache");
  *slot = (st_cached){.hash = hash_key(text, length, kind),
                      .key = key,
                      .ids = ids,
                      .n = (uint32_t)(e->out->length - ids),
                      .length = (uint16_t)length,
                      .kind = (uint16_t)kind};
  return SETUN_OK;
}
