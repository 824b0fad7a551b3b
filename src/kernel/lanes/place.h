// Moving through a group's stream, choosing code for a number of tokens, and storing 16 results.
#ifndef SETUN_KERNEL_LANES_PLACE_H
#define SETUN_KERNEL_LANES_PLACE_H

#include "kernel/layout.h"

// Where the scales and codes of the next 32 columns stand; `left` counts 32s down to T16B's next scales.
typedef struct {
  const uint8_t *scales, *codes;
  size_t left, each;
} lanes_stream;

LANES_INLINE size_t lanes_scale_bytes(st_form form) {
  if (form == ST_FORM_Q4M) return 2 * ST_SCALES;
  return form == ST_FORM_Q8 || form == ST_FORM_Q4 || form == ST_FORM_T16B ? ST_SCALES : 0;
}

LANES_INLINE lanes_stream lanes_stream_of(const st_matrix *w, size_t row) {
  lanes_stream s = {.scales = w->data + row / ST_GROUP * w->group_bytes};
  s.codes = s.scales + lanes_scale_bytes(w->form);
  s.left = s.each = w->form == ST_FORM_T16B ? w->block / ST_STEP : 1;
  return s;
}

// The same at a block of 32 columns; `left` is not meant for going on.
LANES_INLINE lanes_stream lanes_stream_at(st_form form, const st_matrix *w, size_t row, size_t block) {
  lanes_stream s = lanes_stream_of(w, row);
  if (form == ST_FORM_T16B) {
    s.scales += block / s.each * (ST_SCALES + s.each * st_step_bytes(form));
    s.codes = s.scales + ST_SCALES + block % s.each * st_step_bytes(form);
  } else {
    s.scales += block * st_step_bytes(form);
    s.codes += block * st_step_bytes(form);
  }
  return s;
}

LANES_INLINE void lanes_advance(st_form form, lanes_stream *s) {
  s->codes += st_step_bytes(form);
  if (form == ST_FORM_T16B) {
    if (--s->left) return;
    s->scales = s->codes;
    s->codes += ST_SCALES;
    s->left = s->each;
  } else {
    s->scales = s->codes - lanes_scale_bytes(form);
  }
}

// How many tokens to take with all rows before the next ones: as many whole tiles as leave their inputs in the
// second-level cache, where each group of rows finds them again.
LANES_INLINE size_t lanes_token_block(const st_input *input) {
  enum { CACHED = 512 << 10 };
  size_t bytes = st_round_up(input->columns, ST_STEP) * (input->kind == ST_ACT_F32 ? 4 : 1) + 1;
  size_t tiles = CACHED / bytes / LANES_TILE;
  return (tiles ? tiles : 1) * LANES_TILE;
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

// The results of 16 rows, as many as there are, with T16's row scales.
LANES_INLINE void lanes_output(st_form form, const st_matrix *w, size_t row, size_t last, vf sums, float *out) {
  if (form == ST_FORM_T16) sums = vf_mul(sums, vf_load(w->scales + row));
  if (last - row >= ST_GROUP)
    vf_store(out + row, sums);
  else
    vf_store_n(out + row, sums, last - row);
}

#endif
