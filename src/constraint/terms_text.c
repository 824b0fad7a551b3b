// Characters as terms: UTF-8, and their spellings in JSON strings (RFC 8259, section 7).
#include "constraint/terms_table.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { LAST = 0x10FFFF };

static st_term byte_range(st_terms *t, unsigned first, unsigned last) {
  st_byte_set set = {{0}};
  for (unsigned b = first; b <= last; b++) st_byte_set_add(&set, (uint8_t)b);
  return st_term_bytes(t, &set);
}

// ---- numbers written as digits: hexadecimal digits and halves of surrogate pairs ----

// Both cases of the hexadecimal digits first..last.
static st_term hex_digits(st_terms *t, unsigned first, unsigned last) {
  static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
  st_byte_set set = {{0}};
  for (unsigned d = first; d <= last; d++) {
    st_byte_set_add(&set, (uint8_t)lower[d]);
    st_byte_set_add(&set, (uint8_t)upper[d]);
  }
  return st_term_bytes(t, &set);
}

// The numbers first..last in `digits` hexadecimal digits.
static st_term hex_numbers(st_terms *t, unsigned first, unsigned last, int digits) {
  if (digits == 0) return ST_TERM_EPSILON;
  unsigned unit = 1u << 4 * (digits - 1), a = first / unit, b = last / unit;
  if (a == b) return st_term_seq(t, hex_digits(t, a, a), hex_numbers(t, first % unit, last % unit, digits - 1));
  st_term result = ST_TERM_EMPTY;
  if (first % unit) {
    result = st_term_seq(t, hex_digits(t, a, a), hex_numbers(t, first % unit, unit - 1, digits - 1));
    a++;
  }
  if (last % unit != unit - 1) {
    st_term part = st_term_seq(t, hex_digits(t, b, b), hex_numbers(t, 0, last % unit, digits - 1));
    result = st_term_alt2(t, result, part);
    b--;
  }
  if (a > b) return result;
  return st_term_alt2(t, result, st_term_seq(t, hex_digits(t, a, b), hex_numbers(t, 0, unit - 1, digits - 1)));
}

static st_term unicode_escape(st_terms *t, unsigned first, unsigned last) {
  return st_term_seq(t, st_term_text(t, "u", 1), hex_numbers(t, first, last, 4));
}

// \uD83D\uDE00 and the like, without the first backslash.
static st_term pair_escapes(st_terms *t, uint32_t first, uint32_t last) {
  first -= 0x10000, last -= 0x10000;
  unsigned a = first >> 10, b = last >> 10;
  st_term result = ST_TERM_EMPTY, backslash = st_term_text(t, "\\", 1);
  for (unsigned high = a; high <= b;) {
    unsigned low_from = high == a ? first & 1023 : 0, low_to = high == b ? last & 1023 : 1023, high_to = high;
    if (!low_from && low_to == 1023) { // the first halves that occur with every second half
      high_to = (last & 1023) == 1023 ? b : b - 1;
    }
    st_term low = st_term_seq(t, backslash, unicode_escape(t, 0xDC00 + low_from, 0xDC00 + low_to));
    result = st_term_alt2(t, result, st_term_seq(t, unicode_escape(t, 0xD800 + high, 0xD800 + high_to), low));
    high = high_to + 1;
  }
  return result;
}

// ---- UTF-8 ----

