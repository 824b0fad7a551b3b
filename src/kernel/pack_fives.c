// Forms of five codes a byte. See layout.h for their places.
#include "kernel/kernel.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <string.h>

static uint8_t five_of(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned c4) {
  unsigned f = c0 + 3 * c1 + 9 * c2 + 27 * c3;
  return (uint8_t)(f < 64 ? 64 * c4 + f : 192 + 17 * c4 + (f - 64));
}

// The codes of 20 columns from `first` on; those from `end` on are 0, and padding columns before it have weight 0.
static void pack_piece(const int8_t *rows, size_t count, size_t columns, size_t first, size_t end, uint8_t *piece) {
  for (size_t i = 0; i < 64; i++) {
    unsigned codes[5];
    for (size_t part = 0; part < 5; part++) {
      size_t r = i / 4, k = first + 4 * part + i % 4;
      bool there = r < count && k < columns;
      codes[part] = k >= end ? 0 : there ? (unsigned)(rows[r * columns + k] + 1) : 1;
    }
    piece[i] = five_of(codes[0], codes[1], codes[2], codes[3], codes[4]);
  }
}

// Columns of block b that are not after the last 32 of a row.
static size_t columns_in(const st_fives *f, size_t b, size_t columns) {
  size_t left = st_round_up(columns, ST_STEP) - b * f->columns;
  return f->blocks == 1 || left < f->columns ? left : f->columns;
}

void st_form_pack_fives(st_form form, size_t columns, uint32_t block, const int8_t *rows, const float *scales,
                        size_t count, uint8_t *group) {
  st_fives f = st_fives_of(form, columns, block);
  for (size_t b = 0; b < f.blocks; b++, group += f.bytes) {
    for (size_t r = 0; f.head && r < count; r++) {
      uint16_t half = st_f16_from_f32(scales[r * f.blocks + b]);
      memcpy(group + 2 * r, &half, 2);
    }
    size_t first = b * f.columns, end = first + columns_in(&f, b, columns);
    for (size_t p = 0; p < st_five_pieces(f.columns); p++) {
      pack_piece(rows, count, columns, first + p * ST_FIVE_COLUMNS, end, group + f.head + 64 * p);
    }
  }
}

static uint64_t load_eight(const uint8_t *p) {
  uint64_t eight;
  memcpy(&eight, p, 8);
  return eight;
}

static bool can_be_fives(st_form dense, size_t columns, uint32_t block, const uint8_t *group) {
  st_fives f = st_fives_of(dense, columns, block);
  size_t bytes = f.head + f.columns / 16 * 64; // of a block of 2-bit codes
  uint64_t both = 0;
  for (size_t b = 0; b < f.blocks; b++) {
    const uint8_t *codes = group + b * bytes + f.head;
    for (size_t i = 0; i < columns_in(&f, b, columns) / 16 * 64; i += 8) {
      uint64_t eight = load_eight(codes + i);
      both |= eight & eight >> 1;
    }
  }
  return !(both & 0x5555555555555555u);
}

static uint64_t times3(uint64_t bytes) {
  return bytes + bytes + bytes;
}

// five_of for 8 bytes at once.
static uint64_t fives_of(const uint64_t c[5]) {
  return st_five_bytes(c[0] + times3(c[1] + times3(c[2] + times3(c[3]))), c[4]);
}

// A piece of `n` parts (of 5, the others are 0), whose codes are at the given bytes of `from`, moved up.
static void squeeze_piece(const uint8_t *const from[5], const unsigned shift[5], size_t n, uint8_t *to) {
  uint64_t out[8];
  for (size_t i = 0; i < 8; i++) {
    uint64_t c[5] = {0};
    for (size_t k = 0; k < n; k++) c[k] = load_eight(from[k] + 8 * i) >> shift[k] & 0x0303030303030303u;
    out[i] = fives_of(c);
  }
  memcpy(to, out, sizeof out);
}

// A piece is written after the last read of its bytes: piece p is made of the parts from 5p on, and the parts before 4p
// + 4 are in the pieces up to p.
static void squeeze_block(size_t columns, size_t parts, const uint8_t *from, uint8_t *to) {
  for (size_t first = 0; first < 5 * st_five_pieces(columns); first += 5, to += 64) {
    const uint8_t *at[5] = {0};
    unsigned shift[5] = {0};
    size_t n = first + 5 <= parts ? 5 : first < parts ? parts - first : 0;
    for (size_t k = 0; k < n; k++) {
      at[k] = from + (first + k) / 4 * 64;
      shift[k] = 2 * ((first + k) % 4);
    }
    if (n == 5)
      squeeze_piece(at, shift, 5, to);
    else
      squeeze_piece(at, shift, n, to);
  }
}

static void make_fives(st_form dense, size_t columns, uint32_t block, const uint8_t *from, uint8_t *to) {
  st_fives f = st_fives_of(dense, columns, block);
  size_t bytes = f.head + f.columns / 16 * 64; // of a block of 2-bit codes
  for (size_t b = 0; b < f.blocks; b++, from += bytes, to += f.bytes) {
    memmove(to, from, f.head);
    squeeze_block(f.columns, columns_in(&f, b, columns) / 4, from + f.head, to + f.head);
  }
}

bool st_form_can_squeeze(st_form dense, size_t columns, uint32_t block, const uint8_t *group) {
  return st_form_is(dense, ST_KIND_PATTERNS) ? st_can_be_patterns(columns, block, group)
                                             : can_be_fives(dense, columns, block, group);
}

void st_form_squeeze(st_form dense, size_t columns, uint32_t block, const uint8_t *from, uint8_t *to) {
  if (st_form_is(dense, ST_KIND_PATTERNS))
    st_make_patterns(columns, block, from, to);
  else
    make_fives(dense, columns, block, from, to);
}
