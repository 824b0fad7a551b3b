// Byte-pair encoding: a word's symbols are joined pair by pair, the best pair first and of equals the leftmost, until
// no pair is left that may be joined. Which pairs may, and how good they are, comes from a list of merges (their
// order), or in SentencePiece's kind from the vocabulary itself (a pair may be joined if the result is a token; its
// score says how good that is).
//
// Three things make it fast without changing the result. Words come back, so their ids are kept in a cache. A long
// word is cut at its seams, places between two characters (or bytes) that stand side by side in no token of the
// vocabulary: nothing can be joined across one, so the parts are independent. And a part of n symbols takes
// O(n log n) steps at most, by a queue, when it is not short.
#include "tokenizer/bpe.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
  SHORT_WORD = 32,    // bytes: below it, looking for seams is not worth while
  MAX_KEY = 128,      // bytes of a word that is kept in the cache
  MAX_KEYS = 1 << 21, // bytes of all of them
  SEAM_BITS = 20,
  PROBES = 4
};

// ---- ranks from scores ----

typedef struct {
  float score;
  uint32_t id;
} scored;

static int by_score(const void *a, const void *b) {
  float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
  return x > y ? -1 : x < y;
}

static setun_status rank_scores(st_tokenizer *t, setun_error *err) {
  scored *order = st_malloc(t->size, sizeof *order);
  t->ranks = st_malloc(t->size, sizeof *t->ranks);
  if (!order || !t->ranks) {
    st_free(order);
    return st_fail_memory(err, "the scores");
  }
  bool sorted = true;
  for (uint32_t id = 0; id < t->size; id++) {
    order[id] = (scored){t->scores[id], id};
    if (id && t->scores[id] > t->scores[id - 1]) sorted = false;
  }
  if (!sorted) qsort(order, t->size, sizeof *order, by_score);
  uint32_t rank = 0;
  for (uint32_t i = 0; i < t->size; i++) {
    if (i && order[i].score != order[i - 1].score) rank++;
    t->ranks[order[i].id] = rank;
  }
  st_free(order);
  return SETUN_OK;
}

// ---- seams ----

