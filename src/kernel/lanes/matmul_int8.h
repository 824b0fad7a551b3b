// Products with int8 inputs, by token or by block of 32 columns: one group of rows and one tile of tokens at a time,
// codes unpacked in registers for all of the tile's tokens.
#ifndef SETUN_KERNEL_LANES_MATMUL_INT8_H
#define SETUN_KERNEL_LANES_MATMUL_INT8_H

#include "kernel/lanes/place.h"

// By how many bits the codes of a chain are moved up. Codes of two bits need no shift, or share one, where a chain's are
// moved up alike: its sums are as many times as large. It pays for one token.
LANES_INLINE unsigned lanes_raised(st_form form, size_t n, size_t chain) {
  const st_coding c = st_coding_of(form);
  return n == 1 && c.low == 2 && !c.high && !c.values ? lanes_chain_raised(chain) : 0;
}

// Adds the products of 32 columns with n tokens, each in `chains` sums that do not wait for one another.
LANES_INLINE void lanes_dot_step(st_form form, const uint8_t *codes, const int8_t *x, size_t n, size_t chains,
                                 vd *sums) {
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; i++) {
    const unsigned up = lanes_raised(form, n, i % chains);
    vb w = up ? vb_raised(codes, (int)i, (int)up) : vb_codes(form, codes, (int)i);
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) {
      vd *sum = &sums[t * chains + i % chains];
      *sum = vd_dot(form, *sum, w, x + (i * n + t) * 4);
    }
  }
}

#ifdef LANES_MATRICES
// The same for n tokens, an even number, in pairs, with an even number of unpacked parts.
LANES_INLINE void lanes_pair_dots(const vb *w, size_t parts, const int8_t *x, size_t stride, size_t n, vp *sums) {
#pragma GCC unroll 4
  for (size_t i = 0; i < parts; i += 2) {
#pragma GCC unroll 4
    for (size_t t = 0; t < n; t += 2) {
      const int8_t *at = x + (i * stride + t) * 4;
      sums[t / 2] = vp_dot(sums[t / 2], w[i], w[i + 1], at, at + 4 * stride);
    }
  }
}

// Adds the sums to the totals of their n tokens.
LANES_INLINE void lanes_pair_totals(const vp *sums, size_t n, vi *totals) {
#pragma GCC unroll 4
  for (size_t t = 0; t < n; t += 2) {
    vi first, second;
    vp_totals(sums[t / 2], &first, &second);
    totals[t] = vi_add(totals[t], first);
    totals[t + 1] = vi_add(totals[t + 1], second);
  }
}
#endif

// ---- by block -----------------------------------------------------------------------------------------------------

enum { LANES_RUN = 8 }; // blocks of 32 columns whose starts are computed together

// The initial values of sums of products with codes, since a code is larger than its value: -(offset * sum). Unused
// tokens may be computed too, so sums may wrap around, whatever these values are.
LANES_INLINE int32_t lanes_start(st_form form, int32_t sum) {
  return (int32_t)(0 - (uint32_t)vb_offset(form) * (uint32_t)sum);
}
LANES_INLINE void lanes_starts(st_form form, const int32_t *sums, size_t n, int32_t *starts) {
  for (size_t i = 0; vb_offset(form) && i < n; i += 16) {
    vi v = vi_load(sums + i), start = vi_zero();
#pragma GCC unroll 8
    for (unsigned bit = 0; bit < 8; bit++) {
      if (vb_offset(form) >> bit & 1) start = vi_sub(start, vi_left(v, bit));
    }
    vf_store((float *)starts + i, vi_as_floats(start));
  }
}

// A tile of a plane, [blocks] of [n] tokens, or of a chunk's lists, [blocks] with room for [n] entries: the scales and
// sums of its codes, and the starts of LANES_RUN blocks.
typedef struct {
  const int8_t *codes;
  const float *scales;
  const int32_t *sums[2];                         // of a block, or of its halves
  int32_t starts[2][LANES_RUN * LANES_TILE + 16]; // of the blocks from the last multiple of LANES_RUN on
} lanes_plane_tile;

LANES_INLINE void lanes_plane_starts(st_form form, lanes_plane_tile *p, size_t block, size_t blocks, size_t n) {
  size_t left = blocks - block < LANES_RUN ? blocks - block : LANES_RUN;
  for (int sub = 0; sub < st_coding_of(form).subs; sub++) {
    lanes_starts(form, p->sums[sub] + block * n, left * n, p->starts[sub]);
  }
}

