// UTF-8: decoding and validity.
#include "base/utf8.h"

int st_utf8_decode(const char *s, size_t n, uint32_t *code) {
  const unsigned char *p = (const unsigned char *)s;
  unsigned char a = p[0];
  if (a < 0x80) {
    *code = a;
    return 1;
  }
  int length = a >= 0xC2 && a <= 0xDF ? 2 : (a & 0xF0) == 0xE0 ? 3 : a >= 0xF0 && a <= 0xF4 ? 4 : 0;
  if (!length) return 0;
  uint32_t c = a & (0x7Fu >> length);
  for (int i = 1; i < length; i++) {
    if ((size_t)i >= n) return -1;
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1) {
      if (a == 0xE0) low = 0xA0;
      if (a == 0xED) high = 0x9F;
      if (a == 0xF0) low = 0x90;
      if (a == 0xF4) high = 0x8F;
    }
    if (p[i] < low || p[i] > high) return 0;
    c = c << 6 | (p[i] & 0x3F);
  }
  *code = c;
  return length;
}

int st_utf8_encode(uint32_t code, char out[4]) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
  out[0] = (char)((0xF00 >> length & 0xFF) | code);
  return length;
}

size_t st_utf8_span(const char *s, size_t n) {
  size_t at = 0;
  while (at < n) {
    uint32_t code;
    int length = (unsigned char)s[at] < 0x80 ? 1 : st_utf8_decode(s + at, n - at, &code);
    if (length <= 0) break;
    at += (size_t)length;
  }
  return at;
}

bool st_utf8_valid(const char *s, size_t n) {
  return st_utf8_span(s, n) == n;
}
