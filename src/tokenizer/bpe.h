// Shared by the parts of byte-pair encoding: the look-up of merges, a text's units, and the merging of one part.
#ifndef SETUN_TOKENIZER_BPE_H
#define SETUN_TOKENIZER_BPE_H

#include "base/utf8.h"
#include "tokenizer/internal.h"

#define ST_NONE UINT32_MAX

static inline uint64_t st_merges_hash(uint32_t left, uint32_t right) {
  return ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
}

static inline size_t st_merges_slot(const st_tokenizer *t, uint64_t hash) {
  return (hash ^ hash >> 32) & t->merge_mask;
}

static inline size_t st_merges_bit(const st_tokenizer *t, uint64_t hash) {
  return hash >> 36 & t->filter_mask;
}

// False: no merge joins the two. Most pairs are of that kind, and the filter is small enough to stay in the processor's
// cache, unlike the table of merges.
static inline bool st_merges_may(const st_tokenizer *t, uint64_t hash) {
  size_t bit = st_merges_bit(t, hash);
  return t->merge_filter[bit >> 3] >> (bit & 7) & 1;
}

// The slot that holds the pair, or the free slot for it (left ST_NONE).
static inline st_merge *st_merges_find(const st_tokenizer *t, uint64_t hash, uint32_t left, uint32_t right) {
  for (size_t i = st_merges_slot(t, hash);; i = (i + 1) & t->merge_mask) {
    st_merge *m = &t->merges[i];
    if (m->left == ST_NONE || (m->left == left && m->right == right)) return m;
  }
}

// The unit (byte or character) at `s`, and its length. Vocabularies may hold stray bytes: each is a unit of its own.
static inline size_t st_bpe_unit(const st_tokenizer *t, const char *s, size_t n, uint32_t *code) {
  int used = t->byte_level || (unsigned char)*s < 0x80 ? 0 : st_utf8_decode(s, n, code);
  if (used > 0) return (size_t)used;
  *code = (unsigned char)*s;
  return 1;
}

// bpe_merge.c: merges the units of a word, or of a part of one, and emits the ids.
setun_status st_bpe_merge(st_encoder *e, const char *text, size_t length);

#endif
