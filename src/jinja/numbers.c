// Numbers in text, as Python's int() and float() read them, in ASCII digits.
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>

static size_t decode(const st_jinja_string *s, size_t at, uint32_t *code) {
  int n = st_utf8_decode(s->data + at, s->length - at, code);
  return n > 0 ? (size_t)n : 1;
}

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
  return c >= '0' && c <= '9' ? c - '0' : 99;
}

bool st_jinja_parse_int(const st_jinja_string *text, int64_t *out, bool *overflow) {
  st_jinja_string room;
  const st_jinja_string *s = stripped(text, &room);
  size_t i = 0;
  bool negative = false, digit = false;
  *overflow = false;
  if (i < s->length && (s->data[i] == '+' || s->data[i] == '-')) negative = s->data[i++] == '-';
  if (i >= s->length) return false;
  *out = 0;
  for (; i < s->length; i++) {
    if (s->data[i] == '_' && digit) {
      digit = false;
      continue;
    }
    int d = digit_value(s->data[i]);
    if (d > 9) return false;
    digit = true;
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_sub_overflow(*out, d, out)) *overflow = true;
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
