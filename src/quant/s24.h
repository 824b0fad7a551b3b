// 2:4 sparse weights: of each four along K two are kept, as 4-bit codes, and a nibble pos1 << 2 | pos0 of metadata says
// where they are, pos0 < pos1. Two words of values and one of metadata hold 32 weights, the first in the lowest bits.
#ifndef SETUN_QUANT_S24_H
#define SETUN_QUANT_S24_H

#include <stdbool.h>
#include <stdint.h>

enum { ST_S24_RUN = 32 }; // weights of a metadata word

// What a code means, integers in two's complement or E2M1 floats.
typedef enum st_s24_kind { ST_S24_INT4, ST_S24_FP4 } st_s24_kind;

// The nibble of the two largest of four magnitudes; of equal ones the first count.
unsigned st_s24_choose(const float magnitudes[4]);

// 32 codes, dense: the two largest of each four, as two words of values and one of metadata. A code's magnitude is
// |integer|, or the float's bits without the sign.
void st_s24_prune(st_s24_kind kind, const uint8_t codes[ST_S24_RUN], uint32_t values[2], uint32_t *metadata);
// Back: 32 codes, 0 where none was kept. Nibbles with pos0 >= pos1 are invalid: pos0 is written first.
void st_s24_unpack(const uint32_t values[2], uint32_t metadata, uint8_t codes[ST_S24_RUN]);
// The first invalid nibble of a metadata word, -1: all are valid.
int st_s24_invalid(uint32_t metadata);

// For callers that choose codes themselves. The scale, exact in half precision, of a block whose two largest of four
// are kept, with importances; the nearest code to a weight and its value; and a block of dense codes, of which the two
// largest of four count.
struct st_format;
float st_s24_scale(const struct st_format *format, const float *weights, const float *importance);
uint8_t st_s24_code(const struct st_format *format, float weight, float d, float *value);
void st_s24_store(const struct st_format *format, float d, const uint8_t *codes, uint8_t *block);

#endif
