// Products with int8 inputs, by token or by block of 32 columns: one group of rows and one tile of tokens at a time,
// codes unpacked in registers for all of the tile's tokens.
#ifndef SETUN_KERNEL_LANES_MATMUL_INT8_H
#define SETUN_KERNEL_LANES_MATMUL_INT8_H

#include "kernel/lanes/place.h"

// Adds the products of parts [from, to) of 32 columns for n tokens, each in `chains` sums that do not wait for one
// another. The tokens are the first of `stride` that are interleaved at x.
LANES_INLINE void lanes_dot_parts(st_form form, const uint8_t *codes, const int8_t *x, size_t stride, size_t from,
                                  size_t to, size_t n, size_t chains, vd *sums) {
#pragma GCC unroll 8
  for (size_t i = from; i < to; i++) {
    vb w = vb_codes(form, codes, (int)i);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) {
      vd *sum = &sums[t * chains + i % chains];
      *sum = vd_dot(form, *sum, w, x + (i * stride + t) * 4);
    }
  }
}

LANES_INLINE void lanes_dot_step(st_form form, const uint8_t *codes, const int8_t *x, size_t n, size_t chains,
                                 vd *sums) {
  lanes_dot_parts(form, codes, x, n, 0, 8, n, chains, sums);
}

// Where the sums of the codes of sub-block `sub` of 32 columns are: of all 32, or of the first or the last 16.
LANES_INLINE const int32_t *lanes_sub_sums(st_form form, int sub, const int32_t *sums, int32_t *const halves[2]) {
  return st_coding_of(form).subs == 1 ? sums : halves[sub];
}

// The integer products of a sub-block with one plane of codes of n tokens, whose sums over it are `sums`. Tokens that
// nobody asked for may be among the n, so their sums wrap around, whatever these values are.
LANES_INLINE void lanes_block_dots(st_form form, const uint8_t *codes, const int8_t *x, size_t stride, int sub,
                                   size_t n, const int32_t *sums, vi *totals) {
  const size_t parts = 8 / st_coding_of(form).subs, first = (size_t)sub * parts;
  const size_t each = parts < vd_parts(form) ? parts : vd_parts(form);
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) totals[t] = vb_offset(form) ? vi_offset(vb_offset(form), sums + t) : vi_zero();
#pragma GCC unroll 8
  for (size_t i = first; i < first + parts; i += each) {
    vd dots[LANES_TILE];
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) dots[t] = vd_begin(form, &totals[t]);
    lanes_dot_parts(form, codes, x, stride, i, i + each, n, 1, dots);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) totals[t] = vi_add(totals[t], vd_total(form, dots[t]));
  }
}

// sums += (d * dx) * integers, for one plane.
LANES_INLINE void lanes_block_add(vf d, const float *scales, const vi *totals, size_t n, vf *sums) {
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) sums[t] = vf_fma(vf_mul_by(d, scales + t), vi_to_floats(totals[t]), sums[t]);
}

// minimums += m * (sum of what the codes of a sub-block stand for); `b`: of the 32 columns, in the tile's arrays.
LANES_INLINE void lanes_block_minimums(st_form form, vf m, const st_view *v, size_t first, size_t b, int sub, size_t n,
                                       vf *minimums) {
  const float *products = st_coding_of(form).subs == 1
                              ? v->block_product + first * v->blocks + b * n
                              : v->half_product + 2 * first * v->blocks + (2 * b + (size_t)sub) * n;
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) minimums[t] = vf_fma_by(m, products + t, minimums[t]);
}

// Nothing after this begins before the sums are made: the products of two sub-blocks would not leave registers for
// them.
LANES_INLINE void lanes_keep(size_t n, vf *sums) {
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) vf_opaque(&sums[t]);
}

