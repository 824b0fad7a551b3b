// AVX-512 with VBMI: five codes a byte taken apart. A byte's low 6 bits look four codes up at once, as four bit pairs;
// the bytes from 192 on have tables of their own, for these four and for the fifth.
#ifndef SETUN_KERNEL_X86_FIVES_H
#define SETUN_KERNEL_X86_FIVES_H

#include "kernel/x86/lanes_avx512.h"

typedef struct {
  vb four, large_four, large_fifth, large_upper; // the last is the fifth in a byte's upper bits
} st_fives_tables;

// The codes c0 to c3 of f as bit pairs; of 64 numbers from 0 on; and both of what bytes 192 + i are, up to 242.
#define FIVES_PAIRS(f) (uint8_t)((f) % 3 | (f) / 3 % 3 << 2 | (f) / 9 % 3 << 4 | (f) / 27 << 6)
#define FIVES_LARGE_PAIRS(i) FIVES_PAIRS(64 + ((i) < 51 ? (i) % 17 : 0))
#define FIVES_LARGE_FIFTH(i) (uint8_t)((i) < 51 ? (i) / 17 : 0)
#define FIVES_4(each, i) each(i), each((i) + 1), each((i) + 2), each((i) + 3)
#define FIVES_16(each, i) FIVES_4(each, i), FIVES_4(each, (i) + 4), FIVES_4(each, (i) + 8), FIVES_4(each, (i) + 12)
#define FIVES_64(each) FIVES_16(each, 0), FIVES_16(each, 16), FIVES_16(each, 32), FIVES_16(each, 48)
_Alignas(64) static const uint8_t st_fives_bytes[3][64] = {
    {FIVES_64(FIVES_PAIRS)}, {FIVES_64(FIVES_LARGE_PAIRS)}, {FIVES_64(FIVES_LARGE_FIFTH)}};

LANES_INLINE st_fives_tables st_fives_load(void) {
  vb fifth = _mm512_load_si512(st_fives_bytes[2]);
  return (st_fives_tables){_mm512_load_si512(st_fives_bytes[0]), _mm512_load_si512(st_fives_bytes[1]), fifth,
                           _mm512_slli_epi16(fifth, 6)};
}

// The bytes of a piece looked up as c0 to c3, in four bit pairs; and which of them have tables of their own.
LANES_INLINE vb st_fives_look_up(const st_fives_tables *t, vb v, __mmask64 *large) {
  *large = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)192));
  return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(v, t->four), *large, v, t->large_four);
}

// The five parts of a piece, 64 codes each, which stay where they are in their bytes: 1, 4, 16, 64 and 64 times as
// large.
LANES_INLINE void st_fives_scaled(const st_fives_tables *t, const uint8_t *piece, vb parts[5]) {
  __mmask64 large;
  vb v = _mm512_loadu_si512(piece), four = st_fives_look_up(t, v, &large);
  for (int i = 0; i < 4; i++) parts[i] = _mm512_and_si512(four, _mm512_set1_epi8((char)(3 << 2 * i)));
  parts[4] = _mm512_and_si512(v, _mm512_set1_epi8((char)192));
  parts[4] = _mm512_mask_permutexvar_epi8(parts[4], large, v, t->large_upper);
}

// The same with the second and the fourth 4 times as large, and the others once.
LANES_INLINE void st_fives_parts(const st_fives_tables *t, const uint8_t *piece, vb parts[5]) {
  const vb three = _mm512_set1_epi8(3), twelve = _mm512_set1_epi8(12);
  __mmask64 large;
  vb v = _mm512_loadu_si512(piece), four = st_fives_look_up(t, v, &large), high = _mm512_srli_epi16(four, 4);
  parts[0] = _mm512_and_si512(four, three);
  parts[1] = _mm512_and_si512(four, twelve);
  parts[2] = _mm512_and_si512(high, three);
  parts[3] = _mm512_and_si512(high, twelve);
  parts[4] = _mm512_and_si512(_mm512_srli_epi16(v, 6), three);
  parts[4] = _mm512_mask_permutexvar_epi8(parts[4], large, v, t->large_fifth);
}

// All five once.
LANES_INLINE void st_fives_codes(const st_fives_tables *t, const uint8_t *piece, vb parts[5]) {
  st_fives_parts(t, piece, parts);
  parts[1] = _mm512_srli_epi16(parts[1], 2);
  parts[3] = _mm512_srli_epi16(parts[3], 2);
}

#endif
