// Q6_K: 256 weights in 210 bytes: 128 bytes of low four bits, 64 of high two, 16 signed scales of 16 weights each, f16
// d; w = d * scale * (q - 32). Each half of 128 weights has its own 64 and 32 bytes: weight l + 32 p (p = 0..3) has its
// low bits in byte l + 32 (p % 2), the low half of it for p < 2, and its high ones in byte l at bits 2 p.
#include "quant/fit.h"
#include "quant/rows.h"

#include <math.h>

static void q6_k_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block + 208);
  for (int i = 0; i < 256; i++) {
    int half = i / 128, p = i % 128 / 32, l = i % 32;
    int low = block[64 * half + 32 * (p % 2) + l] >> 4 * (p / 2) & 15;
    int high = block[128 + 32 * half + l] >> 2 * p & 3;
    out[i] = d * (float)(int8_t)block[192 + i / 16] * (float)((low | high << 4) - 32);
  }
}

static void q6_k_parts(const uint8_t *block, st_block_parts *out) {
  memcpy(out->scales, block + 192, 16);
  for (int half = 0; half < 2; half++) {
    const uint8_t *high = block + 128 + 32 * half;
    uint8_t *codes = out->codes + 128 * half;
    st_split_nibbles(block + 64 * half, 64, codes);
    for (int i = 0; i < 32; i++) {
      codes[i] = (uint8_t)(codes[i] | (high[i] << 4 & 0x30));
      codes[32 + i] = (uint8_t)(codes[32 + i] | (high[i] << 2 & 0x30));
      codes[64 + i] = (uint8_t)(codes[64 + i] | (high[i] & 0x30));
      codes[96 + i] = (uint8_t)(codes[96 + i] | (high[i] >> 2 & 0x30));
    }
  }
}

// The nearest integer, ties to even, of a number below 2^22 (the sum's last place is 1), clamped to -32..31.
// Branch-free, so that the loop below can be vectorized.
static float to_code(float x) {
  float q = x + 0x1.8p23f - 0x1.8p23f;
  return (fabsf(q + 32) - fabsf(q - 31) - 1) / 2;
}

// The scale with the least squared error for 16 weights: among scales near the one that maps the extreme weight to
// -32, each refined to the best for its codes q, which is sum(w q) / sum(q q). The error is a constant minus sum(w q)^2
// / sum(q q). All candidates are evaluated together, so that they can be vectorized.
enum { CANDIDATES = 20 };
static float best_scale(const float *in) {
  float extreme = 0, inverse[CANDIDATES], product[CANDIDATES] = {0}, square[CANDIDATES] = {0};
  for (int i = 0; i < 16; i++)
    if (fabsf(in[i]) > fabsf(extreme)) extreme = in[i];
  if (!(fabsf(extreme) >= 1e-15f)) return 0;
  for (int c = 0; c < CANDIDATES; c++) inverse[c] = (-31 - 0.1f * (float)c) / extreme;
  for (int i = 0; i < 16; i++)
    for (int c = 0; c < CANDIDATES; c++) {
      float q = to_code(in[i] * inverse[c]);
      product[c] += in[i] * q;
      square[c] += q * q;
    }
  int best = 0;
  for (int c = 1; c < CANDIDATES; c++)
    if (product[c] * product[c] * square[best] > product[best] * product[best] * square[c]) best = c;
  return square[best] > 0 ? product[best] / square[best] : 0;
}

// Integers for the scales of 16 weights each, and the codes.
static void write_block(const float *in, const float scales[16], uint8_t *block) {
  float largest = 0;
  for (int sub = 0; sub < 16; sub++) {
    if (fabsf(scales[sub]) > fabsf(largest)) largest = scales[sub];
  }
  memset(block, 0, 210);
  st_store_f16(block + 208, largest / -128);
  float d = st_load_f16(block + 208);
  if (d == 0) return;
  for (int i = 0; i < 256; i++) {
    int sub = i / 16, half = i / 128, p = i % 128 / 32, l = i % 32;
    if (i % 16 == 0) block[192 + sub] = (uint8_t)st_clamp_int(rintf(scales[sub] * (-128 / largest)), -128, 127);
    float step = d * (float)(int8_t)block[192 + sub];
    int q = step != 0 ? st_clamp_int(rintf(in[i] / step), -32, 31) + 32 : 32;
    block[64 * half + 32 * (p % 2) + l] |= (uint8_t)((q & 15) << 4 * (p / 2));
    block[128 + 32 * half + l] |= (uint8_t)(q >> 4 << 2 * p);
  }
}

static void q6_k_encode(const float *in, uint8_t *block) {
  float scales[16];
  for (int sub = 0; sub < 16; sub++) scales[sub] = best_scale(in + 16 * sub);
  write_block(in, scales, block);
}

static float lost(const float *in, const float *importance, const uint8_t *block) {
  float out[256], sum = 0;
  q6_k_decode(block, out);
  for (int i = 0; i < 256; i++) sum += (importance ? importance[i] : 1) * (in[i] - out[i]) * (in[i] - out[i]);
  return sum;
}

// The better of what the search for each 16 weights gives and of what `encode` does.
static void q6_k_fit(const float *in, const float *importance, uint8_t *block) {
  float scales[16];
  uint8_t plain[210];
  q6_k_encode(in, plain);
  for (int sub = 0; sub < 16; sub++) {
    scales[sub] = st_fit_scale(in + 16 * sub, importance ? importance + 16 * sub : NULL, 16, -32, 31);
  }
  write_block(in, scales, block);
  if (!(lost(in, importance, block) < lost(in, importance, plain))) memcpy(block, plain, sizeof plain);
}

static const st_value_block q6_k = {q6_k_decode, q6_k_encode, 1, {208}, q6_k_parts, false, q6_k_fit};
const st_format_ops st_ops_q6_k = ST_VALUE_OPS(&q6_k);
