// AVX-512 with VBMI: products of five codes a byte with int8 tokens. Few tokens take a piece's parts in registers. Many
// meet parts that were spread into bytes before, a span of a group for all of them: look-ups, comparisons and shifts go
// through units that multiply.
#include "kernel/x86/fives.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

// Integer products of some pieces with the codes of n tokens. Few tokens take a sum a part, so that sums do not wait
// for one another and parts need no shifts; more have one for the large parts and one for the others.
LANES_INLINE void dot_pieces(st_form form, const st_fives_tables *tables, const uint8_t *piece, size_t pieces,
                             const int8_t *x, bool prefetch, size_t n, vi *totals) {
  const size_t chains = n < 4 ? 5 : 2;
  vd sums[2 * LANES_TILE];
  for (size_t i = 0; i < n * chains; i++) sums[i] = vd_zero();
  for (const uint8_t *end = piece + 64 * pieces; piece < end; piece += 64, x += ST_FIVE_COLUMNS * n) {
    vb parts[5];
    if (prefetch) lanes_prefetch_for(piece, n);
    if (chains == 5)
      st_fives_scaled(tables, piece, parts);
    else
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
    totals[t] = vi_add(s[0], _mm512_srai_epi32(s[1], 2));
    if (chains < 5) continue;
    totals[t] = vi_add(totals[t], _mm512_srai_epi32(s[2], 4));
    totals[t] = vi_add(totals[t], _mm512_srai_epi32(vi_add(s[3], s[4]), 6));
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

// ---- many tokens ----------------------------------------------------------------------------------------------------

enum {
  MANY = 2 * LANES_TILE, // tokens, at least
  SPAN = 48,             // pieces, at most: 15 KB of parts
  MANY_AT_ONCE = 256     // tokens that meet a group together, at most
};

// What lies in st_input.scratch.
typedef struct {
  _Alignas(64) uint8_t parts[SPAN * 5 * 64];
  _Alignas(64) int32_t sums[MANY_AT_ONCE][ST_GROUP]; // or floats, with a scale a block
} many_scratch;

// Integer products of `parts` times 4 columns of 16 rows, a code a byte, with n tokens.
LANES_INLINE void dot_spread(st_form form, const uint8_t *parts, size_t count, const int8_t *x, size_t n, vi *totals) {
  const size_t chains = n < LANES_TILE ? 2 : 1;
  vd sums[2 * LANES_TILE];
  for (size_t i = 0; i < n * chains; i++) sums[i] = vd_zero();
  for (size_t i = 0; i < count; i += chains) {
    for (size_t chain = 0; chain < chains && i + chain < count; chain++, parts += 64, x += 4 * n) {
      vb codes = _mm512_load_si512(parts);
#pragma GCC unroll 8
      for (size_t t = 0; t < n; t++)
        sums[t * chains + chain] = vd_dot(form, sums[t * chains + chain], codes, x + 4 * t);
    }
  }
  for (size_t t = 0; t < n; t++) totals[t] = chains == 1 ? sums[t] : vi_add(sums[2 * t], sums[2 * t + 1]);
}

// A span: whole columns [first, first + columns) of a group, and its scales where there is one a block.
typedef struct {
  size_t first, columns;
  const uint8_t *scales;
} span;

// Adds a span's products with the tile of n tokens from `token` on to their sums.
LANES_INLINE void add_span(st_form form, const uint8_t *parts, span s, const st_view *v, size_t token, size_t n,
                           int32_t (*sums)[ST_GROUP]) {
  vi totals[LANES_TILE];
  dot_spread(form, parts, st_round_up(s.columns, 4) / 4, v->codes + token * v->padded + s.first * n, n, totals);
  if (!st_coding_of(form).by_block) {
    for (size_t t = 0; t < n; t++) {
      if (s.first) totals[t] = vi_add(totals[t], vi_load(sums[t]));
      _mm512_store_si512(sums[t], totals[t]);
    }
    return;
  }
  vf d = vf_half(s.scales);
  int32_t offsets[LANES_TILE];
  const int32_t *block_sums = v->block_sum + token * v->blocks + s.first / ST_STEP * n;
  lanes_add_sums(block_sums, s.columns / ST_STEP, n, offsets);
  for (size_t t = 0; t < n; t++) {
    float *sum = (float *)sums[t];
    vf before = s.first ? vf_load(sum) : vf_set(0);
    vf_store(sum, vf_fma(d, vi_to_floats(vi_sub(totals[t], vi_set(offsets[t]))), before));
  }
}

LANES_INLINE void spread(const st_fives_tables *tables, const uint8_t *piece, size_t pieces, uint8_t *out) {
  for (; pieces; pieces--, piece += 64) {
    vb parts[5];
    lanes_prefetch_for(piece, MANY);
    st_fives_codes(tables, piece, parts);
    for (size_t i = 0; i < 5; i++, out += 64) _mm512_store_si512(out, parts[i]);
  }
}

// Tokens [begin, end) with one group of rows.
LANES_INLINE void many_group(st_form form, const st_fives_tables *tables, const st_matrix *w, const st_view *v,
                             size_t row, size_t last, size_t begin, size_t end, many_scratch *m, float *out,
                             size_t stride) {
  const bool by_block = st_coding_of(form).by_block;
  const st_fives f = st_fives_of(form, w->columns, w->block);
  const uint8_t *at = w->data + row / ST_GROUP * w->group_bytes;
  const size_t most = by_block ? f.columns : SPAN * ST_FIVE_COLUMNS, all = by_block ? v->padded : w->columns;
  for (span s = {0, most, at}; s.first < all; s.first += most) {
    if (s.columns > all - s.first) s.columns = all - s.first;
    s.scales = at;
    spread(tables, at + f.head, st_five_pieces(s.columns), m->parts);
    at += by_block ? f.bytes : SPAN * 64;
    for (size_t t = begin; t < end; t += LANES_TILE) {
      size_t n = st_tile_tokens(end, t, LANES_TILE);
      LANES_SWITCH(n, LANES_TILE, add_span, form, m->parts, s, v, t, N, m->sums + (t - begin))
    }
  }
  for (size_t t = begin; t < end; t++) {
    const int32_t *sums = m->sums[t - begin];
    vf y = by_block ? vf_load((const float *)sums) : vi_to_floats(vi_sub(vi_load(sums), vi_set(v->sum[t])));
    lanes_output(form, w, row, last, vf_div(y, vf_set(v->scale[t])), out + t * stride);
  }
}

LANES_INLINE void multiply(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                           float *out, size_t stride) {
  const st_fives_tables tables = st_fives_load();
  st_view v = st_view_input(input);
  const bool many = input->tokens >= MANY && (!st_coding_of(form).by_block || st_five_pieces(w->block) <= SPAN);
  size_t block = lanes_token_block(input, LANES_TILE);
  if (many && block > MANY_AT_ONCE) block = MANY_AT_ONCE;
  for (size_t begin = 0; begin < input->tokens; begin += block) {
    size_t end = input->tokens - begin < block ? input->tokens : begin + block;
    for (size_t row = first; row < last; row += ST_GROUP) {
      if (many)
        many_group(form, &tables, w, &v, row, last, begin, end, input->scratch, out, stride);
      else
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
  k->scratch_bytes = sizeof(many_scratch);
  st_vbmi_patterns(k);
#define FILL(form) k->matmul[ST_FORM_##form][ST_ACT_INT8_TOKEN] = matmul_##form, k->faster[ST_FORM_##form] = true;
#define FORM(id, name, kind, ...) ST_IF_FIVES_##kind(FILL, id)
#include "kernel/forms.def"
#undef FILL
}