// For each sub-block: sum += (d * dx) * integers; with minimums also minimum += m * (sum of what the codes of both
// planes stand for).
LANES_INLINE void lanes_block_tile(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out, vf *out_minimums) {
  const st_coding c = st_coding_of(form);
  vf sums[LANES_TILE], minimums[LANES_TILE], d, m;
  vi totals[LANES_TILE];
  lanes_stream s = lanes_stream_of(w, row);
  const int8_t *x = v->codes + first * v->padded;
  size_t at = first * v->blocks;
  for (size_t t = 0; t < n; t++) sums[t] = minimums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b++, x += ST_STEP * n, at += n) {
    if (!first) lanes_prefetch_step(form, s.codes); // later tokens find the group in the cache
#pragma GCC unroll 2
    for (int sub = 0; sub < c.subs; sub++) {
      lanes_scales(form, &s, sub, &d, &m);
      lanes_block_dots(form, s.codes, x, n, sub, n, lanes_sub_sums(form, sub, v->block_sum, v->half_sum) + at, totals);
      lanes_block_add(d, v->block_scale + at, totals, n, sums);
      if (c.minimums) lanes_block_minimums(form, m, v, first, b, sub, n, minimums);
      if (c.subs == 2) lanes_keep(n, sums);
    }
    lanes_advance(form, &s);
  }
  for (size_t t = 0; t < n; t++) {
    out[t] = sums[t];
    if (c.minimums) out_minimums[t] = minimums[t];
  }
}

// What the second plane of `left` entries of a block's list, from `at` on, adds to the sums of their tokens; n, a
// constant of at least `left`, are computed.
LANES_INLINE void lanes_rest_tile(st_form form, const lanes_stream *s, const st_view *v, size_t at, size_t width,
                                  size_t n, size_t left, vf *rest) {
  vf products[LANES_TILE], d, m;
  vi totals[LANES_TILE];
  const int8_t *x = v->rest + at * ST_STEP;
  const uint32_t *token = v->rest_place + at;
  for (int sub = 0; sub < st_coding_of(form).subs; sub++) {
    lanes_scales(form, s, sub, &d, &m);
    lanes_block_dots(form, s->codes, x, width, sub, n, lanes_sub_sums(form, sub, v->rest_sum, v->rest_half) + at,
                     totals);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) products[t] = vi_to_floats(totals[t]);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) {
      if (t >= left) break;
      vf *sum = &rest[token[t]];
      *sum = vf_fma(vf_mul_by(d, v->rest_scale + at + t), products[t], *sum);
    }
  }
}

// The sums of the second planes of a chunk's tokens, over their blocks in order.
LANES_INLINE void lanes_rest_chunk(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t tokens,
                                   size_t first, size_t last, vf *rest) {
  lanes_stream s = lanes_stream_of(w, row);
  st_rest_list list = st_rest_list_of(v, tokens, LANES_TILE, first, 0);
  size_t room = st_round_up(last - first, list.width);
  for (size_t t = 0; t < last - first; t++) rest[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b++, list.at += room) {
    size_t left = v->rest_count[list.count_at + b], at = list.at;
    for (; left >= LANES_TILE; left -= LANES_TILE, at += LANES_TILE)
      lanes_rest_tile(form, &s, v, at, LANES_TILE, LANES_TILE, LANES_TILE, rest);
    if (left > LANES_TILE / 2)
      lanes_rest_tile(form, &s, v, at, list.width, LANES_TILE, left, rest);
    else if (left > 1)
      lanes_rest_tile(form, &s, v, at, list.width, LANES_TILE / 2, left, rest);
    else if (left)
      lanes_rest_tile(form, &s, v, at, list.width, 1, 1, rest);
    lanes_advance(form, &s);
  }
}

// A token that is a chunk by itself: its second plane goes along with the first, so that reading never pauses.
LANES_INLINE vf lanes_block_one(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t tokens,
                                size_t token) {
  const st_coding c = st_coding_of(form);
  const st_rest_list list = st_rest_list_of(v, tokens, LANES_TILE, token, 0);
  const int8_t *x = v->codes + token * v->padded;
  lanes_stream s = lanes_stream_of(w, row);
  vf sum = vf_set(0), rest = vf_set(0), minimum = vf_set(0), d, m;
  vi total;
  for (size_t b = 0, at = list.at; b < v->blocks; b++, at++, x += ST_STEP) {
    lanes_prefetch_step(form, s.codes);
#pragma GCC unroll 2
    for (int sub = 0; sub < c.subs; sub++) {
      lanes_scales(form, &s, sub, &d, &m);
      lanes_block_dots(form, s.codes, x, 1, sub, 1, lanes_sub_sums(form, sub, v->block_sum, v->half_sum) + at, &total);
      lanes_block_add(d, v->block_scale + at, &total, 1, &sum);
      if (c.minimums) lanes_block_minimums(form, m, v, token, b, sub, 1, &minimum);
      if (!v->rest_count[list.count_at + b]) continue;
      lanes_block_dots(form, s.codes, v->rest + at * ST_STEP, 1, sub, 1,
                       lanes_sub_sums(form, sub, v->rest_sum, v->rest_half) + at, &total);
      lanes_block_add(d, v->rest_scale + at, &total, 1, &rest);
    }
    lanes_advance(form, &s);
  }
  sum = vf_add(sum, rest);
  return c.minimums ? vf_add(sum, minimum) : sum;
}

