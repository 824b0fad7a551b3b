// Moving through a group's stream, choosing code for a number of tokens, and storing 16 results.
#ifndef SETUN_KERNEL_LANES_PLACE_H
#define SETUN_KERNEL_LANES_PLACE_H

#include "kernel/layout.h"

// The scales and codes of the next 32 columns; `left` counts the steps to the next head. Where a form has heads, the
// scales are the head's.
typedef struct {
  const uint8_t *scales, *codes;
  size_t left, each;
  bool bfloat; // of groups with minimums: how the scales are read
} lanes_stream;

LANES_INLINE lanes_stream lanes_stream_of(const st_matrix *w, size_t row) {
  lanes_stream s = {.scales = w->data + row / ST_GROUP * w->group_bytes, .bfloat = w->bfloat};
  st_coding c = st_coding_of(w->form);
  s.codes = s.scales + c.head + c.front;
  s.left = s.each = st_super_steps(w->form, w->block);
  return s;
}

LANES_INLINE void lanes_advance(st_form form, lanes_stream *s) {
  s->codes += st_step_bytes(form);
  st_coding c = st_coding_of(form);
  if (c.head) {
    if (--s->left) return;
    s->scales = s->codes;
    s->codes += c.head;
    s->left = s->each;
  } else {
    s->scales = s->codes - c.front;
  }
}

// For a product with that many tokens. What several multiply is needed later than what one does: it waits in the
// second-level cache, and the first level's fills are left to their inputs, which do not fit there.
LANES_INLINE void lanes_prefetch_for(const uint8_t *p, size_t tokens) {
  if (tokens < 4)
    lanes_prefetch(p);
  else
    __builtin_prefetch(p + 8192, 0, 2);
}

LANES_INLINE void lanes_prefetch_step(st_form form, const uint8_t *codes) {
  for (size_t line = 0; line < st_step_bytes(form); line += 64) lanes_prefetch(codes + line);
}

// The scales d and minimums m of columns [16 half, 16 half + 16) of a step, or of all 32 where a form does not
// distinguish them. E8M0's halved scales are a product of two powers of two, so that they may be subnormal.
LANES_INLINE void lanes_scales(st_form form, const lanes_stream *s, int half, vf *d, vf *m) {
  const st_coding c = st_coding_of(form);
  const uint8_t *bytes = s->codes + 64 * (c.low + c.high) + (c.subs == 2 ? ST_GROUP * half : 0);
  *d = vf_set(1), *m = vf_set(0);
  if (c.rule == ST_RULE_ROW) return;
  if (c.rule == ST_RULE_E8M0) {
    vi e = vi_and(vi_bytes(s->scales), vi_set(255)), low = vi_right(e, 1), bias = vi_set(63);
    *d = vf_mul(vi_as_floats(vi_left(vi_add(low, bias), 23)), vi_as_floats(vi_left(vi_add(vi_sub(e, low), bias), 23)));
    return;
  }
  if (c.minimums && c.by_block && s->bfloat) {
    *d = vf_bf16(s->scales), *m = vf_bf16(s->scales + ST_SCALES);
  } else {
    *d = vf_half(s->scales);
    if (c.rule == ST_RULE_HALVED) *d = vf_mul(*d, vf_set(0.5f));
    if (c.rule == ST_RULE_ZERO) {
      *m = vf_mul(*d, vi_to_floats(vi_sub(vi_zero(), vi_bytes(s->scales + ST_SCALES))));
      return;
    }
    if (c.minimums) *m = vf_half(s->scales + ST_SCALES);
  }
  if (c.minimums && c.low == 8) *m = vf_add(*m, vf_mul(*d, vf_set(128)));
  if (!c.back) return;
  vi scale = vi_bytes(bytes), minimum = scale;
  if (c.rule == ST_RULE_NIBBLES)
    scale = vi_and(scale, vi_set(15)), minimum = vi_and(vi_right(minimum, 4), vi_set(15));
  else if (c.minimums)
    minimum = vi_bytes(bytes + ST_GROUP);
  *d = vf_mul(*d, vi_to_floats(scale));
  if (c.minimums) *m = vf_mul(*m, vi_to_floats(minimum));
}

// The number of tokens to compute with all rows before the next ones: as many whole units as fit with their inputs into
// the second-level cache, where each group of rows reads them again.
LANES_INLINE size_t lanes_token_block(const st_input *input, size_t unit) {
  enum { CACHED = 512 << 10 };
  size_t bytes = st_round_up(input->columns, ST_STEP) * (input->kind == ST_ACT_F32 ? 4 : 1) + 1;
  size_t units = CACHED / bytes / unit;
  return (units ? units : 1) * unit;
}

// The sums of the codes of `steps` times 32 columns, of each of n tokens: of [steps][n] sums.
LANES_INLINE void lanes_add_sums(const int32_t *block_sums, size_t steps, size_t n, int32_t *sums) {
  for (size_t t = 0; t < n; t++) sums[t] = 0;
  for (size_t i = 0; i < steps; i++, block_sums += n) {
#pragma GCC unroll 8
    for (size_t t = 0; t < n; t++) sums[t] += block_sums[t];
  }
}

// Calls fn with the argument N a constant equal to n, 1 to `most` (itself a constant, at most 8).
#define LANES_CASE(n, most, fn, ...)                                                                                   \
  case n: {                                                                                                            \
    enum { N = n };                                                                                                    \
    if (n <= most) fn(__VA_ARGS__);                                                                                    \
    break;                                                                                                             \
  }
#define LANES_SWITCH(n, most, fn, ...)                                                                                 \
  switch (n) {                                                                                                         \
    LANES_CASE(1, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(2, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(3, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(4, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(5, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(6, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(7, most, fn, __VA_ARGS__)                                                                               \
    LANES_CASE(8, most, fn, __VA_ARGS__)                                                                               \
  default: break;                                                                                                      \
  }

LANES_INLINE void lanes_store(size_t row, size_t last, vf sums, float *out) {
  if (last - row >= ST_GROUP)
    vf_store(out + row, sums);
  else
    vf_store_n(out + row, sums, last - row);
}

// Stores the results of up to 16 rows, with their row scales where the form has them.
LANES_INLINE void lanes_output(st_form form, const st_matrix *w, size_t row, size_t last, vf sums, float *out) {
  if (st_coding_of(form).rule == ST_RULE_ROW) sums = vf_mul(sums, vf_load(w->scales + row));
  lanes_store(row, last, sums, out);
}

#endif
