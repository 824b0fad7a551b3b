// JSON values in text that the parser has read, compared as values: the spelling of strings and numbers and the order
// of an object's keys do not matter. The text is valid JSON, since the grammar accepted it; if it is not (a grammar
// may contain anything), it is compared byte by byte.
#include "constraint/engine.h"

#include "base/hex.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 256, MOST_DIGITS = 64 };

typedef struct st_value_reader {
  const char *at, *end;
  int depth;
  bool failed; // out of memory
} st_value_reader;

static void skip_space(st_value_reader *r) {
  while (r->at < r->end && memchr(" \t\r\n", *r->at, 4)) r->at++;
}
static void put(st_value_reader *r, st_buffer *out, const void *bytes, size_t n) {
  if (!st_buffer_append(out, bytes, n)) r->failed = true;
}

// ---- strings ----

static uint32_t four_digits(st_value_reader *r) {
  uint32_t code = 0;
  for (int i = 0; i < 4 && r->at < r->end && st_hex_digit(*r->at) >= 0; i++)
    code = code << 4 | (uint32_t)st_hex_digit(*r->at++);
  return code;
}

// Reads an escape, after its backslash.
static void read_escape(st_value_reader *r, st_buffer *out) {
  static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
  if (r->at == r->end) return;
  char c = *r->at++, utf8[4];
  const char *letter = memchr(letters, c, 5);
  if (letter) c = meanings[letter - letters];
  if (c != 'u' || letter) {
    put(r, out, &c, 1);
    return;
  }
  uint32_t code = four_digits(r);
  if (code >> 10 == 0xD800 >> 10 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
    r->at += 2;
    code = 0x10000 + ((code & 1023) << 10) + (four_digits(r) & 1023);
  }
  put(r, out, utf8, (size_t)st_utf8_encode(code, utf8));
}

// Decodes a string, from its opening quote to after the closing one.
static void read_string(st_value_reader *r, st_buffer *out) {
  r->at++;
  while (r->at < r->end && *r->at != '"') {
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\') r->at++;
    put(r, out, from, (size_t)(r->at - from));
    if (r->at < r->end && *r->at == '\\') {
      r->at++;
      read_escape(r, out);
    }
  }
  if (r->at < r->end) r->at++;
}

// ---- numbers ----

// sign 0.DIGITS * 10^exponent, without zeros at either end of the digits; zero has no digits.
typedef struct st_number_text {
  bool negative, exact; // exact: all its digits are stored
  char digits[MOST_DIGITS];
  int n;
  int64_t exponent;
} st_number_text;

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static st_number_text read_number(st_value_reader *r) {
  st_number_text d = {.exact = true};
  if (r->at < r->end && *r->at == '-') d.negative = true, r->at++;
  bool fraction = false;
  for (; r->at < r->end && (is_digit(*r->at) || *r->at == '.'); r->at++) {
    if (*r->at == '.') {
      fraction = true;
      continue;
    }
    if (!d.n && *r->at == '0') {
      d.exponent -= fraction;
      continue;
    }
    d.exponent += !fraction;
    if (d.n < MOST_DIGITS)
      d.digits[d.n++] = *r->at;
    else if (*r->at != '0')
      d.exact = false;
  }
  if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
    r->at++;
    bool below = r->at < r->end && *r->at == '-';
    if (r->at < r->end && (*r->at == '-' || *r->at == '+')) r->at++;
    int64_t exponent = 0;
    for (; r->at < r->end && is_digit(*r->at); r->at++) {
      if (exponent < INT64_C(1) << 50) exponent = 10 * exponent + (*r->at - '0');
    }
    d.exponent += below ? -exponent : exponent;
  }
  while (d.n && d.digits[d.n - 1] == '0') d.n--;
  if (!d.n) d.exponent = 0, d.negative = false;
  return d;
}

static st_term one_of(st_terms *t, const char *bytes) {
  st_byte_set set = {0};
  for (; *bytes; bytes++) set.bits[*bytes / 64] |= UINT64_C(1) << *bytes % 64;
  return st_term_bytes(t, &set);
}
// An exponent or none: zero is zero with any.
static st_term zero_exponent(st_terms *t) {
  st_term digits = st_term_repeat(t, one_of(t, "0123456789"), 1, ST_UNBOUNDED);
  st_term sign = st_term_repeat(t, one_of(t, "+-"), 0, 1);
  return st_term_repeat(t, st_term_seq(t, one_of(t, "eE"), st_term_seq(t, sign, digits)), 0, 1);
}

// All spellings of the number without exponents; of zero, with them.
static st_term number_term(st_terms *t, const st_number_text *d) {
  if (!d->exact || d->exponent > MOST_DIGITS || d->exponent < -MOST_DIGITS) return ST_TERM_EMPTY;
  st_term minus = st_term_text(t, "-", 1), dot = st_term_text(t, ".", 1), zero = st_term_text(t, "0", 1);
  st_term zeros = st_term_repeat(t, zero, 0, ST_UNBOUNDED);
  char whole[MOST_DIGITS + 2], rest[2 * MOST_DIGITS + 2];
  size_t n_whole = 0, n_rest = 0;
  for (int64_t i = 0; i < d->exponent; i++) whole[n_whole++] = i < d->n ? d->digits[i] : '0';
  if (!n_whole) whole[n_whole++] = '0';
  for (int64_t i = d->exponent; i < 0; i++) rest[n_rest++] = '0';
  for (int64_t i = d->exponent > 0 ? d->exponent : 0; i < d->n; i++) rest[n_rest++] = d->digits[i];
  st_term fraction = st_term_seq(t, dot, st_term_seq(t, st_term_text(t, rest, n_rest), zeros));
  if (!n_rest) {
    fraction = st_term_alt2(t, ST_TERM_EPSILON, st_term_seq(t, dot, st_term_repeat(t, zero, 1, ST_UNBOUNDED)));
  }
  st_term sign = d->negative ? minus : d->n ? ST_TERM_EPSILON : st_term_alt2(t, ST_TERM_EPSILON, minus);
  st_term exponent = d->n ? ST_TERM_EPSILON : zero_exponent(t);
  return st_term_seq(t, sign, st_term_seq(t, st_term_text(t, whole, n_whole), st_term_seq(t, fraction, exponent)));
}

