// Merging: the units of a part of a word become tokens, the best pair first and of equals the leftmost.
//
// A part of up to 64 units is merged by searching for the best pair each time. A longer one is merged in windows that
// overlap. What makes this exact: a sequence of tokens is a text's encoding if and only if each two neighbours are the
// encoding of the text of the two, since whether two tokens are ever merged across their border depends only on the
// merges inside them. So where two windows have one token in common (the same bytes of the text), the first window's
// tokens before it and the second's from it on make one encoding: each pair of neighbours is in one of the two. If
// windows have none in common, larger ones are tried; they have a queue for their pairs.
#include "tokenizer/bpe.h"

#include "base/memory.h"

#include <string.h>

enum {
  SHORT = 64, // units; a pair's rank and place share 32 bits
  GROWTH = 8  // how much larger the next windows are
};

// The rank of the merge of two neighbours and the token that it makes; ST_NONE: there is none.
static inline uint32_t pair(const st_tokenizer *t, const char *text, size_t length, int32_t left, int32_t right,
                            uint32_t *merged) {
  if (t->model == ST_MODEL_SCORES) {
    int32_t id = st_tokenizer_plain(t, text, length);
    if (id < 0) return ST_NONE;
    *merged = (uint32_t)id;
    return t->ranks[id];
  }
  if (left < 0 || right < 0) return ST_NONE;
  uint64_t hash = st_merges_hash((uint32_t)left, (uint32_t)right);
  if (!st_merges_may(t, hash)) return ST_NONE;
  const st_merge *m = st_merges_find(t, hash, (uint32_t)left, (uint32_t)right);
  if (m->left == ST_NONE) return ST_NONE;
  *merged = m->merged;
  return m->rank;
}

static inline int32_t unit_id(const st_tokenizer *t, const char *text, size_t length, uint32_t code) {
  return t->byte_level ? t->byte_ids[code] : st_tokenizer_plain(t, text, length);
}

// ---- a few units ----

typedef struct {
  uint32_t key[SHORT]; // of unit i with the next: rank * SHORT + i, or ST_NONE
  uint32_t merged[SHORT];
  int32_t id[SHORT];
  uint32_t start[SHORT + 1];
  uint8_t next[SHORT], prev[SHORT];
  uint32_t n;
} units;

static void set_key(const st_tokenizer *t, const char *text, units *u, uint32_t i) {
  uint32_t next = u->next[i], start = u->start[i], end = u->start[next + 1 < u->n ? u->next[next] : u->n];
  uint32_t rank = pair(t, text + start, end - start, u->id[i], u->id[next], &u->merged[i]);
  u->key[i] = rank == ST_NONE ? ST_NONE : rank * SHORT + i;
}

// The units from the text's beginning on, at most SHORT of them.
static void split_few(const st_tokenizer *t, const char *text, size_t length, units *u) {
  uint32_t n = 0;
  size_t i = 0;
  for (; i < length && n < SHORT; n++) {
    uint32_t code;
    size_t used = st_bpe_unit(t, text + i, length - i, &code);
    u->id[n] = unit_id(t, text + i, used, code);
    u->start[n] = (uint32_t)i;
    u->next[n] = (uint8_t)(n + 1);
    u->prev[n] = (uint8_t)(n - 1);
    i += used;
  }
  u->start[n] = (uint32_t)i;
  u->n = n;
}

static void merge_few(const st_tokenizer *t, const char *text, units *u) {
  uint32_t n = u->n, padded = (n + 7) & ~7u;
  for (uint32_t i = n ? n - 1 : 0; i < padded; i++) u->key[i] = ST_NONE;
  for (uint32_t i = 0; i + 1 < n; i++) {
    if (t->byte_pairs) {
      st_byte_pair p = t->byte_pairs[(unsigned char)text[i] << 8 | (unsigned char)text[i + 1]];
      u->merged[i] = p.merged;
      u->key[i] = p.rank == ST_NONE ? ST_NONE : p.rank * SHORT + i;
    } else {
      set_key(t, text, u, i);
    }
  }
  for (;;) {
    uint32_t best = ST_NONE;
    for (uint32_t i = 0; i < padded; i++) best = u->key[i] < best ? u->key[i] : best;
    if (best == ST_NONE) return;
    uint32_t a = best % SHORT, b = u->next[a], after = u->next[b];
    u->id[a] = (int32_t)u->merged[a];
    u->next[a] = (uint8_t)after;
    u->key[b] = ST_NONE;
    if (after < n) {
      u->prev[after] = (uint8_t)a;
      set_key(t, text, u, a);
    } else {
      u->key[a] = ST_NONE;
    }
    if (a) set_key(t, text, u, u->prev[a]);
  }
}

