// Forms of patterns, five bits for four trits. See layout.h for their places.
#include "kernel/kernel.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <string.h>

enum { CODES = 32, NONE = 255 }; // codes of a row in a step

// Of each byte of four codes, trit + 1 each, the index of its pattern, or NONE.
static void invert(uint8_t index[256]) {
  memset(index, NONE, 256);
  for (unsigned i = 0; i < 32; i++) index[st_sherry_patterns[i]] = (uint8_t)i;
}

// That of four codes; the first one where the four codes are not a pattern.
static unsigned pattern_of(const uint8_t index[256], unsigned four) {
  unsigned pattern = index[four];
  return pattern == NONE ? 0 : pattern;
}

static void put_code(uint8_t *step, size_t code, size_t at, unsigned pattern) {
  size_t part = code / 4;
  step[part / 2 * 64 + at] |= (uint8_t)((pattern & 15) << part % 2 * 4);
  step[4 * 64 + at] |= (uint8_t)(pattern >> 4 << part);
}

// A step of row r.
static void pack_row(const uint8_t index[256], const int8_t *trits, size_t r, uint8_t *step) {
  for (size_t code = 0; code < CODES; code++) {
    const int8_t *first = trits + code / 16 * 64 + code % 16;
    unsigned four = 0;
    for (unsigned p = 0; p < 4; p++) four |= (unsigned)(first[16 * p] + 1) << 2 * p;
    put_code(step, code, 4 * r + code % 4, pattern_of(index, four & 255));
  }
}

void st_form_pack_patterns(size_t columns, uint32_t block, const int8_t *rows, const float *scales, size_t count,
                           uint8_t *group) {
  uint8_t index[256];
  size_t blocks = columns / block;
  invert(index);
  for (size_t b = 0; b < blocks; b++, group += st_pattern_block_bytes(block)) {
    for (size_t r = 0; r < count; r++) {
      uint16_t half = st_f16_from_f32(scales[r * blocks + b]);
      memcpy(group + 2 * r, &half, 2);
      for (size_t s = 0; s < block / ST_PATTERN_STEP; s++) {
        pack_row(index, rows + r * columns + b * block + s * ST_PATTERN_STEP, r,
                 group + ST_SCALES + s * ST_PATTERN_BYTES);
      }
    }
  }
}

// ---- of 2-bit codes -----------------------------------------------------------------------------------------------

enum { STEP_OF_CODES = ST_PATTERN_STEP / 16 * 64 };

// The four codes at byte `at` of part `part`, 4 columns in each of 4 pieces of 16.
static unsigned four_at(const uint8_t *codes, size_t part, size_t at) {
  unsigned four = 0, shift = 2 * (unsigned)(part % 4);
  for (unsigned p = 0; p < 4; p++) four |= (codes[(part / 4 * 4 + p) * 64 + at] >> shift & 3u) << 2 * p;
  return four;
}

// Whether a row's scale is zero, as those of rows are that pad a group: its codes are then of no matter.
static bool is_zero(const uint8_t *scales, size_t r) {
  return !scales[2 * r] && !(scales[2 * r + 1] & 0x7F);
}

bool st_can_be_patterns(size_t columns, uint32_t block, const uint8_t *group) {
  uint8_t index[256];
  const uint8_t *scales = group;
  bool all = true;
  invert(index);
  for (size_t k = 0; k < columns; k += ST_PATTERN_STEP, group += STEP_OF_CODES) {
    if (k % block == 0) scales = group, group += ST_SCALES;
    for (size_t part = 0; part < CODES / 4; part++) {
      for (size_t at = 0; at < 64; at++) all &= index[four_at(group, part, at)] != NONE || is_zero(scales, at / 4);
    }
  }
  return all;
}

// A step's codes are read before its patterns, which are fewer bytes, are written.
void st_make_patterns(size_t columns, uint32_t block, const uint8_t *from, uint8_t *to) {
  uint8_t index[256], codes[STEP_OF_CODES];
  invert(index);
  for (size_t k = 0; k < columns; k += ST_PATTERN_STEP, from += STEP_OF_CODES, to += ST_PATTERN_BYTES) {
    if (k % block == 0) {
      memmove(to, from, ST_SCALES);
      from += ST_SCALES, to += ST_SCALES;
    }
    memcpy(codes, from, sizeof codes);
    memset(to, 0, ST_PATTERN_BYTES);
    for (size_t part = 0; part < CODES / 4; part++) {
      for (size_t at = 0; at < 64; at++) put_code(to, 4 * part, at, pattern_of(index, four_at(codes, part, at)));
    }
  }
}
