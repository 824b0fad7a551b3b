// Preparing the input of products in 16 lanes: what ref/input.c does, 16 values at a time.
#ifndef SETUN_KERNEL_LANES_INPUT_H
#define SETUN_KERNEL_LANES_INPUT_H

#include "kernel/lanes/misc.h"

// Where values come from: x, or x * r * norm.
typedef struct {
  const float *x, *norm;
  float r;
} lanes_source;

// Values [i, i + 16), zeros from n on.
LANES_INLINE vf lanes_values(const lanes_source *s, size_t i, size_t n) {
  if (i >= n) return vf_set(0);
  bool whole = i + 16 <= n;
  vf v = whole ? vf_load(s->x + i) : vf_load_n(s->x + i, n - i);
  if (!s->norm) return v;
  return vf_mul(vf_mul(v, vf_set(s->r)), whole ? vf_load(s->norm + i) : vf_load_n(s->norm + i, n - i));
}

LANES_INLINE float lanes_maximum(const lanes_source *s, size_t first, size_t last, size_t n) {
  vf m = vf_set(0);
  for (size_t i = first; i < last; i += 16) m = vf_max(vf_abs(lanes_values(s, i, n)), m);
  return vf_most(m);
}

static float lanes_quantize_token(const float *x, size_t n, int8_t *codes, int32_t *sum) {
  lanes_source source = {.x = x};
  float maximum = lanes_maximum(&source, 0, n, n);
  float s = st_token_scale(maximum);
  vi total = vi_zero();
  for (size_t i = 0; i < n; i += 16) {
    vi v = vf_round(vf_mul(lanes_values(&source, i, n), vf_set(s)));
    total = vi_add(total, v);
    if (i + 16 <= n) {
      vi_store_bytes(codes + i, v);
    } else {
      int8_t part[16];
      vi_store_bytes(part, v);
      __builtin_memcpy(codes + i, part, n - i);
    }
  }
  *sum = vi_sum(total);
  return s;
}

// 16 codes as 4 words, `count` words apart.
LANES_INLINE void lanes_scatter_codes(int8_t *out, size_t count, vi v) {
  if (count == 1) {
    vi_store_bytes(out, v);
    return;
  }
  int8_t part[16];
  vi_store_bytes(part, v);
  for (size_t i = 0; i < 4; i++) __builtin_memcpy(out + i * 4 * count, part + 4 * i, 4);
}

// A token's place in a tile: `lane` of `count` tokens, which starts at token `first`.
typedef struct {
  size_t first, lane, count;
} lanes_place;

static void lanes_prepare_floats(const st_view *v, lanes_place p, const lanes_source *s, size_t n) {
  float *out = v->values + p.first * v->padded + p.lane;
  for (size_t i = 0; i < v->padded; i += 16) {
    vf values = lanes_values(s, i, n);
    if (p.count == 1) {
      vf_store(out + i, values);
      continue;
    }
    float part[16];
    vf_store(part, values);
    for (size_t j = 0; j < 16; j++) out[(i + j) * p.count] = part[j];
  }
}

static void lanes_prepare_token(const st_view *v, lanes_place p, const lanes_source *source, size_t n) {
  int8_t *out = v->codes + p.first * v->padded + 4 * p.lane;
  float maximum = lanes_maximum(source, 0, n, n);
  float s = st_token_scale(maximum);
  vi total = vi_zero();
  for (size_t b = 0; b < v->blocks; b++) {
    vi low = vf_round(vf_mul(lanes_values(source, b * ST_STEP, n), vf_set(s)));
    vi high = vf_round(vf_mul(lanes_values(source, b * ST_STEP + 16, n), vf_set(s)));
    vi both = vi_add(low, high);
    lanes_scatter_codes(out + b * ST_STEP * p.count, p.count, low);
    lanes_scatter_codes(out + (b * ST_STEP + 16) * p.count, p.count, high);
    v->block_sum[p.first * v->blocks + b * p.count + p.lane] = vi_sum(both);
    total = vi_add(total, both);
  }
  v->scale[p.first + p.lane] = s;
  v->sum[p.first + p.lane] = vi_sum(total);
}

