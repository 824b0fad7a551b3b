// Products with int8 inputs, by token or by block of 32 columns: one group of rows and one tile of tokens at a time,
// codes unpacked in registers for all of the tile's tokens.
#ifndef SETUN_KERNEL_LANES_MATMUL_INT8_H
#define SETUN_KERNEL_LANES_MATMUL_INT8_H

#include "kernel/lanes/place.h"

// Adds the products of 32 columns for n tokens.
LANES_INLINE void lanes_dot_step(st_form form, const uint8_t *codes, const int8_t *x, size_t n, vd *sums) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    vb w = vb_codes(form, codes, i);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) sums[t] = vd_dot(form, sums[t], w, x + ((size_t)i * n + t) * 4);
  }
}

LANES_INLINE void lanes_prefetch_step(st_form form, const uint8_t *codes) {
  for (size_t line = 0; line < st_step_bytes(form); line += 64) lanes_prefetch(codes + line);
}

// For each 32 columns: sum += (d * dx) * integers; Q4M also minimum += m * (dx * sum of x).
LANES_INLINE void lanes_block_tile(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out) {
  vf sums[LANES_TILE], minimums[LANES_TILE];
  lanes_stream s = lanes_stream_of(w, row);
  const int8_t *x = v->codes + first * v->padded;
  size_t at = first * v->blocks;
  for (size_t t = 0; t < n; t++) sums[t] = minimums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b++, x += ST_STEP * n, at += n) {
    vd dots[LANES_TILE];
    for (size_t t = 0; t < n; t++) dots[t] = vd_zero();
    lanes_prefetch_step(form, s.codes);
    lanes_dot_step(form, s.codes, x, n, dots);
    vf d = form == ST_FORM_T16 ? vf_set(1) : vf_half(s.scales);
    vf m = form == ST_FORM_Q4M ? vf_half(s.scales + ST_SCALES) : vf_set(0);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) {
      vi total = vd_total(form, dots[t]);
      if (vb_offset(form)) total = vi_sub(total, vi_set(vb_offset(form) * v->block_sum[at + t]));
      vf dx = vf_set(v->block_scale[at + t]);
      sums[t] = vf_fma(form == ST_FORM_T16 ? dx : vf_mul(d, dx), vi_to_floats(total), sums[t]);
      if (form == ST_FORM_Q4M) minimums[t] = vf_fma(m, vf_set(v->block_product[at + t]), minimums[t]);
    }
    lanes_advance(form, &s);
  }
  for (size_t t = 0; t < n; t++) out[t] = form == ST_FORM_Q4M ? vf_add(sums[t], minimums[t]) : sums[t];
}

// T16: integers over all columns. T16B: integers over each block of columns times its scale.
LANES_INLINE void lanes_token_tile(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out) {
  vd dots[LANES_TILE];
  vi totals[LANES_TILE];
  vf sums[LANES_TILE];
  lanes_stream s = lanes_stream_of(w, row);
  const int8_t *x = v->codes + first * v->padded;
  const int32_t *block_sums = v->block_sum + first * v->blocks;
  for (size_t t = 0; t < n; t++) dots[t] = vd_zero(), totals[t] = vi_zero(), sums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b++, x += ST_STEP * n) {
    bool end = b + 1 == v->blocks;
    lanes_prefetch_step(form, s.codes);
    lanes_dot_step(form, s.codes, x, n, dots);
    for (size_t t = 0; form == ST_FORM_T16B && t < n; t++) {
      totals[t] = vi_sub(totals[t], vi_set(block_sums[b * n + t]));
    }
    bool scaled = form == ST_FORM_T16B && (s.left == 1 || end);
    for (size_t t = 0; ((b + 1) % LANES_FLUSH == 0 || end || scaled) && t < n; t++) {
      totals[t] = vi_add(totals[t], vd_total(form, dots[t]));
      dots[t] = vd_zero();
    }
    for (size_t t = 0; scaled && t < n; t++) {
      sums[t] = vf_fma(vf_half(s.scales), vi_to_floats(totals[t]), sums[t]);
      totals[t] = vi_zero();
    }
    lanes_advance(form, &s);
  }
  for (size_t t = 0; t < n; t++) {
    if (form == ST_FORM_T16) sums[t] = vi_to_floats(vi_sub(totals[t], vi_set(v->sum[first + t])));
    out[t] = vf_div(sums[t], vf_set(v->scale[first + t]));
  }
}

#define LANES_MATMUL_INT8(kind, form)                                                                                  \
  static void lanes_matmul_##kind##_##form(const st_matrix *w, const st_input *input, size_t first, size_t last,       \
                                           float *out, size_t stride) {                                                \
    st_view v = st_view_input(input);                                                                                  \
    for (size_t row = first; row < last; row += ST_GROUP) {                                                            \
      for (size_t t = 0; t < input->tokens; t += LANES_TILE) {                                                         \
        vf sums[LANES_TILE];                                                                                           \
        size_t n = st_tile_tokens(input->tokens, t, LANES_TILE);                                                       \
        LANES_SWITCH(n, LANES_TILE, lanes_##kind##_tile, ST_FORM_##form, w, row, &v, t, N, sums)                       \
        for (size_t i = 0; i < n; i++) lanes_output(ST_FORM_##form, w, row, last, sums[i], out + (t + i) * stride);    \
      }                                                                                                                \
    }                                                                                                                  \
  }

LANES_MATMUL_INT8(token, T16)
LANES_MATMUL_INT8(token, T16B)
LANES_MATMUL_INT8(block, T16)
LANES_MATMUL_INT8(block, T16B)
LANES_MATMUL_INT8(block, Q8)
LANES_MATMUL_INT8(block, Q4)
LANES_MATMUL_INT8(block, Q4M)

static void lanes_fill_matmul_int8(st_kernels *k) {
  k->matmul[ST_FORM_T16][ST_ACT_INT8_TOKEN] = lanes_matmul_token_T16;
  k->matmul[ST_FORM_T16B][ST_ACT_INT8_TOKEN] = lanes_matmul_token_T16B;
  k->matmul[ST_FORM_T16][ST_ACT_INT8_BLOCK] = lanes_matmul_block_T16;
  k->matmul[ST_FORM_T16B][ST_ACT_INT8_BLOCK] = lanes_matmul_block_T16B;
  k->matmul[ST_FORM_Q8][ST_ACT_INT8_BLOCK] = lanes_matmul_block_Q8;
  k->matmul[ST_FORM_Q4][ST_ACT_INT8_BLOCK] = lanes_matmul_block_Q4;
  k->matmul[ST_FORM_Q4M][ST_ACT_INT8_BLOCK] = lanes_matmul_block_Q4M;
}

#endif
