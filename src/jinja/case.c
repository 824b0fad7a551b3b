// Letters: Unicode's full case mappings and the classes of characters that Python's strings ask about.
#include "jinja/case_table.h"

#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>
#include <utf8proc.h>

typedef struct {
  const st_jinja_case_entry *entries;
  size_t n;
  utf8proc_int32_t (*simple)(utf8proc_int32_t);
} mapping;

#define ENTRIES(table) (table), sizeof(table) / sizeof *(table)
static const mapping UPPER = {ENTRIES(JINJA_TABLE_UPPER), utf8proc_toupper};
static const mapping LOWER = {ENTRIES(JINJA_TABLE_LOWER), utf8proc_tolower};
static const mapping TITLE = {ENTRIES(JINJA_TABLE_TITLE), utf8proc_totitle};
static const mapping CASEFOLD = {ENTRIES(JINJA_TABLE_CASEFOLD), utf8proc_tolower};

static bool put_mapped(st_jinja_run *run, st_jinja_builder *b, const mapping *m, uint32_t code, bool tainted) {
  size_t low = 0, high = m->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (m->entries[middle].from < code)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == m->n || m->entries[low].from != code) {
    return st_jinja_put_char(run, b, (uint32_t)m->simple((utf8proc_int32_t)code), tainted);
  }
  for (int i = 0; i < 3 && m->entries[low].to[i]; i++) {
    if (!st_jinja_put_char(run, b, m->entries[low].to[i], tainted)) return false;
  }
  return true;
}

static utf8proc_category_t category(uint32_t code) {
  return utf8proc_category((utf8proc_int32_t)code);
}