// The codes of a sub-block, parts of 4 columns.
LANES_INLINE void lanes_block_unpack(st_form form, const uint8_t *codes, int sub, vb *w) {
  const int parts = 8 / st_coding_of(form).subs;
#pragma GCC unroll 8
  for (int i = 0; i < parts; i++) w[i] = vb_codes(form, codes, sub * parts + i);
}

// Their integer products with n tokens, which are the first of `stride` that are interleaved at x.
LANES_INLINE void lanes_block_dots(st_form form, const vb *w, const int8_t *x, size_t stride, int sub, size_t n,
                                   const int32_t *starts, vi *totals) {
  const size_t parts = 8 / st_coding_of(form).subs;
  const size_t each = parts < vd_parts(form) ? parts : vd_parts(form);
  x += (size_t)sub * parts * stride * 4;
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) totals[t] = vb_offset(form) ? vi_set(starts[t]) : vi_zero();
#ifdef LANES_MATRICES
  if (n % 2 == 0) {
    vp sums[LANES_TILE / 2];
#pragma GCC unroll 4
    for (size_t t = 0; t < n; t += 2) sums[t / 2] = vp_zero();
    lanes_pair_dots(w, parts, x, stride, n, sums);
    lanes_pair_totals(sums, n, totals);
    return;
  }
#endif
#pragma GCC unroll 8
  for (size_t from = 0; from < parts; from += each) {
    vd dots[LANES_TILE];
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) dots[t] = vd_begin(form, &totals[t]);
#pragma GCC unroll 8
    for (size_t i = from; i < from + each; i++) {
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) dots[t] = vd_dot(form, dots[t], w[i], x + (i * stride + t) * 4);
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) totals[t] = vi_add(totals[t], vd_total(form, dots[t]));
  }
}

// sums += (d * dx) * integers, for one plane.
LANES_INLINE void lanes_block_add(vf d, const float *scales, const vi *totals, size_t n, vf *sums) {
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) sums[t] = vf_fma(vf_mul_by(d, scales + t), vi_to_floats(totals[t]), sums[t]);
}

// Nothing after this begins before the sums are complete: the products of two sub-blocks would leave no registers for
// them.
LANES_INLINE void lanes_keep(size_t n, vf *sums) {
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) vf_opaque(&sums[t]);
}

// The planes of a tile; the second one where the tile is a chunk by itself: its codes are multiplied while the block's
// are unpacked. `count` is NULL for other tiles.
typedef struct {
  lanes_plane_tile first, rest;
  const uint32_t *count, *token; // of each block, of each entry
} lanes_planes;

// Two entries at once: the sum of one alone waits for each of its products.
LANES_INLINE void lanes_rest_block(st_form form, const lanes_planes *p, size_t block, int sub, size_t n, vf d,
                                   const vb *w, vf *rest) {
  const int8_t *x = p->rest.codes + block * ST_STEP * n;
  const int32_t *starts = p->rest.starts[sub] + block % LANES_RUN * n;
  const float *scales = p->rest.scales + block * n;
  const uint32_t *token = p->token + block * n;
  const size_t count = p->count[block];
  vi totals[2];
  size_t e = 0;
  for (; e + 2 <= count; e += 2) {
    lanes_block_dots(form, w, x + 4 * e, n, sub, 2, starts + e, totals);
    lanes_block_add(d, scales + e, &totals[0], 1, &rest[token[e]]);
    lanes_block_add(d, scales + e + 1, &totals[1], 1, &rest[token[e + 1]]);
  }
  if (e == count) return;
  lanes_block_dots(form, w, x + 4 * e, n, sub, 1, starts + e, totals);
  lanes_block_add(d, scales + e, totals, 1, &rest[token[e]]);
}

