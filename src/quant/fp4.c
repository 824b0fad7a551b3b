// 4-bit floats (E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign) with small scales.
//   MXFP4, 32 weights in 17 bytes: E8M0 scale, 16 bytes; byte j holds weight j low, weight j + 16 high
//   NVFP4, 64 weights in 36 bytes: four E4M3 scales without sign, of 16 weights each, then four times 8 bytes; byte j
//   of those holds weight j low, weight j + 8 high
#include "quant/rows.h"

// Twice the values, so that they are integers; the scales below are halved.
const int8_t st_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of 2^(e - 127); the smallest two are subnormal.
static float half_of_e8m0(uint8_t e) {
  return st_float_from_bits(e < 2 ? (uint32_t)0x200000 << e : (uint32_t)(e - 1) << 23);
}

static void mxfp4_decode(const uint8_t *block, float *out) {
  float scale = half_of_e8m0(block[0]);
  for (int j = 0; j < 16; j++) {
    out[j] = (float)st_e2m1_doubled[block[1 + j] & 15] * scale;
    out[16 + j] = (float)st_e2m1_doubled[block[1 + j] >> 4] * scale;
  }
}

static void mxfp4_parts(const uint8_t *block, st_block_parts *out) {
  out->scales[0] = block[0];
  st_split_nibbles(block + 1, 16, out->codes);
}

// gpt-oss checkpoints store a block's 16 bytes in another order, with weights 2 j (low) and 2 j + 1 in byte j, and the
// scales in a separate tensor.
static void mxfp4_join(uint8_t scale, const uint8_t *pairs, uint8_t *block) {
  block[0] = scale;
  for (int j = 0; j < 8; j++) {
    uint8_t low = pairs[j], high = pairs[8 + j];
    block[1 + 2 * j] = (uint8_t)((low & 15) | (high & 15) << 4);
    block[2 + 2 * j] = (uint8_t)(low >> 4 | (high & 0xF0));
  }
}

static void mxfp4_split(const uint8_t *block, uint8_t *pairs) {
  for (int j = 0; j < 8; j++) {
    uint8_t even = block[1 + 2 * j], odd = block[2 + 2 * j];
    pairs[j] = (uint8_t)((even & 15) | (odd & 15) << 4);
    pairs[8 + j] = (uint8_t)(even >> 4 | (odd & 0xF0));
  }
}

// Half of an E4M3 number without its sign. As in ggml, 0x7F, which is NaN, counts as 0, and 0xFF as 480.
static float half_of_ue4m3(uint8_t byte) {
  int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (byte == 0x7F) return 0;
  if (!exponent) return (float)mantissa * 0x1p-10f;
  return st_float_from_bits((uint32_t)(exponent + 127 - 7 - 1) << 23 | (uint32_t)mantissa << 20);
}

static void nvfp4_decode(const uint8_t *block, float *out) {
  for (int sub = 0; sub < 4; sub++) {
    float scale = half_of_ue4m3(block[sub]);
    const uint8_t *q = block + 4 + 8 * sub;
    for (int j = 0; j < 8; j++) {
      out[16 * sub + j] = (float)st_e2m1_doubled[q[j] & 15] * scale;
      out[16 * sub + 8 + j] = (float)st_e2m1_doubled[q[j] >> 4] * scale;
    }
  }
}

static const st_value_block mxfp4 = {mxfp4_decode, NULL, 0, {0}, mxfp4_parts, true, NULL};
static const st_value_block nvfp4 = {nvfp4_decode, NULL, 0, {0}, NULL, false, NULL};
static const st_hf_blocks mxfp4_hf = {.method = "mxfp4", .join = mxfp4_join, .split = mxfp4_split};
const st_format_ops st_ops_mxfp4 = {ST_VALUE_FIELDS(&mxfp4), .hf_blocks = &mxfp4_hf};
const st_format_ops st_ops_nvfp4 = {ST_VALUE_FIELDS(&nvfp4), .has_input_scales = true};
