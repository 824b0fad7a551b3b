// Products: one group of 16 rows and one tile of tokens at a time, 32 columns unpacked for all of the tile's tokens.
#include "kernel/ref/ref.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <math.h>
#include <string.h>

typedef int8_t codes32[ST_STEP][ST_GROUP];
typedef float floats16[ST_GROUP];

static const uint8_t *group_of(const st_matrix *w, size_t row) {
  return w->data + row / ST_GROUP * w->group_bytes;
}

// The places of 32 columns' scales (of the last head, if the form has heads) and codes.
static void locate(const st_matrix *w, const uint8_t *group, size_t step, const uint8_t **scales,
                   const uint8_t **codes) {
  st_coding c = st_coding_of(w->form);
  size_t bytes = st_step_bytes(w->form);
  *scales = group + step * bytes;
  *codes = *scales + c.front;
  if (c.kind == ST_KIND_FIVES && c.by_block)
    *scales = group + step * ST_STEP / w->block * st_fives_of(w->form, w->columns, w->block).bytes;
  if (c.kind == ST_KIND_PATTERNS) *scales = group + step * ST_STEP / w->block * st_pattern_block_bytes(w->block);
  if (!c.head || c.kind == ST_KIND_FIVES || c.kind == ST_KIND_PATTERNS) return;
  size_t each = st_super_steps(w->form, w->block);
  *scales = group + step / each * (c.head + each * bytes);
  *codes = *scales + c.head + step % each * bytes;
}

// The code of row r and column k of 32 where two of four are stored.
static int sparse_at(const uint8_t *codes, size_t r, size_t k) {
  size_t i = k / 4;
  const uint8_t *at = codes + i / 4 * 64 + 4 * r + i % 2 * 2, *places = codes + 128 + 4 * r + i % 2 * 2;
  for (size_t j = 0; j < 2; j++) {
    if ((places[j] >> i / 2 * 2 & 3u) == k % 4) return at[j] >> i / 2 % 2 * 4 & 15;
  }
  return 0;
}

// The value of the code of row r and column k of 32: a trit, int8, value or difference, or the code itself where there
// are minimums.
static int code_at(const st_coding *c, const uint8_t *codes, size_t r, size_t k) {
  size_t i = k / 4, j = 4 * r + k % 4;
  if (c->sparse) return c->values[sparse_at(codes, r, k)];
  if (c->low == 8) return (int8_t)codes[i * 64 + j];
  int code = codes[i * c->low / 8 * 64 + j] >> i * c->low % 8 & ((1 << c->low) - 1);
  if (c->high) {
    const uint8_t *plane = codes + 64 * c->low;
    code |= (plane[i * c->high / 8 * 64 + j] >> i * c->high % 8 & ((1 << c->high) - 1)) << c->low;
  }
  return c->values ? c->values[code] : code - c->offset;
}

// The same for a column of a group of five codes a byte.
static int five_at(const st_matrix *w, const uint8_t *group, size_t r, size_t column) {
  static const uint8_t powers[4] = {1, 3, 9, 27};
  st_fives f = st_fives_of(w->form, w->columns, w->block);
  const uint8_t *pieces = group + column / f.columns * f.bytes + f.head;
  column %= f.columns;
  unsigned byte = pieces[column / ST_FIVE_COLUMNS * 64 + 4 * r + column % 4], part = column % ST_FIVE_COLUMNS / 4;
  unsigned four = byte < 192 ? byte % 64 : 64 + (byte - 192) % 17, last = byte < 192 ? byte / 64 : (byte - 192) / 17;
  return (int)(part == 4 ? last : four / powers[part] % 3) - 1;
}

// The same for a column of a group of patterns.
static int pattern_trit_at(const st_matrix *w, const uint8_t *group, size_t r, size_t column) {
  const uint8_t *step = group + column / w->block * st_pattern_block_bytes(w->block) + ST_SCALES +
                        column % w->block / ST_PATTERN_STEP * ST_PATTERN_BYTES;
  size_t in = column % ST_PATTERN_STEP, code = in / 64 * 16 + in % 16, at = 4 * r + code % 4, part = code / 4;
  unsigned index = (step[part / 2 * 64 + at] >> part % 2 * 4 & 15) | (step[4 * 64 + at] >> part & 1) << 4;
  return (st_sherry_patterns[index] >> in % 64 / 16 * 2 & 3) - 1;
}

// The codes of a step; those beyond the matrix's columns are 0.
static void unpack_codes(const st_matrix *w, const uint8_t *group, size_t step, const uint8_t *in, codes32 out) {
  st_coding c = st_coding_of(w->form);
  for (size_t k = 0; k < ST_STEP; k++) {
    size_t column = step * ST_STEP + k;
    for (size_t r = 0; r < ST_GROUP; r++) {
      if (c.kind == ST_KIND_FIVES) {
        out[k][r] = column < w->columns ? (int8_t)five_at(w, group, r, column) : 0;
      } else if (c.kind == ST_KIND_PATTERNS) {
        out[k][r] = (int8_t)pattern_trit_at(w, group, r, column);
      } else {
        out[k][r] = (int8_t)code_at(&c, in, r, k);
      }
    }
  }
}