static bool other_lowercase(uint32_t c) {
  return c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 || c == 0x2C1 ||
         (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 ||
         (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F || (c >= 0x2090 && c <= 0x209C) ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

static bool is_lower(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || other_lowercase(c);
}

static bool is_upper(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

static bool is_title(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

static bool is_cased(uint32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
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

static bool put_lower_in(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s, size_t from, size_t at,
                         size_t end, size_t to) {
  uint32_t code;
  bool tainted = st_jinja_is_tainted(s, at);
  decode(s, at, &code);
  if (code != 0x3A3) return put_mapped(run, b, &LOWER, code, tainted);
  return st_jinja_charge(run, 4) &&
         st_jinja_put_char(run, b, final_sigma(s, from, at, end, to) ? 0x3C2 : 0x3C3, tainted);
}

bool st_jinja_change_case(st_jinja_run *run, const st_jinja_string *s, st_jinja_letter_case to, st_jinja_value *out) {
  st_jinja_builder b = {0};
  bool word = false;
  for (size_t at = 0; at < s->length;) {
    uint32_t code;
    size_t n = decode(s, at, &code);
    bool tainted = st_jinja_is_tainted(s, at), ok;
    bool start = to == JINJA_TITLE ? !word : at == 0;
    if (!st_jinja_charge(run, 1)) return false;
    if (to == JINJA_UPPER)
      ok = put_mapped(run, &b, &UPPER, code, tainted);
    else if (to == JINJA_CASEFOLD)
      ok = put_mapped(run, &b, &CASEFOLD, code, tainted);
    else if (to == JINJA_SWAPCASE && is_lower(code))
      ok = put_mapped(run, &b, &UPPER, code, tainted);
    else if (to == JINJA_SWAPCASE && !is_upper(code))
      ok = st_jinja_put_char(run, &b, code, tainted);
    else if ((to == JINJA_TITLE || to == JINJA_CAPITALIZE) && start)
      ok = put_mapped(run, &b, &TITLE, code, tainted);
    else
      ok = put_lower_in(run, &b, s, 0, at, at + n, s->length);
    if (!ok) return false;
    word = is_cased(code);
    at += n;
  }
  return st_jinja_finish(run, &b, s->safe, out);
}

static bool separates_words(uint32_t code) {
  return st_jinja_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
}

// Jinja's title: of each word, between white space and - ( { [ <, the first character in upper case and the rest by
// itself in lower case.
bool st_jinja_filter_title(st_jinja_run *run, const st_jinja_string *s, st_jinja_value *out) {
  st_jinja_builder b = {0};
  uint32_t code;
  for (size_t at = 0; at < s->length;) {
    size_t n = decode(s, at, &code), end = at + n;
    bool tainted = st_jinja_is_tainted(s, at);
    if (!st_jinja_charge(run, 1)) return false;
    if (separates_words(code)) {
      if (!st_jinja_put_char(run, &b, code, tainted)) return false;
      at = end;
      continue;
    }
    if (!put_mapped(run, &b, &UPPER, code, tainted)) return false;
    size_t from = end, to = end;
    for (size_t more; to < s->length && (more = decode(s, to, &code)) && !separates_words(code);) to += more;
    for (at = from; at < to; at = end) {
      end = at + decode(s, at, &code);
      if (!st_jinja_charge(run, 1) || !put_lower_in(run, &b, s, from, at, end, to)) return false;
    }
  }
  return st_jinja_finish(run, &b, false, out);
}

// ---- classes ----

static bool is_alpha(uint32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

static bool is_digit(uint32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}

static bool is_numeric(uint32_t c) {
  utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

static bool is_alnum(uint32_t c) {
  return is_alpha(c) || is_numeric(c);
}

static bool is_printable(uint32_t c) {
  utf8proc_category_t k = category(c);
  return c == ' ' || !(k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_ZS);
}

bool st_jinja_is_printable(uint32_t code) {
  return is_printable(code);
}

static bool is_identifier(uint32_t c) {
  return is_alnum(c) || c == '_';
}

// islower, isupper and istitle: every cased character is so, and there is one.
static bool cased_as(const st_jinja_string *s, char what) {
  bool any = false, word = false;
  for (size_t at = 0; at < s->length;) {
    uint32_t c;
    at += decode(s, at, &c);
    bool lower = is_lower(c), upper = is_upper(c) || is_title(c);
    if (what == 'l' && upper) return false;
    if (what == 'u' && (lower || is_title(c))) return false;
    if (what == 't' && ((upper && word) || (lower && !word))) return false;
    any = any || lower || upper;
    word = lower || upper;
  }
  return any;
}

bool st_jinja_is_class(st_jinja_string *s, const char *what) {
  static const struct {
    const char *name;
    bool (*test)(uint32_t);
    bool when_empty;
  } table[] = {{"isalpha", is_alpha, false},        {"isdigit", is_digit, false},
               {"isdecimal", is_decimal, false},    {"isnumeric", is_numeric, false},
               {"isalnum", is_alnum, false},        {"isspace", st_jinja_is_space, false},
               {"isprintable", is_printable, true}, {"isidentifier", is_identifier, false}};
  if (!strcmp(what, "islower") || !strcmp(what, "isupper") || !strcmp(what, "istitle")) return cased_as(s, what[2]);
  if (!strcmp(what, "isascii")) {
    for (size_t i = 0; i < s->length; i++) {
      if ((unsigned char)s->data[i] >= 0x80) return false;
    }
    return true;
  }
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    if (strcmp(what, table[k].name)) continue;
    if (!s->length) return table[k].when_empty;
    if (!strcmp(what, "isidentifier") && s->data[0] >= '0' && s->data[0] <= '9') return false;
    for (size_t at = 0; at < s->length;) {
      uint32_t c;
      at += decode(s, at, &c);
      if (!table[k].test(c)) return false;
    }
    return true;
  }
  return false;
}

// ---- numbers in text ----

static const st_jinja_string *stripped(const st_jinja_string *s, st_jinja_string *room) {
  size_t begin = 0, end = s->length;
  uint32_t code;
  for (size_t n; begin < end && (n = decode(s, begin, &code)) && st_jinja_is_space(code);) begin += n;
  while (end > begin) {
    size_t p = end - 1;
    while (p > begin && ((unsigned char)s->data[p] & 0xC0) == 0x80) p--;
    decode(s, p, &code);
    if (!st_jinja_is_space(code)) break;
    end = p;
  }
  *room = (st_jinja_string){.data = s->data + begin, .length = end - begin};
  return room;
}

static int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 32;
  return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

bool st_jinja_parse_int(const st_jinja_string *text, int base, int64_t *out, bool *overflow) {
  st_jinja_string room;
  const st_jinja_string *s = stripped(text, &room);
  size_t i = 0;
  bool negative = false, digit = false;
  *overflow = false;
  if (i < s->length && (s->data[i] == '+' || s->data[i] == '-')) negative = s->data[i++] == '-';
  if (i + 1 < s->length && s->data[i] == '0') {
    char kind = (char)(s->data[i + 1] | 32);
    int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix && (base == prefix || base == 0)) {
      base = prefix;
      i += 2;
      digit = true; // an underscore may follow the prefix
    }
  }
  if (base == 0) base = 10;
  if (i >= s->length) return false;
  *out = 0;
  for (; i < s->length; i++) {
    if (s->data[i] == '_' && digit) {
      digit = false;
      continue;
    }
    int d = digit_value(s->data[i]);
    if (d >= base) return false;
    digit = true;
    if (__builtin_mul_overflow(*out, base, out) || __builtin_sub_overflow(*out, d, out)) *overflow = true;
  }
  if (!negative && *out == INT64_MIN)
    *overflow = true;
  else if (!negative)
    *out = -*out;
  return digit;
}

bool st_jinja_parse_float(const st_jinja_string *text, double *out) {
  st_jinja_string room;
  const st_jinja_string *s = stripped(text, &room);
  char digits[400];
  size_t n = 0, i = 0;
  long exponent = 0, shift = 0;
  bool negative = false, minus = false, point = false, digit = false;
  if (i < s->length && (s->data[i] == '+' || s->data[i] == '-')) negative = s->data[i++] == '-';
  st_jinja_string rest = {.data = s->data + i, .length = s->length - i};
  static const char *const words[] = {"inf", "infinity", "nan"};
  for (int k = 0; k < 3; k++) {
    bool same = rest.length == strlen(words[k]);
    for (size_t j = 0; same && j < rest.length; j++) same = (rest.data[j] | 32) == words[k][j];
    if (!same) continue;
    *out = k == 2 ? (double)__builtin_nanf("") : negative ? -__builtin_inf() : __builtin_inf();
    return true;
  }
  for (; i < s->length && (s->data[i] | 32) != 'e'; i++) {
    char c = s->data[i];
    if (c == '_' && digit && i + 1 < s->length && digit_value(s->data[i + 1]) < 10) continue;
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (digit_value(c) > 9 || n == sizeof digits) return false;
    digit = true;
    digits[n++] = c;
    shift -= point;
  }
  if (!digit) return false;
  if (i < s->length) {
    if (++i < s->length && (s->data[i] == '+' || s->data[i] == '-')) minus = s->data[i++] == '-';
    if (i >= s->length) return false;
    for (; i < s->length; i++) {
      if (digit_value(s->data[i]) > 9) return false;
      if (exponent < 100000) exponent = exponent * 10 + (s->data[i] - '0');
    }
  }
  bool inexact;
  *out = st_jinja_decimal(digits, n, shift + (minus ? -exponent : exponent), &inexact);
  if (negative) *out = -*out;
  return true;
}
