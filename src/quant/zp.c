// Integers with a zero point, as GPTQ and compressed-tensors have them: codes of 2, 3, 4 or 8 bits in blocks of 32, 64
// or 128 weights. f16 d, int8 z, then the codes as one stream of bits, the low ones first; w = (code - z) * d. Codes of
// 8 bits are signed.
#include "quant/fit.h"
#include "quant/rows.h"

#include <math.h>

enum { HEAD = 3, MOST = 128 };

unsigned st_zp_bits(const st_format *f) {
  return (f->block_bytes - HEAD) * 8 / f->block;
}

// Code i of a stream; the byte after the stream is not accessed.
static unsigned code_at(const uint8_t *stream, unsigned bits, unsigned i) {
  unsigned at = i * bits, shift = at % 8, value = stream[at / 8] >> shift;
  if (shift + bits > 8) value |= (unsigned)stream[at / 8 + 1] << (8 - shift);
  return value & ((1u << bits) - 1);
}

static void put_code(uint8_t *stream, unsigned bits, unsigned i, unsigned code) {
  unsigned at = i * bits, shift = at % 8;
  stream[at / 8] = (uint8_t)(stream[at / 8] | code << shift);
  if (shift + bits > 8) stream[at / 8 + 1] = (uint8_t)(stream[at / 8 + 1] | code >> (8 - shift));
}

void st_zp_store(const st_format *f, uint16_t d, int zero, const uint8_t *codes, uint8_t *block) {
  unsigned bits = st_zp_bits(f), sign = bits == 8 ? 128 : 0;
  st_store_u16(block, d);
  block[2] = (uint8_t)(zero - (int)sign);
  memset(block + HEAD, 0, f->block_bytes - HEAD);
  for (unsigned i = 0; i < f->block; i++) put_code(block + HEAD, bits, i, codes[i] ^ sign);
}

const st_format *st_zp_format(unsigned bits, uint64_t group) {
  const st_format *best = NULL;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!f->ops->zero_points || st_zp_bits(f) != bits || group % f->block) continue;
    if (!best || f->block > best->block) best = f;
  }
  return best;
}

static void zp_decode(const st_format *f, st_shape shape, const st_strip *strip, const void *data, float *out) {
  const uint8_t *block = data;
  unsigned bits = st_zp_bits(f);
  for (uint64_t n = shape.columns / f->block * strip->count; n; n--, block += f->block_bytes, out += f->block) {
    float d = st_load_f16(block), m = (float)-(int8_t)block[2] * d; // all exact, so the sum is d times the difference
    for (unsigned i = 0; i < f->block; i++) {
      unsigned code = code_at(block + HEAD, bits, i);
      out[i] = (float)(bits == 8 ? (int8_t)code : (int)code) * d + m;
    }
  }
}

// The nearest codes between the smallest and the largest weight, zero among them.
static void encode_block(const st_format *f, const float *in, uint8_t *block) {
  uint8_t codes[MOST];
  int most = (1 << st_zp_bits(f)) - 1;
  float low, high;
  st_range_of(in, f->block, &low, &high);
  low = low < 0 ? low : 0, high = high > 0 ? high : 0;
  uint16_t half = st_f16_from_f32((high - low) / (float)most);
  float d = st_f32_from_f16(half), inverse = d > 0 ? 1 / d : 0;
  int zero = st_clamp_int(-low * inverse + 0.5f, 0, most);
  for (unsigned i = 0; i < f->block; i++) {
    codes[i] = (uint8_t)st_clamp_int(rintf(in[i] * inverse) + (float)zero, 0, most);
  }
  st_zp_store(f, half, zero, codes, block);
}

static void zp_encode(const st_format *f, st_shape shape, const st_strip *strip, const float *in, void *data) {
  uint8_t *block = data;
  for (uint64_t n = shape.columns / f->block * strip->count; n; n--, block += f->block_bytes, in += f->block) {
    encode_block(f, in, block);
  }
}

static void fit_block(const st_format *f, const float *in, const float *importance, uint8_t *block) {
  uint8_t codes[MOST];
  int most = (1 << st_zp_bits(f)) - 1, zero;
  uint16_t half = st_fit_zero_point(in, importance, (int)f->block, most, 0, &zero);
  float d = st_f32_from_f16(half), inverse = d != 0 ? 1 / d : 0;
  for (unsigned i = 0; i < f->block; i++) {
    codes[i] = (uint8_t)st_clamp_int(rintf(in[i] * inverse) + (float)zero, 0, most);
  }
  st_zp_store(f, half, zero, codes, block);
}

#define ZP(bits, block, as)                                                                                            \
  static void zp##bits##_##block##_parts(const uint8_t *bytes, st_block_parts *out) {                                  \
    out->minimums[0] = bytes[2];                                                                                       \
    for (unsigned i = 0; i < (block); i++) out->codes[i] = (uint8_t)code_at(bytes + HEAD, bits, i);                    \
  }                                                                                                                    \
  static void zp##bits##_##block##_fit(const float *in, const float *importance, uint8_t *bytes) {                     \
    fit_block(st_format_get(ST_ZP##bits##_##block), in, importance, bytes);                                            \
  }                                                                                                                    \
  static const st_value_block zp##bits##_##block = {                                                                   \
      NULL, NULL, 1, {0}, zp##bits##_##block##_parts, false, zp##bits##_##block##_fit};                                \
  const st_format_ops st_ops_zp##bits##_##block = {                                                                    \
      .value = &zp##bits##_##block, .decode = zp_decode, .encode = zp_encode, .packed_as = (as), .zero_points = true};
ZP(2, 32, ST_ZP2_128)
ZP(2, 64, ST_ZP2_128)
ZP(2, 128, 0)
ZP(3, 32, ST_ZP3_128)
ZP(3, 64, ST_ZP3_128)
ZP(3, 128, 0)
ZP(4, 32, ST_ZP4_128)
ZP(4, 64, ST_ZP4_128)
ZP(4, 128, 0)
ZP(8, 32, ST_ZP8_128)
ZP(8, 64, ST_ZP8_128)
ZP(8, 128, 0)
