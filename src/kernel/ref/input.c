// Preparing the input of products: RMSNorm, int8 codes by token or by block, and their interleaving in tiles.
#include "kernel/ref/ref.h"

#include "kernel/layout.h"
#include "kernel/numbers.h"

#include <math.h>
#include <string.h>

size_t st_ref_input_bytes(st_activation kind, size_t tokens, size_t columns) {
  st_view v;
  return st_view_of(kind, tokens, columns, NULL, &v);
}

// max over |x|, passing over NaN.
static float absolute_maximum(const float *x, const float *norm, float r, size_t n) {
  float m = 0;
  for (size_t i = 0; i < n; i++) {
    float a = fabsf(norm ? x[i] * r * norm[i] : x[i]);
    m = a > m ? a : m;
  }
  return m;
}

// Round to nearest, ties to even, by an addition after which the last place is 1; |v| is far below 2^22 here.
static int8_t code_of(float v) {
  if (!(v >= -127.5f && v <= 127.5f)) return 0; // NaN, from a token with infinities
  return (int8_t)((v + ST_ROUNDER) - ST_ROUNDER);
}

float st_ref_quantize_token(const float *x, size_t n, int8_t *codes, int32_t *sum) {
  float s = st_token_scale(absolute_maximum(x, NULL, 1, n));
  *sum = 0;
  for (size_t i = 0; i < n; i++) *sum += codes[i] = code_of(x[i] * s);
  return s;
}

// A token's place in a tile: `lane` of `count` tokens, which starts at token `first`.
typedef struct {
  size_t first, lane, count;
} place;

static void prepare_floats(const st_view *v, place p, const float *x, const float *norm, float r, size_t n) {
  float *out = v->values + p.first * v->padded + p.lane;
  for (size_t i = 0; i < n; i++) out[i * p.count] = norm ? x[i] * r * norm[i] : x[i];
  for (size_t i = n; i < v->padded; i++) out[i * p.count] = 0;
}

// Codes of block b, all with multiplier s; returns their sum.
static int32_t prepare_codes(const st_view *v, place p, size_t b, const float *x, const float *norm, float r, float s,
                             size_t n) {
  int8_t *out = v->codes + p.first * v->padded + 4 * p.lane;
  int32_t sum = 0;
  for (size_t i = b * ST_STEP; i < (b + 1) * ST_STEP; i++) {
    int8_t code = i < n ? code_of((norm ? x[i] * r * norm[i] : x[i]) * s) : 0;
    out[i / 4 * 4 * p.count + i % 4] = code;
    sum += code;
  }
  return sum;
}

static void prepare_int8(const st_input *input, const st_view *v, place p, const float *x, const float *norm, float r) {
  size_t n = input->columns, token = p.first + p.lane;
  bool by_token = input->kind == ST_ACT_INT8_TOKEN;
  float s = by_token ? st_token_scale(absolute_maximum(x, norm, r, n)) : 1;
  int32_t sum = 0;
  for (size_t b = 0; b < v->blocks; b++) {
    size_t first = b * ST_STEP, part = n - first < ST_STEP ? n - first : ST_STEP;
    size_t at = p.first * v->blocks + b * p.count + p.lane;
    float d = 0;
    if (!by_token) {
      float m = absolute_maximum(x + first, norm ? norm + first : NULL, r, part);
      d = m < ST_BLOCK_LEAST ? 0 : m / 127.0f;
      s = m < ST_BLOCK_LEAST ? 0 : 127.0f / m;
    }
    int32_t block_sum = prepare_codes(v, p, b, x, norm, r, s, n);
    v->block_sum[at] = block_sum;
    sum += block_sum;
    if (!by_token) {
      v->block_scale[at] = d;
      v->block_product[at] = d * (float)block_sum;
    }
  }
  v->scale[token] = s;
  v->sum[token] = sum;
}

void st_ref_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                    size_t last) {
  st_view v = st_view_input(input);
  for (size_t t = first; t < last; t++) {
    place p = {.first = t - t % ST_REF_TILE, .lane = t % ST_REF_TILE};
    p.count = st_tile_tokens(input->tokens, p.first, ST_REF_TILE);
    const float *row = x + t * stride;
    float r = norm ? st_ref_inverse_rms(row, input->columns, eps) : 1;
    if (input->kind == ST_ACT_F32)
      prepare_floats(&v, p, row, norm, r, input->columns);
    else
      prepare_int8(input, &v, p, row, norm, r);
  }
}
