// The printable form of bytes: byte-level vocabularies (those of GPT-2's kind) spell every byte as one character,
// the visible ones of Latin-1 as themselves and the 68 others as U+0100 onward.
#include "tokenizer/internal.h"

#include "base/hex.h"
#include "base/utf8.h"

#define ROW8(a) a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7
#define ROW16(a) ROW8(a), ROW8(a + 8)

const uint16_t st_byte_to_char[256] = {
    ROW16(0x100), ROW16(0x110), 0x120,       0x21,        0x22,         0x23,         0x24,       0x25, 0x26, 0x27,
    ROW8(0x28),   ROW16(0x30),  ROW16(0x40), ROW16(0x50), ROW16(0x60),  ROW8(0x70),   0x78,       0x79, 0x7A, 0x7B,
    0x7C,         0x7D,         0x7E,        0x121,       ROW16(0x122), ROW16(0x132), 0x142,      0xA1, 0xA2, 0xA3,
    0xA4,         0xA5,         0xA6,        0xA7,        0xA8,         0xA9,         0xAA,       0xAB, 0xAC, 0x143,
    0xAE,         0xAF,         ROW16(0xB0), ROW16(0xC0), ROW16(0xD0),  ROW16(0xE0),  ROW16(0xF0)};

// The byte whose printable form a character is; -1: none.
static int char_to_byte(uint32_t code) {
  if (code >= 0x21 && code <= 0x7E) return (int)code;
  if (code >= 0xA1 && code <= 0xFF && code != 0xAD) return (int)code;
  if (code < 0x100 || code > 0x143) return -1;
  if (code <= 0x120) return (int)code - 0x100;
  if (code == 0x121) return 0x7F;
  return code == 0x143 ? 0xAD : (int)(code - 0x122 + 0x80);
}

size_t st_bytes_print(const char *bytes, size_t n, char *out) {
  size_t length = 0;
  for (size_t i = 0; i < n; i++) {
    uint16_t c = st_byte_to_char[(unsigned char)bytes[i]];
    if (c < 0x80) {
      out[length++] = (char)c;
    } else {
      out[length++] = (char)(0xC0 | c >> 6);
      out[length++] = (char)(0x80 | (c & 0x3F));
    }
  }
  return length;
}

size_t st_bytes_read(const char *text, size_t n, char *out) {
  size_t length = 0;
  for (size_t i = 0; i < n;) {
    uint32_t code;
    int used = st_utf8_decode(text + i, n - i, &code);
    int byte = used > 0 ? char_to_byte(code) : -1;
    if (byte < 0) return SIZE_MAX;
    out[length++] = (char)byte;
    i += (size_t)used;
  }
  return length;
}

int st_byte_token(const char *text, size_t length) {
  if (length != 6 || text[0] != '<' || text[1] != '0' || text[2] != 'x' || text[5] != '>') return -1;
  int high = st_hex_digit(text[3]), low = st_hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}
