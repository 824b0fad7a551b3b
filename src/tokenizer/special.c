// Tokens that are cut out of a text by their spelling before the model sees the rest: control tokens where they are
// asked for, and user-defined ones always. The leftmost match counts, and of those that begin there the longest.
#include "tokenizer/internal.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <utf8proc.h>

#include <string.h>

static bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  if (c == 0x85) return true;
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
  return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

static bool is_word(uint32_t c) {
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  default: return c == 0x200C || c == 0x200D;
  }
}

// The character that ends at `end`, and where it begins.
static uint32_t before(const char *text, size_t end, size_t *start) {
  size_t at = end - 1;
  while (at && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
  uint32_t code = 0;
  st_utf8_decode(text + at, end - at, &code);
  *start = at;
  return code;
}

static bool touches_word(const char *text, size_t length, size_t start, size_t end) {
  size_t at;
  uint32_t code = 0;
  if (start && is_word(before(text, start, &at))) return true;
  return end < length && st_utf8_decode(text + end, length - end, &code) > 0 && is_word(code);
}

static void take_spaces(const char *text, size_t length, size_t from, uint8_t flags, size_t *start, size_t *end) {
  while ((flags & ST_ADDED_LSTRIP) && *start > from) {
    size_t at;
    if (!is_space(before(text, *start, &at))) break;
    *start = at;
  }
  while ((flags & ST_ADDED_RSTRIP) && *end < length) {
    uint32_t code;
    int used = st_utf8_decode(text + *end, length - *end, &code);
    if (used <= 0 || !is_space(code)) break;
    *end += (size_t)used;
  }
}

// The longest token that begins the text, or -1.
static int32_t longest(const st_added *a, const char *text, size_t length, size_t *matched) {
  if (!a->trie || !length || !a->first[(unsigned char)*text]) return -1;
  return st_trie_longest(a->trie, text, length, matched);
}

// Takes token `found`, which was found at *start for `matched` bytes in a text that was read up to `from`. False if it
// must be a whole word and is not.
static bool take(const st_added *a, const char *text, size_t length, size_t from, int32_t found, size_t matched,
                 size_t *start, size_t *end) {
  *end = *start + matched;
  if ((a->flags[found] & ST_ADDED_SINGLE_WORD) && touches_word(text, length, *start, *end)) return false;
  take_spaces(text, length, from, a->flags[found], start, end);
  return true;
}

bool st_added_next(const st_added *a, const char *text, size_t length, size_t from, size_t *start, size_t *end,
                   int32_t *id) {
  if (!a->trie) return false;
  for (size_t i = from, matched; i < length; i += matched) {
    matched = 1;
    *id = longest(a, text + i, length - i, &matched);
    *start = i;
    if (*id >= 0 && take(a, text, length, from, *id, matched, start, end)) return true;
  }
  return false;
}

bool st_added_next_guarded(const st_added *all, const st_added *plain, const char *text, size_t length, size_t from,
                           const setun_span *guards, size_t n, size_t *start, size_t *end, int32_t *id) {
  for (size_t i = from, matched; i < length; i += matched) {
    while (n && guards->end <= i) guards++, n--;
    // A control token must be before the next guarded part; other tokens may reach into it.
    size_t open = n ? guards->begin : length, other = 0;
    matched = 1;
    *id = open > i ? longest(all, text + i, open - i, &matched) : -1;
    int32_t user = longest(plain, text + i, length - i, &other);
    const st_added *a = all;
    if (user >= 0 && (*id < 0 || other > matched)) {
      *id = user;
      matched = other;
      a = plain;
    }
    *start = i;
    if (*id >= 0 && take(a, text, length, from, *id, matched, start, end)) return true;
  }
  return false;
}

// The text to find for a token: normalized if it is found in normalized text.
static setun_status key_of(st_encoder *e, uint32_t id, bool normalized, const char **key, size_t *length) {
  st_bytes text = e->t->texts[id];
  *key = text.data;
  *length = text.length;
  bool same = !normalized || e->t->sentencepiece;
  return !same ? st_normalize(e, text.data, text.length, key, length) : SETUN_OK;
}

static bool wanted(const st_tokenizer *t, uint32_t id, bool special, bool normalized) {
  uint8_t type = t->types[id], flags = t->flags[id];
  if (!t->texts[id].data || !(flags & ST_ADDED_NORMALIZED) == normalized) return false;
  bool guarded = flags & ST_ADDED_GUARDED;
  if (type == ST_TOKEN_USER_DEFINED && !guarded) return true;
  return special && (guarded || type == ST_TOKEN_CONTROL || type == ST_TOKEN_UNKNOWN);
}

static setun_status build(st_encoder *e, st_added *a, bool special, bool normalized) {
  const st_tokenizer *t = e->t;
  size_t total = 0, count = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t id = 0; id < t->size; id++) {
      if (!wanted(t, id, special, normalized)) continue;
      const char *key;
      size_t length;
      setun_status s = key_of(e, id, normalized, &key, &length);
      if (s) return s;
      if (!length) continue;
      if (!pass) {
        total += length, count++;
      } else if (!st_trie_add(a->trie, key, length, (int32_t)id)) {
        return st_fail(e->err, SETUN_ERROR_STATE, "added tokens: more text than was counted");
      } else {
        a->first[(unsigned char)*key] = true;
      }
    }
    if (!count) return SETUN_OK;
    if (!pass && !(a->trie = st_trie_new(total))) return st_fail_memory(e->err, "the added tokens");
  }
  a->flags = t->flags;
  return SETUN_OK;
}

setun_status st_tokenizer_build_protected(st_tokenizer *t, setun_error *err) {
  st_encoder e = {.t = t, .err = err};
  return build(&e, &t->protected, false, true);
}

setun_status st_tokenizer_build_added(st_tokenizer *t, setun_error *err) {
  st_encoder e = {.t = t, .err = err};
  setun_status s = SETUN_OK;
  for (int i = 0; i < 2; i++) {
    st_trie_free(t->added_raw[i].trie);
    st_trie_free(t->added_normalized[i].trie);
    t->added_raw[i] = t->added_normalized[i] = (st_added){0};
  }
  // SentencePiece's Unigram takes user-defined pieces as tokens among others.
  bool compete = t->sentencepiece && t->model == ST_MODEL_UNIGRAM;
  for (int special = 0; !s && special < 2; special++) {
    s = build(&e, &t->added_raw[special], special, false);
    if (!s && !compete) s = build(&e, &t->added_normalized[special], special, true);
  }
  st_encoder_free(&e);
  return s;
}