static float half_at(const uint8_t *in, size_t r) {
  uint16_t h;
  memcpy(&h, in + 2 * r, 2);
  return st_f32_from_f16(h);
}

static float bfloat_at(const uint8_t *in, size_t r) {
  uint16_t h;
  memcpy(&h, in + 2 * r, 2);
  return st_f32_from_bf16(h);
}

// Half of 2^(e - 127).
static float half_of_e8m0(uint8_t e) {
  return st_float_from_bits(e < 2 ? (uint32_t)0x200000 << e : (uint32_t)(e - 1) << 23);
}

// d and m of row r and sub-block `sub` of 32 columns; one and zero where a form has none.
static void scale_at(const st_matrix *w, const uint8_t *scales, const uint8_t *codes, size_t r, size_t sub, float *d,
                     float *m) {
  st_coding c = st_coding_of(w->form);
  *d = 1, *m = 0;
  if (c.rule == ST_RULE_ROW) return;
  if (c.rule == ST_RULE_E8M0) {
    *d = half_of_e8m0(scales[r]);
    return;
  }
  bool bfloat = c.minimums && c.by_block && w->bfloat;
  *d = bfloat ? bfloat_at(scales, r) : half_at(scales, r);
  if (c.rule == ST_RULE_HALVED) *d *= 0.5f;
  if (c.rule == ST_RULE_ZERO) {
    *m = *d * (float)-(int8_t)scales[ST_SCALES + r];
    return;
  }
  if (c.minimums) *m = bfloat ? bfloat_at(scales + ST_SCALES, r) : half_at(scales + ST_SCALES, r);
  if (c.minimums && c.low == 8) *m += 128 * *d;
  if (!c.back) return;
  const uint8_t *bytes = codes + 64 * (c.low + c.high) + (c.subs == 2 ? ST_GROUP * sub : 0);
  bool nibbles = c.rule == ST_RULE_NIBBLES;
  *d *= (float)(nibbles ? bytes[r] & 15 : (int8_t)bytes[r]);
  if (c.minimums) *m *= (float)(nibbles ? bytes[r] >> 4 : bytes[ST_GROUP + r]);
}

static void read_scales(const st_matrix *w, const uint8_t *scales, const uint8_t *codes, size_t sub, floats16 d,
                        floats16 m) {
  for (size_t r = 0; r < ST_GROUP; r++) scale_at(w, scales, codes, r, sub, &d[r], &m[r]);
}

static void unpack_floats(const st_matrix *w, const uint8_t *group, size_t step, float out[ST_STEP][ST_GROUP]) {
  const uint8_t *scales, *codes;
  locate(w, group, step, &scales, &codes);
  st_coding c = st_coding_of(w->form);
  bool floats = c.kind == ST_KIND_FLOATS;
  if (floats && c.number == ST_NUMBER_F32) {
    memcpy(out, codes, ST_STEP * ST_GROUP * sizeof(float));
  } else if (floats && c.number == ST_NUMBER_F16) {
    for (size_t i = 0; i < ST_STEP * ST_GROUP; i++) out[i / ST_GROUP][i % ST_GROUP] = half_at(codes, i);
  } else if (floats) {
    const uint16_t *half = (const uint16_t *)(const void *)codes;
    for (size_t i = 0; i < ST_STEP * ST_GROUP; i++) out[i / ST_GROUP][i % ST_GROUP] = st_f32_from_bf16(half[i]);
  } else {
    codes32 code;
    floats16 d, m;
    unpack_codes(w, group, step, codes, code);
    for (size_t k = 0; k < ST_STEP; k++) {
      if (k % (ST_STEP / c.subs) == 0) read_scales(w, scales, codes, k / 16, d, m);
      for (size_t r = 0; r < ST_GROUP; r++) {
        out[k][r] = d[r] * (float)code[k][r]; // exact: 11 bits times at most 8, 19 times at most 5, or 16 times 7
        if (c.minimums) out[k][r] += m[r];
      }
    }
  }
}

static void store(const st_matrix *w, size_t row, size_t last, const floats16 *sums, size_t tokens, float *out,
                  size_t stride) {
  size_t n = last - row < ST_GROUP ? last - row : ST_GROUP;
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < n; r++) {
      out[t * stride + row + r] = w->scales ? sums[t][r] * w->scales[row + r] : sums[t][r];
    }
  }
}