static uint32_t seam_of(const st_tokenizer *t, uint32_t left, uint32_t right) {
  if (t->byte_level) return left << 8 | right;
  return (uint32_t)(((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u >> (64 - SEAM_BITS));
}

static bool joinable(const st_tokenizer *t, uint32_t left, uint32_t right) {
  uint32_t s = seam_of(t, left, right);
  return t->seams[s >> 3] >> (s & 7) & 1;
}

static void add_seams(const st_tokenizer *t, const char *text, size_t length) {
  uint32_t left = 0, right;
  for (size_t i = 0, n; i < length; i += n, left = right) {
    n = st_bpe_unit(t, text + i, length - i, &right);
    if (!i) continue;
    uint32_t s = seam_of(t, left, right);
    t->seams[s >> 3] |= (uint8_t)(1 << (s & 7));
  }
}

setun_status st_bpe_prepare(st_tokenizer *t, setun_error *err) {
  if (t->model == ST_MODEL_SCORES) {
    setun_status s = rank_scores(t, err);
    if (s) return s;
  }
  if (t->byte_level && t->merges) {
    setun_status s = st_merges_pair_bytes(t, err);
    if (s) return s;
  }
  t->seams = st_calloc((t->byte_level ? 1u << 16 : 1u << SEAM_BITS) / 8, 1);
  if (!t->seams) return st_fail_memory(err, "the vocabulary's pairs");
  for (uint32_t id = 0; id < t->size; id++) {
    uint8_t type = t->types[id];
    if (!t->texts[id].data || type == ST_TOKEN_CONTROL || type == ST_TOKEN_BYTE) continue;
    st_bytes b = t->byte_level ? t->pieces[id] : t->texts[id];
    add_seams(t, b.data, b.length);
  }
  return SETUN_OK;
}

// ---- words ----

static uint64_t hash_word(const char *text, size_t length, bool whole) {
  uint64_t h = (length << 1 | whole) * 0x9E3779B97F4A7C15u;
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
  return h | 1; // 0 says that a slot is free
}

// The slot that holds the word, or the one where it should go.
static st_cached *find_cached(const st_encoder *e, const char *text, size_t length, uint64_t hash) {
  size_t first = hash >> 8 & e->cache_mask;
  for (size_t k = 0; k < PROBES; k++) {
    st_cached *c = &e->cache[(first + k) & e->cache_mask];
    if (!c->hash) return c;
    if (c->hash == hash && c->length == length && !memcmp(e->keys.data + c->key, text, length)) return c;
  }
  return &e->cache[first];
}

static setun_status emit_cached(st_encoder *e, const st_cached *c) {
  st_token_list *out = e->out;
  uint32_t skip = c->n && e->t->fuse_unk && e->unk_at == out->length && out->ids[c->ids] == e->t->unk;
  uint32_t n = c->n - skip;
  if (n > out->capacity - out->length && !st_reserve(&out->ids, &out->capacity, out->length + n, sizeof *out->ids)) {
    return st_fail_memory(e->err, "the tokens");
  }
  for (uint32_t i = 0; i < n; i++) out->ids[out->length + i] = out->ids[c->ids + skip + i];
  out->length += n;
  if (n && out->ids[out->length - 1] == e->t->unk) e->unk_at = out->length;
  return SETUN_OK;
}

// A word that is a token as it stands, where the tokenizer says that this comes before any merge.
static int32_t whole_token(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  if (!t->byte_level) return st_tokenizer_plain(t, text, length);
  char printed[2 * MAX_KEY];
  if (length <= MAX_KEY) return st_tokenizer_plain(t, printed, st_bytes_print(text, length, printed));
  if (length > t->max_length) return -1;
  char *large = st_malloc(length, 2);
  int32_t id = large ? st_tokenizer_plain(t, large, st_bytes_print(text, length, large)) : -1;
  st_free(large);
  return id;
}

// A word, or a part of one between seams.
static setun_status part(st_encoder *e, const char *text, size_t length, bool whole) {
  const st_tokenizer *t = e->t;
  whole = whole && t->ignore_merges;
  st_cached *slot = NULL;
  uint64_t hash = 0;
  if (length <= MAX_KEY) {
    hash = hash_word(text, length, whole);
    slot = find_cached(e, text, length, hash);
    if (slot->hash == hash && slot->length == length && !memcmp(e->keys.data + slot->key, text, length)) {
      return emit_cached(e, slot);
    }
  }
  size_t ids = e->out->length;
  bool after_unk = e->unk_at == ids;
  int32_t token = whole ? whole_token(e, text, length) : -1;
  setun_status s = token >= 0 ? st_encoder_emit(e, token) : st_bpe_join(e, text, length);
  if (s || !slot || after_unk || e->keys.length > MAX_KEYS) return s;
  size_t key = e->keys.length;
  if (!st_buffer_append(&e->keys, text, length)) return st_fail_memory(e->err, "the word cache");
  *slot = (st_cached){hash, key, ids, (uint32_t)length, (uint32_t)(e->out->length - ids)};
  return SETUN_OK;
}

setun_status st_bpe_word(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  e->unk_at = SIZE_MAX;
  if (length <= SHORT_WORD) return part(e, text, length, true);
  int32_t id = t->ignore_merges ? whole_token(e, text, length) : -1;
  if (id >= 0) return st_encoder_emit(e, id);
  size_t start = 0;
  uint32_t left, right;
  for (size_t i = st_bpe_unit(t, text, length, &left), n; i < length; i += n, left = right) {
    n = st_bpe_unit(t, text + i, length - i, &right);
    if (joinable(t, left, right)) continue;
    setun_status s = part(e, text + start, i - start, false);
    if (s) return s;
    start = i;
  }
  return part(e, text + start, length - start, false);
}
