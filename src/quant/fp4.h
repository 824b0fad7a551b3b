// MXFP4 as gpt-oss checkpoints keep it: 32 weights in 16 bytes, byte j holding weights 2 j (low) and 2 j + 1, and the
// scale bytes in a tensor of their own.
#ifndef SETUN_QUANT_FP4_H
#define SETUN_QUANT_FP4_H

#include <stdint.h>

// One block in the order of the format mxfp4. `pairs` and `block` must not overlap.
void st_mxfp4_from_pairs(uint8_t scale, const uint8_t pairs[16], uint8_t block[17]);
// Back; the scale is the block's first byte.
void st_mxfp4_to_pairs(const uint8_t block[17], uint8_t pairs[16]);

#endif