// For each sub-block: sum += (d * dx) * integers, and rest likewise with the second plane. `alone`, a constant, is
// false only where p->count is NULL: the compiler then keeps nothing in memory for a second plane.
LANES_INLINE void lanes_block_tile(st_form form, const st_matrix *w, size_t row, size_t blocks, bool prefetch, size_t n,
                                   bool alone, lanes_planes *p, vf *out, vf *rest) {
  const st_coding c = st_coding_of(form);
  vf sums[LANES_TILE], d, m;
  vi totals[LANES_TILE];
  vb codes[8];
  lanes_stream s = lanes_stream_of(w, row);
  const int8_t *x = p->first.codes;
  const float *scales = p->first.scales;
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) sums[t] = vf_set(0);
#pragma GCC unroll 8
  for (size_t t = 0; t < n && alone; t++) rest[t] = vf_set(0);
  for (size_t b = 0; b < blocks; b++, x += ST_STEP * n, scales += n) {
    if (prefetch) lanes_prefetch_step(form, s.codes);
    if (b % LANES_RUN == 0) {
      lanes_plane_starts(form, &p->first, b, blocks, n);
      if (alone && p->count) lanes_plane_starts(form, &p->rest, b, blocks, n);
    }
#pragma GCC unroll 2
    for (int sub = 0; sub < c.subs; sub++) {
      lanes_scales(form, &s, sub, &d, &m);
      lanes_block_unpack(form, s.codes, sub, codes);
      lanes_block_dots(form, codes, x, n, sub, n, p->first.starts[sub] + b % LANES_RUN * n, totals);
      lanes_block_add(d, scales, totals, n, sums);
      if (alone && p->count) lanes_rest_block(form, p, b, sub, n, d, codes, rest);
      if (c.subs == 2) lanes_keep(n, sums);
    }
    lanes_advance(form, &s);
  }
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) out[t] = sums[t];
}

// sums += m * (sum of the values of both planes of a sub-block), of the n tokens of a tile from `first`.
LANES_INLINE void lanes_block_minimums(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                       size_t n, vf *out) {
  const size_t subs = st_coding_of(form).subs;
  const float *products = subs == 1 ? v->block_product + first * v->blocks : v->half_product + 2 * first * v->blocks;
  lanes_stream s = lanes_stream_of(w, row);
  vf sums[LANES_TILE], d, m;
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) sums[t] = vf_set(0);
  for (size_t b = 0; b < v->blocks; b++) {
    for (size_t sub = 0; sub < subs; sub++, products += n) {
      lanes_scales(form, &s, (int)sub, &d, &m);
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) sums[t] = vf_fma_by(m, products + t, sums[t]);
    }
    lanes_advance(form, &s);
  }
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) out[t] = sums[t];
}

// The integer products of a sparse form's step with one token: its activations are moved to the codes. Codes would have
// to be moved to twice as many columns, which is less work only where several tokens take them.
LANES_INLINE vi lanes_sparse_dots(st_form form, const uint8_t *codes, const int8_t *x) {
  const int offset = vb_offset(form);
  vd sum = vd_zero(), more = vd_zero();
#pragma GCC unroll 4
  for (int j = 0; j < ST_STEP / 8; j++) {
    vb own = vb_gather(codes, j, x + 8 * j);
    sum = vd_dot_own(form, sum, vb_kept(form, codes, j), own);
    if (offset) more = vd_dot_own(form, more, vb_set(offset), own);
  }
  return vd_difference(form, sum, more);
}

// Those of a sub-block; `w` are its codes, where the form is not sparse.
LANES_INLINE vi lanes_one_dots(st_form form, const uint8_t *codes, const vb *w, const int8_t *x, int sub, int32_t sum) {
  vi total;
  if (st_coding_of(form).sparse) return lanes_sparse_dots(form, codes, x);
  sum = lanes_start(form, sum);
  lanes_block_dots(form, w, x, 1, sub, 1, &sum, &total);
  return total;
}

