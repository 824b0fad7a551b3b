// Byte-pair encoding: a word's symbols are joined pair by pair, the best pair first and of equals the leftmost, until
// no pair is left that may be joined. Which pairs may, and how good they are, comes from a list of merges (their
// order), or in SentencePiece's kind from the vocabulary itself (a pair may be joined if the result is a token; its
// score says how good that is).
//
// Three things make it fast without changing the result. Words come back, so their ids are kept in a cache. A long
// word is cut at its seams, places between two characters (or bytes) that stand side by side in no token of the
// vocabulary: nothing can be joined across one, so the parts are independent. And a part of n symbols takes
// O(n log n) steps at most, by a queue, when it is not short.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
  SHORT_PART = 48,    // symbols: below it, a plain search for the best pair is faster than a queue
  SHORT_WORD = 32,    // bytes: below it, looking for seams is not worth while
  MAX_KEY = 128,      // bytes of a word that is kept in the cache
  MAX_KEYS = 1 << 21, // bytes of all of them
  SEAM_BITS = 20,
  PROBES = 4
};

// ---- merges ----

setun_status st_merges_reserve(st_tokenizer *t, size_t count, setun_error *err) {
  if (count > ST_MAX_TOKENS * 4u) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%zu merges", count);
  size_t size = 16;
  while (size < count * 2) size *= 2;
  t->merges = st_malloc(size, sizeof *t->merges);
  if (!t->merges) return st_fail_memory(err, "the merges");
  for (size_t i = 0; i < size; i++) t->merges[i].left = NONE;
  t->merge_mask = size - 1;
  return SETUN_OK;
}

static st_merge *find_merge(const st_tokenizer *t, uint32_t left, uint32_t right) {
  uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
  for (size_t i = (h ^ h >> 32) & t->merge_mask;; i = (i + 1) & t->merge_mask) {
    st_merge *m = &t->merges[i];
    if (m->left == NONE || (m->left == left && m->right == right)) return m;
  }
}

static setun_status merge_token(const st_tokenizer *t, st_string text, size_t index, uint32_t *id, setun_error *err) {
  int64_t found = st_map_get(t->ids, text.data, text.length);
  if (found < 0) {
    int n = (int)(text.length < 40 ? text.length : 40);
    return st_fail(err, SETUN_ERROR_FORMAT, "merge %zu names \"%.*s\", which is no token", index, n, text.data);
  }
  *id = (uint32_t)found;
  return SETUN_OK;
}

setun_status st_merges_add(st_tokenizer *t, st_string left, st_string right, size_t index, bool replace,
                           setun_error *err) {
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
  if (!s) s = merge_token(t, (st_string){joined, length}, index, &m, err);
  if (joined != small) st_free(joined);
  if (s) return s;
  st_merge *slot = find_merge(t, l, r);
  if (slot->left == NONE) {
    if (t->n_merges * 2 > t->merge_mask) return st_fail(err, SETUN_ERROR_STATE, "more merges than were announced");
    t->n_merges++;
  } else if (!replace) {
    return SETUN_OK;
  }
  *slot = (st_merge){l, r, (uint32_t)index, m};
  return SETUN_OK;
}

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

// The unit (byte or character) at `s`, and its length. Vocabularies may hold stray bytes: each is a unit of its own.
static size_t unit_at(const st_tokenizer *t, const char *s, size_t n, uint32_t *code) {
  int used = t->byte_level || (unsigned char)*s < 0x80 ? 0 : st_utf8_decode(s, n, code);
  if (used > 0) return (size_t)used;
  *code = (unsigned char)*s;
  return 1;
}

static void add_seams(const st_tokenizer *t, const char *text, size_t length) {
  uint32_t left = 0, right;
  for (size_t i = 0, n; i < length; i += n, left = right) {
    n = unit_at(t, text + i, length - i, &right);
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

// ---- joining ----

// The rank of joining two neighbours and what comes of it; NONE when they may not be.
static uint32_t pair(const st_tokenizer *t, const char *text, const st_symbol *a, const st_symbol *b,
                     uint32_t *merged) {
  if (t->model == ST_MODEL_SCORES) {
    int32_t id = st_tokenizer_plain(t, text + a->start, (size_t)a->length + b->length);
    if (id < 0) return NONE;
    *merged = (uint32_t)id;
    return t->ranks[id];
  }
  if (a->id < 0 || b->id < 0) return NONE;
  const st_merge *m = find_merge(t, (uint32_t)a->id, (uint32_t)b->id);
  if (m->left == NONE) return NONE;
  *merged = m->merged;
  return m->rank;
}

static uint32_t split_symbols(const st_tokenizer *t, const char *text, size_t length, st_symbol *symbols) {
  uint32_t n = 0;
  for (size_t i = 0; i < length; n++) {
    uint32_t code;
    size_t used = unit_at(t, text + i, length - i, &code);
    int32_t id = t->byte_level ? t->byte_ids[code] : st_tokenizer_plain(t, text + i, used);
    symbols[n] = (st_symbol){.start = (uint32_t)i, .length = (uint32_t)used, .id = id, .rank = NONE};
    i += used;
  }
  return n;
}

static void set_pair(const st_tokenizer *t, const char *text, st_symbol *a, const st_symbol *b) {
  a->rank = pair(t, text, a, b, &a->merged);
}

// Joins by searching for the best pair each time; returns how many symbols are left.
static uint32_t join_short(const st_tokenizer *t, const char *text, st_symbol *s, uint32_t n) {
  for (uint32_t i = 0; i + 1 < n; i++) set_pair(t, text, &s[i], &s[i + 1]);
  while (n > 1) {
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < n; i++) {
      if (s[i].rank < s[best].rank) best = i;
    }
    if (s[best].rank == NONE) break;
    s[best].id = (int32_t)s[best].merged;
    s[best].length += s[best + 1].length;
    memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof *s);
    n--;
    s[best].rank = NONE;
    if (best + 1 < n) set_pair(t, text, &s[best], &s[best + 1]);
    if (best) set_pair(t, text, &s[best - 1], &s[best]);
  }
  return n;
}

