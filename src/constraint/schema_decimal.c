// Exact decimal numbers.
#include "constraint/schema_decimal.h"

#include <string.h>

enum { POINT_MOST = 400 }; // digits before or after the point; doubles have fewer

const st_decimal *st_decimal_read(st_schema *s, const char *text) {
  const char *p = text;
  size_t length = strspn(text, "+-.eE0123456789");
  st_decimal *d = st_schema_alloc(s, 1, sizeof *d);
  uint8_t *digits = st_schema_alloc(s, length + 1, 1);
  if (!d || !digits) return NULL;
  d->negative = *p == '-';
  p += d->negative;
  int64_t point = 0;
  bool behind = false;
  for (; (*p >= '0' && *p <= '9') || *p == '.'; p++) {
    if (*p == '.') {
      behind = true;
      continue;
    }
    if (d->n || *p != '0') digits[d->n++] = (uint8_t)(*p - '0');
    if (d->n && !behind) point++;
    if (!d->n && behind) point--;
  }
  if (*p == 'e' || *p == 'E') {
    bool down = p[1] == '-';
    int64_t exponent = 0;
    for (p += 1 + (p[1] == '-' || p[1] == '+'); *p >= '0' && *p <= '9'; p++) {
      if (exponent < 100000) exponent = exponent * 10 + (*p - '0');
    }
    point += down ? -exponent : exponent;
  }
  while (d->n && !digits[d->n - 1]) d->n--;
  if (!d->n) d->negative = false;
  if (d->n && (point > POINT_MOST || point - (int64_t)d->n < -POINT_MOST)) {
    st_schema_fail(s, SETUN_ERROR_LIMIT, s->at, NULL,
                   "a number with more than %d digits before or after its decimal point", POINT_MOST);
    return NULL;
  }
  d->point = d->n ? (int32_t)point : 0;
  d->digits = digits;
  return d;
}

const st_decimal *st_decimal_one(st_schema *s) {
  return st_decimal_read(s, "1");
}

uint8_t st_decimal_digit(const st_decimal *d, int32_t i) {
  int64_t at = (int64_t)d->point + i;
  return at >= 0 && at < (int64_t)d->n ? d->digits[at] : 0;
}

static int compare_magnitudes(const st_decimal *a, const st_decimal *b) {
  if (!a->n || !b->n) return (a->n > 0) - (b->n > 0);
  if (a->point != b->point) return a->point < b->point ? -1 : 1;
  uint32_t n = a->n < b->n ? a->n : b->n;
  int order = memcmp(a->digits, b->digits, n);
  if (order) return order < 0 ? -1 : 1;
  return (a->n > b->n) - (a->n < b->n);
}

int st_decimal_compare(const st_decimal *a, const st_decimal *b) {
  if (a->negative != b->negative) return a->negative ? -1 : 1;
  int order = compare_magnitudes(a, b);
  return a->negative ? -order : order;
}

bool st_decimal_is_integer(const st_decimal *d) {
  return !d->n || d->point >= (int64_t)d->n;
}

bool st_decimal_unsigned(const st_decimal *d, uint64_t most, uint64_t *out) {
  if (d->negative || !st_decimal_is_integer(d) || d->point > 19) return false;
  uint64_t value = 0;
  for (int32_t i = -d->point; i < 0; i++) {
    uint8_t digit = st_decimal_digit(d, i);
    if (value > (UINT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  return value <= most;
}
