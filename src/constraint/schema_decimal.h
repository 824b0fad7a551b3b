// Exact decimal numbers, as schemas write them.
#ifndef SETUN_CONSTRAINT_SCHEMA_DECIMAL_H
#define SETUN_CONSTRAINT_SCHEMA_DECIMAL_H

#include "constraint/schema_context.h"

// The value 0.d1d2...dn times 10^point, with d1 and dn not 0; n = 0 is zero.
typedef struct st_decimal {
  bool negative;
  uint32_t n;
  int32_t point;
  const uint8_t *digits; // 0 to 9
} st_decimal;

// The number at the beginning of a JSON text; NULL on failure.
const st_decimal *st_decimal_read(st_schema *s, const char *text);
const st_decimal *st_decimal_one(st_schema *s);
int st_decimal_compare(const st_decimal *a, const st_decimal *b); // -1, 0, 1
// Digit i after the point (from 0) or, with negative i, before it (-1: the ones).
uint8_t st_decimal_digit(const st_decimal *d, int32_t i);
bool st_decimal_is_integer(const st_decimal *d);
// The value as an unsigned integer up to `most`; false: it is not one.
bool st_decimal_unsigned(const st_decimal *d, uint64_t most, uint64_t *out);

#endif
