// AVX-512 with VBMI: products of five codes a byte with int8 tokens.
#include "kernel/x86/fives.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

// Integer products of some pieces with the codes of n tokens. Few tokens take a sum a part, so that sums do not wait
// for one another; many have one for the large parts and one for the others.
LANES_INLINE void dot_pieces(st_form form, const st_fives_tables *tables, const uint8_t *piece, size_t pieces,
                             const int8_t *x, bool prefetch, size_t n, vi *totals) {
  const size_t chains = n < 4 ? 5 : 2;
  vd sums[2 * LANES_TILE];
  for (size_t i = 0; i < n * chains; i++) sums[i] = vd_zero();
  for (const uint8_t *end = piece + 64 * pieces; piece < end; piece += 64, x += ST_FIVE_COLUMNS * n) {
    vb parts[5];
    if (prefetch) lanes_prefetch(piece);
    st_fives_parts(tables, piece, parts);
#pragma GCC unroll 5
    for (size_t i = 0; i < 5; i++) {
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++) {
        vd *sum = &sums[t * chains + (chains == 5 ? i : i % 2)];
        *sum = vd_dot(form, *sum, parts[i], x + (i * n + t) * 4);
      }
    }
  }
  for (size_t t = 0; t < n; t++) {
    const vd *s = sums + t * chains;
    vi once = s[0], four_times = s[1];
    if (chains == 5) once = vi_add(once, vi_add(s[2], s[4])), four_times = vi_add(four_times, s[3]);
    totals[t] = vi_add(once, _mm512_srai_epi32(four_times, 2));
  }
}

// One group of rows with the tile of n tokens from `first` on. A scale a row: integers over all columns, then / s.
LANES_INLINE void tile_rows(st_form form, const st_fives_tables *tables, const st_matrix *w, size_t row,
                            const st_view *v, size_t first, size_t n, vf *out) {
  const uint8_t *group = w->data + row / ST_GROUP * w->group_bytes;
  vi totals[LANES_TILE];
  // Later tokens find the group in the cache.
  dot_pieces(form, tables, group, st_five_pieces(w->columns), v->codes + first * v->padded, !first, n, totals);
  for (size_t t = 0; t < n; t++) {
    vi total = vi_sub(totals[t], vi_set(v->sum[first + t]));
    out[t] = vf_div(vi_to_floats(total), vf_set(v->scale[first + t]));
  }
}

// A scale a block: the integers of each block of columns times its scale, added up in order, then / s.
LANES_INLINE void tile_blocks(st_form form, const st_fives_tables *tables, const st_matrix *w, size_t row,
                              const st_view *v, size_t first, size_t n, vf *out) {
  const st_fives f = st_fives_of(form, w->columns, w->block);
  const uint8_t *block = w->data + row / ST_GROUP * w->group_bytes;
  const int8_t *x = v->codes + first * v->padded;
  const int32_t *block_sums = v->block_sum + first * v->blocks;
  vf sums[LANES_TILE];
  for (size_t t = 0; t < n; t++) sums[t] = vf_set(0);
  for (size_t b = 0; b < f.blocks; b++, block += f.bytes, x += f.columns * n) {
    size_t left = v->padded - b * f.columns, columns = left < f.columns ? left : f.columns;
    vi totals[LANES_TILE];
    dot_pieces(form, tables, block + f.head, st_five_pieces(columns), x, !first, n, totals);
    vf d = vf_half(block);
    int32_t offsets[LANES_TILE];
    lanes_add_sums(block_sums + b * f.columns / ST_STEP * n, columns / ST_STEP, n, offsets);
    for (size_t t = 0; t < n; t++) sums[t] = vf_fma(d, vi_to_floats(vi_sub(totals[t], vi_set(offsets[t]))), sums[t]);
  }
  for (size_t t = 0; t < n; t++) out[t] = vf_div(sums[t], vf_set(v->scale[first + t]));
}

LANES_INLINE void tile(st_form form, const st_fives_tables *tables, const st_matrix *w, size_t row, const st_view *v,
                       size_t first, size_t n, vf *out) {
  if (st_coding_of(form).by_block)
    tile_blocks(form, tables, w, row, v, first, n, out);
  else
    tile_rows(form, tables, w, row, v, first, n, out);
}

// Tokens [begin, end) with one group of rows.
LANES_INLINE void multiply_group(st_form form, const st_fives_tables *tables, const st_matrix *w, const st_view *v,
                                 size_t row, size_t last, size_t begin, size_t end, float *out, size_t stride) {
  for (size_t t = begin; t < end; t += LANES_TILE) {
    vf sums[LANES_TILE];
    size_t n = st_tile_tokens(end, t, LANES_TILE);
    LANES_SWITCH(n, LANES_TILE, tile, form, tables, w, row, v, t, N, sums)
    for (size_t i = 0; i < n; i++) lanes_output(form, w, row, last, sums[i], out + (t + i) * stride);
  }
}

LANES_INLINE void multiply(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                           float *out, size_t stride) {
  const st_fives_tables tables = st_fives_load();
  st_view v = st_view_input(input);
  size_t block = lanes_token_block(input, LANES_TILE);
  for (size_t begin = 0; begin < input->tokens; begin += block) {
    size_t end = input->tokens - begin < block ? input->tokens : begin + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      multiply_group(form, &tables, w, &v, row, last, begin, end, out, stride);
    }
  }
}

#define MATMUL(form)                                                                                                   \
  static void matmul_##form(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,          \
                            size_t stride) {                                                                           \
    multiply(ST_FORM_##form, w, input, first, last, out, stride);                                                      \
  }
#define FORM(id, name, kind, ...) ST_IF_FIVES_##kind(MATMUL, id)
#include "kernel/forms.def"

st_avx512_matmul *st_vbmi_matmul(st_form form) {
  static st_avx512_matmul *const products[ST_FORM_COUNT] = {
#define PRODUCT(form) [ST_FORM_##form] = matmul_##form,
#define FORM(id, name, kind, ...) ST_IF_FIVES_##kind(PRODUCT, id)
#include "kernel/forms.def"
#undef PRODUCT
  };
  return products[form];
}

void st_vbmi_init(st_kernels *k) {
  st_vbmi_patterns(k);
#define FILL(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = matmul_##form, k->faster[ST_FORM_##form] = true;
#define FORM(id, name, kind, ...) ST_IF_FIVES_##kind(FILL, id)
#include "kernel/forms.def"
#undef FILL
}