// Adds the integer products of `steps` times 32 columns to the totals of n tokens; advances the codes.
LANES_INLINE void lanes_dot_steps(st_form form, const uint8_t **codes, const int8_t *x, size_t steps, size_t n,
                                  vi *totals) {
  const size_t chains = lanes_chains(n);
  vd dots[2 * LANES_TILE];
#pragma GCC unroll 8
  for (size_t i = 0; i < n * chains; i++) dots[i] = vd_zero();
  for (; steps; steps--, x += ST_STEP * n, *codes += st_step_bytes(form)) {
    lanes_prefetch_step(form, *codes);
    lanes_dot_step(form, *codes, x, n, chains, dots);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < n * chains; i++) totals[i / chains] = vi_add(totals[i / chains], vd_total(form, dots[i]));
}

// A scale a row: integers over all columns, then / s.
LANES_INLINE void lanes_token_rows(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out) {
  vi totals[LANES_TILE];
  const uint8_t *codes = w->data + row / ST_GROUP * w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  for (size_t t = 0; t < n; t++) totals[t] = vi_zero();
  for (size_t b = 0; b < v->blocks; b += LANES_FLUSH) {
    size_t steps = v->blocks - b < LANES_FLUSH ? v->blocks - b : LANES_FLUSH;
    lanes_dot_steps(form, &codes, x + b * ST_STEP * n, steps, n, totals);
  }
  for (size_t t = 0; t < n; t++) {
    vi total = vi_sub(totals[t], vi_set(v->sum[first + t]));
    out[t] = vf_div(vi_to_floats(total), vf_set(v->scale[first + t]));
  }
}

// A scale a block: the integers of each block of columns times its scale, added up in order, then / s.
LANES_INLINE void lanes_token_blocks(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                     size_t n, vf *out) {
  vf sums[LANES_TILE];
  const uint8_t *codes = w->data + row / ST_GROUP * w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  const int32_t *block_sums = v->block_sum + first * v->blocks;
  size_t each = w->block / ST_STEP;
  for (size_t t = 0; t < n; t++) sums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b += each) {
    size_t steps = v->blocks - b < each ? v->blocks - b : each;
    vf d = vf_half(codes);
    vi totals[LANES_TILE];
    codes += ST_SCALES;
    int32_t offsets[LANES_TILE];
    lanes_add_sums(block_sums + b * n, steps, n, offsets);
    for (size_t t = 0; t < n; t++) totals[t] = vi_zero();
    for (size_t i = 0; i < steps; i += LANES_FLUSH) {
      size_t part = steps - i < LANES_FLUSH ? steps - i : LANES_FLUSH;
      lanes_dot_steps(form, &codes, x + (b + i) * ST_STEP * n, part, n, totals);
    }
    for (size_t t = 0; t < n; t++) sums[t] = vf_fma(d, vi_to_floats(vi_sub(totals[t], vi_set(offsets[t]))), sums[t]);
  }
  for (size_t t = 0; t < n; t++) out[t] = vf_div(sums[t], vf_set(v->scale[first + t]));
}

LANES_INLINE void lanes_token_tile(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out) {
  if (st_coding_of(form).by_block)
    lanes_token_blocks(form, w, row, v, first, n, out);
  else
    lanes_token_rows(form, w, row, v, first, n, out);
}

// By token: tokens [begin, end), whole tiles but for the input's last, with one group of rows.
LANES_INLINE void lanes_group_token(st_form form, const st_matrix *w, const st_view *v, size_t row, size_t last,
                                    size_t begin, size_t end, float *out, size_t stride) {
  for (size_t t = begin; t < end; t += LANES_TILE) {
    vf sums[LANES_TILE];
    size_t n = st_tile_tokens(end, t, LANES_TILE);
    LANES_SWITCH(n, LANES_TILE, lanes_token_tile, form, w, row, v, t, N, sums)
    for (size_t i = 0; i < n; i++) lanes_output(form, w, row, last, sums[i], out + (t + i) * stride);
  }
}