// A token that is a chunk by itself: its second plane is multiplied together with the first, so that reading never
// pauses.
LANES_INLINE vf lanes_block_one(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t token,
                                const st_rest_list *list) {
  const st_coding c = st_coding_of(form);
  const bool halves = c.subs == 2, kept = c.head && !c.back; // the scales of several steps
  const int8_t *x = v->codes + token * v->padded;
  const float *products = halves ? v->half_product + 2 * token * v->blocks : v->block_product + token * v->blocks;
  lanes_stream s = lanes_stream_of(w, row);
  vf sum = vf_set(0), rest = vf_set(0), minimum = vf_set(0), d = sum, m = sum;
  vb codes[8];
  vi total;
  for (size_t b = 0, at = list->at; b < v->blocks; b++, at++, x += ST_STEP) {
    lanes_prefetch_step(form, s.codes);
#pragma GCC unroll 2
    for (int sub = 0; sub < c.subs; sub++) {
      if (!kept || s.left == s.each) lanes_scales(form, &s, sub, &d, &m);
      if (!c.sparse) lanes_block_unpack(form, s.codes, sub, codes);
      total = lanes_one_dots(form, s.codes, codes, x, sub, (halves ? v->half_sum[sub] : v->block_sum)[at]);
      lanes_block_add(d, v->block_scale + at, &total, 1, &sum);
      if (c.minimums) minimum = vf_fma_by(m, products++, minimum);
      if (!v->rest_count[list->count_at + b]) continue;
      total = lanes_one_dots(form, s.codes, codes, v->rest + at * ST_STEP, sub,
                             (halves ? v->rest_half[sub] : v->rest_sum)[at]);
      lanes_block_add(d, v->rest_scale + at, &total, 1, &rest);
    }
    lanes_advance(form, &s);
  }
  sum = vf_add(sum, rest);
  return c.minimums ? vf_add(sum, minimum) : sum;
}

// A tile of tokens from `first` on with the rows from `row` on, and its second plane where `list` is its own.
typedef struct {
  const st_matrix *w;
  size_t row, first;
  const st_view *v;
  const st_rest_list *list;
  lanes_planes planes;
  vf *sums, *rest, *minimums;
} lanes_block_job;

LANES_INLINE void lanes_block_tokens(st_form form, size_t n, lanes_block_job *j) {
  const bool halves = st_coding_of(form).subs == 2;
  const st_view *v = j->v;
  const st_rest_list *list = j->list;
  lanes_planes *p = &j->planes;
  size_t at = j->first * v->blocks;
  p->first.codes = v->codes + j->first * v->padded, p->first.scales = v->block_scale + at;
  p->first.sums[0] = (halves ? v->half_sum[0] : v->block_sum) + at;
  p->first.sums[1] = v->half_sum[1] + at;
  p->count = NULL;
  if (list) {
    at = list->at;
    p->rest.codes = v->rest + at * ST_STEP, p->rest.scales = v->rest_scale + at;
    p->rest.sums[0] = (halves ? v->rest_half[0] : v->rest_sum) + at;
    p->rest.sums[1] = v->rest_half[1] + at;
    p->count = v->rest_count + list->count_at, p->token = v->rest_place + at;
  }
  if (n == LANES_TILE && !list)
    lanes_block_tile(form, j->w, j->row, v->blocks, !j->first, n, false, p, j->sums, j->rest);
  else
    lanes_block_tile(form, j->w, j->row, v->blocks, !j->first, n, true, p, j->sums, j->rest);
  if (st_coding_of(form).minimums) lanes_block_minimums(form, j->w, j->row, v, j->first, n, j->minimums);
}