static int utf8_length(uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

// Byte sequences of equal length from `a` to `b`, where all continuation bytes run from 80 to BF.
static st_term utf8_bytes(st_terms *t, const uint8_t *a, const uint8_t *b, int n) {
  if (n == 1) return byte_range(t, a[0], b[0]);
  if (a[0] == b[0]) return st_term_seq(t, byte_range(t, a[0], a[0]), utf8_bytes(t, a + 1, b + 1, n - 1));
  static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
  st_term result = ST_TERM_EMPTY;
  unsigned first = a[0], last = b[0];
  if (memcmp(a + 1, least, (size_t)n - 1)) {
    result = st_term_seq(t, byte_range(t, first, first), utf8_bytes(t, a + 1, most, n - 1));
    first++;
  }
  if (memcmp(b + 1, most, (size_t)n - 1)) {
    st_term part = st_term_seq(t, byte_range(t, last, last), utf8_bytes(t, least, b + 1, n - 1));
    result = st_term_alt2(t, result, part);
    last--;
  }
  if (first > last) return result;
  st_term middle = st_term_seq(t, byte_range(t, first, last), utf8_bytes(t, least, most, n - 1));
  return st_term_alt2(t, result, middle);
}

static st_term utf8_range(st_terms *t, uint32_t first, uint32_t last) {
  static const uint32_t ends[4] = {0x7F, 0x7FF, 0xFFFF, LAST};
  st_term result = ST_TERM_EMPTY;
  while (first <= last) {
    int n = utf8_length(first);
    uint32_t to = last < ends[n - 1] ? last : ends[n - 1];
    char a[4], b[4];
    st_utf8_encode(first, a);
    st_utf8_encode(to, b);
    result = st_term_alt2(t, result, utf8_bytes(t, (const uint8_t *)a, (const uint8_t *)b, n));
    first = to + 1;
  }
  return result;
}

// ---- JSON ----

typedef struct st_short_escape {
  uint8_t code;
  char letter;
} st_short_escape;
static const st_short_escape SHORT_ESCAPES[] = {{'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'},
                                                {'\r', 'r'}, {'"', '"'},  {'/', '/'},  {'\\', '\\'}};
enum { N_SHORT = sizeof SHORT_ESCAPES / sizeof *SHORT_ESCAPES };

// Must these be escaped?
static bool must_escape(uint32_t code) {
  return code < 0x20 || code == '"' || code == '\\';
}

// What may follow a backslash for a character of first..last; `tight` excludes those that need no escape.
static st_term json_escapes(st_terms *t, uint32_t first, uint32_t last, bool tight) {
  st_term result = ST_TERM_EMPTY;
  st_byte_set letters = {{0}};
  for (int i = 0; i < N_SHORT; i++) {
    uint32_t code = SHORT_ESCAPES[i].code;
    if (code < first || code > last || (tight && !must_escape(code))) continue;
    st_byte_set_add(&letters, (uint8_t)SHORT_ESCAPES[i].letter);
  }
  result = st_term_alt2(t, result, st_term_bytes(t, &letters));
  if (tight && first < 0x80) { // in ASCII, only those that must be escaped
    for (uint32_t code = first; code <= last && code < 0x80; code++) {
      if (must_escape(code)) result = st_term_alt2(t, result, unicode_escape(t, code, code));
    }
    first = 0x80;
  }
  if (first <= last && first <= 0xFFFF) {
    result = st_term_alt2(t, result, unicode_escape(t, first, last < 0xFFFF ? last : 0xFFFF));
  }
  if (first <= last && last > 0xFFFF) {
    result = st_term_alt2(t, result, pair_escapes(t, first > 0xFFFF ? first : 0x10000, last));
  }
  return result;
}

static st_term json_range(st_terms *t, uint32_t first, uint32_t last, bool tight) {
  st_term plain = ST_TERM_EMPTY;
  for (uint32_t from = first; from <= last;) {
    while (from <= last && must_escape(from)) from++;
    uint32_t to = from;
    while (to < last && to < 0x80 && !must_escape(to + 1)) to++;
    if (to >= 0x80) to = last;
    if (from <= last) plain = st_term_alt2(t, plain, utf8_range(t, from, to));
    from = to + 1;
  }
  st_term escapes = json_escapes(t, first, last, tight);
  return st_term_alt2(t, plain, st_term_seq(t, st_term_text(t, "\\", 1), escapes));
}

static st_term spell_range(st_terms *t, uint32_t first, uint32_t last, st_spelling spelling) {
  if (first > last) return ST_TERM_EMPTY;
  if (spelling == ST_PLAIN) return utf8_range(t, first, last);
  return json_range(t, first, last, spelling == ST_JSON_TIGHT);
}

st_term st_term_ranges(st_terms *t, const st_range *ranges, size_t n, st_spelling spelling) {
  size_t base = t->n_stack;
  for (size_t i = 0; i < n; i++) {
    uint32_t first = ranges[i].first, last = ranges[i].last < LAST ? ranges[i].last : LAST;
    uint32_t below = last < 0xD7FF ? last : 0xD7FF, above = first > 0xE000 ? first : 0xE000;
    st_terms_push(t, spell_range(t, first, below, spelling));
    st_terms_push(t, spell_range(t, above, last, spelling));
  }
  return st_terms_join(t, ST_KIND_ALT, base);
}

st_term st_term_any_character(st_terms *t, st_spelling spelling) {
  return st_term_ranges(t, &(st_range){0, LAST}, 1, spelling);
}
st_term st_term_any_text(st_terms *t, st_spelling spelling) {
  return st_term_repeat(t, st_term_any_character(t, spelling), 0, ST_UNBOUNDED);
}
st_term st_term_other_text(st_terms *t, st_term a, st_spelling spelling) {
  return st_term_and2(t, st_term_any_text(t, spelling), st_term_not(t, a));
}
st_term st_term_quoted(st_terms *t, st_term inside) {
  st_term quote = st_term_text(t, "\"", 1);
  return st_term_seq(t, quote, st_term_seq(t, inside, quote));
}

// ---- texts ----

// The first character of a text as a term, and its length in bytes (an invalid byte is one character).
static st_term first_character(st_terms *t, st_text text, st_spelling spelling, size_t *length) {
  uint32_t code;
  int n = st_utf8_decode(text.data, text.length, &code);
  if (n <= 0) return *length = 1, st_term_text(t, text.data, 1);
  *length = (size_t)n;
  if (spelling == ST_PLAIN || code >= 128) return spell_range(t, code, code, spelling);
  st_term *known = &t->spelled[spelling == ST_JSON_TIGHT][code];
  if (*known == ST_TERM_EMPTY) *known = spell_range(t, code, code, spelling);
  return *known;
}

st_term st_term_string(st_terms *t, st_text text, st_spelling spelling) {
  if (spelling == ST_PLAIN) return st_term_text(t, text.data, text.length);
  size_t base = t->n_stack;
  for (size_t n; text.length; text.data += n, text.length -= n) {
    if (!st_terms_push(t, first_character(t, text, spelling, &n))) return t->n_stack = base, ST_TERM_EMPTY;
  }
  st_term tail = ST_TERM_EPSILON;
  while (t->n_stack > base) tail = st_term_seq(t, t->stack[--t->n_stack], tail);
  return tail;
}

static int compare_texts(const void *a, const void *b) {
  const st_text *x = a, *y = b;
  size_t n = x->length < y->length ? x->length : y->length;
  int c = n ? memcmp(x->data, y->data, n) : 0;
  return c ? c : (x->length > y->length) - (x->length < y->length);
}

static size_t common_prefix(st_text a, st_text b, size_t from) {
  size_t n = a.length < b.length ? a.length : b.length;
  while (from < n && a.data[from] == b.data[from]) from++;
  while (from && from < n && ((uint8_t)a.data[from] & 0xC0) == 0x80) from--; // whole characters
  return from;
}

// Any of sorted texts that agree in their first `from` bytes.
static st_term sorted_texts(st_terms *t, const st_text *texts, size_t n, size_t from, st_spelling spelling, int depth) {
  if (n == 1 || depth > 200) { // too deep: the texts are listed
    size_t base = t->n_stack;
    for (size_t i = 0; i < n; i++) {
      st_text rest = {texts[i].data + from, texts[i].length - from};
      st_terms_push(t, st_term_string(t, rest, spelling));
    }
    return st_terms_join(t, ST_KIND_ALT, base);
  }
  size_t base = t->n_stack, i = 0;
  for (; i < n && texts[i].length == from; i++) {
    if (!i) st_terms_push(t, ST_TERM_EPSILON);
  }
  while (i < n) {
    size_t length, last = i;
    st_text rest = {texts[i].data + from, texts[i].length - from};
    first_character(t, rest, spelling, &length);
    while (last + 1 < n && common_prefix(texts[i], texts[last + 1], from) >= from + length) last++;
    size_t end = common_prefix(texts[i], texts[last], from);
    if (last == i) end = texts[i].length;
    st_term head = st_term_string(t, (st_text){texts[i].data + from, end - from}, spelling);
    st_terms_push(t, st_term_seq(t, head, sorted_texts(t, texts + i, last - i + 1, end, spelling, depth + 1)));
    i = last + 1;
  }
  return st_terms_join(t, ST_KIND_ALT, base);
}

st_term st_term_strings(st_terms *t, st_text *texts, size_t n, st_spelling spelling) {
  if (!n) return ST_TERM_EMPTY;
  qsort(texts, n, sizeof *texts, compare_texts);
  return sorted_texts(t, texts, n, 0, spelling, 0);
}

size_t st_term_spell(uint8_t byte, char spelled[ST_SPELLED_MOST]) {
  static const char digits[] = "0123456789abcdef";
  if (!must_escape(byte)) return spelled[0] = (char)byte, 1;
  memcpy(spelled, (char[]){'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]}, ST_SPELLED_MOST);
  return ST_SPELLED_MOST;
}

st_term st_term_decoded(st_terms *t, st_term a) {
  if (a == ST_TERM_EMPTY || a == ST_TERM_EPSILON) return a;
  if (a == st_term_any_text(t, ST_JSON)) return st_term_any_text(t, ST_PLAIN);
  return st_terms_intern(t, (st_term_entry){.kind = ST_KIND_DECODED, .a = a});
}

bool st_term_matches_text(st_terms *t, st_term a, st_text text, st_spelling spelling) {
  for (size_t i = 0; i < text.length && a != ST_TERM_EMPTY; i++) {
    char spelled[ST_SPELLED_MOST] = {text.data[i]};
    size_t n = spelling == ST_PLAIN ? 1 : st_term_spell((uint8_t)text.data[i], spelled);
    for (size_t k = 0; k < n && a != ST_TERM_EMPTY; k++) a = st_term_step(t, a, (uint8_t)spelled[k]);
  }
  return st_term_is_nullable(t, a);
}
