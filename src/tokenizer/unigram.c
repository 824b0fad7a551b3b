// Unigram: of all ways to cut a word into tokens, the one whose log probabilities sum to the most (Viterbi). A
// character that no token covers becomes the unknown token, whose score is ten below the least likely token's, as in
// SentencePiece.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

// The best way to reach a position in the word.
typedef struct {
  double score;
  uint32_t start; // where its last token begins; UINT32_MAX: not reached yet
  int32_t id;
} lattice_node;

setun_status st_unigram_prepare(st_tokenizer *t, setun_error *err) {
  size_t total = 0;
  double least = 0;
  bool any = false;
  if (t->text_unk < 0) return st_fail(err, SETUN_ERROR_FORMAT, "a Unigram vocabulary without an unknown token");
  if (!t->log_probs) {
    t->log_probs = st_malloc(t->size, sizeof *t->log_probs);
    if (!t->log_probs) return st_fail_memory(err, "the scores");
    for (uint32_t id = 0; id < t->size; id++) t->log_probs[id] = t->scores[id];
  }
  for (uint32_t id = 0; id < t->size; id++) {
    if (!t->texts[id].data) continue;
    total += t->texts[id].length;
    bool normal = t->types[id] == ST_TOKEN_NORMAL && (!t->outside || !t->outside[id]);
    if (normal && (!any || t->log_probs[id] < least)) least = t->log_probs[id], any = true;
  }
  t->unk_score = t->sentencepiece ? (double)((float)least - 10.0f) : least - 10;
  t->trie = st_trie_new(total);
  if (!t->trie) return st_fail_memory(err, "the vocabulary");
  for (uint32_t id = 0; id < t->size; id++) {
    st_bytes text = t->texts[id];
    if (!text.data || st_tokenizer_plain(t, text.data, text.length) != (int32_t)id) continue;
    if (!st_trie_add(t->trie, text.data, text.length, (int32_t)id)) {
      return st_fail(err, SETUN_ERROR_STATE, "the vocabulary: more text than was counted");
    }
  }
  return SETUN_OK;
}

static double sum(const st_tokenizer *t, double a, double b) {
  return t->sentencepiece ? (double)((float)a + (float)b) : a + b;
}

static void reach(lattice_node *p, double score, uint32_t start, int32_t id) {
  if (p->start == UINT32_MAX || score > p->score) *p = (lattice_node){score, start, id};
}

static void forward(const st_tokenizer *t, const char *text, size_t length, lattice_node *nodes) {
  for (size_t i = 0; i < length;) {
    uint32_t code, state = 0;
    int used = st_utf8_decode(text + i, length - i, &code);
    size_t one = used > 0 ? (size_t)used : 1;
    bool covered = false;
    for (size_t j = i; j < length && (state = st_trie_step(t->trie, state, (unsigned char)text[j]));) {
      int32_t id = st_trie_id(t->trie, state);
      j++;
      if (id < 0) continue;
      reach(&nodes[j], sum(t, nodes[i].score, t->log_probs[id]), (uint32_t)i, id);
      covered |= j - i == one;
    }
    if (!covered) reach(&nodes[i + one], sum(t, nodes[i].score, t->unk_score), (uint32_t)i, t->text_unk);
    i += one;
  }
}

static setun_status emit_unknown(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  bool bytes = t->byte_fallback;
  for (size_t i = 0; bytes && i < length; i++) bytes = t->byte_ids[(unsigned char)text[i]] >= 0;
  if (!bytes) return st_encoder_emit(e, t->text_unk);
  setun_status s = SETUN_OK;
  for (size_t i = 0; !s && i < length; i++) s = st_encoder_emit(e, t->byte_ids[(unsigned char)text[i]]);
  return s;
}

setun_status st_unigram_word(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  lattice_node *nodes = e->lattice;
  if (!st_reserve(&nodes, &e->lattice_capacity, length + 1, sizeof *nodes)) return st_fail_memory(e->err, "a word");
  e->lattice = nodes;
  for (size_t i = 0; i <= length; i++) nodes[i] = (lattice_node){0, UINT32_MAX, -1};
  forward(t, text, length, nodes);
  // Backward along the best way; each position then says where the next one is.
  uint32_t next = (uint32_t)length;
  for (uint32_t at = (uint32_t)length; at;) {
    uint32_t start = nodes[at].start;
    int32_t id = nodes[at].id;
    while (t->fuse_unk && id == t->text_unk && start && nodes[start].id == t->text_unk) start = nodes[start].start;
    nodes[start].score = at;
    next = at = start;
  }
  setun_status s = SETUN_OK;
  for (uint32_t at = next; !s && at < length;) {
    uint32_t end = (uint32_t)nodes[at].score;
    int32_t id = nodes[end].id;
    s = id == t->text_unk ? emit_unknown(e, text + at, end - at) : st_encoder_emit(e, id);
    at = end;
  }
  return s;
}
