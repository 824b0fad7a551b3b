// Products with float32 inputs: weights of any form become floats 32 columns at a time, and two sums (even and odd
// columns) of each row and token run through all of them.
#ifndef SETUN_KERNEL_LANES_MATMUL_FLOAT_H
#define SETUN_KERNEL_LANES_MATMUL_FLOAT_H

#include "kernel/lanes/place.h"

// 16 weights of column k of a step of numbers; what was unpacked from codes is float32.
LANES_INLINE vf lanes_weight(st_form form, const uint8_t *p, size_t k) {
  const st_coding c = st_coding_of(form);
  if (c.kind == ST_KIND_FLOATS && c.number == ST_NUMBER_F16) return vf_half(p + 32 * k);
  if (c.kind == ST_KIND_FLOATS && c.number == ST_NUMBER_BF16) return vf_bf16(p + 32 * k);
  return vf_load((const float *)(const void *)p + 16 * k);
}

// 32 columns of a coded form as floats. A row's codes of 4 columns are in one 32-bit lane; each in turn is moved to its
// top byte, where subtracting the offset leaves its value, with a sign.
LANES_INLINE void lanes_unpack(st_form form, const lanes_stream *s, float out[ST_STEP][ST_GROUP]) {
  const st_coding c = st_coding_of(form);
  const vi offset = vi_left(vi_set(vb_offset(form)), 24);
  vf d, m;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    if (i == 0 || (i == 4 && c.subs == 2)) lanes_scales(form, s, i / 4, &d, &m);
    vi four = vb_words(vb_codes(form, s->codes, i));
    for (unsigned j = 0; j < 4; j++) {
      vf w = vf_mul(d, vi_to_floats(vi_right(vi_sub(vi_left(four, 24 - 8 * j), offset), 24)));
      vf_store(out[4 * (unsigned)i + j], c.minimums ? vf_add(w, m) : w);
    }
  }
}

// Unpacks a step and advances to the next one.
typedef void (*lanes_unpacker)(lanes_stream *s, float out[ST_STEP][ST_GROUP]);

// What a step of the loop below reads: floats of a form, or codes unpacked to F32, here or in a function.
LANES_INLINE const uint8_t *lanes_next_floats(st_form form, lanes_unpacker unpack, size_t tokens, lanes_stream *s,
                                              float out[ST_STEP][ST_GROUP]) {
  if (unpack) {
    unpack(s, out);
    return (const uint8_t *)out;
  }
  const uint8_t *p = s->codes;
  for (size_t line = 0; line < st_step_bytes(form); line += 64) lanes_prefetch_for(p + line, tokens);
  if (st_form_is(form, ST_KIND_CODES)) {
    lanes_unpack(form, s, out);
    p = (const uint8_t *)out;
  }
  lanes_advance(form, s);
  return p;
}

// `n` tokens, which are `stride` values apart from column to column.
LANES_INLINE void lanes_float_tile(st_form form, lanes_unpacker unpack, const st_matrix *w, size_t row, size_t steps,
                                   const float *x, size_t stride, size_t n, vf *out) {
  vf even[LANES_FLOAT_TOKENS], odd[LANES_FLOAT_TOKENS];
  float weights[ST_STEP][ST_GROUP];
  lanes_stream s = lanes_stream_of(w, row);
  for (size_t t = 0; t < n; t++) even[t] = odd[t] = vf_set(0);
  for (size_t step = 0; step < steps; step++, x += ST_STEP * stride) {
    const uint8_t *p = lanes_next_floats(form, unpack, n, &s, weights);
    for (size_t k = 0; k < ST_STEP; k += 2) {
      vf v = lanes_weight(form, p, k);
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) even[t] = vf_fma(v, vf_set(x[k * stride + t]), even[t]);
      v = lanes_weight(form, p, k + 1);
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) odd[t] = vf_fma(v, vf_set(x[(k + 1) * stride + t]), odd[t]);
    }
  }
  for (size_t t = 0; t < n; t++) out[t] = vf_add(even[t], odd[t]);
}

// What differs between forms of codes: unpacking a step, and the loop of one token, which alternates with unpacking.
// All forms share the loops of several tokens.
typedef struct {
  lanes_unpacker unpack;
  void (*one)(const st_matrix *w, size_t row, size_t steps, const float *x, size_t stride, vf *out);
} lanes_coded;

