// Q5_0 and Q5_1: 32 weights of 5 bits. The low four are as in Q4 (byte j: weights j and j + 16), the fifth bit of
// weight j is bit j of a 32-bit word before them.
//   Q5_0, 22 bytes: f16 d, u32 high bits, 16 bytes;         w = (q - 16) * d
//   Q5_1, 24 bytes: f16 d, f16 m, u32 high bits, 16 bytes;  w = q * d + m
#include "quant/fit.h"
#include "quant/rows.h"

static int code(const uint8_t *low, uint32_t high, int i) {
  return (low[i % 16] >> 4 * (i / 16) & 15) | (int)(high >> i & 1) << 4;
}

static void put_codes(const uint8_t codes[32], uint8_t *at) {
  uint32_t high = 0;
  for (int i = 0; i < 32; i++) high |= (uint32_t)(codes[i] >> 4) << i;
  st_store_u32(at, high);
  for (int j = 0; j < 16; j++) at[4 + j] = (uint8_t)((codes[j] & 15) | codes[16 + j] << 4);
}

static void q5_0_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  uint32_t high = st_load_u32(block + 2);
  for (int i = 0; i < 32; i++) out[i] = (float)(code(block + 6, high, i) - 16) * d;
}

// As in Q4_0 the weight of largest magnitude gets code 0.
static void q5_0_encode(const float *in, uint8_t *block) {
  uint8_t codes[32];
  float d = st_extreme_of(in, 32) / -16, inverse = d != 0 ? 1 / d : 0;
  st_store_f16(block, d);
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)st_clamp_int(in[i] * inverse + 16.5f, 0, 31);
  put_codes(codes, block + 2);
}

static void q5_0_fit(const float *in, const float *importance, uint8_t *block) {
  int8_t q[32];
  uint8_t codes[32];
  float d = st_fit_scale(in, importance, 32, -16, 15);
  st_store_f16(block, d);
  st_fit_codes(in, importance, 32, d, -16, 15, q);
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(q[i] + 16);
  put_codes(codes, block + 2);
}

static void q5_1_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block), m = st_load_f16(block + 2);
  uint32_t high = st_load_u32(block + 4);
  for (int i = 0; i < 32; i++) out[i] = (float)code(block + 8, high, i) * d + m;
}

static void q5_1_encode(const float *in, uint8_t *block) {
  uint8_t codes[32];
  float min, max;
  st_range_of(in, 32, &min, &max);
  float d = (max - min) / 31, inverse = d != 0 ? 1 / d : 0;
  st_store_f16(block, d);
  st_store_f16(block + 2, min);
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)st_clamp_int((in[i] - min) * inverse + 0.5f, 0, 31);
  put_codes(codes, block + 4);
}

static void q5_1_fit(const float *in, const float *importance, uint8_t *block) {
  uint8_t codes[32];
  st_affine a = st_fit_affine(in, importance, 32, 31, 0);
  st_store_f16(block, a.d);
  st_store_f16(block + 2, a.m);
  a = (st_affine){st_load_f16(block), st_load_f16(block + 2)};
  st_fit_affine_codes(in, importance, 32, a, 31, codes);
  put_codes(codes, block + 4);
}

// `at`: the word of high bits, followed by the low ones.
static void take_codes(const uint8_t *at, uint8_t *codes) {
  uint32_t high = st_load_u32(at);
  st_split_nibbles(at + 4, 16, codes);
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(codes[i] | (high >> i & 1) << 4);
}
static void q5_0_parts(const uint8_t *block, st_block_parts *out) {
  take_codes(block + 2, out->codes);
}
static void q5_1_parts(const uint8_t *block, st_block_parts *out) {
  take_codes(block + 4, out->codes);
}

static const st_value_block q5_0 = {q5_0_decode, q5_0_encode, 1, {0}, q5_0_parts, false, q5_0_fit};
static const st_value_block q5_1 = {q5_1_decode, q5_1_encode, 2, {0, 2}, q5_1_parts, false, q5_1_fit};
const st_format_ops st_ops_q5_0 = ST_VALUE_OPS(&q5_0);
const st_format_ops st_ops_q5_1 = ST_VALUE_OPS(&q5_1);