st_term st_scalar_term(st_terms *t, const char *text, size_t n) {
  st_value_reader r = {.at = text, .end = text + n};
  if (!n || *text == '{' || *text == '[') return ST_TERM_EMPTY;
  if (*text == '-' || is_digit(*text)) {
    st_number_text d = read_number(&r);
    return number_term(t, &d);
  }
  if (*text != '"') return st_term_text(t, text, n);
  st_buffer decoded = {0};
  read_string(&r, &decoded);
  st_term inside = st_term_string(t, (st_text){decoded.data, decoded.length}, ST_JSON);
  st_buffer_free(&decoded);
  return st_term_quoted(t, inside);
}

// ---- whole values in one spelling ----

static void write_canonical(st_value_reader *r, st_buffer *out);

static void write_number(st_value_reader *r, st_buffer *out) {
  const char *from = r->at;
  st_number_text d = read_number(r);
  if (!d.exact) {
    put(r, out, from, (size_t)(r->at - from));
    return;
  }
  put(r, out, d.negative ? "-" : "+", 1);
  put(r, out, d.digits, (size_t)d.n);
  if (!st_buffer_format(out, "e%lld", (long long)d.exponent)) r->failed = true;
}

// A string with its length in front, so that nothing in it can be taken for something else.
static void write_string(st_value_reader *r, st_buffer *out) {
  st_buffer decoded = {0};
  read_string(r, &decoded);
  if (!st_buffer_format(out, "\"%zu:", decoded.length)) r->failed = true;
  put(r, out, decoded.data, decoded.length);
  st_buffer_free(&decoded);
}

static int compare_members(const void *a, const void *b) {
  const st_buffer *x = a, *y = b;
  size_t n = x->length < y->length ? x->length : y->length;
  int c = n ? memcmp(x->data, y->data, n) : 0;
  return c ? c : (x->length > y->length) - (x->length < y->length);
}

static void write_object(st_value_reader *r, st_buffer *out) {
  st_buffer *members = NULL;
  size_t n = 0, capacity = 0;
  for (r->at++, skip_space(r); !r->failed && r->at < r->end && *r->at == '"'; skip_space(r)) {
    if (!st_reserve(&members, &capacity, n + 1, sizeof *members)) {
      r->failed = true;
      break;
    }
    members[n] = (st_buffer){0};
    write_string(r, &members[n]);
    skip_space(r);
    if (r->at < r->end) r->at++; // the colon
    write_canonical(r, &members[n++]);
    skip_space(r);
    if (r->at < r->end && *r->at == ',') r->at++;
  }
  if (r->at < r->end) r->at++;
  if (n) qsort(members, n, sizeof *members, compare_members);
  put(r, out, "{", 1);
  for (size_t i = 0; i < n; i++) {
    put(r, out, members[i].data, members[i].length);
    put(r, out, ",", 1);
    st_buffer_free(&members[i]);
  }
  put(r, out, "}", 1);
  st_free(members);
}

static void write_array(st_value_reader *r, st_buffer *out) {
  put(r, out, "[", 1);
  for (r->at++, skip_space(r); !r->failed && r->at < r->end && *r->at != ']'; skip_space(r)) {
    write_canonical(r, out);
    put(r, out, ",", 1);
    skip_space(r);
    if (r->at < r->end && *r->at == ',') r->at++;
  }
  if (r->at < r->end) r->at++;
  put(r, out, "]", 1);
}

static void write_canonical(st_value_reader *r, st_buffer *out) {
  skip_space(r);
  if (r->at == r->end || r->failed) return;
  if (r->depth++ > MOST_DEPTH) { // copied unchanged
    put(r, out, r->at, (size_t)(r->end - r->at));
    r->at = r->end;
  } else if (*r->at == '"') {
    write_string(r, out);
  } else if (*r->at == '{') {
    write_object(r, out);
  } else if (*r->at == '[') {
    write_array(r, out);
  } else if (*r->at == '-' || is_digit(*r->at)) {
    write_number(r, out);
  } else {
    do put(r, out, r->at++, 1);
    while (r->at < r->end && *r->at >= 'a' && *r->at <= 'z');
  }
  r->depth--;
}

int st_last_item_repeats(const char *text, size_t n) {
  st_value_reader r = {.at = text, .end = text + n};
  st_buffer *items = NULL;
  size_t count = 0, capacity = 0;
  for (skip_space(&r); !r.failed && r.at < r.end; skip_space(&r)) {
    if (!st_reserve(&items, &capacity, count + 1, sizeof *items)) {
      r.failed = true;
      break;
    }
    items[count] = (st_buffer){0};
    write_canonical(&r, &items[count++]);
    skip_space(&r);
    if (r.at < r.end && *r.at == ',') r.at++;
  }
  bool repeats = false;
  for (size_t i = 0; i + 1 < count; i++) repeats |= !compare_members(&items[i], &items[count - 1]);
  for (size_t i = 0; i < count; i++) st_buffer_free(&items[i]);
  st_free(items);
  return r.failed ? -1 : repeats;
}