#define LANES_CODED(form)                                                                                              \
  static void lanes_unpack_##form(lanes_stream *s, float out[ST_STEP][ST_GROUP]) {                                     \
    lanes_next_floats(ST_FORM_##form, NULL, 1, s, out);                                                                \
  }                                                                                                                    \
  static void lanes_one_##form(const st_matrix *w, size_t row, size_t steps, const float *x, size_t stride, vf *out) { \
    lanes_float_tile(ST_FORM_##form, NULL, w, row, steps, x, stride, 1, out);                                          \
  }

#define FORM(id, name, kind, ...) ST_IF_CODES_##kind(LANES_CODED, id)
#include "kernel/forms.def"

static const lanes_coded *lanes_coded_of(st_form form) {
#define LANES_ENTRY(form) [ST_FORM_##form] = {lanes_unpack_##form, lanes_one_##form},
  static const lanes_coded all[ST_FORM_COUNT] = {
#define FORM(id, name, kind, ...) ST_IF_CODES_##kind(LANES_ENTRY, id)
#include "kernel/forms.def"
  };
#undef LANES_ENTRY
  return &all[form];
}

// Tokens [begin, end), whole tiles except for the input's last. `coded` is NULL for forms of floats.
LANES_INLINE void lanes_float_group(st_form form, const lanes_coded *coded, const st_matrix *w, const st_input *input,
                                    const st_view *v, size_t row, size_t last, size_t begin, size_t end, float *out,
                                    size_t stride) {
  for (size_t t = begin; t < end;) {
    size_t tile = t - t % LANES_TILE, count = st_tile_tokens(input->tokens, tile, LANES_TILE);
    size_t left = tile + count - t, n = left < LANES_FLOAT_TOKENS ? left : LANES_FLOAT_TOKENS;
    const float *x = v->values + tile * v->padded + (t - tile);
    vf sums[LANES_FLOAT_TOKENS];
    lanes_unpacker unpack = coded ? coded->unpack : NULL;
    if (coded && n == 1) {
      coded->one(w, row, v->blocks, x, count, sums);
    } else {
      LANES_SWITCH(n, LANES_FLOAT_TOKENS, lanes_float_tile, form, unpack, w, row, v->blocks, x, count, N, sums)
    }
    for (size_t i = 0; i < n; i++) lanes_output(w->form, w, row, last, sums[i], out + (t + i) * stride);
    t += n;
  }
}

// `form` is the first form of numbers, float32, for all forms of codes, which are unpacked to it.
LANES_INLINE void lanes_matmul_float(st_form form, const lanes_coded *coded, const st_matrix *w, const st_input *input,
                                     size_t first, size_t last, float *out, size_t stride) {
  st_view v = st_view_input(input);
  size_t block = lanes_token_block(input, LANES_TILE);
  for (size_t t = 0; t < input->tokens; t += block) {
    size_t end = input->tokens - t < block ? input->tokens : t + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      lanes_float_group(form, coded, w, input, &v, row, last, t, end, out, stride);
    }
  }
}

#define LANES_MATMUL_FLOAT(name, form, coded)                                                                          \
  static void lanes_matmul_float_##name(const st_matrix *w, const st_input *input, size_t first, size_t last,          \
                                        float *out, size_t stride) {                                                   \
    lanes_matmul_float(form, coded, w, input, first, last, out, stride);                                               \
  }
#define LANES_MATMUL_NUMBERS(id) LANES_MATMUL_FLOAT(id, ST_FORM_##id, NULL)

LANES_MATMUL_FLOAT(codes, (st_form)0, lanes_coded_of(w->form))
#define FORM(id, name, kind, ...) ST_IF_FLOATS_##kind(LANES_MATMUL_NUMBERS, id)
#include "kernel/forms.def"

static void lanes_fill_matmul_float(st_kernels *k) {
#define LANES_FILL_NUMBERS(id) k->matmul[ST_FORM_##id][ST_ACT_F32] = lanes_matmul_float_##id;
#define LANES_FILL_CODES(id) k->matmul[ST_FORM_##id][ST_ACT_F32] = lanes_matmul_float_codes;
#define FORM(id, name, kind, ...) ST_IF_FLOATS_##kind(LANES_FILL_NUMBERS, id) ST_IF_CODES_##kind(LANES_FILL_CODES, id)
#include "kernel/forms.def"
#undef LANES_FILL_NUMBERS
#undef LANES_FILL_CODES
}

#endif