// Two sums, over even and odd columns, with fused multiply-adds.
static void tile_f32(const st_matrix *w, const uint8_t *group, const float *x, size_t steps, size_t tokens,
                     floats16 *out) {
  float sums[ST_REF_TILE][2][ST_GROUP] = {0}, weights[ST_STEP][ST_GROUP];
  for (size_t s = 0; s < steps; s++, x += ST_STEP * tokens) {
    unpack_floats(w, group, s, weights);
    for (size_t t = 0; t < tokens; t++) {
      for (size_t k = 0; k < ST_STEP; k++) {
        float *sum = sums[t][k % 2];
        for (size_t r = 0; r < ST_GROUP; r++) sum[r] = fmaf(weights[k][r], x[k * tokens + t], sum[r]);
      }
    }
  }
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < ST_GROUP; r++) out[t][r] = sums[t][0][r] + sums[t][1][r];
  }
}

void st_ref_matmul_f32(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                       size_t stride) {
  st_view v = st_view_input(input);
  floats16 sums[ST_REF_TILE];
  for (size_t row = first; row < last; row += ST_GROUP) {
    for (size_t t = 0; t < input->tokens; t += ST_REF_TILE) {
      size_t n = st_tile_tokens(input->tokens, t, ST_REF_TILE);
      tile_f32(w, group_of(w, row), v.values + t * v.padded, v.blocks, n, sums);
      store(w, row, last, sums, n, out + t * stride, stride);
    }
  }
}

// Adds the integer products of columns [from, to) of 32 of all tokens of a tile.
static void add_products(codes32 code, const int8_t *x, size_t from, size_t to, size_t tokens,
                         int32_t (*sums)[ST_GROUP]) {
  for (size_t t = 0; t < tokens; t++) {
    for (size_t k = from; k < to; k++) {
      int32_t value = x[(k / 4 * tokens + t) * 4 + k % 4];
      for (size_t r = 0; r < ST_GROUP; r++) sums[t][r] += code[k][r] * value;
    }
  }
}

// With a scale a row: exact integers, then / s. With one a block: the integers of each block of columns times its
// scale, added up in order.
static void tile_token(const st_matrix *w, const uint8_t *group, const int8_t *x, size_t steps, size_t tokens,
                       const float *scale, floats16 *out) {
  int32_t sums[ST_REF_TILE][ST_GROUP] = {0};
  size_t each = st_coding_of(w->form).head ? w->block / ST_STEP : steps;
  floats16 total[ST_REF_TILE] = {0};
  for (size_t s = 0; s < steps; s++, x += ST_STEP * tokens) {
    const uint8_t *scales, *codes;
    codes32 code;
    locate(w, group, s, &scales, &codes);
    unpack_codes(w, group, s, codes, code);
    add_products(code, x, 0, ST_STEP, tokens, sums);
    if ((s + 1) % each && s + 1 != steps) continue;
    floats16 d, m;
    read_scales(w, scales, codes, 0, d, m);
    for (size_t t = 0; t < tokens; t++) {
      for (size_t r = 0; r < ST_GROUP; r++) total[t][r] = fmaf(d[r], (float)sums[t][r], total[t][r]), sums[t][r] = 0;
    }
  }
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < ST_GROUP; r++) out[t][r] = total[t][r] / scale[t];
  }
}

void st_ref_matmul_token(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                         size_t stride) {
  st_view v = st_view_input(input);
  floats16 sums[ST_REF_TILE];
  for (size_t row = first; row < last; row += ST_GROUP) {
    for (size_t t = 0; t < input->tokens; t += ST_REF_TILE) {
      size_t n = st_tile_tokens(input->tokens, t, ST_REF_TILE);
      tile_token(w, group_of(w, row), v.codes + t * v.padded, v.blocks, n, v.scale + t, sums);
      store(w, row, last, sums, n, out + t * stride, stride);
    }
  }
}

// Columns [from, to) of a step: a sub-block.
typedef struct {
  size_t from, to;
} columns_of;

// sums += (d * dx) * integers of a sub-block, for one plane of codes, whose scales are dx.
static void add_plane(codes32 code, columns_of part, const floats16 d, const int8_t *x, const float *scales,
                      size_t tokens, floats16 *out) {
  int32_t sums[ST_REF_TILE][ST_GROUP] = {0};
  add_products(code, x, part.from, part.to, tokens, sums);
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < ST_GROUP; r++) out[t][r] = fmaf(d[r] * scales[t], (float)sums[t][r], out[t][r]);
  }
}

