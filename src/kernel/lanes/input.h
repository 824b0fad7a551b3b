// Preparing the input of products in 16 lanes: what ref/input.c does, 16 values at a time.
#ifndef SETUN_KERNEL_LANES_INPUT_H
#define SETUN_KERNEL_LANES_INPUT_H

#include "kernel/lanes/misc.h"

// Where values come from: x, or x * r * norm.
typedef struct {
  const float *x, *norm;
  float r;
} lanes_source;

// Values [i, i + 16).
LANES_INLINE vf lanes_whole_values(const lanes_source *s, size_t i) {
  vf v = vf_load(s->x + i);
  return s->norm ? vf_mul(vf_mul(v, vf_set(s->r)), vf_load(s->norm + i)) : v;
}

// The same, zeros from n on.
LANES_INLINE vf lanes_values(const lanes_source *s, size_t i, size_t n) {
  if (i >= n) return vf_set(0);
  if (i + 16 <= n) return lanes_whole_values(s, i);
  vf v = vf_load_n(s->x + i, n - i);
  return s->norm ? vf_mul(vf_mul(v, vf_set(s->r)), vf_load_n(s->norm + i, n - i)) : v;
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

// The remainders of rounding `scaled` to `codes`, in steps of the second plane.
LANES_INLINE vi lanes_rest(vf scaled, vi codes) {
  return vf_round(vf_mul(vf_sub(scaled, vi_to_floats(codes)), vf_set(ST_REST_STEPS)));
}

// A tile whose tokens are prepared together: its first token, and their number.
typedef struct {
  const st_view *v;
  size_t first, tokens, n;
  size_t input_tokens;
  lanes_source sources[LANES_TILE];
} lanes_tokens;

enum { LANES_ROWS = 16, LANES_FULL = LANES_ROWS / LANES_TILE * LANES_TILE };

// The rows and tokens there are, and whether all their values are inside the input: known to the compiler for
// most rows of an input.
typedef struct {
  size_t tokens, rows;
  bool whole;
} lanes_shape;

// Up to 16 blocks of a tile's tokens, one a lane: row r is of token r % tokens, and of block `block` + r / tokens;
// lanes past a shape's rows are undefined.
typedef struct {
  size_t block;
  _Alignas(64) float values[LANES_ROWS][ST_STEP];
  _Alignas(64) int8_t codes[LANES_ROWS][ST_STEP];
  float factor[LANES_ROWS]; // from values to codes
  float finer[LANES_ROWS];  // scale of the second plane, 0 where there is none
  float limit[LANES_ROWS];  // of a block without a second plane
} lanes_rows;

LANES_INLINE void lanes_row_values(const lanes_tokens *t, lanes_shape k, lanes_rows *g) {
  for (size_t token = 0; token < k.tokens; token++) {
    lanes_source s = t->sources[token];
    size_t i = g->block * ST_STEP;
    for (size_t r = token; r < k.rows; r += k.tokens, i += ST_STEP) {
      vf_store(g->values[r], k.whole ? lanes_whole_values(&s, i) : lanes_values(&s, i, t->n));
      vf_store(g->values[r] + 16, k.whole ? lanes_whole_values(&s, i + 16) : lanes_values(&s, i + 16, t->n));
    }
  }
}

// The place of the rows of g in a block array.
LANES_INLINE size_t lanes_rows_at(const lanes_tokens *t, lanes_shape k, const lanes_rows *g) {
  return t->first * t->v->blocks + g->block * k.tokens;
}

// Stores the rows' lanes, floats or the bits of integers, in a block array.
LANES_INLINE void lanes_store_rows(void *array, const lanes_tokens *t, lanes_shape k, const lanes_rows *g, vf v) {
  float part[LANES_ROWS];
  vf_store(part, v);
  __builtin_memcpy((float *)array + lanes_rows_at(t, k, g), part, 4 * k.rows);
}

// The largest values of all rows, stored for now where the scales will be.
LANES_INLINE void lanes_row_maximums(const lanes_tokens *t, lanes_shape k, lanes_rows *g) {
  vf most[LANES_ROWS];
  lanes_row_values(t, k, g);
  for (size_t r = 0; r < LANES_ROWS; r++) {
    most[r] = vf_max(vf_abs(vf_load(g->values[r])), vf_set(0));
    most[r] = vf_max(vf_abs(vf_load(g->values[r] + 16)), most[r]);
  }
  lanes_store_rows(t->v->block_scale, t, k, g, vf_mosts(most));
}

LANES_INLINE void lanes_row_codes(lanes_rows *g) {
  for (size_t r = 0; r < LANES_ROWS; r++) {
    vf s = vf_set(g->factor[r]);
    vi low = vf_round(vf_mul(vf_load(g->values[r]), s));
    lanes_store_row(g->codes[r], low, vf_round(vf_mul(vf_load(g->values[r] + 16), s)));
  }
}

// Writes the entry of row r in its block's list, and adds it to the sum of the block's values.
static void lanes_append_rest(const lanes_tokens *t, const lanes_rows *g, size_t r) {
  const st_view *v = t->v;
  size_t lane = r % t->tokens, block = g->block + r / t->tokens, chunk = st_chunk_tokens(t->input_tokens, LANES_TILE);
  size_t first = t->first - t->first % chunk;
  st_rest_list list = st_rest_list_of(v, t->input_tokens, LANES_TILE, first, block);
  size_t entry = v->rest_count[list.count_at]++, at = list.at + entry;
  int8_t *out = v->rest + ST_STEP * (at - entry % list.width) + 4 * (entry % list.width);
  vf s = vf_set(g->factor[r]);
  vi low = lanes_rest(vf_mul(vf_load(g->values[r]), s), vi_bytes(g->codes[r]));
  vi high = lanes_rest(vf_mul(vf_load(g->values[r] + 16), s), vi_bytes(g->codes[r] + 16));
  int32_t rest_half = vi_sum(low), rest = vi_sum(vi_add(low, high));
  float finer = g->finer[r];
  lanes_scatter_codes(out, list.width, low);
  lanes_scatter_codes(out + 16 * list.width, list.width, high);
  v->rest_place[at] = (uint32_t)(t->first - first + lane);
  v->rest_scale[at] = finer;
  v->rest_sum[at] = rest;
  v->rest_half[0][at] = rest_half;
  v->rest_half[1][at] = rest - rest_half;
  at = t->first * v->blocks + block * t->tokens + lane;
  float d = v->block_scale[at], *halves = v->half_product + 2 * (at - lane) + lane;
  int32_t half = v->half_sum[0][at], last = v->half_sum[1][at], sum = half + last;
  v->block_product[at] = st_product_of(d, sum, finer, rest);
  halves[0] = st_product_of(d, half, finer, rest_half);
  halves[t->tokens] = st_product_of(d, last, finer, rest - rest_half);
}

LANES_INLINE void lanes_copy_words(float *to, const float *from, size_t n) {
  if (n == LANES_TILE)
    __builtin_memcpy(to, from, 4 * LANES_TILE);
  else
    for (size_t i = 0; i < n; i++) to[i] = from[i];
}

LANES_INLINE void lanes_store_halves(const lanes_tokens *t, lanes_shape k, const lanes_rows *g, vf low, vf high) {
  float *to = t->v->half_product + 2 * lanes_rows_at(t, k, g);
  float parts[2][LANES_ROWS];
  vf_store(parts[0], low), vf_store(parts[1], high);
  for (size_t r = 0; r < k.rows; r += k.tokens, to += 2 * k.tokens) {
    lanes_copy_words(to, parts[0] + r, k.tokens);
    lanes_copy_words(to + k.tokens, parts[1] + r, k.tokens);
  }
}

LANES_INLINE void lanes_store_codes(const lanes_tokens *t, lanes_shape k, const lanes_rows *g) {
  int8_t *out = t->v->codes + ST_STEP * lanes_rows_at(t, k, g);
  if (k.tokens == 1) {
    __builtin_memcpy(out, g->codes, ST_STEP * k.rows);
    return;
  }
  for (size_t r = 0; r < k.rows; r += k.tokens, out += ST_STEP * k.tokens) {
    if (k.tokens == LANES_TILE) {
      lanes_interleave(out, &g->codes[r]);
      continue;
    }
    for (size_t i = 0; i < k.tokens; i++) {
      for (size_t j = 0; j < ST_STEP / 4; j++) {
        __builtin_memcpy(out + 4 * (j * k.tokens + i), g->codes[r + i] + 4 * j, 4);
      }
    }
  }
}

// st_product_of, by lanes, without a second plane.
LANES_INLINE vf lanes_product_of(vf d, vi sum) {
  return vf_add(vf_mul(d, vi_to_floats(sum)), vf_set(0));
}

LANES_INLINE void lanes_prepare_rows(const lanes_tokens *t, lanes_shape k, lanes_rows *g) {
  const vf zero = vf_set(0), least = vf_set(ST_BLOCK_LEAST), top = vf_set(127);
  float maximums[LANES_ROWS] = {0};
  lanes_row_values(t, k, g);
  __builtin_memcpy(maximums, t->v->block_scale + lanes_rows_at(t, k, g), 4 * k.rows);
  vf m = vf_load(maximums), d = vf_choose(m, least, zero, vf_div(m, top));
  vf_store(g->factor, vf_choose(m, least, zero, vf_div(top, m)));
  lanes_row_codes(g);
  vi low, high;
  lanes_row_sums(g->codes, &low, &high);
  vf finer = vf_choose(vf_load(g->limit), m, vf_div(d, vf_set(ST_REST_STEPS)), zero);
  vf_store(g->finer, finer);
  lanes_store_codes(t, k, g);
  vi sum = vi_add(low, high);
  lanes_store_rows(t->v->block_sum, t, k, g, vi_as_floats(sum));
  lanes_store_rows(t->v->half_sum[0], t, k, g, vi_as_floats(low));
  lanes_store_rows(t->v->half_sum[1], t, k, g, vi_as_floats(high));
  lanes_store_rows(t->v->block_scale, t, k, g, d);
  lanes_store_rows(t->v->block_product, t, k, g, lanes_product_of(d, sum));
  lanes_store_halves(t, k, g, lanes_product_of(d, low), lanes_product_of(d, high));
  for (unsigned rest = vf_positive(finer) & ((1u << k.rows) - 1); rest; rest &= rest - 1) {
    lanes_append_rest(t, g, (size_t)__builtin_ctz(rest));
  }
}

// Calls fn for all rows of a tile's tokens.
LANES_INLINE void lanes_each_rows(const lanes_tokens *t, lanes_rows *g,
                                  void (*fn)(const lanes_tokens *, lanes_shape, lanes_rows *)) {
  size_t step = LANES_ROWS / t->tokens;
  for (g->block = 0; g->block < t->v->blocks; g->block += step) {
    size_t blocks = t->v->blocks - g->block < step ? t->v->blocks - g->block : step;
    bool whole = blocks == step && (g->block + step) * ST_STEP <= t->n;
    if (whole && t->tokens == LANES_TILE)
      fn(t, (lanes_shape){LANES_TILE, LANES_FULL, true}, g);
    else if (whole && t->tokens == 1)
      fn(t, (lanes_shape){1, LANES_ROWS, true}, g);
    else
      fn(t, (lanes_shape){t->tokens, blocks * t->tokens, false}, g);
  }
}

LANES_INLINE void lanes_token_rows(const lanes_tokens *t, lanes_shape k, lanes_rows *g) {
  vi low, high;
  lanes_row_values(t, k, g);
  lanes_row_codes(g);
  lanes_row_sums(g->codes, &low, &high);
  lanes_store_codes(t, k, g);
  lanes_store_rows(t->v->block_sum, t, k, g, vi_as_floats(vi_add(low, high)));
}

// One scale a token.
static void lanes_prepare_tokens(const lanes_tokens *t) {
  float *scales = t->v->scale + t->first;
  const int32_t *block_sums = t->v->block_sum + t->first * t->v->blocks;
  int32_t sums[LANES_TILE] = {0};
  lanes_rows g = {0};
  for (size_t i = 0; i < t->tokens; i++) scales[i] = st_token_scale(lanes_maximum(&t->sources[i], 0, t->n, t->n));
  for (size_t r = 0; r < LANES_ROWS; r++) g.factor[r] = scales[r % t->tokens];
  lanes_each_rows(t, &g, lanes_token_rows);
  for (size_t b = 0; b < t->v->blocks; b++, block_sums += t->tokens) {
    for (size_t i = 0; i < t->tokens; i++) sums[i] += block_sums[i];
  }
  for (size_t i = 0; i < t->tokens; i++) t->v->sum[t->first + i] = sums[i];
}

static void lanes_prepare_blocks(const lanes_tokens *t) {
  const st_view *v = t->v;
  float sums[LANES_TILE] = {0};
  lanes_rows g = {0};
  lanes_each_rows(t, &g, lanes_row_maximums);
  for (size_t b = 0; b < v->blocks; b++) {
    const float *maximums = v->block_scale + t->first * v->blocks + b * t->tokens;
    for (size_t i = 0; i < t->tokens; i++) sums[i] += maximums[i];
  }
  for (size_t r = 0; r < LANES_ROWS; r++) g.limit[r] = sums[r % t->tokens] * (ST_REST_ABOVE / (float)v->blocks);
  lanes_each_rows(t, &g, lanes_prepare_rows);
}

// lanes_inverse_rms of each token of a whole tile: alternating sums, each of which waits for its own last addition.
static void lanes_inverse_rms_tile(lanes_tokens *t, float eps) {
  vf sums[LANES_TILE];
  for (size_t j = 0; j < LANES_TILE; j++) sums[j] = vf_set(0);
  for (size_t i = 0; i < t->n; i += 16) {
    for (size_t j = 0; j < LANES_TILE; j++) {
      const float *x = t->sources[j].x + i;
      vf v = i + 16 <= t->n ? vf_load(x) : vf_load_n(x, t->n - i);
      sums[j] = vf_fma(v, v, sums[j]);
    }
  }
  for (size_t j = 0; j < LANES_TILE; j++) t->sources[j].r = 1.0f / sqrtf(vf_sum(sums[j]) / (float)t->n + eps);
}

static void lanes_find_sources(lanes_tokens *t, const float *x, size_t stride, const float *norm, float eps) {
  for (size_t i = 0; i < t->tokens; i++) t->sources[i] = (lanes_source){.x = x + i * stride, .norm = norm};
  if (!norm) return;
  if (t->tokens == LANES_TILE)
    lanes_inverse_rms_tile(t, eps);
  else
    for (size_t i = 0; i < t->tokens; i++) t->sources[i].r = lanes_inverse_rms(t->sources[i].x, t->n, eps);
}

// For int8 by block chunks, whose lists one thread fills; otherwise tiles, whose tokens share cache lines.
static size_t lanes_prepare_unit(st_activation kind, size_t tokens) {
  return kind == ST_ACT_INT8_BLOCK ? st_chunk_tokens(tokens, LANES_TILE) : LANES_TILE;
}

static void lanes_clear_lists(const st_view *v, size_t tokens, size_t first, size_t last) {
  size_t chunk = st_chunk_tokens(tokens, LANES_TILE);
  for (size_t i = first / chunk * v->blocks; i < (last + chunk - 1) / chunk * v->blocks; i++) v->rest_count[i] = 0;
}

static void lanes_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps,
                          size_t first, size_t last) {
  st_view v = st_view_input(input);
  lanes_tokens tile = {.v = &v, .n = input->columns, .input_tokens = input->tokens};
  if (input->kind == ST_ACT_INT8_BLOCK) lanes_clear_lists(&v, input->tokens, first, last);
  for (size_t t = first; t < last; t += tile.tokens) {
    lanes_place p = {.first = t - t % LANES_TILE, .lane = t % LANES_TILE};
    p.count = st_tile_tokens(input->tokens, p.first, LANES_TILE);
    tile.first = p.first;
    tile.tokens = last - t < p.count - p.lane ? last - t : p.count - p.lane;
    lanes_find_sources(&tile, x + t * stride, stride, norm, eps);
    for (size_t i = 0; input->kind == ST_ACT_F32 && i < tile.tokens; i++, p.lane++) {
      lanes_prepare_floats(&v, p, &tile.sources[i], tile.n);
    }
    if (input->kind == ST_ACT_INT8_TOKEN) lanes_prepare_tokens(&tile);
    if (input->kind == ST_ACT_INT8_BLOCK) lanes_prepare_blocks(&tile);
  }
}

#endif
