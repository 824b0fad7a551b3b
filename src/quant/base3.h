// Five trits per byte as a fraction: the byte is ceil(256 q / 243) for a number q of five base-3 digits, so that
// multiplying by three yields one digit after the other. 13 of the 256 bytes have no q.
#ifndef SETUN_QUANT_BASE3_H
#define SETUN_QUANT_BASE3_H

#include <stdint.h>

// 3^n.
static const uint8_t st_pow3[5] = {1, 3, 9, 27, 81};

// The trit of digit n, counted from the most significant.
static inline int8_t st_fraction_trit(uint8_t byte, int n) {
  return (int8_t)(((uint8_t)(byte * st_pow3[n]) * 3 >> 8) - 1);
}

static inline uint8_t st_fraction_byte(unsigned q) {
  return (uint8_t)((q * 256 + 242) / 243);
}

// The number that the byte is a fraction of, or the number from its digits if it is not such a fraction.
static inline unsigned st_fraction_number(uint8_t byte) {
  unsigned q = 0;
  for (int n = 0; n < 5; n++) q = q * 3 + (unsigned)(st_fraction_trit(byte, n) + 1);
  return q;
}

// Whether a writer produces the byte, for numbers q = multiple * (something below limit).
static inline int st_fraction_valid(uint8_t byte, unsigned multiple, unsigned limit) {
  unsigned q = st_fraction_number(byte);
  return st_fraction_byte(q) == byte && q % multiple == 0 && q / multiple < limit;
}

#endif