// What rounding `scaled` to `codes` left, in steps of the second plane.
LANES_INLINE vi lanes_rest(vf scaled, vi codes) {
  return vf_round(vf_mul(vf_sub(scaled, vi_to_floats(codes)), vf_set(ST_REST_STEPS)));
}

// Sums of the codes of an entry of the second plane, and of the first 16.
typedef struct {
  int32_t all, half;
} rest_sums;

// Writes an entry of a token's second plane.
static rest_sums lanes_append_rest(const st_view *v, size_t token, size_t entry, size_t block, float scale, vi low,
                                   vi high) {
  size_t at = token * v->blocks + entry;
  int8_t *out = v->rest + token * v->padded + entry * ST_STEP;
  rest_sums sums = {.all = vi_sum(vi_add(low, high)), .half = vi_sum(low)};
  vi_store_bytes(out, low);
  vi_store_bytes(out + 16, high);
  v->rest_block[at] = (uint32_t)block;
  v->rest_scale[at] = scale;
  v->rest_sum[at] = sums.all;
  v->rest_half[at] = sums.half;
  return sums;
}

static void lanes_prepare_block(const st_view *v, lanes_place p, const lanes_source *source, size_t n) {
  size_t start = p.first * v->padded + 4 * p.lane, token = p.first + p.lane, entries = 0;
  for (size_t b = 0; b < v->blocks; b++) {
    size_t at = p.first * v->blocks + b * p.count + p.lane, to = start + b * ST_STEP * p.count;
    vf x = lanes_values(source, b * ST_STEP, n), y = lanes_values(source, b * ST_STEP + 16, n);
    float m = vf_most(vf_max(vf_abs(y), vf_max(vf_abs(x), vf_set(0))));
    float d = m < ST_BLOCK_LEAST ? 0 : m / 127.0f, s = m < ST_BLOCK_LEAST ? 0 : 127.0f / m;
    x = vf_mul(x, vf_set(s)), y = vf_mul(y, vf_set(s));
    vi low = vf_round(x), high = vf_round(y);
    lanes_scatter_codes(v->codes + to, p.count, low);
    lanes_scatter_codes(v->codes + to + 16 * p.count, p.count, high);
    // Squares of codes are small integers: exact in float32, in any order.
    vf f = vi_to_floats(low), g = vi_to_floats(high);
    float finer = vf_sum(vf_add(vf_mul(f, f), vf_mul(g, g))) < ST_REST_SQUARES ? d / ST_REST_STEPS : 0;
    int32_t half = vi_sum(low), sum = half + vi_sum(high);
    rest_sums rest = {0};
    if (finer != 0) rest = lanes_append_rest(v, token, entries++, b, finer, lanes_rest(x, low), lanes_rest(y, high));
    v->block_sum[at] = sum;
    v->block_scale[at] = d;
    v->block_product[at] = st_product_of(d, sum, finer, rest.all);
    v->half_sum[at] = half;
    at = 2 * (at - p.lane) + p.lane;
    v->half_product[at] = st_product_of(d, half, finer, rest.half);
    v->half_product[at + p.count] = st_product_of(d, sum - half, finer, rest.all - rest.half);
  }
  v->rest_count[token] = (uint32_t)entries;
}

static void lanes_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps,
                          size_t first, size_t last) {
  st_view v = st_view_input(input);
  size_t n = input->columns;
  for (size_t t = first; t < last; t++) {
    lanes_place p = {.first = t - t % LANES_TILE, .lane = t % LANES_TILE};
    p.count = st_tile_tokens(input->tokens, p.first, LANES_TILE);
    lanes_source s = {.x = x + t * stride, .norm = norm};
    if (norm) s.r = lanes_inverse_rms(s.x, n, eps);
    if (input->kind == ST_ACT_F32)
      lanes_prepare_floats(&v, p, &s, n);
    else if (input->kind == ST_ACT_INT8_TOKEN)
      lanes_prepare_token(&v, p, &s, n);
    else
      lanes_prepare_block(&v, p, &s, n);
  }
}

#endif
