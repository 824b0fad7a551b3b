// Q2_K to Q5_K: 256 weights in sub-blocks whose scales (and minimums) are small integers times the block's own.
//   Q2_K,  84 bytes: 16 bytes (scale low half, minimum high half, of 16 weights each), 64 bytes q, f16 d, f16 dmin
//   Q3_K, 110 bytes: 32 bytes of third bits, 64 bytes q, 12 bytes (sixteen 6-bit scales, less 32), f16 d
//   Q4_K, 144 bytes: f16 d, f16 dmin, 12 bytes (eight 6-bit scales and minimums, of 32 weights each), 128 bytes q
//   Q5_K, 176 bytes: as Q4_K, with 32 bytes of fifth bits before q
// With minimums w = d * scale * q - dmin * minimum, in Q3_K w = d * scale * q with q in -4..3.
#include "quant/fit.h"
#include "quant/rows.h"

// Two bits a weight (Q2_K, Q3_K): weight i of 256 in 64 bytes, 128 weights a half, 32 a plane of two bits.
static int two_bits(const uint8_t *q, int i) {
  return q[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void q2_k_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block + 80), dmin = st_load_f16(block + 82);
  for (int sub = 0; sub < 16; sub++) {
    float scale = d * (float)(block[sub] & 15), minimum = dmin * (float)(block[sub] >> 4);
    for (int i = 16 * sub; i < 16 * sub + 16; i++) out[i] = scale * (float)two_bits(block + 16, i) - minimum;
  }
}

// Scale `sub` of Q3_K: low half bytes first, the high two bits of scales i, 4 + i, 8 + i, 12 + i in byte 8 + i.
static int q3_k_scale(const uint8_t *packed, int sub) {
  int low = packed[sub % 8] >> 4 * (sub / 8) & 15, high = packed[8 + sub % 4] >> 2 * (sub / 4) & 3;
  return (low | high << 4) - 32;
}

static void q3_k_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block + 108);
  for (int sub = 0; sub < 16; sub++) {
    float scale = d * (float)q3_k_scale(block + 96, sub);
    for (int i = 16 * sub; i < 16 * sub + 16; i++) {
      int third = block[i % 32] >> i / 32 & 1; // set: nothing is subtracted
      out[i] = scale * (float)(two_bits(block + 32, i) - (third ? 0 : 4));
    }
  }
}

// Scale and minimum `sub` of Q4_K and Q5_K. The first four are in six bits of bytes 0-3 and 4-7, whose other two bits
// are the high ones of the last four; the low four bits of these are in the halves of bytes 8-11.
static void scale_and_minimum(const uint8_t *packed, int sub, int *scale, int *minimum) {
  if (sub < 4) {
    *scale = packed[sub] & 63;
    *minimum = packed[4 + sub] & 63;
  } else {
    *scale = (packed[4 + sub] & 15) | packed[sub - 4] >> 6 << 4;
    *minimum = packed[4 + sub] >> 4 | packed[sub] >> 6 << 4;
  }
}

