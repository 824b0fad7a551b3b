// The list of merges of a vocabulary.
#include "tokenizer/bpe.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

setun_status st_merges_reserve(st_tokenizer *t, size_t count, setun_error *err) {
  if (count > ST_MAX_MERGES) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%zu merges, more than %d", count, ST_MAX_MERGES);
  }
  size_t size = 16;
  while (size < count * 2) size *= 2;
  t->merges = st_malloc(size, sizeof *t->merges);
  t->merge_filter = st_calloc(size / 4, 1);
  if (!t->merges || !t->merge_filter) return st_fail_memory(err, "the merges");
  t->filter_mask = size * 2 - 1;
  for (size_t i = 0; i < size; i++) t->merges[i].left = ST_NONE;
  t->merge_mask = size - 1;
  return SETUN_OK;
}

// The three texts of a merge, with their hashes.
typedef struct {
  st_text texts[3]; // left, right, merged
  uint64_t hashes[3];
  uint32_t ids[3];
  uint64_t hash;   // of the pair
  char small[128]; // the merged text, where it fits
} wanted_merge;

static setun_status want(const st_tokenizer *t, const st_merge_row *row, wanted_merge *w, setun_error *err) {
  size_t length;
  if (!st_add_size(row->left.length, row->right.length, &length) || length > ST_MAX_TOKEN_LENGTH) {
    return st_fail(err, SETUN_ERROR_FORMAT, "merge %zu makes a text of more than %d bytes", row->index,
                   ST_MAX_TOKEN_LENGTH);
  }
  char *merged = length > sizeof w->small ? st_malloc(length, 1) : w->small;
  if (!merged) return st_fail_memory(err, "a merge");
  memcpy(merged, row->left.data, row->left.length);
  memcpy(merged + row->left.length, row->right.data, row->right.length);
  w->texts[0] = row->left;
  w->texts[1] = row->right;
  w->texts[2] = (st_text){merged, length};
  for (int i = 0; i < 3; i++) {
    w->hashes[i] = st_hash(ST_HASH_START, w->texts[i].data, w->texts[i].length);
    st_map_prefetch(t->ids, w->hashes[i]);
  }
  return SETUN_OK;
}

static setun_status find_ids(const st_tokenizer *t, wanted_merge *w, size_t index, setun_error *err) {
  for (int i = 0; i < 3; i++) {
    int64_t found = st_map_get_hashed(t->ids, w->texts[i].data, w->texts[i].length, w->hashes[i]);
    if (found < 0) {
      int n = (int)(w->texts[i].length < 40 ? w->texts[i].length : 40);
      return st_fail(err, SETUN_ERROR_FORMAT, "merge %zu names \"%.*s\", which is not a token", index, n,
                     w->texts[i].data);
    }
    w->ids[i] = (uint32_t)found;
  }
  w->hash = st_merges_hash(w->ids[0], w->ids[1]);
  __builtin_prefetch(&t->merges[st_merges_slot(t, w->hash)]);
  return SETUN_OK;
}

static setun_status insert(st_tokenizer *t, const wanted_merge *w, size_t index, bool replace, setun_error *err) {
  uint64_t bit = st_merges_bit(t, w->hash);
  st_merge *slot = st_merges_find(t, w->hash, w->ids[0], w->ids[1]);
  if (slot->left == ST_NONE) {
    if (t->n_merges * 2 > t->merge_mask) return st_fail(err, SETUN_ERROR_STATE, "more merges than the file states");
    t->n_merges++;
    t->merge_filter[bit >> 3] |= (uint8_t)(1 << (bit & 7));
  } else if (!replace) {
    return SETUN_OK;
  }
  *slot = (st_merge){w->ids[0], w->ids[1], (uint32_t)index, w->ids[2]};
  return SETUN_OK;
}

// In passes, so that a row's memory is prefetched while others are processed.
setun_status st_merges_add(st_tokenizer *t, const st_merge_row *rows, size_t n, bool replace, setun_error *err) {
  wanted_merge wanted[ST_MERGE_ROWS];
  setun_status s = SETUN_OK;
  size_t made = 0;
  for (; !s && made < n; made += !s) s = want(t, &rows[made], &wanted[made], err);
  for (size_t k = 0; !s && k < n; k++) {
    for (int i = 0; i < 3; i++) st_map_prefetch_key(t->ids, wanted[k].hashes[i]);
  }
  for (size_t k = 0; !s && k < n; k++) s = find_ids(t, &wanted[k], rows[k].index, err);
  for (size_t k = 0; !s && k < n; k++) s = insert(t, &wanted[k], rows[k].index, replace, err);
  for (size_t k = 0; k < made; k++) {
    if (wanted[k].texts[2].length > sizeof wanted[k].small) st_free((void *)(uintptr_t)wanted[k].texts[2].data);
  }
  return s;
}

setun_status st_merges_pair_bytes(st_tokenizer *t, setun_error *err) {
  t->byte_pairs = st_malloc(256 * 256, sizeof *t->byte_pairs);
  if (!t->byte_pairs) return st_fail_memory(err, "the merges");
  for (uint32_t i = 0; i < 256 * 256; i++) {
    int32_t left = t->byte_ids[i >> 8], right = t->byte_ids[i & 255];
    t->byte_pairs[i] = (st_byte_pair){ST_NONE, 0};
    if (left < 0 || right < 0) continue;
    uint64_t hash = st_merges_hash((uint32_t)left, (uint32_t)right);
    const st_merge *m = st_merges_find(t, hash, (uint32_t)left, (uint32_t)right);
    if (m->left != ST_NONE) t->byte_pairs[i] = (st_byte_pair){m->rank, m->merged};
  }
  return SETUN_OK;
}
