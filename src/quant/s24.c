// 2:4 sparse weights in blocks of G = 32, 64 or 128 that share a scale: G / 16 words of values, G / 32 words of
// metadata, and the scale in half precision. w = code * d, codes being integers from -8 to 7 or E2M1 floats.
#include "quant/s24.h"

#include "base/bytes.h"
#include "quant/fit.h"
#include "quant/rows.h"

#include <math.h>

const int8_t st_int4_values[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

// ---- codes --------------------------------------------------------------------------------------------------------

unsigned st_s24_choose(const float m[4]) {
  unsigned first = 0, second;
  for (unsigned i = 1; i < 4; i++) {
    if (m[i] > m[first]) first = i;
  }
  second = first == 0;
  for (unsigned i = second + 1; i < 4; i++) {
    if (i != first && m[i] > m[second]) second = i;
  }
  return first < second ? second << 2 | first : first << 2 | second;
}

static float magnitude(st_s24_kind kind, unsigned code) {
  return kind == ST_S24_FP4 ? (float)(code & 7) : fabsf((float)st_int4_values[code]);
}

// Four codes by a nibble of metadata, at block i of 8.
static void store_kept(const uint8_t codes[4], unsigned nibble, int i, uint32_t values[2], uint32_t *metadata) {
  values[i / 4] |= (uint32_t)(codes[nibble & 3] | codes[nibble >> 2] << 4) << i % 4 * 8;
  *metadata |= (uint32_t)nibble << 4 * i;
}

void st_s24_prune(st_s24_kind kind, const uint8_t codes[ST_S24_RUN], uint32_t values[2], uint32_t *metadata) {
  values[0] = values[1] = *metadata = 0;
  for (int i = 0; i < ST_S24_RUN / 4; i++, codes += 4) {
    float m[4];
    for (int j = 0; j < 4; j++) m[j] = magnitude(kind, codes[j]);
    store_kept(codes, st_s24_choose(m), i, values, metadata);
  }
}

void st_s24_unpack(const uint32_t values[2], uint32_t metadata, uint8_t codes[ST_S24_RUN]) {
  memset(codes, 0, ST_S24_RUN);
  for (int i = 0; i < ST_S24_RUN / 4; i++, codes += 4) {
    uint32_t pair = values[i / 4] >> i % 4 * 8, nibble = metadata >> 4 * i;
    codes[nibble & 3] = pair & 15;
    codes[nibble >> 2 & 3] = pair >> 4 & 15;
  }
}

int st_s24_invalid(uint32_t metadata) {
  for (int i = 0; i < ST_S24_RUN / 4; i++) {
    if ((metadata >> 4 * i & 3) >= (metadata >> (4 * i + 2) & 3)) return i;
  }
  return -1;
}

// ---- blocks -------------------------------------------------------------------------------------------------------

static uint32_t metadata_at(const st_format *f) {
  return f->block / 4;
}

static uint32_t scale_at(const st_format *f) {
  return f->block / 4 + f->block / 8;
}

static st_s24_kind kind_of(const st_format *f) {
  return f->ops->halved ? ST_S24_FP4 : ST_S24_INT4;
}

static void s24_parts(const st_format *f, const uint8_t *block, st_block_parts *out) {
  for (uint32_t run = 0; run < f->block / ST_S24_RUN; run++) {
    uint32_t values[2] = {st_load_u32(block + 8 * run), st_load_u32(block + 8 * run + 4)};
    st_s24_unpack(values, st_load_u32(block + metadata_at(f) + 4 * run), out->codes + ST_S24_RUN * run);
  }
}

static int64_t s24_invalid(const st_format *f, const uint8_t *block) {
  for (uint32_t at = metadata_at(f); at < scale_at(f); at += 4) {
    int bad = st_s24_invalid(st_load_u32(block + at));
    if (bad >= 0) return at + bad / 2;
  }
  return -1;
}

static void s24_decode(const st_format *f, st_shape shape, const st_strip *strip, const void *data, float *out) {
  const uint8_t *block = data;
  const int8_t *values = kind_of(f) == ST_S24_FP4 ? st_e2m1_doubled : st_int4_values;
  st_block_parts parts;
  for (uint64_t n = shape.columns / f->block * strip->count; n; n--, block += f->block_bytes) {
    float d = st_load_f16(block + scale_at(f));
    if (f->ops->halved) d *= 0.5f;
    s24_parts(f, block, &parts);
    for (uint32_t i = 0; i < f->block; i++) *out++ = (float)values[parts.codes[i]] * d;
  }
}

void st_s24_store(const st_format *f, float d, const uint8_t *codes, uint8_t *block) {
  for (uint32_t run = 0; run < f->block / ST_S24_RUN; run++) {
    uint32_t values[2], metadata;
    st_s24_prune(kind_of(f), codes + ST_S24_RUN * run, values, &metadata);
    st_store_u32(block + 8 * run, values[0]);
    st_store_u32(block + 8 * run + 4, values[1]);
    st_store_u32(block + metadata_at(f) + 4 * run, metadata);
  }
  st_store_f16(block + scale_at(f), d);
}

// ---- from floats --------------------------------------------------------------------------------------------------

enum { MOST = 128 };

// The kept weights of a block, their importances, and where they are.
typedef struct {
  float x[MOST / 2], w[MOST / 2];
  uint32_t at[MOST / 2];
} kept_block;

static void keep_largest(const st_format *f, const float *in, const float *importance, kept_block *k) {
  for (uint32_t i = 0; i < f->block / 4; i++, in += 4) {
    float m[4];
    for (int j = 0; j < 4; j++) m[j] = importance ? in[j] * in[j] * importance[4 * i + (uint32_t)j] : fabsf(in[j]);
    unsigned nibble = st_s24_choose(m), at[2] = {nibble & 3, nibble >> 2};
    for (uint32_t j = 0; j < 2; j++) {
      k->x[2 * i + j] = in[at[j]];
      k->at[2 * i + j] = 4 * i + at[j];
      k->w[2 * i + j] = importance ? importance[4 * i + at[j]] : 1;
    }
  }
}

static unsigned nearest_fp4(float x) {
  unsigned best = 0;
  for (unsigned c = 1; c < 8; c++) {
    if (fabsf(2 * fabsf(x) - (float)st_e2m1_doubled[c]) < fabsf(2 * fabsf(x) - (float)st_e2m1_doubled[best])) best = c;
  }
  return x < 0 && best ? best + 8 : best;
}

static float lost_fp4(const kept_block *k, uint32_t n, float d, float *refined) {
  float lost = 0, xv = 0, vv = 0, inverse = d > 0 ? 1 / d : 0;
  for (uint32_t i = 0; i < n; i++) {
    float v = 0.5f * (float)st_e2m1_doubled[nearest_fp4(k->x[i] * inverse)], miss = k->x[i] - v * d;
    lost += k->w[i] * miss * miss, xv += k->w[i] * k->x[i] * v, vv += k->w[i] * v * v;
  }
  *refined = vv > 0 ? xv / vv : d;
  return lost;
}

static float fit_fp4(const kept_block *k, uint32_t n) {
  enum { STEPS = 18 };
  float most = 0, best = 0, least = INFINITY;
  for (uint32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(k->x[i]));
  for (int step = 0; step <= STEPS && most > 0; step++) {
    float d = most / 6 * (1.5f - 0.05f * (float)step), next;
    for (int turn = 0; turn < 2; turn++, d = next) {
      float half = st_f32_from_f16(st_f16_from_f32(d)), lost = lost_fp4(k, n, half, &next);
      if (lost < least && isfinite(half)) least = lost, best = half;
    }
  }
  return best;
}

static float scale_of(const st_format *f, const kept_block *k) {
  uint32_t n = f->block / 2;
  return kind_of(f) == ST_S24_FP4 ? fit_fp4(k, n) : st_fit_scale(k->x, k->w, (int)n, -8, 7);
}

float st_s24_scale(const st_format *f, const float *weights, const float *importance) {
  kept_block k;
  keep_largest(f, weights, importance, &k);
  return scale_of(f, &k);
}

uint8_t st_s24_code(const st_format *f, float weight, float d, float *value) {
  float x = d != 0 ? weight / d : 0;
  int8_t q;
  if (kind_of(f) == ST_S24_FP4) {
    unsigned code = nearest_fp4(x);
    *value = 0.5f * (float)st_e2m1_doubled[code] * d;
    return (uint8_t)code;
  }
  st_fit_codes(&x, NULL, 1, 1, -8, 7, &q);
  *value = (float)q * d;
  return (uint8_t)((unsigned)q & 15);
}

static void fit_block(const st_format *f, const float *in, const float *importance, uint8_t *block) {
  kept_block k;
  uint8_t codes[MOST] = {0};
  float value;
  keep_largest(f, in, importance, &k);
  float d = scale_of(f, &k);
  for (uint32_t i = 0; i < f->block / 2; i++) codes[k.at[i]] = st_s24_code(f, k.x[i], d, &value);
  st_s24_store(f, d, codes, block);
}

static void s24_encode(const st_format *f, st_shape shape, const st_strip *strip, const float *in, void *data) {
  uint8_t *block = data;
  for (uint64_t n = shape.columns / f->block * strip->count; n; n--, block += f->block_bytes, in += f->block) {
    fit_block(f, in, NULL, block);
  }
}

#define S24(kind, block, as, halves)                                                                                   \
  static void kind##_##block##_fit(const float *in, const float *importance, uint8_t *bytes) {                         \
    fit_block(st_format_get(ST_S24_##kind##_##block), in, importance, bytes);                                          \
  }                                                                                                                    \
  static const st_value_block kind##_##block = {                                                                       \
      .n_scales = 1, .scale_at = {(block) / 4 + (block) / 8}, .fit = kind##_##block##_fit};                            \
  const st_format_ops st_ops_s24_##kind##_##block = {.value = &kind##_##block,                                         \
                                                     .decode = s24_decode,                                             \
                                                     .encode = s24_encode,                                             \
                                                     .parts = s24_parts,                                               \
                                                     .invalid = s24_invalid,                                           \
                                                     .packed_as = (as),                                                \
                                                     .sparse = true,                                                   \
                                                     .halved = (halves)};
S24(I4, 32, ST_S24_I4_128, false)
S24(I4, 64, ST_S24_I4_128, false)
S24(I4, 128, 0, false)
S24(F4, 32, ST_S24_F4_128, true)
S24(F4, 64, ST_S24_F4_128, true)
S24(F4, 128, 0, true)