// Four bits of weight i: 64 weights in 32 bytes, the first 32 in the low halves.
static int four_bits(const uint8_t *q, int i) {
  return q[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
}

static void decode_4_or_5(const uint8_t *block, const uint8_t *fifth, const uint8_t *q, float *out) {
  float d = st_load_f16(block), dmin = st_load_f16(block + 2);
  for (int sub = 0; sub < 8; sub++) {
    int s, m;
    scale_and_minimum(block + 4, sub, &s, &m);
    float scale = d * (float)s, minimum = dmin * (float)m;
    for (int i = 32 * sub; i < 32 * sub + 32; i++) {
      int high = fifth ? (fifth[i % 32] >> sub & 1) << 4 : 0;
      out[i] = scale * (float)(four_bits(q, i) | high) - minimum;
    }
  }
}

static void q4_k_decode(const uint8_t *block, float *out) {
  decode_4_or_5(block, NULL, block + 16, out);
}
static void q5_k_decode(const uint8_t *block, float *out) {
  decode_4_or_5(block, block + 16, block + 48, out);
}

static void q2_k_parts(const uint8_t *block, st_block_parts *out) {
  for (int i = 0; i < 256; i++) out->codes[i] = (uint8_t)two_bits(block + 16, i);
  for (int sub = 0; sub < 16; sub++) {
    out->scales[sub] = block[sub] & 15;
    out->minimums[sub] = block[sub] >> 4;
  }
}

// The third bit makes codes 0..7 from -4..3.
static void q3_k_parts(const uint8_t *block, st_block_parts *out) {
  for (int i = 0; i < 256; i++) {
    out->codes[i] = (uint8_t)(two_bits(block + 32, i) | (block[i % 32] >> i / 32 & 1) << 2);
  }
  for (int sub = 0; sub < 16; sub++) out->scales[sub] = (uint8_t)q3_k_scale(block + 96, sub);
}

static void q4_k_parts(const uint8_t *block, st_block_parts *out) {
  for (int i = 0; i < 4; i++) st_split_nibbles(block + 16 + 32 * i, 32, out->codes + 64 * i);
  for (int sub = 0; sub < 8; sub++) {
    int s, m;
    scale_and_minimum(block + 4, sub, &s, &m);
    out->scales[sub] = (uint8_t)s;
    out->minimums[sub] = (uint8_t)m;
  }
}

static void q5_k_parts(const uint8_t *block, st_block_parts *out) {
  q4_k_parts(block, out); // its scales; its codes are separate
  for (int i = 0; i < 4; i++) st_split_nibbles(block + 48 + 32 * i, 32, out->codes + 64 * i);
  for (int i = 0; i < 256; i++) out->codes[i] = (uint8_t)(out->codes[i] | (block[16 + i % 32] >> i / 32 & 1) << 4);
}

// ---- writing ------------------------------------------------------------------------------------------------------

static void q2_k_fit(const float *in, const float *importance, uint8_t *block) {
  st_super o = {0};
  st_fit_super(in, importance, 16, 16, 3, 15, &o);
  memset(block, 0, 84);
  st_store_u16(block + 80, o.d);
  st_store_u16(block + 82, o.dmin);
  for (int sub = 0; sub < 16; sub++) block[sub] = (uint8_t)(o.s[sub] | o.m[sub] << 4);
  for (int i = 0; i < 256; i++) {
    uint8_t *at = block + 16 + i / 128 * 32 + i % 32;
    *at = (uint8_t)(*at | o.q[i] << 2 * (i % 128 / 32));
  }
}

// See scale_and_minimum.
static void put_scales(const st_super *o, uint8_t *packed) {
  for (int sub = 0; sub < 4; sub++) {
    int s = o->s[sub + 4], m = o->m[sub + 4];
    packed[sub] = (uint8_t)(o->s[sub] | s >> 4 << 6);
    packed[4 + sub] = (uint8_t)(o->m[sub] | m >> 4 << 6);
    packed[8 + sub] = (uint8_t)((s & 15) | (m & 15) << 4);
  }
}

static void q4_k_fit(const float *in, const float *importance, uint8_t *block) {
  st_super o = {0};
  st_fit_super(in, importance, 8, 32, 15, 63, &o);
  memset(block, 0, 144);
  st_store_u16(block, o.d);
  st_store_u16(block + 2, o.dmin);
  put_scales(&o, block + 4);
  for (int i = 0; i < 256; i++) {
    uint8_t *at = block + 16 + i / 64 * 32 + i % 32;
    *at = (uint8_t)(*at | o.q[i] << 4 * (i / 32 % 2));
  }
}

static void q2_k_encode(const float *in, uint8_t *block) {
  q2_k_fit(in, NULL, block);
}
static void q4_k_encode(const float *in, uint8_t *block) {
  q4_k_fit(in, NULL, block);
}

static const st_value_block q2_k = {q2_k_decode, q2_k_encode, 2, {80, 82}, q2_k_parts, false, q2_k_fit};
static const st_value_block q3_k = {q3_k_decode, NULL, 1, {108}, q3_k_parts, false, NULL};
static const st_value_block q4_k = {q4_k_decode, q4_k_encode, 2, {0, 2}, q4_k_parts, false, q4_k_fit};
static const st_value_block q5_k = {q5_k_decode, NULL, 2, {0, 2}, q5_k_parts, false, NULL};
const st_format_ops st_ops_q2_k = ST_VALUE_OPS(&q2_k);
const st_format_ops st_ops_q3_k = ST_VALUE_OPS_READ(&q3_k);
const st_format_ops st_ops_q4_k = ST_VALUE_OPS(&q4_k);
const st_format_ops st_ops_q5_k = ST_VALUE_OPS_READ(&q5_k);