// ---- many units ----

static uint32_t split_many(const st_tokenizer *t, const char *text, size_t length, size_t most, st_symbol *symbols) {
  uint32_t n = 0;
  for (size_t i = 0; i < length && n < most; n++) {
    uint32_t code;
    size_t used = st_bpe_unit(t, text + i, length - i, &code);
    int32_t id = unit_id(t, text + i, used, code);
    symbols[n] = (st_symbol){.start = (uint32_t)i, .length = (uint32_t)used, .id = id, .rank = ST_NONE};
    i += used;
  }
  return n;
}

static bool push_pair(st_encoder *e, const char *text, uint32_t at) {
  st_symbol *a = &e->symbols[at], *b = &e->symbols[a->next];
  a->rank = pair(e->t, text + a->start, (size_t)a->length + b->length, a->id, b->id, &a->merged);
  return a->rank == ST_NONE || st_bpe_queue_push(&e->queue, a->rank, at);
}

// Merges with a queue over linked symbols. An item is stale when its symbol's pair has another rank by now.
static bool merge_many(st_encoder *e, const char *text, uint32_t n) {
  st_symbol *s = e->symbols;
  if (!st_bpe_queue_reset(&e->queue)) return false;
  for (uint32_t i = 0; i < n; i++) {
    s[i].prev = i - 1;
    s[i].next = i + 1 < n ? i + 1 : ST_NONE;
    if (i + 1 < n && !push_pair(e, text, i)) return false;
  }
  for (;;) {
    st_bpe_queue_item top;
    bool found;
    if (!st_bpe_queue_pop(&e->queue, &top, &found)) return false;
    if (!found) return true;
    st_symbol *a = &s[top.at];
    if (a->rank != top.rank) continue;
    st_symbol *b = &s[a->next];
    a->id = (int32_t)a->merged;
    a->length += b->length;
    a->next = b->next;
    b->rank = a->rank = ST_NONE;
    if (a->next != ST_NONE) {
      s[a->next].prev = top.at;
      if (!push_pair(e, text, top.at)) return false;
    }
    if (a->prev != ST_NONE && !push_pair(e, text, a->prev)) return false;
  }
}

// ---- windows ----

// Merges the window of `most` units at text[at], or of what is left.
static bool merge_window(st_encoder *e, const char *text, size_t length, size_t at, size_t most, st_bpe_window *out) {
  size_t rest = length - at, room = most < rest ? most : rest;
  if (!st_reserve(&out->tokens, &out->capacity, room, sizeof *out->tokens)) return false;
  out->n = 0;
  if (most <= SHORT) {
    units u;
    split_few(e->t, text + at, rest, &u);
    merge_few(e->t, text + at, &u);
    for (uint32_t i = 0; i < u.n; i = u.next[i]) {
      out->tokens[out->n++] = (st_bpe_window_token){at + u.start[i], u.start[u.next[i]] - u.start[i], u.id[i]};
    }
  } else {
    if (!st_reserve(&e->symbols, &e->symbols_capacity, room, sizeof *e->symbols)) return false;
    uint32_t n = split_many(e->t, text + at, rest, most, e->symbols);
    if (!merge_many(e, text + at, n)) return false;
    for (uint32_t i = 0; i < n; i = e->symbols[i].next) {
      const st_symbol *s = &e->symbols[i];
      out->tokens[out->n++] = (st_bpe_window_token){at + s->start, s->length, s->id};
    }
  }
  out->end = out->tokens[out->n - 1].start + out->tokens[out->n - 1].length;
  return true;
}

// A window with the same bytes as the previous one has the same tokens: long texts often repeat themselves.
static bool repeat_window(const st_bpe_window *w, const char *text, size_t length, size_t at, st_bpe_window *out) {
  size_t start = w->tokens[0].start, n = w->end - start;
  if (length - at < n || memcmp(text + start, text + at, n) != 0) return false;
  if (!st_reserve(&out->tokens, &out->capacity, w->n, sizeof *out->tokens)) return false;
  for (size_t i = 0; i < w->n; i++) {
    out->tokens[i] = w->tokens[i];
    out->tokens[i].start += at - start;
  }
  out->n = w->n;
  out->end = w->end + (at - start);
  return true;
}

