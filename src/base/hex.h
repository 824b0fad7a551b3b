// Hexadecimal digits.
#ifndef SETUN_BASE_HEX_H
#define SETUN_BASE_HEX_H

// The value of a digit, in either case; -1: it is not one.
static inline int st_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
