// The form T5: five codes a byte. layout.h says where they stand.
#include "kernel/kernel.h"
#include "kernel/layout.h"

#include <string.h>

static uint8_t five_of(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned c4) {
  unsigned f = c0 + 3 * c1 + 9 * c2 + 27 * c3;
  return (uint8_t)(f < 64 ? 64 * c4 + f : 192 + 17 * c4 + (f - 64));
}

void st_form_pack_fives(size_t columns, const int8_t *rows, size_t count, uint8_t *group) {
  for (size_t p = 0; p < st_five_pieces(columns); p++, group += 64) {
    for (size_t i = 0; i < 64; i++) {
      unsigned codes[5];
      for (size_t part = 0; part < 5; part++) {
        size_t r = i / 4, k = ST_FIVE_COLUMNS * p + 4 * part + i % 4;
        // Padding: zero weights where T16 has them too, code 0 behind.
        codes[part] = k >= st_round_up(columns, ST_STEP) ? 0
                      : r < count && k < columns         ? (unsigned)(rows[r * columns + k] + 1)
                                                         : 1;
      }
      group[i] = five_of(codes[0], codes[1], codes[2], codes[3], codes[4]);
    }
  }
}

static uint64_t load_eight(const uint8_t *p) {
  uint64_t eight;
  memcpy(&eight, p, 8);
  return eight;
}

bool st_form_can_squeeze(const uint8_t *groups, size_t bytes) {
  uint64_t both = 0;
  for (size_t i = 0; i < bytes; i += 64) {
    for (size_t j = 0; j < 64; j += 8) {
      uint64_t eight = load_eight(groups + i + j);
      both |= eight & eight >> 1;
    }
  }
  return !(both & 0x5555555555555555u);
}

static uint64_t times3(uint64_t bytes) {
  return bytes + bytes + bytes;
}

// five_of for 8 bytes at once: those of f at least 64 have bit 6.
static uint64_t fives_of(const uint64_t c[5]) {
  uint64_t f = c[0] + times3(c[1] + times3(c[2] + times3(c[3])));
  uint64_t large = f >> 6 & 0x0101010101010101u;
  large = (large << 8) - large;
  return f + (c[4] << 6 & ~large) + ((0x8080808080808080u + (c[4] << 4) + c[4]) & large);
}

// A piece of `n` parts (there are 5, those behind are 0), whose codes stand at the given bytes of `from`, moved up.
static void squeeze_piece(const uint8_t *const from[5], const unsigned shift[5], size_t n, uint8_t *to) {
  uint64_t out[8];
  for (size_t i = 0; i < 8; i++) {
    uint64_t c[5] = {0};
    for (size_t k = 0; k < n; k++) c[k] = load_eight(from[k] + 8 * i) >> shift[k] & 0x0303030303030303u;
    out[i] = fives_of(c);
  }
  memcpy(to, out, sizeof out);
}

// A piece is written behind the last reading of what stands there: piece p is made of the parts from 5p on, and those
// before 4p + 4 are in the pieces up to p.
void st_form_squeeze(size_t columns, const uint8_t *t16, uint8_t *t5) {
  size_t parts = st_round_up(columns, ST_STEP) / 4;
  for (size_t first = 0; first * 4 < st_five_pieces(columns) * ST_FIVE_COLUMNS; first += 5, t5 += 64) {
    const uint8_t *from[5] = {0};
    unsigned shift[5] = {0};
    for (size_t k = 0; k < 5 && first + k < parts; k++) {
      from[k] = t16 + (first + k) / 4 * 64;
      shift[k] = 2 * ((first + k) % 4);
    }
    if (parts - first >= 5)
      squeeze_piece(from, shift, 5, t5);
    else
      squeeze_piece(from, shift, parts - first, t5);
  }
}
