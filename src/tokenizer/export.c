// From a tokenizer to the arrays of a GGUF file.
#include "tokenizer/export.h"

#include "base/memory.h"
#include "tokenizer/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD_BYTES = 24 };

void st_vocabulary_export_free(st_vocabulary_export *e) {
  st_free(e->tokens);
  st_free(e->merges);
  st_free(e->scores);
  st_free(e->types);
  st_free(e->storage);
  *e = (st_vocabulary_export){0};
}

static setun_status fail_shape(const char *what, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "the tokenizer: GGUF cannot state %s", what);
}

// Refuses tokenizers that the arrays cannot describe.
static setun_status check(const st_tokenizer *t, setun_error *err) {
  char label[64];
  for (uint32_t id = 0; id < t->size; id++) {
    if (!(t->flags[id] & (ST_ADDED_LSTRIP | ST_ADDED_RSTRIP | ST_ADDED_SINGLE_WORD))) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "the tokenizer: GGUF cannot state that %s strips spaces or matches only whole words",
                   st_token_label(t, id, label));
  }
  if (t->model == ST_MODEL_UNIGRAM) return fail_shape("what this Unigram model does", err);
  if (t->model == ST_MODEL_SCORES) {
    bool marks = t->n_normalizers && t->normalizers[0].kind == ST_NORMALIZE_SENTENCEPIECE ? t->sp.escape : true;
    bool plain = !t->sp.map.n_units && !(t->sentencepiece && t->sp.remove_extra) && marks;
    return plain ? SETUN_OK : fail_shape("how this one normalizes text", err);
  }
  if (!t->byte_level) return fail_shape("merges without a byte-level alphabet", err);
  bool nfc = t->n_normalizers == 1 && t->normalizers[0].kind == ST_NORMALIZE_NFC; // as published Qwen files leave out
  if (t->n_normalizers && !nfc) return fail_shape("how this one normalizes text", err);
  if (!st_pretokenizer_of(t)) return fail_shape("how this one splits text (no published pattern is like it)", err);
  return SETUN_OK;
}

// SentencePiece finds user-defined pieces in normalized text, where spaces are marks; readers of GGUF in the raw text.
static bool has_marks(const st_tokenizer *t, uint32_t id) {
  return t->sentencepiece && t->sp.escape && t->types[id] == ST_TOKEN_USER_DEFINED;
}

// Copies a text with spaces for its marks; returns the length.
static size_t unmark(st_bytes text, char *to) {
  size_t n = 0, mark = strlen(ST_SPACE_MARK);
  for (size_t i = 0; i < text.length;) {
    bool found = text.length - i >= mark && memcmp(text.data + i, ST_SPACE_MARK, mark) == 0;
    to[n++] = found ? ' ' : text.data[i];
    i += found ? mark : 1;
  }
  return n;
}

static setun_status fill_tokens(const st_tokenizer *t, uint32_t size, st_vocabulary_export *e, setun_error *err) {
  size_t bytes = (size_t)(size - t->size) * PAD_BYTES;
  for (uint32_t id = 0; id < t->size; id++) {
    bytes += !t->texts[id].data ? PAD_BYTES : has_marks(t, id) ? t->texts[id].length : 0;
  }
  e->tokens = st_malloc(size, sizeof *e->tokens);
  e->types = st_malloc(size, sizeof *e->types);
  e->storage = st_malloc(bytes + 1, 1);
  if (!e->tokens || !e->types || !e->storage) return st_fail_memory(err, "the vocabulary");
  char *pad = e->storage;
  for (uint32_t id = 0; id < size; id++) {
    if (id < t->size && t->texts[id].data && has_marks(t, id)) {
      e->tokens[id] = (st_text){pad, unmark(t->texts[id], pad)};
      e->types[id] = t->types[id];
      pad += t->texts[id].length;
      continue;
    }
    if (id < t->size && t->texts[id].data) {
      e->tokens[id] = (st_text){t->texts[id].data, t->texts[id].length};
      e->types[id] = t->types[id];
      continue;
    }
    int n = snprintf(pad, PAD_BYTES, "[PAD%u]", id);
    if (st_map_get(t->ids, pad, (size_t)n) >= 0) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "the tokenizer: a token has the text %s, which is reserved for unused ids", pad);
    }
    e->tokens[id] = (st_text){pad, (size_t)n};
    e->types[id] = ST_TOKEN_UNUSED;
    pad += PAD_BYTES;
  }
  return SETUN_OK;
}

