// The list of merges of a vocabulary.
#include "tokenizer/bpe.h"

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

static setun_status merge_token(const st_tokenizer *t, st_text text, size_t index, uint32_t *id, setun_error *err) {
  int64_t found = st_map_get(t->ids, text.data, text.length);
  if (found < 0) {
    int n = (int)(text.length < 40 ? text.length : 40);
    return st_fail(err, SETUN_ERROR_FORMAT, "merge %zu names \"%.*s\", which is no token", index, n, text.data);
  }
  *id = (uint32_t)found;
  return SETUN_OK;
}

setun_status st_merges_add(st_tokenizer *t, st_text left, st_text right, size_t index, bool replace, setun_error *err) {
  char small[256], *joined = small;
  size_t length;
  if (!st_add_size(left.length, right.length, &length) || length > ST_MAX_TOKEN_LENGTH) {
    return st_fail(err, SETUN_ERROR_FORMAT, "merge %zu makes a text of more than %d bytes", index, ST_MAX_TOKEN_LENGTH);
  }
  if (length > sizeof small && !(joined = st_malloc(length, 1))) return st_fail_memory(err, "a merge");
  memcpy(joined, left.data, left.length);
  memcpy(joined + left.length, right.data, right.length);
  uint32_t l = 0, r = 0, m = 0;
  setun_status s = merge_token(t, left, index, &l, err);
  if (!s) s = merge_token(t, right, index, &r, err);
  if (!s) s = merge_token(t, (st_text){joined, length}, index, &m, err);
  if (joined != small) st_free(joined);
  if (s) return s;
  uint64_t hash = st_merges_hash(l, r), bit = hash >> 36 & t->filter_mask;
  st_merge *slot = st_merges_find(t, hash, l, r);
  if (slot->left == ST_NONE) {
    if (t->n_merges * 2 > t->merge_mask) return st_fail(err, SETUN_ERROR_STATE, "more merges than were announced");
    t->n_merges++;
    t->merge_filter[bit >> 3] |= (uint8_t)(1 << (bit & 7));
  } else if (!replace) {
    return SETUN_OK;
  }
  *slot = (st_merge){l, r, (uint32_t)index, m};
  return SETUN_OK;
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
