// Letters: upper and lower case by Unicode's full mappings, as Python's strings have them. utf8proc knows the mappings
// of one character to one, and full case folding; if the other case of a character has several, its folding names the
// letters.
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>
#include <utf8proc.h>

static utf8proc_category_t category(uint32_t code) {
  return utf8proc_category((utf8proc_int32_t)code);
}

static uint32_t to_upper(uint32_t code) {
  return (uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
}

static uint32_t to_lower(uint32_t code) {
  return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

// The lower-case letters that `code` consists of, if it has several capitals; otherwise 0.
static int several(uint32_t code, utf8proc_int32_t folded[4]) {
  int last = 0;
  if (code < 0x80 || category(code) == UTF8PROC_CATEGORY_LU) return 0;
  utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)code, folded, 4, UTF8PROC_CASEFOLD, &last);
  return n > 1 && n <= 3 ? (int)n : 0;
}

static bool put_upper(st_jinja_run *run, st_jinja_builder *b, uint32_t code, bool tainted) {
  utf8proc_int32_t letters[4];
  int n = several(code, letters);
  if (!n) return st_jinja_put_char(run, b, to_upper(code), tainted);
  for (int i = 0; i < n; i++) {
    if (!st_jinja_put_char(run, b, to_upper((uint32_t)letters[i]), tainted)) return false;
  }
  return true;
}

static bool is_cased(uint32_t c) {
  utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || to_upper(c) != c ||
         to_lower(c) != c || c == 0xAA || c == 0xBA;
}

// Title case, in which only the first letter is a capital; an iota after another letter is a subscript.
static bool put_title(st_jinja_run *run, st_jinja_builder *b, uint32_t code, bool tainted) {
  utf8proc_int32_t letters[4];
  uint32_t title = (uint32_t)utf8proc_totitle((utf8proc_int32_t)code);
  int n = category(title) == UTF8PROC_CATEGORY_LT ? 0 : several(code, letters);
  if (!n) return st_jinja_put_char(run, b, title, tainted);
  bool first = true;
  for (int i = 0; i < n; i++) {
    uint32_t letter = (uint32_t)letters[i];
    if (!st_jinja_put_char(run, b, first ? to_upper(letter) : letter == 0x3B9 ? 0x345 : letter, tainted)) return false;
    first = first && !is_cased(letter);
  }
  return true;
}

static bool case_ignorable(uint32_t c) {
  utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

static size_t decode(const st_jinja_string *s, size_t at, uint32_t *code) {
  int n = st_utf8_decode(s->data + at, s->length - at, code);
  return n > 0 ? (size_t)n : 1;
}

// Does the capital sigma in s[at, end) end a word, so that it becomes U+03C2? Only s[from, to) is looked at.
static bool final_sigma(const st_jinja_string *s, size_t from, size_t at, size_t end, size_t to) {
  uint32_t code = 0;
  bool cased = false;
  for (size_t p = at; p > from;) {
    do p--;
    while (p > from && ((unsigned char)s->data[p] & 0xC0) == 0x80);
    decode(s, p, &code);
    if (case_ignorable(code)) continue;
    cased = is_cased(code);
    break;
  }
  if (!cased) return false;
  for (size_t p = end; p < to;) {
    p += decode(s, p, &code);
    if (!case_ignorable(code)) return !is_cased(code);
  }
  return true;
}

// The character of s[at, end) in lower case, as a part of s[from, to).
static bool put_lower(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s, size_t from, size_t at,
                      size_t end, size_t to) {
  uint32_t code;
  bool tainted = st_jinja_is_tainted(s, at);
  decode(s, at, &code);
  if (code == 0x3A3) {
    return st_jinja_charge(run, 4) &&
           st_jinja_put_char(run, b, final_sigma(s, from, at, end, to) ? 0x3C2 : 0x3C3, tainted);
  }
  // The dotted capital I is the only one whose small letter is two characters.
  return st_jinja_put_char(run, b, code == 0x130 ? 'i' : to_lower(code), tainted) &&
         (code != 0x130 || st_jinja_put_char(run, b, 0x307, tainted));
}

static bool separates_words(uint32_t code) {
  return st_jinja_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
}

// The end of the word that begins at `from`, by the rules of Jinja's filter title.
static size_t word_end(const st_jinja_string *s, size_t from) {
  uint32_t code;
  for (size_t n; from < s->length && (n = decode(s, from, &code)) && !separates_words(code);) from += n;
  return from;
}

bool st_jinja_change_case(st_jinja_run *run, const st_jinja_string *s, st_jinja_letter_case to, st_jinja_value *out) {
  st_jinja_builder b = {0};
  bool word = false;                  // whether this character continues a word
  size_t from = 0, until = s->length; // the range considered for a final sigma
  for (size_t at = 0; at < s->length;) {
    uint32_t code;
    size_t n = decode(s, at, &code);
    bool tainted = st_jinja_is_tainted(s, at), ok;
    if (!st_jinja_charge(run, 1)) return false;
    if (to == JINJA_UPPER)
      ok = put_upper(run, &b, code, tainted);
    else if (to == JINJA_LOWER || word)
      ok = put_lower(run, &b, s, from, at, at + n, until);
    else if (to == JINJA_FILTER_TITLE) {
      ok = put_upper(run, &b, code, tainted);
      from = at + n, until = word_end(s, at + n);
    } else
      ok = put_title(run, &b, code, tainted);
    if (!ok) return false;
    word = to == JINJA_CAPITALIZE || (to == JINJA_TITLE ? is_cased(code) : !separates_words(code));
    at += n;
  }
  return st_jinja_finish(run, &b, to != JINJA_FILTER_TITLE && s->safe, out);
}

bool st_jinja_is_printable(uint32_t code) {
  utf8proc_category_t k = category(code);
  return code == ' ' || !(k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_ZS);
}
