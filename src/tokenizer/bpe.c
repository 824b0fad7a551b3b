// Byte-pair encoding: a word's symbols are merged pair by pair, the best pair first and of equals the leftmost, until
// no pair is left that may be merged. Which pairs may, and how good they are, comes from a list of merges (their
// order), or in SentencePiece's kind from the vocabulary itself (a pair may be merged if the result is a token; its
// score says how good that is).
//
// Three things make it fast without changing the result. Words recur, so their ids are cached. A long word is split at
// its seams, places between two characters (or bytes) that are not adjacent in any token of the vocabulary: nothing can
// be merged across a seam, so the parts are independent. And a part of n symbols, unless short, takes
// at most O(n log n) steps with a queue.
#include "tokenizer/bpe.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
  SHORT_WORD = 32, // bytes: below it, looking for seams is not worthwhile
  SEAM_BITS = 20
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

static bool mergeable(const st_tokenizer *t, uint32_t left, uint32_t right) {
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

// A word that is a token itself, if the tokenizer gives this precedence over merges.
static int32_t whole_token(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  if (!t->byte_level) return st_tokenizer_plain(t, text, length);
  char printed[2 * ST_MAX_CACHED];
  if (length <= ST_MAX_CACHED) return st_tokenizer_plain(t, printed, st_bytes_print(text, length, printed));
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
  if (length <= ST_MAX_CACHED) {
    bool found;
    slot = st_cache_find(e, text, length, whole ? ST_CACHE_WORD : ST_CACHE_PART, &found);
    if (found) return st_cache_emit(e, slot);
  }
  size_t ids = e->out->length;
  bool after_unk = e->unk_at == ids;
  int32_t token = whole ? whole_token(e, text, length) : -1;
  setun_status s = token >= 0 ? st_encoder_emit(e, token) : st_bpe_merge(e, text, length);
  if (s || !slot || after_unk) return s;
  return st_cache_keep(e, slot, text, length, whole ? ST_CACHE_WORD : ST_CACHE_PART, ids);
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
    if (mergeable(t, left, right)) continue;
    setun_status s = part(e, text + start, i - start, false);
    if (s) return s;
    start = i;
  }
  return part(e, text + start, length - start, false);
}
