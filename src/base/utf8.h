// UTF-8: decoding and validity (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
#ifndef SETUN_BASE_UTF8_H
#define SETUN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decodes the character at `s` (at least one byte). Returns its length, 1 to 4; 0 when the bytes are not a character;
// -1 when they are a valid prefix that `n` cuts off. `*code` is set only for a positive result.
int st_utf8_decode(const char *s, size_t n, uint32_t *code);

// Writes the character's 1 to 4 bytes to `out` and returns how many.
int st_utf8_encode(uint32_t code, char out[4]);

// How many bytes at the beginning are whole characters; `n` when all are.
size_t st_utf8_span(const char *s, size_t n);
bool st_utf8_valid(const char *s, size_t n);

#endif