static bool offer(st_encoder *e, const char *text, uint32_t at) {
  st_symbol *s = e->symbols;
  set_pair(e->t, text, &s[at], &s[s[at].next]);
  return s[at].rank == NONE || st_queue_push(&e->queue, s[at].rank, at);
}

// Joins with a queue over linked symbols. An item is stale when its symbol's pair has another rank by now.
static bool join_long(st_encoder *e, const char *text, uint32_t n) {
  st_symbol *s = e->symbols;
  if (!st_queue_reset(&e->queue)) return false;
  for (uint32_t i = 0; i < n; i++) {
    s[i].prev = i - 1;
    s[i].next = i + 1 < n ? i + 1 : NONE;
    if (i + 1 < n && !offer(e, text, i)) return false;
  }
  for (;;) {
    st_queue_item top;
    bool found;
    if (!st_queue_pop(&e->queue, &top, &found)) return false;
    if (!found) return true;
    st_symbol *a = &s[top.at];
    if (a->rank != top.rank) continue;
    st_symbol *b = &s[a->next];
    a->id = (int32_t)a->merged;
    a->length += b->length;
    a->next = b->next;
    b->rank = a->rank = NONE;
    if (a->next != NONE) {
      s[a->next].prev = top.at;
      if (!offer(e, text, top.at)) return false;
    }
    if (a->prev != NONE && !offer(e, text, a->prev)) return false;
  }
}

// ---- ids ----

static setun_status emit_unknown(st_encoder *e, const char *text, uint32_t length) {
  const st_tokenizer *t = e->t;
  bool bytes = t->byte_fallback;
  for (uint32_t i = 0; bytes && i < length; i++) bytes = t->byte_ids[(unsigned char)text[i]] >= 0;
  if (bytes) {
    for (uint32_t i = 0; i < length; i++) {
      setun_status s = st_encoder_emit(e, t->byte_ids[(unsigned char)text[i]]);
      if (s) return s;
    }
    return SETUN_OK;
  }
  if (t->unk < 0) return SETUN_OK; // as the reference: what has no token and no unknown token is left out
  if (t->fuse_unk && e->unk_at == e->out->length) return SETUN_OK;
  setun_status s = st_encoder_emit(e, t->unk);
  e->unk_at = e->out->length;
  return s;
}

static setun_status emit_symbol(st_encoder *e, const char *text, const st_symbol *s) {
  return s->id >= 0 ? st_encoder_emit(e, s->id) : emit_unknown(e, text + s->start, s->length);
}

static setun_status merge_part(st_encoder *e, const char *text, size_t length) {
  st_symbol few[SHORT_PART], *symbols = few;
  setun_status s = SETUN_OK;
  bool is_short = length <= SHORT_PART;
  if (!is_short) {
    if (!st_reserve(&e->symbols, &e->symbols_capacity, length, sizeof *e->symbols)) {
      return st_fail_memory(e->err, "a long word");
    }
    symbols = e->symbols;
  }
  uint32_t n = split_symbols(e->t, text, length, symbols);
  if (is_short) {
    n = join_short(e->t, text, symbols, n);
    for (uint32_t i = 0; !s && i < n; i++) s = emit_symbol(e, text, &symbols[i]);
    return s;
  }
  if (!join_long(e, text, n)) return st_fail_memory(e->err, "a long word");
  for (uint32_t i = 0; !s && i != NONE; i = symbols[i].next) s = emit_symbol(e, text, &symbols[i]);
  return s;
}

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
  setun_status s = token >= 0 ? st_encoder_emit(e, token) : merge_part(e, text, length);
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
  for (size_t i = unit_at(t, text, length, &left), n; i < length; i += n, left = right) {
    n = unit_at(t, text + i, length - i, &right);
    if (joinable(t, left, right)) continue;
    setun_status s = part(e, text + start, i - start, false);
    if (s) return s;
    start = i;
  }
  return part(e, text + start, length - start, false);
}