LANES_INLINE void lanes_matmul_token(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                                     float *out, size_t stride) {
  st_view v = st_view_input(input);
  size_t block = lanes_token_block(input, LANES_TILE);
  for (size_t t = 0; t < input->tokens; t += block) {
    size_t end = input->tokens - t < block ? input->tokens : t + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      lanes_group_token(form, w, &v, row, last, t, end, out, stride);
    }
  }
}

enum { LANES_CHUNK = ST_CHUNK_TILES * LANES_TILE };

// By block: a chunk's tokens [begin, end) with one group of rows. Each token's sums wait for those of its second plane.
LANES_INLINE void lanes_group_block(st_form form, const st_matrix *w, const st_input *input, const st_view *v,
                                    size_t row, size_t last, size_t begin, size_t end, float *out, size_t stride) {
  vf sums[LANES_CHUNK], minimums[LANES_CHUNK], rest[LANES_CHUNK];
  if (end - begin == 1) {
    vf sum = lanes_block_one(form, w, row, v, input->tokens, begin);
    lanes_output(form, w, row, last, sum, out + begin * stride);
    return;
  }
  for (size_t t = begin; t < end; t += LANES_TILE) {
    size_t n = st_tile_tokens(end, t, LANES_TILE), i = t - begin;
    LANES_SWITCH(n, LANES_TILE, lanes_block_tile, form, w, row, v, t, N, sums + i, minimums + i)
  }
  lanes_rest_chunk(form, w, row, v, input->tokens, begin, end, rest);
  for (size_t i = 0; i < end - begin; i++) {
    vf sum = vf_add(sums[i], rest[i]);
    if (st_coding_of(form).minimums) sum = vf_add(sum, minimums[i]);
    lanes_output(form, w, row, last, sum, out + (begin + i) * stride);
  }
}

LANES_INLINE void lanes_matmul_block(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                                     float *out, size_t stride) {
  st_view v = st_view_input(input);
  size_t chunk = st_chunk_tokens(input->tokens, LANES_TILE), block = lanes_token_block(input, chunk);
  for (size_t from = 0; from < input->tokens; from += block) {
    size_t to = input->tokens - from < block ? input->tokens : from + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      for (size_t t = from; t < to; t += chunk) {
        size_t end = to - t < chunk ? to : t + chunk;
        lanes_group_block(form, w, input, &v, row, last, t, end, out, stride);
      }
    }
  }
}

// One product for each form that takes such an input.
#define LANES_MATMUL_TOKEN(form)                                                                                       \
  static void lanes_matmul_token_##form(const st_matrix *w, const st_input *input, size_t first, size_t last,          \
                                        float *out, size_t stride) {                                                   \
    lanes_matmul_token(ST_FORM_##form, w, input, first, last, out, stride);                                            \
  }
#define LANES_MATMUL_BLOCK(form)                                                                                       \
  static void lanes_matmul_block_##form(const st_matrix *w, const st_input *input, size_t first, size_t last,          \
                                        float *out, size_t stride) {                                                   \
    lanes_matmul_block(ST_FORM_##form, w, input, first, last, out, stride);                                            \
  }
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(LANES_MATMUL_TOKEN, id) ST_IF_BLOCK_##activations(LANES_MATMUL_BLOCK, id)
#include "kernel/forms.def"

static void lanes_fill_matmul_int8(st_kernels *k) {
#define LANES_FILL_TOKEN(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = lanes_matmul_token_##form;
#define LANES_FILL_BLOCK(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_BLOCK] = lanes_matmul_block_##form;
// The scalar products have inputs in other tiles.
#define LANES_FILL_FIVES(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = NULL;
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(LANES_FILL_TOKEN, id) ST_IF_BLOCK_##activations(LANES_FILL_BLOCK, id)             \
      ST_IF_FIVES_##kind(LANES_FILL_FIVES, id)
#include "kernel/forms.def"
#undef LANES_FILL_TOKEN
#undef LANES_FILL_BLOCK
#undef LANES_FILL_FIVES
}

#endif
