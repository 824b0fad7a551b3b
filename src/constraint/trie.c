// Builds the trie of a vocabulary.
#include "constraint/trie.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct st_spelled {
  const char *bytes;
  size_t n;
  int32_t token;
  uint32_t characters; // number of plain characters; UINT32_MAX: some are not plain
} st_spelled;

setun_status st_token_bytes(const st_token_trie *t, int32_t token, const char **bytes, size_t *n, setun_error *err) {
  st_token_type type = st_tokenizer_type(t->tokenizer, token);
  bool text = type == ST_TOKEN_NORMAL || type == ST_TOKEN_USER_DEFINED || type == ST_TOKEN_BYTE;
  *bytes = "";
  *n = 0;
  if (!text || st_tokenizer_is_end(t->tokenizer, token) || !st_tokenizer_has_text(t->tokenizer, token)) return SETUN_OK;
  return st_tokenizer_piece(t->tokenizer, token, false, bytes, n, err);
}

static uint32_t plain_characters(const char *s, size_t n) {
  uint32_t count = 0;
  while (n) {
    uint32_t code;
    int length = st_utf8_decode(s, n, &code);
    if (length <= 0 || code < 0x20 || code == '"' || code == '\\' || code == 0x7F) return UINT32_MAX;
    s += length, n -= (size_t)length, count++;
  }
  return count;
}

static int compare_spelled(const void *a, const void *b) {
  const st_spelled *x = a, *y = b;
  size_t n = x->n < y->n ? x->n : y->n;
  int c = memcmp(x->bytes, y->bytes, n);
  if (c) return c;
  if (x->n != y->n) return x->n < y->n ? -1 : 1;
  return (x->token > y->token) - (x->token < y->token);
}

static bool add_id(int32_t **ids, size_t *n, size_t *capacity, int32_t id) {
  if (!st_reserve(ids, capacity, *n + 1, sizeof **ids)) return false;
  (*ids)[(*n)++] = id;
  return true;
}

// Collects all tokens with text, sorted.
static setun_status list_tokens(st_token_trie *t, st_spelled **out, size_t *n_out, setun_error *err) {
  st_spelled *list = st_malloc(t->size, sizeof *list);
  if (!list) return st_fail_memory(err, "the trie of a vocabulary");
  size_t n = 0;
  for (uint32_t i = 0; i < t->size; i++) {
    st_spelled s = {.token = (int32_t)i};
    setun_status status = st_token_bytes(t, s.token, &s.bytes, &s.n, err);
    bool fits = true;
    if (!status && st_tokenizer_is_end(t->tokenizer, s.token)) {
      fits = add_id(&t->ends, &t->n_ends, &t->ends_capacity, s.token);
    } else if (!status && s.n > ST_TRIE_DEPTH) {
      fits = add_id(&t->lengthy, &t->n_lengthy, &t->lengthy_capacity, s.token);
    } else if (!status && s.n) {
      s.characters = plain_characters(s.bytes, s.n);
      if (s.characters != UINT32_MAX && s.characters > t->most_characters) t->most_characters = s.characters;
      list[n++] = s;
    }
    if (!fits) status = st_fail_memory(err, "the trie of a vocabulary");
    if (status) {
      st_free(list);
      return status;
    }
  }
  if (n) qsort(list, n, sizeof *list, compare_spelled);
  *out = list;
  *n_out = n;
  return SETUN_OK;
}

// Does the token belong to this part: to all tokens, or to those that are not in a slice?
static bool in_part(const st_spelled *s, uint32_t most) {
  return !most || s->characters > most;
}

// The trie of the sorted tokens with more than `most` plain characters or with other characters (0: of all tokens).
static bool make_part(st_token_trie *t, const st_spelled *list, size_t n, uint32_t most, st_trie_part *part) {
  uint32_t open[ST_TRIE_DEPTH + 1]; // the nodes of the last token, by depth
  size_t depth = 0, capacity = 0;
  const st_spelled *last = NULL;
  for (size_t i = 0; i <= n; i++) {
    const st_spelled *s = i < n ? &list[i] : NULL;
    if (s && !in_part(s, most)) continue;
    size_t common = 0;
    while (s && last && common < s->n && common < last->n && s->bytes[common] == last->bytes[common]) common++;
    if (s && last && common == s->n && common == last->n) {
      if (most) continue; // `same` was filled with the whole trie
      if (!st_reserve(&t->same, &t->same_capacity, t->n_same + 1, sizeof *t->same)) return false;
      t->same[t->n_same++] = (st_same){last->token, s->token};
      continue;
    }
    for (; depth > common; depth--) {
      st_trie_node *node = &part->nodes[open[depth]];
      node->size_depth = (uint32_t)(part->n - open[depth]) << 8 | (uint32_t)depth;
    }
    if (!s) break;
    if (part->n + s->n > ST_TRIE_NONE || !st_reserve(&part->nodes, &capacity, part->n + s->n, sizeof *part->nodes)) {
      return false;
    }
    while (depth < s->n) {
      uint32_t token = depth + 1 == s->n ? (uint32_t)s->token : ST_TRIE_NONE;
      open[++depth] = (uint32_t)part->n;
      part->nodes[part->n++] = (st_trie_node){token << 8 | (uint8_t)s->bytes[depth - 1], 0};
    }
    last = s;
  }
  return true;
}

static bool make_slice(st_token_trie *t, const st_spelled *list, size_t n, uint32_t most, uint32_t **bits) {
  *bits = st_calloc(st_mask_words(t->size), sizeof **bits);
  if (!*bits) return false;
  for (size_t i = 0; i < n; i++) {
    if (!in_part(&list[i], most)) (*bits)[list[i].token / 32] |= 1u << list[i].token % 32;
  }
  return true;
}

setun_status st_token_trie_new(const st_tokenizer *tokenizer, st_token_trie **out, setun_error *err) {
  st_token_trie *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "the trie of a vocabulary");
  t->tokenizer = tokenizer;
  t->size = st_tokenizer_size(tokenizer);
  t->most_characters = 1;
  st_spelled *list = NULL;
  size_t n = 0;
  setun_status status = t->size < ST_TRIE_NONE ? list_tokens(t, &list, &n, err)
                                               : st_fail(err, SETUN_ERROR_LIMIT,
                                                         "the vocabulary has %u tokens, more than a "
                                                         "constraint can be made for",
                                                         t->size);
  if (!status) {
    const uint32_t most[ST_SLICES] = {ST_SLICE_SHORT, ST_SLICE_MIDDLE, t->most_characters};
    bool made = make_part(t, list, n, 0, &t->all);
    for (int i = 0; i < ST_SLICES && made; i++) {
      made = make_part(t, list, n, most[i], &t->without[i]) && make_slice(t, list, n, most[i], &t->slices[i]);
    }
    if (!made) status = st_fail_memory(err, "the trie of a vocabulary");
  }
  st_free(list);
  if (status) {
    st_token_trie_free(t);
    return status;
  }
  *out = t;
  return SETUN_OK;
}

void st_token_trie_free(st_token_trie *t) {
  if (!t) return;
  st_free(t->all.nodes);
  for (int i = 0; i < ST_SLICES; i++) st_free(t->without[i].nodes), st_free(t->slices[i]);
  st_free(t->same), st_free(t->ends), st_free(t->lengthy), st_free(t);
}
uint32_t st_token_trie_size(const st_token_trie *t) {
  return t->size;
}