// The reference fails here too. Otherwise the character would be dropped silently.
static setun_status fail_character(st_encoder *e, const char *text, uint32_t length) {
  uint32_t code = (unsigned char)*text;
  st_utf8_decode(text, length, &code);
  bool shown = code >= 0x20 && code != 0x7F;
  return st_fail(
      e->err, SETUN_ERROR_FORMAT,
      "the character U+%04X%s%.*s%s: the vocabulary has no token for it, no byte tokens, and no unknown token "
      "that text may become (tokenizer.ggml.unknown_token_id)",
      code, shown ? " (\"" : "", shown ? (int)length : 0, text, shown ? "\")" : "");
}

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
  if (t->text_unk < 0 && t->model == ST_MODEL_SCORES) return fail_character(e, text, length);
  if (t->text_unk < 0)
    return SETUN_OK; // as in the reference: characters without a token and without an unknown token are dropped
  if (t->fuse_unk && e->unk_at == e->out->length) return SETUN_OK;
  setun_status s = st_encoder_emit(e, t->text_unk);
  e->unk_at = e->out->length;
  return s;
}

static setun_status emit_token(st_encoder *e, const char *text, size_t start, uint32_t length, int32_t id) {
  return id >= 0 ? st_encoder_emit(e, id) : emit_unknown(e, text + start, length);
}

static setun_status emit_window(st_encoder *e, const char *text, const st_bpe_window *w, size_t from, size_t to) {
  setun_status s = SETUN_OK;
  for (size_t i = from; !s && i < to; i++)
    s = emit_token(e, text, w->tokens[i].start, w->tokens[i].length, w->tokens[i].id);
  return s;
}

// The token of `w` where the next window should begin: after this many eighths of it.
static size_t next_start(const st_bpe_window *w, size_t from, size_t eighths) {
  size_t start = w->tokens[0].start, wanted = start + (w->end - start) * eighths / 8, i = from;
  while (i + 1 < w->n && w->tokens[i].start < wanted) i++;
  return i;
}

// Finds a token that two windows have in common, from *i and *j on.
static bool find_common(const st_bpe_window *a, const st_bpe_window *b, size_t *i, size_t *j) {
  while (*i < a->n && *j < b->n) {
    const st_bpe_window_token *x = &a->tokens[*i], *y = &b->tokens[*j];
    if (x->start == y->start && x->length == y->length) return true;
    *i += x->start <= y->start;
    *j += y->start <= x->start;
  }
  return false;
}

// The window after `a`: *b, which shares a token with it, the i-th there and the j-th here; false: out of memory, or
// *stuck. A small overlap is nearly always enough.
static bool next_window(st_encoder *e, const char *text, size_t length, size_t most, size_t from, st_bpe_window *a,
                        st_bpe_window *b, size_t *i, size_t *j, bool *stuck) {
  for (size_t eighths = 7;; eighths -= 4) {
    *i = next_start(a, from, eighths);
    *j = 0;
    if (!*i) break;
    size_t at = a->tokens[*i].start;
    if (!repeat_window(a, text, length, at, b) && !merge_window(e, text, length, at, most, b)) return false;
    if (find_common(a, b, i, j)) return true;
    if (eighths < 4) break;
  }
  *stuck = true;
  return false;
}

// Merges a part in windows of `most` units; *stuck: these are too small.
static setun_status merge_windows(st_encoder *e, const char *text, size_t length, size_t most, bool *stuck) {
  st_bpe_window *a = &e->windows[0], *b = &e->windows[1];
  size_t from = 0, i, j; // `from`: of `a`, the first token that is not emitted yet
  *stuck = false;
  if (!merge_window(e, text, length, 0, most, a)) return st_fail_memory(e->err, "a long word");
  while (a->end < length) {
    if (!next_window(e, text, length, most, from, a, b, &i, &j, stuck)) {
      return *stuck ? SETUN_OK : st_fail_memory(e->err, "a long word");
    }
    setun_status s = emit_window(e, text, a, from, i);
    if (s) return s;
    st_bpe_window *swap = a;
    a = b;
    b = swap;
    from = j;
  }
  return emit_window(e, text, a, from, a->n);
}

static setun_status merge_short(st_encoder *e, const char *text, size_t length) {
  units u;
  split_few(e->t, text, length, &u);
  merge_few(e->t, text, &u);
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; !s && i < u.n; i = u.next[i]) {
    s = emit_token(e, text, u.start[i], u.start[u.next[i]] - u.start[i], u.id[i]);
  }
  return s;
}

setun_status st_bpe_merge(st_encoder *e, const char *text, size_t length) {
  if (length <= SHORT) return merge_short(e, text, length);
  size_t ids = e->out->length, unk_at = e->unk_at;
  for (size_t most = SHORT;; most *= GROWTH) {
    bool stuck;
    setun_status s = merge_windows(e, text, length, most, &stuck);
    if (s || !stuck) return s;
    e->out->length = ids;
    e->unk_at = unk_at;
  }
}
