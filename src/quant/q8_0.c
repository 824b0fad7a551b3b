// Q8_0: 32 weights of 8 bits in 34 bytes: f16 d, then 32 signed bytes; w = q * d.
#include "quant/fit.h"
#include "quant/rows.h"

#include <math.h>

static void q8_0_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  for (int j = 0; j < 32; j++) out[j] = (float)(int8_t)block[2 + j] * d;
}

static void q8_0_encode(const float *in, uint8_t *block) {
  float max = 0;
  for (int j = 0; j < 32; j++)
    if (fabsf(in[j]) > max) max = fabsf(in[j]);
  float d = max / 127, inverse = d != 0 ? 1 / d : 0;
  st_store_f16(block, d);
  for (int j = 0; j < 32; j++) block[2 + j] = (uint8_t)st_clamp_int(roundf(in[j] * inverse), -127, 127);
}

static void q8_0_fit(const float *in, const float *importance, uint8_t *block) {
  float d = st_fit_scale(in, importance, 32, -127, 127);
  st_store_f16(block, d);
  st_fit_codes(in, importance, 32, d, -127, 127, (int8_t *)block + 2);
}

static void q8_0_parts(const uint8_t *block, st_block_parts *out) {
  memcpy(out->codes, block + 2, 32);
}

static const st_value_block q8_0 = {q8_0_decode, q8_0_encode, 1, {0}, q8_0_parts, false, q8_0_fit};
const st_format_ops st_ops_q8_0 = ST_VALUE_OPS(&q8_0);
