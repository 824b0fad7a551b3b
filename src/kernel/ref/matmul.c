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

// Where 32 columns' scales and codes stand.
static void locate(const st_matrix *w, const uint8_t *group, size_t step, const uint8_t **scales,
                   const uint8_t **codes) {
  size_t bytes = st_step_bytes(w->form);
  *scales = *codes = group + step * bytes;
  if (w->form == ST_FORM_T16B) {
    size_t each = w->block / ST_STEP, block_bytes = ST_SCALES + each * bytes;
    *scales = group + step / each * block_bytes;
    *codes = *scales + ST_SCALES + step % each * bytes;
  } else if (w->form == ST_FORM_Q8 || w->form == ST_FORM_Q4) {
    *codes += ST_SCALES;
  } else if (w->form == ST_FORM_Q4M) {
    *codes += 2 * ST_SCALES;
  }
}

// The signed codes of 32 columns: trits, int8, code - 8, or the bare codes of Q4M.
static void unpack_codes(st_form form, const uint8_t *in, codes32 out) {
  for (size_t k = 0; k < ST_STEP; k++) {
    for (size_t r = 0; r < ST_GROUP; r++) {
      size_t j = 4 * r + k % 4;
      int code;
      if (form == ST_FORM_Q8)
        code = (int8_t)in[k / 4 * 64 + j];
      else if (form == ST_FORM_Q4 || form == ST_FORM_Q4M)
        code = in[k / 8 * 64 + j] >> (k % 8 < 4 ? 0 : 4) & 15;
      else
        code = (in[k / 16 * 64 + j] >> 2 * (k % 16 / 4) & 3) - 1;
      out[k][r] = (int8_t)(form == ST_FORM_Q4 ? code - 8 : code);
    }
  }
}

static void read_halves(const uint8_t *in, floats16 out) {
  for (size_t r = 0; r < ST_GROUP; r++) {
    uint16_t h;
    memcpy(&h, in + 2 * r, 2);
    out[r] = st_f32_from_f16(h);
  }
}

// d and m of 32 columns; ones and zeros where a form has none.
static void read_scales(st_form form, const uint8_t *in, floats16 d, floats16 m) {
  for (size_t r = 0; r < ST_GROUP; r++) d[r] = 1, m[r] = 0;
  if (form != ST_FORM_T16) read_halves(in, d);
  if (form == ST_FORM_Q4M) read_halves(in + ST_SCALES, m);
}

static void unpack_floats(const st_matrix *w, const uint8_t *group, size_t step, float out[ST_STEP][ST_GROUP]) {
  const uint8_t *scales, *codes;
  locate(w, group, step, &scales, &codes);
  if (w->form == ST_FORM_F32) {
    memcpy(out, codes, ST_STEP * ST_GROUP * sizeof(float));
  } else if (w->form == ST_FORM_F16) {
    for (size_t k = 0; k < ST_STEP; k++) read_halves(codes + k * ST_SCALES, out[k]);
  } else if (w->form == ST_FORM_BF16) {
    const uint16_t *half = (const uint16_t *)(const void *)codes;
    for (size_t i = 0; i < ST_STEP * ST_GROUP; i++) out[i / ST_GROUP][i % ST_GROUP] = st_f32_from_bf16(half[i]);
  } else {
    codes32 code;
    floats16 d, m;
    unpack_codes(w->form, codes, code);
    read_scales(w->form, scales, d, m);
    for (size_t k = 0; k < ST_STEP; k++) {
      for (size_t r = 0; r < ST_GROUP; r++) {
        out[k][r] = d[r] * (float)code[k][r]; // exact: 11 bits times at most 8
        if (w->form == ST_FORM_Q4M) out[k][r] += m[r];
      }
    }
  }
}