// The blocks of one token that have a second plane, in order, added up apart and then to the first plane's sum.
static void add_rest(const st_matrix *w, const uint8_t *group, const st_view *v, size_t token, floats16 out) {
  st_coding c = st_coding_of(w->form);
  size_t width = ST_STEP / c.subs;
  floats16 sum = {0};
  for (size_t i = 0; i < v->rest_count[token]; i++) {
    size_t at = token * v->blocks + i;
    const uint8_t *scales, *codes;
    codes32 code;
    floats16 d, m;
    locate(w, group, v->rest_place[at], &scales, &codes);
    unpack_codes(w, group, v->rest_place[at], codes, code);
    for (size_t sub = 0; sub < c.subs; sub++) {
      columns_of part = {sub * width, (sub + 1) * width};
      read_scales(w, scales, codes, sub, d, m);
      add_plane(code, part, d, v->rest + token * v->padded + i * ST_STEP, v->rest_scale + at, 1, &sum);
    }
  }
  for (size_t r = 0; r < ST_GROUP; r++) out[r] += sum[r];
}

// For each sub-block in order the first plane of codes; and for minimums another sum += m * (sum of what the codes of
// both planes mean).
static void tile_block(const st_matrix *w, const uint8_t *group, const st_view *v, size_t first, size_t tokens,
                       floats16 *out) {
  st_coding c = st_coding_of(w->form);
  size_t width = ST_STEP / c.subs;
  floats16 minimums[ST_REF_TILE] = {0};
  memset(out, 0, tokens * sizeof *out);
  const int8_t *x = v->codes + first * v->padded;
  for (size_t s = 0; s < v->blocks; s++, x += ST_STEP * tokens) {
    const uint8_t *scales, *codes;
    codes32 code;
    floats16 d, m;
    locate(w, group, s, &scales, &codes);
    unpack_codes(w, group, s, codes, code);
    size_t at = first * v->blocks + s * tokens;
    for (size_t sub = 0; sub < c.subs; sub++) {
      columns_of part = {sub * width, (sub + 1) * width};
      const float *products = v->block_product + at;
      if (c.subs > 1) products = v->half_product + 2 * first * v->blocks + (2 * s + sub) * tokens;
      read_scales(w, scales, codes, sub, d, m);
      add_plane(code, part, d, x, v->block_scale + at, tokens, out);
      for (size_t t = 0; c.minimums && t < tokens; t++) {
        for (size_t r = 0; r < ST_GROUP; r++) minimums[t][r] = fmaf(m[r], products[t], minimums[t][r]);
      }
    }
  }
  for (size_t t = 0; t < tokens; t++) {
    add_rest(w, group, v, first + t, out[t]);
    for (size_t r = 0; r < ST_GROUP && c.minimums; r++) out[t][r] += minimums[t][r];
  }
}

void st_ref_matmul_block(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                         size_t stride) {
  st_view v = st_view_input(input);
  floats16 sums[ST_REF_TILE];
  for (size_t row = first; row < last; row += ST_GROUP) {
    for (size_t t = 0; t < input->tokens; t += ST_REF_TILE) {
      size_t n = st_tile_tokens(input->tokens, t, ST_REF_TILE);
      tile_block(w, group_of(w, row), &v, t, n, sums);
      store(w, row, last, sums, n, out + t * stride, stride);
    }
  }
}

// Columns [0, n) of a step of one row.
static void step_of_row(const st_matrix *w, size_t row, size_t step, size_t n, float *out) {
  size_t r = row % ST_GROUP;
  const uint8_t *scales, *codes;
  const uint8_t *group = group_of(w, row);
  locate(w, group, step, &scales, &codes);
  st_coding c = st_coding_of(w->form);
  const uint16_t *half = (const uint16_t *)(const void *)codes;
  float d = 1, m = 0;
  for (size_t k = 0; k < n; k++) {
    if (c.kind == ST_KIND_FLOATS && c.number == ST_NUMBER_F32) {
      out[k] = ((const float *)(const void *)codes)[k * ST_GROUP + r];
    } else if (c.kind == ST_KIND_FLOATS) {
      uint16_t value = half[k * ST_GROUP + r];
      out[k] = c.number == ST_NUMBER_F16 ? st_f32_from_f16(value) : st_f32_from_bf16(value);
    } else {
      if (k % 16 == 0) scale_at(w, scales, codes, r, k / 16, &d, &m);
      if (w->scales) d = w->scales[row];
      int code = c.kind == ST_KIND_FIVES      ? five_at(w, group, r, step * ST_STEP + k)
                 : c.kind == ST_KIND_PATTERNS ? pattern_trit_at(w, group, r, step * ST_STEP + k)
                                              : code_at(&c, codes, r, k);
      float x = (float)code * d;
      out[k] = c.minimums ? x + m : x;
    }
  }
}

void st_ref_row(const st_matrix *w, size_t row, float *out) {
  for (size_t first = 0; first < w->columns; first += ST_STEP) {
    size_t n = w->columns - first < ST_STEP ? w->columns - first : ST_STEP;
    step_of_row(w, row, first / ST_STEP, n, out + first);
  }
}
