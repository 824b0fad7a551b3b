// Normalization: the steps that tokenizer.json names, and SentencePiece's own.
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

static bool is_ascii(const char *text, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t w;
    memcpy(&w, text + i, 8);
    if (w & 0x8080808080808080u) return false;
  }
  for (; i < n; i++) {
    if ((unsigned char)text[i] >= 0x80) return false;
  }
  return true;
}

// ---- Unicode normal forms ----

typedef struct {
  utf8proc_int32_t *codes;
  size_t length, capacity;
} code_list;

static int class_of(utf8proc_int32_t c) {
  return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

// Puts a run of marks in the order of their classes, equal classes in the order they had. A counting sort keeps it
// linear: a whole text may be one run.
static bool order_marks(utf8proc_int32_t *codes, size_t n) {
  bool sorted = true;
  for (size_t i = 1; i < n && sorted; i++) sorted = class_of(codes[i - 1]) <= class_of(codes[i]);
  if (sorted) return true;
  size_t starts[257] = {0};
  for (size_t i = 0; i < n; i++) starts[class_of(codes[i]) + 1]++;
  for (int c = 0; c < 256; c++) starts[c + 1] += starts[c];
  utf8proc_int32_t *copy = st_malloc(n, sizeof *copy);
  if (!copy) return false;
  memcpy(copy, codes, n * sizeof *copy);
  for (size_t i = 0; i < n; i++) codes[starts[class_of(copy[i])]++] = copy[i];
  st_free(copy);
  return true;
}

static bool decompose(const char *text, size_t n, bool compatible, code_list *out) {
  enum { MOST = 18 }; // code points that one character may become
  int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  for (size_t i = 0; i < n;) {
    uint32_t code;
    int used = st_utf8_decode(text + i, n - i, &code);
    if (used <= 0) code = 0xFFFD, used = 1;
    if (!st_reserve(&out->codes, &out->capacity, out->length + MOST, sizeof *out->codes)) return false;
    int boundary = 0;
    utf8proc_ssize_t made = utf8proc_decompose_char((utf8proc_int32_t)code, out->codes + out->length, MOST,
                                                    (utf8proc_option_t)options, &boundary);
    if (made < 0 || made > MOST) out->codes[out->length] = (utf8proc_int32_t)code, made = 1;
    out->length += (size_t)made;
    i += (size_t)used;
  }
  for (size_t i = 0; i < out->length;) {
    size_t end = i;
    while (end < out->length && class_of(out->codes[end])) end++;
    if (!order_marks(out->codes + i, end - i)) return false;
    i = end + (end == i || end < out->length);
  }
  return true;
}

static bool normal_form(const char *text, size_t n, bool compatible, bool compose, st_buffer *out) {
  code_list list = {0};
  bool ok = decompose(text, n, compatible, &list);
  if (ok && compose && list.length) {
    utf8proc_ssize_t left =
        utf8proc_normalize_utf32(list.codes, (utf8proc_ssize_t)list.length, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    ok = left >= 0;
    if (ok) list.length = (size_t)left;
  }
  for (size_t i = 0; ok && i < list.length; i++) {
    char bytes[4];
    ok = st_buffer_append(out, bytes, (size_t)st_utf8_encode((uint32_t)list.codes[i], bytes));
  }
  st_free(list.codes);
  return ok;
}

// ---- the other steps ----

static bool lowercase(const char *text, size_t n, st_buffer *out) {
  for (size_t i = 0; i < n;) {
    uint32_t code;
    int used = st_utf8_decode(text + i, n - i, &code);
    if (used <= 0) return false;
    char bytes[4];
    bool ok;
    if (code == 0x130) { // the one capital whose small form is two characters in every language
      ok = st_buffer_append(out, "i\xCC\x87", 3);
    } else {
      uint32_t low = code < 0x80 ? (code >= 'A' && code <= 'Z' ? code + 32 : code)
                                 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
      ok = st_buffer_append(out, bytes, (size_t)st_utf8_encode(low, bytes));
    }
    if (!ok) return false;
    i += (size_t)used;
  }
  return true;
}

static bool strip(st_encoder *e, const char *text, size_t n, const st_normalize_step *step, st_buffer *out) {
  uint32_t code;
  size_t start = 0, end = n;
  for (int used; step->left && start < n && (used = st_utf8_decode(text + start, n - start, &code)) > 0;) {
    if (!is_space(code)) break;
    start += (size_t)used;
  }
  while (step->right && end > start) {
    size_t at = end - 1;
    while (at > start && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    if (st_utf8_decode(text + at, end - at, &code) <= 0 || !is_space(code)) break;
    end = at;
  }
  e->shifted |= start > 0 && e->raw_space;
  return st_buffer_append(out, text + start, end - start);
}

static setun_status replace_pattern(st_encoder *e, const st_normalize_step *step, const char *text, size_t n,
                                    st_buffer *out) {
  size_t done = 0, from = 0;
  while (from <= n) {
    bool found;
    size_t start, end;
    setun_status s = st_regex_match(step->regex, &e->matcher, text, n, from, &found, &start, &end, e->err);
    if (s) return s;
    if (!found) break;
    if (!st_buffer_append(out, text + done, start - done) ||
        !st_buffer_append(out, step->text.data, step->text.length)) {
      return st_fail_memory(e->err, "the text");
    }
    done = from = end;
    if (start == end) {
      if (from == n) break;
      for (from++; from < n && ((unsigned char)text[from] & 0xC0) == 0x80;) from++;
    }
  }
  return st_buffer_append(out, text + done, n - done) ? SETUN_OK : st_fail_memory(e->err, "the text");
}

static bool replace_text(const st_normalize_step *step, const char *text, size_t n, st_buffer *out) {
  st_bytes from = step->from;
  size_t done = 0;
  for (size_t i = 0; i + from.length <= n;) {
    const char *hit = memchr(text + i, from.data[0], n - i - from.length + 1);
    if (!hit) break;
    i = (size_t)(hit - text);
    if (memcmp(hit, from.data, from.length) != 0) {
      i++;
      continue;
    }
    if (!st_buffer_append(out, text + done, i - done)) return false;
    if (!st_buffer_append(out, step->text.data, step->text.length)) return false;
    i += from.length;
    done = i;
  }
  return st_buffer_append(out, text + done, n - done);
}

// ---- SentencePiece ----

// The result of the character map at text[0..n): a user-defined token, or one character if the map has no entry.
static size_t next_mapped(const st_tokenizer *t, const char *text, size_t n, st_bytes *to) {
  size_t covered = 0;
  const st_added *added = &t->protected;
  if (added->trie && added->first[(unsigned char)*text] && st_trie_longest(added->trie, text, n, &covered) >= 0) {
    *to = (st_bytes){text, (uint32_t)covered};
    return covered;
  }
  if (st_charsmap_find(&t->sp.map, true, text, n, &covered, to)) return covered;
  uint32_t code;
  int used = st_utf8_decode(text, n, &code);
  covered = used > 0 ? (size_t)used : 1;
  *to = (st_bytes){text, (uint32_t)covered};
  return covered;
}

static bool append_escaped(const st_sp_normalizer *sp, st_buffer *out, st_bytes b) {
  for (uint32_t i = 0; i < b.length; i++) {
    bool mark = sp->escape && b.data[i] == ' ';
    if (!(mark ? st_buffer_append(out, ST_SPACE_MARK, 3) : st_buffer_append(out, b.data + i, 1))) return false;
  }
  return true;
}

static bool sentencepiece(const st_tokenizer *t, const char *text, size_t n, st_buffer *out) {
  const st_sp_normalizer *sp = &t->sp;
  const char *mark = sp->escape ? ST_SPACE_MARK : " ";
  size_t mark_length = strlen(mark), base = out->length, i = 0;
  st_bytes to;
  while (sp->remove_extra && i < n) { // white space at the beginning
    size_t covered = next_mapped(t, text + i, n - i, &to);
    if (to.length != 1 || to.data[0] != ' ') break;
    i += covered;
  }
  if (i == n) return true;
  if (sp->dummy_prefix && !st_buffer_append(out, mark, mark_length)) return false;
  bool after_space = sp->remove_extra;
  while (i < n) {
    i += next_mapped(t, text + i, n - i, &to);
    while (after_space && to.length && to.data[0] == ' ') to.data++, to.length--;
    if (!to.length) continue;
    if (!append_escaped(sp, out, to)) return false;
    after_space = sp->remove_extra && to.data[to.length - 1] == ' ';
  }
  while (sp->remove_extra && out->length - base >= mark_length &&
         !memcmp(out->data + out->length - mark_length, mark, mark_length)) {
    out->length -= mark_length;
  }
  return true;
}

// ---- tokenizer.json's Precompiled ----

// The bytes of the grapheme cluster that begins the text.
static size_t grapheme_length(const char *text, size_t n) {
  uint32_t code, next;
  utf8proc_int32_t state = 0;
  int used = st_utf8_decode(text, n, &code);
  size_t length = used > 0 ? (size_t)used : 1;
  for (; length < n; length += (size_t)used, code = next) {
    used = st_utf8_decode(text + length, n - length, &next);
    if (used <= 0 || utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state)) break;
  }
  return length;
}

// As the PyPI package `tokenizers` has it: a grapheme cluster of less than 6 bytes is replaced by the mapping of the
// shortest entry that is a prefix of it, whatever else is in it; if there is none, each of its characters is looked up
// separately.
static bool precompiled(const st_charsmap *map, const char *text, size_t n, st_buffer *out) {
  enum { SHORT_CLUSTER = 6 };
  size_t covered;
  st_bytes to;
  for (size_t i = 0; i < n;) {
    size_t end = i + grapheme_length(text + i, n - i);
    if (end - i < SHORT_CLUSTER && st_charsmap_find(map, false, text + i, end - i, &covered, &to)) {
      if (!st_buffer_append(out, to.data, to.length)) return false;
      i = end;
    }
    while (i < end) {
      uint32_t code;
      int used = st_utf8_decode(text + i, end - i, &code);
      size_t one = used > 0 ? (size_t)used : 1;
      if (!st_charsmap_find(map, false, text + i, one, &covered, &to)) to = (st_bytes){text + i, (uint32_t)one};
      if (!st_buffer_append(out, to.data, to.length)) return false;
      i += one;
    }
  }
  return true;
}

// ---- all steps ----

static setun_status apply(st_encoder *e, const st_normalize_step *step, const char *text, size_t n, st_buffer *out) {
  bool ok = true;
  switch (step->kind) {
  case ST_NORMALIZE_NFC: ok = normal_form(text, n, false, true, out); break;
  case ST_NORMALIZE_NFD: ok = normal_form(text, n, false, false, out); break;
  case ST_NORMALIZE_NFKC: ok = normal_form(text, n, true, true, out); break;
  case ST_NORMALIZE_NFKD: ok = normal_form(text, n, true, false, out); break;
  case ST_NORMALIZE_LOWERCASE: ok = lowercase(text, n, out); break;
  case ST_NORMALIZE_STRIP: ok = strip(e, text, n, step, out); break;
  case ST_NORMALIZE_PREPEND:
    ok = st_buffer_append(out, step->text.data, step->text.length) && st_buffer_append(out, text, n);
    break;
  case ST_NORMALIZE_REPLACE:
    if (step->regex) return replace_pattern(e, step, text, n, out);
    ok = replace_text(step, text, n, out);
    break;
  case ST_NORMALIZE_PRECOMPILED: ok = precompiled(step->map, text, n, out); break;
  case ST_NORMALIZE_SENTENCEPIECE: ok = sentencepiece(e->t, text, n, out); break;
  }
  return ok ? SETUN_OK : st_fail_memory(e->err, "the text");
}

setun_status st_normalize(st_encoder *e, const char *text, size_t length, const char **out, size_t *out_length) {
  const st_tokenizer *t = e->t;
  uint32_t code;
  e->shifted = false;
  e->raw_space = st_utf8_decode(text, length, &code) > 0 && is_space(code);
  for (size_t i = 0; i < t->n_normalizers && length; i++) {
    const st_normalize_step *step = &t->normalizers[i];
    if (step->kind <= ST_NORMALIZE_NFKD && is_ascii(text, length)) continue;
    st_buffer *b = text == e->normal[0].data ? &e->normal[1] : &e->normal[0];
    b->length = 0;
    if (!st_buffer_append(b, "", 0)) return st_fail_memory(e->err, "the text");
    setun_status s = apply(e, step, text, length, b);
    if (s) return s;
    text = b->data;
    length = b->length;
  }
  *out = text;
  *out_length = length;
  return SETUN_OK;
}