static int by_rank(const void *a, const void *b) {
  const st_merge *x = *(const st_merge *const *)a, *y = *(const st_merge *const *)b;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

// The used slots of the table, best rank first; freed with st_free.
static const st_merge **sorted_merges(const st_tokenizer *t, size_t *n) {
  const st_merge **list = st_malloc(t->n_merges + 1, sizeof *list);
  *n = 0;
  if (!list) return NULL;
  for (size_t i = 0; t->merges && i <= t->merge_mask && *n <= t->n_merges; i++) {
    if (t->merges[i].left != UINT32_MAX) list[(*n)++] = &t->merges[i];
  }
  qsort(list, *n, sizeof *list, by_rank);
  return list;
}

// "left right" of each, the texts in one block behind the array.
static setun_status fill_merges(const st_tokenizer *t, st_vocabulary_export *e, setun_error *err) {
  size_t n, bytes = 0;
  const st_merge **list = sorted_merges(t, &n);
  if (!list) return st_fail_memory(err, "the merges");
  for (size_t i = 0; i < n; i++) bytes += (size_t)t->texts[list[i]->left].length + t->texts[list[i]->right].length + 1;
  e->merges = st_malloc(1, n * sizeof *e->merges + bytes);
  if (!e->merges) {
    st_free(list);
    return st_fail_memory(err, "the merges");
  }
  char *to = (char *)(e->merges + n);
  for (size_t i = 0; i < n; i++) {
    st_bytes left = t->texts[list[i]->left], right = t->texts[list[i]->right];
    e->merges[i] = (st_text){to, (size_t)left.length + right.length + 1};
    memcpy(to, left.data, left.length);
    to[left.length] = ' ';
    memcpy(to + left.length + 1, right.data, right.length);
    to += e->merges[i].length;
  }
  st_free(list);
  e->vocabulary.n_merges = n;
  e->vocabulary.merges = e->merges;
  return SETUN_OK;
}

static setun_status fill_scores(const st_tokenizer *t, uint32_t size, st_vocabulary_export *e, setun_error *err) {
  e->scores = st_calloc(size, sizeof *e->scores);
  if (!e->scores) return st_fail_memory(err, "the scores");
  memcpy(e->scores, t->scores, t->size * sizeof *e->scores);
  for (uint32_t id = t->size; id < size; id++) e->scores[id] = -1e9f;
  e->vocabulary.scores = e->scores;
  bool prepends = t->n_normalizers && t->normalizers[0].kind == ST_NORMALIZE_PREPEND;
  e->vocabulary.add_space_prefix = t->sentencepiece ? t->sp.dummy_prefix : prepends;
  return SETUN_OK;
}

// The end-of-text tokens that a reader of these arrays would not find by itself: two keys can name them.
static setun_status fill_ends(const st_tokenizer *t, st_vocabulary *v, setun_error *err) {
  st_tokenizer *again = NULL;
  setun_status s = st_tokenizer_from_vocabulary(v, &again, err);
  if (s) return s;
  for (uint32_t id = 0; id < t->size && !s; id++) {
    if (!t->ends[id] || again->ends[id]) continue;
    if (v->eot < 0)
      v->eot = id;
    else if (v->eom < 0)
      v->eom = id;
    else
      s = fail_shape("that more than three tokens end a text", err);
  }
  st_tokenizer_free(again);
  return s;
}

setun_status st_tokenizer_export(const st_tokenizer *t, uint32_t size, st_vocabulary_export *out, setun_error *err) {
  st_vocabulary_export e = {0};
  st_vocabulary *v = &e.vocabulary;
  if (size < t->size) size = t->size;
  st_vocabulary_init(v);
  setun_status s = check(t, err);
  if (!s) s = fill_tokens(t, size, &e, err);
  if (!s) s = t->model == ST_MODEL_SCORES ? fill_scores(t, size, &e, err) : fill_merges(t, &e, err);
  if (!s) {
    v->model = t->model == ST_MODEL_SCORES ? "llama" : "gpt2";
    v->pre = t->model == ST_MODEL_SCORES ? "default" : st_pretokenizer_of(t)->name;
    v->n = size;
    v->tokens = e.tokens;
    v->types = e.types;
    v->bos = t->bos;
    v->eos = t->add_eos ? st_tokenizer_suffix(t) : t->eos;
    v->unk = t->unk;
    v->add_bos = t->add_bos;
    v->add_eos = t->add_eos;
    s = fill_ends(t, v, err);
  }
  if (s) {
    st_vocabulary_export_free(&e);
    return s;
  }
  *out = e;
  return SETUN_OK;
}
