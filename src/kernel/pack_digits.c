// Packing of a file's bytes of five base-3 digits, consecutive columns of a row, into groups of 2-bit codes or of five
// codes a byte, by tables of what each byte contributes.
#include "kernel/kernel.h"

#include "kernel/layout.h"

#include <string.h>

// TABLE(row) is row(0), ..., row(255). Bytes above 242, which no writer makes, have the digits of their remainder.
#define FOUR(row, b) row(b), row((b) + 1), row((b) + 2), row((b) + 3)
#define SIXTEEN(row, b) FOUR(row, b), FOUR(row, (b) + 4), FOUR(row, (b) + 8), FOUR(row, (b) + 12)
#define SIXTY_FOUR(row, b) SIXTEEN(row, b), SIXTEEN(row, (b) + 16), SIXTEEN(row, (b) + 32), SIXTEEN(row, (b) + 48)
#define TABLE(row)                                                                                                     \
  { SIXTY_FOUR(row, 0u), SIXTY_FOUR(row, 64u), SIXTY_FOUR(row, 128u), SIXTY_FOUR(row, 192u) }
#define D0(b) ((b) % 3)
#define D1(b) ((b) / 3 % 3)
#define D2(b) ((b) / 9 % 3)
#define D3(b) ((b) / 27 % 3)
#define D4(b) ((b) / 81 % 3)

// The digits as 2-bit codes.
#define PAIRS(b) (D0(b) | D1(b) << 2 | D2(b) << 4 | D3(b) << 6 | D4(b) << 8)
static const uint16_t pairs[256] = TABLE(PAIRS);

// A row's 20 columns of a piece are four bytes of the file, n = 0 to 3, with the columns 5n to 5n + 4. Column k is code
// k / 4 of byte k % 4 of the piece: what byte n adds to the four numbers f, and the last byte's fifth codes.
#define LANES(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (uint32_t)(d) << 24)
#define ADDS0(b) LANES(D0(b) + 3 * D4(b), D1(b), D2(b), D3(b))
#define ADDS1(b) LANES(9 * D3(b), 3 * D0(b) + 9 * D4(b), 3 * D1(b), 3 * D2(b))
#define ADDS2(b) LANES(27 * D2(b), 27 * D3(b), 9 * D0(b) + 27 * D4(b), 9 * D1(b))
#define ADDS3(b) LANES(0, 0, 0, 27 * D0(b))
#define FIFTHS(b) LANES(D1(b), D2(b), D3(b), D4(b))
static const uint32_t adds[4][256] = {TABLE(ADDS0), TABLE(ADDS1), TABLE(ADDS2), TABLE(ADDS3)};
static const uint32_t fifths[256] = TABLE(FIFTHS);

// ---- five codes a byte --------------------------------------------------------------------------------------------

// 20 columns of 16 rows, `stride` bytes apart.
static void pack_piece(const uint8_t *rows, size_t stride, uint8_t *piece) {
  for (size_t r = 0; r < ST_GROUP; r += 2, rows += 2 * stride, piece += 8) {
    const uint8_t *a = rows, *b = rows + stride;
    uint64_t f = adds[0][a[0]] + adds[1][a[1]] + adds[2][a[2]] + adds[3][a[3]];
    f |= (uint64_t)(adds[0][b[0]] + adds[1][b[1]] + adds[2][b[2]] + adds[3][b[3]]) << 32;
    uint64_t bytes = st_five_bytes(f, fifths[a[3]] | (uint64_t)fifths[b[3]] << 32);
    memcpy(piece, &bytes, sizeof bytes);
  }
}

// The last piece, of fewer columns: all others have code 0, also where the file's last byte has digits for them.
static void pack_last_piece(const uint8_t *rows, size_t stride, size_t columns, uint8_t *piece) {
  static const uint8_t powers[5] = {1, 3, 9, 27, 81};
  uint8_t whole[ST_GROUP][4] = {{0}};
  for (size_t r = 0; r < ST_GROUP; r++) {
    for (size_t i = 0; i < (columns + 4) / 5; i++) {
      size_t digits = columns - 5 * i;
      uint8_t byte = rows[r * stride + i];
      whole[r][i] = digits < 5 ? (uint8_t)(byte % powers[digits]) : byte;
    }
  }
  pack_piece(whole[0], sizeof whole[0], piece);
}

static void pack_fives(size_t columns, const uint8_t *rows, uint8_t *group) {
  size_t stride = (columns + 4) / 5, k = 0;
  for (; k + ST_FIVE_COLUMNS <= columns; k += ST_FIVE_COLUMNS, group += 64) pack_piece(rows + k / 5, stride, group);
  if (k < columns) pack_last_piece(rows + k / 5, stride, columns - k, group);
}

// ---- two bits a code ----------------------------------------------------------------------------------------------

enum { SPAN = 80, BLOCKS = SPAN / 16 }; // columns that are whole bytes of the file and whole blocks of codes

// Up to 80 columns of a row from `n` bytes, as words of 16 consecutive columns.
static void spread(const uint8_t *bytes, size_t n, uint32_t words[BLOCKS]) {
  uint64_t x = 0;
  for (size_t i = 0, have = 0, out = 0; i < SPAN / 5; i++) {
    x |= (uint64_t)(i < n ? pairs[bytes[i]] : 0) << have;
    have += 10;
    if (have < 32) continue;
    words[out++] = st_transpose_codes((uint32_t)x);
    x >>= 32;
    have -= 32;
  }
}

static void pack_pairs(size_t columns, const uint8_t *rows, uint8_t *group) {
  size_t stride = (columns + 4) / 5;
  for (size_t k = 0; k < columns; k += SPAN, rows += SPAN / 5, group += 64 * BLOCKS) {
    size_t left = columns - k < SPAN ? columns - k : SPAN;
    for (size_t r = 0; r < ST_GROUP; r++) {
      uint32_t words[BLOCKS];
      if (left == SPAN)
        spread(rows + r * stride, SPAN / 5, words);
      else
        spread(rows + r * stride, (left + 4) / 5, words);
      for (size_t i = 0; i < left / 16; i++) memcpy(group + 64 * i + 4 * r, &words[i], 4);
    }
  }
}

void st_pack_digits(st_form form, size_t columns, const uint8_t *rows, uint8_t *group) {
  if (st_form_is(form, ST_KIND_FIVES))
    pack_fives(columns, rows, group);
  else
    pack_pairs(columns, rows, group);
}
