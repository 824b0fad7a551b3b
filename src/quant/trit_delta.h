// The difference between two matrices of trits that are stored as 2-bit codes of the same order (t16): the positions
// where they differ, and by how much modulo 3, so that each matrix can be computed from the other.
//
// A string of bits, the lowest bit of each byte first. For each position that differs, in ascending order: g / 2^k
// zeros and a one, where g is the number of equal codes since the previous difference (or the beginning); then one bit,
// 0 where the second code is the first plus 1 modulo 3, and 1 where it is plus 2; then the k low bits of g. k is that
// of the shortest string. For differences at random it is at most 5% longer than their entropy, see docs/formats.md.
#ifndef SETUN_QUANT_TRIT_DELTA_H
#define SETUN_QUANT_TRIT_DELTA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ST_TRIT_DELTA_SHIFT_MOST = 31 };

typedef struct st_trit_delta {
  uint64_t bytes;       // of the string
  uint64_t differences; // of positions
  uint32_t shift;       // k
} st_trit_delta;

// How many of the 4 n codes of a[n] and those of b[n] differ.
uint64_t st_trit_delta_count(const uint8_t *a, const uint8_t *b, size_t n);
// What the string for a[n] and b[n] takes.
st_trit_delta st_trit_delta_measure(const uint8_t *a, const uint8_t *b, size_t n);
// Writes it to out[delta->bytes]; `delta` is that of st_trit_delta_measure.
void st_trit_delta_encode(const uint8_t *a, const uint8_t *b, size_t n, const st_trit_delta *delta, uint8_t *out);

// The entropy in bits of that many differences at random positions among `codes`, with one bit for each value.
double st_trit_delta_entropy(uint64_t codes, uint64_t differences);

// Turns a[n] into b[n] in place or, with `back`, b into a. False for a string that `delta` does not describe: positions
// beyond the last code, or another length; the codes are then useless.
bool st_trit_delta_apply(const st_trit_delta *delta, const uint8_t *string, bool back, uint8_t *codes, size_t n);

#endif
