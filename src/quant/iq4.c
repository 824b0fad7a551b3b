// IQ4_NL and IQ4_XS: 4-bit codes that choose one of 16 unevenly spaced values.
//   IQ4_NL, 32 weights in 18 bytes: f16 d, 16 bytes (byte j: weights j and j + 16);  w = d * value
//   IQ4_XS, 256 in 136 bytes: f16 d, u16 high bits and 4 bytes low halves of eight 6-bit scales (less 32), 128 bytes in
//   eights of 16 as in IQ4_NL;  w = d * scale * value
#include "quant/rows.h"

const int8_t st_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void decode_32(float scale, const uint8_t *q, float *out) {
  for (int j = 0; j < 16; j++) {
    out[j] = scale * (float)st_iq4_values[q[j] & 15];
    out[16 + j] = scale * (float)st_iq4_values[q[j] >> 4];
  }
}

static void iq4_nl_decode(const uint8_t *block, float *out) {
  decode_32(st_load_f16(block), block + 2, out);
}

static int iq4_xs_scale(const uint8_t *block, int sub) {
  int low = block[4 + sub / 2] >> 4 * (sub % 2) & 15, high = st_load_u16(block + 2) >> 2 * sub & 3;
  return (low | high << 4) - 32;
}

static void iq4_xs_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  for (int sub = 0; sub < 8; sub++) {
    decode_32(d * (float)iq4_xs_scale(block, sub), block + 8 + 16 * sub, out + 32 * sub);
  }
}

static void iq4_nl_parts(const uint8_t *block, st_block_parts *out) {
  st_split_nibbles(block + 2, 16, out->codes);
}

static void iq4_xs_parts(const uint8_t *block, st_block_parts *out) {
  for (int sub = 0; sub < 8; sub++) {
    out->scales[sub] = (uint8_t)iq4_xs_scale(block, sub);
    st_split_nibbles(block + 8 + 16 * sub, 16, out->codes + 32 * sub);
  }
}

static const st_value_block iq4_nl = {iq4_nl_decode, NULL, 1, {0}, iq4_nl_parts, false, NULL};
static const st_value_block iq4_xs = {iq4_xs_decode, NULL, 1, {0}, iq4_xs_parts, false, NULL};
const st_format_ops st_ops_iq4_nl = ST_VALUE_OPS_READ(&iq4_nl);
const st_format_ops st_ops_iq4_xs = ST_VALUE_OPS_READ(&iq4_xs);
