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
  if (!(v >= -127.5f && v <= 127.5f)) return 0; // NaN, in a token with infinities
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

// Value i, times r and its norm where there is one, times s: what is rounded to a code. Zero past the end.
static float scaled(const float *x, const float *norm, float r, float s, size_t i, size_t n) {
  return i < n ? (norm ? x[i] * r * norm[i] : x[i]) * s : 0;
}

// Codes of block b, all with multiplier s; returns their sum, and that of the first 16.
static int32_t prepare_codes(const st_view *v, place p, size_t b, const float *x, const float *norm, float r, float s,
                             size_t n, int32_t *half) {
  int8_t *out = v->codes + p.first * v->padded + 4 * p.lane;
  int32_t sum = 0;
  *half = 0;
  for (size_t i = b * ST_STEP; i < (b + 1) * ST_STEP; i++) {
    int8_t code = code_of(scaled(x, norm, r, s, i, n));
    out[i / 4 * 4 * p.count + i % 4] = code;
    sum += code;
    if (i % ST_STEP == 15) *half = sum;
  }
  return sum;
}

// Appends the second plane of block b, with its scale; returns the sum of its codes, and that of the first 16.
static int32_t prepare_rest(const st_view *v, size_t token, size_t b, float scale, const float *x, const float *norm,
                            float r, float s, size_t n, int32_t *half) {
  size_t entry = v->rest_count[token]++, at = token * v->blocks + entry;
  int8_t *out = v->rest + token * v->padded + entry * ST_STEP;
  int32_t sum = 0;
  for (size_t i = 0; i < ST_STEP; i++) {
    float value = scaled(x, norm, r, s, b * ST_STEP + i, n);
    sum += out[i] = code_of((value - (float)code_of(value)) * ST_REST_STEPS);
    if (i == 15) *half = sum;
  }
  v->rest_place[at] = (uint32_t)b;
  v->rest_scale[at] = scale;
  v->rest_sum[at] = sum;
  v->rest_half[0][at] = *half;
  v->rest_half[1][at] = sum - *half;
  return sum;
}

static void prepare_token(const st_view *v, place p, const float *x, const float *norm, float r, size_t n) {
  float s = st_token_scale(absolute_maximum(x, norm, r, n));
  int32_t total = 0, half;
  for (size_t b = 0; b < v->blocks; b++) {
    int32_t sum = prepare_codes(v, p, b, x, norm, r, s, n, &half);
    v->block_sum[p.first * v->blocks + b * p.count + p.lane] = sum;
    total += sum;
  }
  v->scale[p.first + p.lane] = s;
  v->sum[p.first + p.lane] = total;
}

static float block_maximum(const float *x, const float *norm, float r, size_t b, size_t n) {
  size_t first = b * ST_STEP, part = n - first < ST_STEP ? n - first : ST_STEP;
  return absolute_maximum(x + first, norm ? norm + first : NULL, r, part);
}

// The largest value that a block may have without a second plane.
static float rest_limit(const st_view *v, const float *x, const float *norm, float r, size_t n) {
  float sum = 0;
  for (size_t b = 0; b < v->blocks; b++) sum += block_maximum(x, norm, r, b, n);
  return sum * (ST_REST_ABOVE / (float)v->blocks);
}

static void prepare_block(const st_view *v, place p, const float *x, const float *norm, float r, size_t n) {
  float limit = rest_limit(v, x, norm, r, n);
  v->rest_count[p.first + p.lane] = 0;
  for (size_t b = 0; b < v->blocks; b++) {
    size_t at = p.first * v->blocks + b * p.count + p.lane;
    float m = block_maximum(x, norm, r, b, n);
    float d = m < ST_BLOCK_LEAST ? 0 : m / 127.0f, s = m < ST_BLOCK_LEAST ? 0 : 127.0f / m;
    int32_t half, rest_half = 0, sum = prepare_codes(v, p, b, x, norm, r, s, n, &half);
    float finer = m > limit ? d / ST_REST_STEPS : 0;
    int32_t rest_sum = finer != 0 ? prepare_rest(v, p.first + p.lane, b, finer, x, norm, r, s, n, &rest_half) : 0;
    v->block_sum[at] = sum;
    v->block_scale[at] = d;
    v->block_product[at] = st_product_of(d, sum, finer, rest_sum);
    v->half_sum[0][at] = half;
    v->half_sum[1][at] = sum - half;
    at = 2 * (at - p.lane) + p.lane;
    v->half_product[at] = st_product_of(d, half, finer, rest_half);
    v->half_product[at + p.count] = st_product_of(d, sum - half, finer, rest_sum - rest_half);
  }
}

size_t st_ref_prepare_unit(st_activation kind, size_t tokens) {
  return (void)kind, (void)tokens, 1;
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
    else if (input->kind == ST_ACT_INT8_TOKEN)
      prepare_token(&v, p, row, norm, r, input->columns);
    else
      prepare_block(&v, p, row, norm, r, input->columns);
  }
}