static void store(const st_matrix *w, size_t row, size_t last, const floats16 *sums, size_t tokens, float *out,
                  size_t stride) {
  size_t n = last - row < ST_GROUP ? last - row : ST_GROUP;
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < n; r++) {
      out[t * stride + row + r] = w->form == ST_FORM_T16 ? sums[t][r] * w->scales[row + r] : sums[t][r];
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

// Adds the integer products of 32 columns of all tokens of a tile.
static void add_products(codes32 code, const int8_t *x, size_t tokens, int32_t (*sums)[ST_GROUP]) {
  for (size_t t = 0; t < tokens; t++) {
    for (size_t k = 0; k < ST_STEP; k++) {
      int32_t value = x[(k / 4 * tokens + t) * 4 + k % 4];
      for (size_t r = 0; r < ST_GROUP; r++) sums[t][r] += code[k][r] * value;
    }
  }
}

// T16: exact integers, then / s. T16B: the integers of each block of columns times its scale, added up in order.
static void tile_token(const st_matrix *w, const uint8_t *group, const int8_t *x, size_t steps, size_t tokens,
                       const float *scale, floats16 *out) {
  int32_t sums[ST_REF_TILE][ST_GROUP] = {0};
  size_t each = w->form == ST_FORM_T16B ? w->block / ST_STEP : steps;
  floats16 total[ST_REF_TILE] = {0};
  for (size_t s = 0; s < steps; s++, x += ST_STEP * tokens) {
    const uint8_t *scales, *codes;
    codes32 code;
    locate(w, group, s, &scales, &codes);
    unpack_codes(w->form, codes, code);
    add_products(code, x, tokens, sums);
    if ((s + 1) % each && s + 1 != steps) continue;
    floats16 d, m;
    read_scales(w->form, scales, d, m);
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

// sums += (d * dx) * integers of 32 columns, for one plane of codes, whose scales are dx.
static void add_plane(codes32 code, const floats16 d, const int8_t *x, const float *scales, size_t tokens,
                      floats16 *out) {
  int32_t sums[ST_REF_TILE][ST_GROUP] = {0};
  add_products(code, x, tokens, sums);
  for (size_t t = 0; t < tokens; t++) {
    for (size_t r = 0; r < ST_GROUP; r++) out[t][r] = fmaf(d[r] * scales[t], (float)sums[t][r], out[t][r]);
  }
}

// The blocks of one token that have a second plane, in order, added up apart and then to the first plane's sum.
static void add_rest(const st_matrix *w, const uint8_t *group, const st_view *v, size_t token, floats16 out) {
  floats16 sum = {0};
  for (size_t i = 0; i < v->rest_count[token]; i++) {
    size_t at = token * v->blocks + i;
    const uint8_t *scales, *codes;
    codes32 code;
    floats16 d, m;
    locate(w, group, v->rest_block[at], &scales, &codes);
    unpack_codes(w->form, codes, code);
    read_scales(w->form, scales, d, m);
    add_plane(code, d, v->rest + token * v->padded + i * ST_STEP, v->rest_scale + at, 1, &sum);
  }
  for (size_t r = 0; r < ST_GROUP; r++) out[r] += sum[r];
}

// For each 32 columns in order the first plane of codes; and for minimums another sum += m * (sum of what the codes of
// both planes mean).
static void tile_block(const st_matrix *w, const uint8_t *group, const st_view *v, size_t first, size_t tokens,
                       floats16 *out) {
  floats16 minimums[ST_REF_TILE] = {0};
  memset(out, 0, tokens * sizeof *out);
  const int8_t *x = v->codes + first * v->padded;
  for (size_t s = 0; s < v->blocks; s++, x += ST_STEP * tokens) {
    const uint8_t *scales, *codes;
    codes32 code;
    floats16 d, m;
    locate(w, group, s, &scales, &codes);
    unpack_codes(w->form, codes, code);
    read_scales(w->form, scales, d, m);
    size_t at = first * v->blocks + s * tokens;
    add_plane(code, d, x, v->block_scale + at, tokens, out);
    for (size_t t = 0; w->form == ST_FORM_Q4M && t < tokens; t++) {
      for (size_t r = 0; r < ST_GROUP; r++) minimums[t][r] = fmaf(m[r], v->block_product[at + t], minimums[t][r]);
    }
  }
  for (size_t t = 0; t < tokens; t++) {
    add_rest(w, group, v, first + t, out[t]);
    for (size_t r = 0; r < ST_GROUP && w->form == ST_FORM_Q4M; r++) out[t][r] += minimums[t][r];
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

// Column k of one row, without d and m: a float, or a code.
static float element(st_form form, const uint8_t *codes, size_t r, size_t k) {
  size_t j = 4 * r + k % 4;
  if (form == ST_FORM_F32) return ((const float *)(const void *)codes)[k * ST_GROUP + r];
  if (form == ST_FORM_F16) return st_f32_from_f16(((const uint16_t *)(const void *)codes)[k * ST_GROUP + r]);
  if (form == ST_FORM_BF16) return st_f32_from_bf16(((const uint16_t *)(const void *)codes)[k * ST_GROUP + r]);
  if (form == ST_FORM_Q8) return (float)(int8_t)codes[k / 4 * 64 + j];
  if (form == ST_FORM_Q4) return (float)((codes[k / 8 * 64 + j] >> (k % 8 < 4 ? 0 : 4) & 15) - 8);
  if (form == ST_FORM_Q4M) return (float)(codes[k / 8 * 64 + j] >> (k % 8 < 4 ? 0 : 4) & 15);
  return (float)((codes[k / 16 * 64 + j] >> 2 * (k % 16 / 4) & 3) - 1);
}

void st_ref_row(const st_matrix *w, size_t row, float *out) {
  size_t r = row % ST_GROUP;
  for (size_t first = 0; first < w->columns; first += ST_STEP) {
    const uint8_t *scales, *codes;
    locate(w, group_of(w, row), first / ST_STEP, &scales, &codes);
    float d = 1, m = 0;
    uint16_t half[2 * ST_GROUP];
    if (w->form == ST_FORM_T16)
      d = w->scales[row];
    else if (w->form > ST_FORM_T16)
      d = (memcpy(half, scales, ST_SCALES), st_f32_from_f16(half[r]));
    if (w->form == ST_FORM_Q4M) m = (memcpy(half, scales + ST_SCALES, ST_SCALES), st_f32_from_f16(half[r]));
    size_t n = w->columns - first < ST_STEP ? w->columns - first : ST_STEP;
    for (size_t k = 0; k < n; k++) {
      float x = element(w->form, codes, r, k) * d;
      out[first + k] = w->form == ST_FORM_Q4M ? x + m : x;
    }
  }
}