// Adds the second plane of `left` entries of a block's list, from `at` on, to the sums of their tokens; n, a
// constant of at least `left`, are computed.
LANES_INLINE void lanes_rest_tile(st_form form, const lanes_stream *s, const st_view *v, size_t at, size_t width,
                                  size_t n, size_t left, vf *rest) {
  vf products[LANES_TILE], d, m;
  vi totals[LANES_TILE];
  vb w[8];
  int32_t starts[16];
  const int8_t *x = v->rest + at * ST_STEP;
  const uint32_t *token = v->rest_place + at;
  for (int sub = 0; sub < st_coding_of(form).subs; sub++) {
    lanes_scales(form, s, sub, &d, &m);
    lanes_starts(form, (st_coding_of(form).subs == 1 ? v->rest_sum : v->rest_half[sub]) + at, n, starts);
    lanes_block_unpack(form, s->codes, sub, w);
    lanes_block_dots(form, w, x, width, sub, n, starts, totals);
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

// ---- by token -----------------------------------------------------------------------------------------------------

#ifdef LANES_MATRICES
// lanes_dot_steps for an even number of tokens.
LANES_INLINE void lanes_pair_steps(st_form form, const uint8_t **codes, const int8_t *x, size_t steps, size_t n,
                                   vi *totals) {
  vp sums[LANES_TILE / 2];
#pragma GCC unroll 4
  for (size_t t = 0; t < n; t += 2) sums[t / 2] = vp_zero();
  for (; steps; steps--, x += ST_STEP * n, *codes += st_step_bytes(form)) {
    lanes_prefetch_step(form, *codes);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      const vb w[2] = {vb_codes(form, *codes, i), vb_codes(form, *codes, i + 1)};
      lanes_pair_dots(w, 2, x + 4 * n * (size_t)i, n, n, sums);
    }
  }
  lanes_pair_totals(sums, n, totals);
}
#endif

// Adds the integer products of `steps` times 32 columns to the totals of n tokens; advances the codes.
LANES_INLINE void lanes_dot_steps(st_form form, const uint8_t **codes, const int8_t *x, size_t steps, size_t n,
                                  vi *totals) {
#ifdef LANES_MATRICES
  if (n % 2 == 0) {
    lanes_pair_steps(form, codes, x, steps, n, totals);
    return;
  }
#endif
  const size_t chains = lanes_chains(n);
  vd dots[2 * LANES_TILE];
#pragma GCC unroll 8
  for (size_t i = 0; i < n * chains; i++) dots[i] = vd_zero();
  for (; steps; steps--, x += ST_STEP * n, *codes += st_step_bytes(form)) {
    lanes_prefetch_step(form, *codes);
    lanes_dot_step(form, *codes, x, n, chains, dots);
  }
#pragma GCC unroll 8
  for (size_t t = 0; t < n; t++) {
    vd sum = dots[t * chains];
#pragma GCC unroll 4
    for (size_t chain = 1; chain < chains; chain++)
      sum = vd_join(form, sum, dots[t * chains + chain], lanes_raised(form, n, chain));
    totals[t] = vi_add(totals[t], vd_total(form, sum));
  }
}

// A scale a row: integers over all columns, then / s.
LANES_INLINE void lanes_token_rows(st_form form, const st_matrix *w, size_t row, const st_view *v, size_t first,
                                   size_t n, vf *out) {
  vi totals[LANES_TILE];
  const uint8_t *codes = w->data + row / ST_GROUP * w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  for (size_t t = 0; t < n; t++) totals[t] = vi_zero();
  for (size_t b = 0; b < v->blocks; b += lanes_flush(n)) {
    size_t steps = v->blocks - b < lanes_flush(n) ? v->blocks - b : lanes_flush(n);
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
    for (size_t i = 0; i < steps; i += lanes_flush(n)) {
      size_t part = steps - i < lanes_flush(n) ? steps - i : lanes_flush(n);
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

// By token: tokens [begin, end), whole tiles except for the input's last, with one group of rows.
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

typedef void lanes_block_tiles(size_t n, lanes_block_job *j);
typedef vf lanes_block_token(const st_matrix *w, size_t row, const st_view *v, size_t token, const st_rest_list *list);

// By block: a chunk's tokens [begin, end) with one group of rows. Each token's sums wait for those of its second plane.
LANES_INLINE void lanes_group_block(st_form form, lanes_block_tiles *tiles, lanes_block_token *one, const st_matrix *w,
                                    const st_input *input, const st_view *v, size_t row, size_t last, size_t begin,
                                    size_t end, float *out, size_t stride) {
  vf sums[LANES_CHUNK], minimums[LANES_CHUNK], rest[LANES_CHUNK];
  const st_rest_list own = st_rest_list_of(v, input->tokens, LANES_TILE, begin, 0);
  const bool alone = end - begin <= LANES_TILE;
  if (end - begin == 1) {
    lanes_output(form, w, row, last, one(w, row, v, begin, &own), out + begin * stride);
    return;
  }
  lanes_block_job j = {.w = w, .row = row, .v = v, .list = alone ? &own : NULL};
  for (j.first = begin; j.first < end; j.first += LANES_TILE) {
    size_t i = j.first - begin;
    j.sums = sums + i, j.rest = rest + i, j.minimums = minimums + i;
    size_t n = st_tile_tokens(end, j.first, LANES_TILE);
    for (size_t t = 0; t < n; t++) __builtin_prefetch(out + (j.first + t) * stride + row, 1);
    tiles(n, &j);
  }
  if (!alone) lanes_rest_chunk(form, w, row, v, input->tokens, begin, end, rest);
  for (size_t i = 0; i < end - begin; i++) {
    vf sum = vf_add(sums[i], rest[i]);
    if (st_coding_of(form).minimums) sum = vf_add(sum, minimums[i]);
    lanes_output(form, w, row, last, sum, out + (begin + i) * stride);
  }
}

LANES_INLINE void lanes_matmul_block(st_form form, lanes_block_tiles *tiles, lanes_block_token *one, const st_matrix *w,
                                     const st_input *input, size_t first, size_t last, float *out, size_t stride) {
  st_view v = st_view_input(input);
  size_t chunk = st_chunk_tokens(input->tokens, LANES_TILE), block = lanes_token_block(input, chunk);
  for (size_t from = 0; from < input->tokens; from += block) {
    size_t to = input->tokens - from < block ? input->tokens : from + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      for (size_t t = from; t < to; t += chunk) {
        size_t end = to - t < chunk ? to : t + chunk;
        lanes_group_block(form, tiles, one, w, input, &v, row, last, t, end, out, stride);
      }
    }
  }
}

// A function for each form and number of tokens: in one function for all numbers the compiler does not keep sums in
// registers.
#define LANES_BLOCK_TOKENS(form, n)                                                                                    \
  static __attribute__((noinline)) void lanes_block_##form##_##n(lanes_block_job *j) {                                 \
    lanes_block_tokens(ST_FORM_##form, n, j);                                                                          \
  }
#define LANES_BLOCK_CASE(form, n)                                                                                      \
  case n:                                                                                                              \
    if (n <= LANES_TILE) lanes_block_##form##_##n(j);                                                                  \
    break;
#define LANES_EACH_TILE(each, form)                                                                                    \
  each(form, 1) each(form, 2) each(form, 3) each(form, 4) each(form, 5) each(form, 6) each(form, 7) each(form, 8)
#define LANES_BLOCK_TILES(form)                                                                                        \
  LANES_EACH_TILE(LANES_BLOCK_TOKENS, form)                                                                            \
  static __attribute__((noinline)) vf lanes_block_one_##form(const st_matrix *w, size_t row, const st_view *v,         \
                                                             size_t token, const st_rest_list *list) {                 \
    return lanes_block_one(ST_FORM_##form, w, row, v, token, list);                                                    \
  }                                                                                                                    \
  static void lanes_block_tiles_##form(size_t n, lanes_block_job *j) {                                                 \
    switch (n) { LANES_EACH_TILE(LANES_BLOCK_CASE, form) }                                                             \
  }
#define FORM(id, name, kind, activations, ...) ST_IF_BLOCK_##activations(LANES_BLOCK_TILES, id)
#include "kernel/forms.def"

// One product for each form that takes such an input.
#define LANES_MATMUL_TOKEN(form)                                                                                       \
  static void lanes_matmul_token_##form(const st_matrix *w, const st_input *input, size_t first, size_t last,          \
                                        float *out, size_t stride) {                                                   \
    lanes_matmul_token(ST_FORM_##form, w, input, first, last, out, stride);                                            \
  }
#define LANES_MATMUL_BLOCK(form)                                                                                       \
  static void lanes_matmul_block_##form(const st_matrix *w, const st_input *input, size_t first, size_t last,          \
                                        float *out, size_t stride) {                                                   \
    lanes_matmul_block(ST_FORM_##form, lanes_block_tiles_##form, lanes_block_one_##form, w, input, first, last, out,   \
                       stride);                                                                                        \
  }
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(LANES_MATMUL_TOKEN, id) ST_IF_BLOCK_##activations(LANES_MATMUL_BLOCK, id)
#include "kernel/forms.def"

static void lanes_fill_matmul_int8(st_kernels *k) {
#define LANES_FILL_TOKEN(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = lanes_matmul_token_##form;
#define LANES_FILL_BLOCK(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_BLOCK] = lanes_matmul_block_##form;
// The scalar table's inputs have other tiles.
#define LANES_FILL_NONE(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = NULL;
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(LANES_FILL_TOKEN, id) ST_IF_BLOCK_##activations(LANES_FILL_BLOCK, id)             \
      ST_IF_FIVES_##kind(LANES_FILL_NONE, id) ST_IF_PATTERNS_##kind(LANES_FILL_NONE, id)
#include "kernel/forms.def"
#undef LANES_FILL_TOKEN
#undef LANES_FILL_BLOCK
#undef LANES_FILL_NONE
}

#endif
