// Q4_0 and Q4_1: 32 weights of 4 bits. Byte j of 16 holds weight j in its low and weight j + 16 in its high half.
//   Q4_0, 18 bytes: f16 d, 16 bytes;         w = (q - 8) * d
//   Q4_1, 20 bytes: f16 d, f16 m, 16 bytes;  w = q * d + m
#include "quant/fit.h"
#include "quant/rows.h"

static void q4_0_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  for (int j = 0; j < 16; j++) {
    out[j] = (float)((block[2 + j] & 15) - 8) * d;
    out[16 + j] = (float)((block[2 + j] >> 4) - 8) * d;
  }
}

// The weight of largest magnitude gets code 0, -8 times the scale, which thus takes its sign.
static void q4_0_encode(const float *in, uint8_t *block) {
  float d = st_extreme_of(in, 32) / -8, inverse = d != 0 ? 1 / d : 0;
  st_store_f16(block, d);
  for (int j = 0; j < 16; j++) {
    int low = st_clamp_int(in[j] * inverse + 8.5f, 0, 15);
    int high = st_clamp_int(in[16 + j] * inverse + 8.5f, 0, 15);
    block[2 + j] = (uint8_t)(low | high << 4);
  }
}

static void q4_0_fit(const float *in, const float *importance, uint8_t *block) {
  int8_t q[32];
  float d = st_fit_scale(in, importance, 32, -8, 7);
  st_store_f16(block, d);
  st_fit_codes(in, importance, 32, d, -8, 7, q);
  for (int j = 0; j < 16; j++) block[2 + j] = (uint8_t)((q[j] + 8) | (q[16 + j] + 8) << 4);
}

static void q4_1_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block), m = st_load_f16(block + 2);
  for (int j = 0; j < 16; j++) {
    out[j] = (float)(block[4 + j] & 15) * d + m;
    out[16 + j] = (float)(block[4 + j] >> 4) * d + m;
  }
}

static void q4_1_encode(const float *in, uint8_t *block) {
  float min, max;
  st_range_of(in, 32, &min, &max);
  float d = (max - min) / 15, inverse = d != 0 ? 1 / d : 0;
  st_store_f16(block, d);
  st_store_f16(block + 2, min);
  for (int j = 0; j < 16; j++) {
    int low = st_clamp_int((in[j] - min) * inverse + 0.5f, 0, 15);
    int high = st_clamp_int((in[16 + j] - min) * inverse + 0.5f, 0, 15);
    block[4 + j] = (uint8_t)(low | high << 4);
  }
}

static void q4_1_fit(const float *in, const float *importance, uint8_t *block) {
  uint8_t q[32];
  st_affine a = st_fit_affine(in, importance, 32, 15, 0);
  st_store_f16(block, a.d);
  st_store_f16(block + 2, a.m);
  a = (st_affine){st_load_f16(block), st_load_f16(block + 2)};
  st_fit_affine_codes(in, importance, 32, a, 15, q);
  for (int j = 0; j < 16; j++) block[4 + j] = (uint8_t)(q[j] | q[16 + j] << 4);
}

static void q4_0_parts(const uint8_t *block, st_block_parts *out) {
  st_split_nibbles(block + 2, 16, out->codes);
}
static void q4_1_parts(const uint8_t *block, st_block_parts *out) {
  st_split_nibbles(block + 4, 16, out->codes);
}

static const st_value_block q4_0 = {q4_0_decode, q4_0_encode, 1, {0}, q4_0_parts, false, q4_0_fit};
static const st_value_block q4_1 = {q4_1_decode, q4_1_encode, 2, {0, 2}, q4_1_parts, false, q4_1_fit};
const st_format_ops st_ops_q4_0 = ST_VALUE_OPS(&q4_0);
const st_format_ops st_ops_q4_1 = ST_VALUE_OPS(&q4_1);
