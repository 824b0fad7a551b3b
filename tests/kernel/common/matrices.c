// Matrices: random or extreme weights in each form, made from the bytes that a file would hold, with the same weights
// as float32 computed here.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_ROWS = 256 }; // as a block: rows of one scale, where a format has them

bool has_block(st_form form) {
  return st_coding_of(form).by_block;
}

static inline bool has_code3(st_form form) {
  return st_form_is(form, ST_KIND_CODES);
}

static inline bool has_patterns(st_form form) {
  return st_form_is(form, ST_KIND_PATTERNS);
}

size_t whole_columns(st_form form, uint32_t block, size_t columns) {
  bool whole = st_form_rows_taken(form) == ST_FORM_BLOCKS || has_patterns(form);
  return whole ? st_round_up(columns, format_for(form, block).block) : columns;
}

st_format format_for(st_form form, uint32_t block) {
  st_form_rows rows = st_form_rows_taken(form);
  st_scale_kind scales = has_block(form) ? ST_SCALE_BLOCK : ST_SCALE_OUTER;
  if (has_patterns(form)) block = (uint32_t)st_round_up(block, ST_PATTERN_STEP);
  if (rows == ST_FORM_TRITS) return (st_format){.id = ST_HF_U8, .block = block, .scales = scales};
  const st_format *found = NULL; // the last with such blocks, or the first: of groups of 64 and 128 one with bfloat16
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (st_format_is_ternary(f) || st_form_of(f) != form) continue;
    if (rows == ST_FORM_FLOATS) return (st_format){.id = f->id, .block = block};
    if (f->ops->row_head && block == WHOLE_ROWS) return *f;
    if (f->ops->row_head) continue;
    if (!found || (f->block == block && (block > ST_STEP || !f->ops->bfloat))) found = f;
  }
  if (found) return *found;
  printf("FAIL no format becomes %s\n", form_name(form));
  exit(1);
}

bool is_made_here(st_format_id id) {
  return id == ST_Q8_0 || id == ST_Q4_0 || id == ST_Q4_1;
}

static inline float random_scale(mode how) {
  return how == ZERO ? 0 : st_f32_from_f16(st_f16_from_f32(random_float()));
}

static inline int pick(mode how, int low, int high, bool here) {
  switch (how) {
  case LARGEST: return high;
  case SMALLEST: return low;
  case ZERO: return 0;
  case ONE_ELEMENT: return here ? high : 0;
  default: return low + (int)random_below((uint32_t)(high - low + 1));
  }
}

// The bytes of one row of 32-column blocks, and their meaning.
static void make_blocks(st_format_id id, size_t columns, mode how, size_t chosen, uint8_t *bytes, float *dense) {
  bool eight = id == ST_Q8_0, minimums = id == ST_Q4_1;
  size_t size = eight ? 34 : minimums ? 20 : 18, head = minimums ? 4 : 2;
  for (size_t b = 0; b < columns / 32; b++, bytes += size) {
    float d = random_scale(how), m = random_scale(how);
    uint16_t hd = st_f16_from_f32(d), hm = st_f16_from_f32(m);
    memcpy(bytes, &hd, 2);
    if (minimums) memcpy(bytes + 2, &hm, 2);
    memset(bytes + head, 0, size - head);
    for (size_t k = 0; k < 32; k++) {
      bool here = b * 32 + k == chosen;
      int code = eight ? pick(how, -128, 127, here) : pick(how, 0, 15, here);
      if (eight)
        bytes[2 + k] = (uint8_t)code;
      else
        bytes[head + k % 16] = (uint8_t)(bytes[head + k % 16] | (unsigned)code << (k < 16 ? 0 : 4));
      dense[b * 32 + k] = minimums ? d * (float)code + m : d * (float)(eight ? code : code - 8);
    }
  }
}

// The same for the other formats of blocks: any bytes except the scales, and their meaning as the format decodes it,
// which tests/unit/quant_values.c compares with others' decoders. One element: d is 0, the minimum's scale 1. Returns
// the largest d.
static float make_format_blocks(st_format f, size_t columns, mode how, uint8_t *bytes, float *dense) {
  size_t size = columns / f.block * f.block_bytes;
  float largest = 0;
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (uint8_t)(how == LARGEST ? 255 : how == SMALLEST || how == ZERO ? 0 : random_below(256));
  }
  if (f.ops->row_head) { // its scale, and another byte for each that it takes
    for (uint32_t i = 0; i < f.ops->row_head; i++) bytes[size + i] = (uint8_t)random_below(256);
    st_store_f16(bytes, how == ONE_ELEMENT ? 0 : random_scale(how) * (how == LARGEST ? 65000 : 1));
  }
  for (uint8_t *block = bytes; f.ops->value && block < bytes + size; block += f.block_bytes) {
    for (uint32_t i = 0; i < f.ops->value->n_scales; i++) {
      float scale = how == ONE_ELEMENT ? (float)i : random_scale(how) * (how == LARGEST ? 65000 : 1);
      uint8_t *at = block + f.ops->value->scale_at[i];
      if (!i) largest = fmaxf(largest, fabsf(scale));
      if (f.ops->bfloat)
        st_store_u16(at, st_bf16_from_f32(scale));
      else
        st_store_f16(at, scale);
    }
    if (f.ops->zero_points && how == LARGEST) block[2] = 0x81; // far from all codes
    for (int i = 192; f.id == ST_Q6_K && how == LARGEST && i < 208; i++) block[i] = random_below(2) ? 0x80 : 0x7F;
    if (f.ops->value->e8m0 && how != SMALLEST && how != ZERO) {
      block[0] = (uint8_t)(how == LARGEST ? 200 : how == ONE_ELEMENT ? random_below(230) : 100 + random_below(40));
    }
  }
  st_strip strip = {.row = 0, .count = 1, .bytes = size + f.ops->row_head};
  f.ops->decode(&f, (st_shape){1, columns}, &strip, bytes, dense);
  return largest;
}

// Makes each four columns 16 apart have exactly one zero.
static void make_patterns(size_t columns, int8_t *trits) {
  for (size_t k = 0; k < columns; k++) {
    if (k % 64 >= 16) continue;
    size_t zero = random_below(4);
    for (size_t p = 0; p < 4; p++) {
      int8_t *trit = &trits[k + 16 * p];
      *trit = (int8_t)(p == zero ? 0 : *trit ? *trit : 1);
    }
  }
}

// The source bytes of all rows, which st_form_pack takes 16 rows at a time.
static void make_rows(matrix *w, const st_format format, mode how, uint8_t *source, size_t row_bytes, float *scales) {
  size_t rows = w->m.rows, columns = w->m.columns;
  st_form_rows taken = st_form_rows_taken(w->m.form);
  const st_coding coding = st_coding_of(w->m.form);
  st_format_id id = format.id;
  for (size_t r = 0; r < rows; r++) {
    size_t chosen = random_below((uint32_t)columns);
    float *dense = w->dense + r * columns, largest = 0;
    uint8_t *bytes = source + r * row_bytes;
    if (taken == ST_FORM_BLOCKS) {
      if (is_made_here(id))
        make_blocks(id, columns, how, chosen, bytes, dense);
      else
        largest = make_format_blocks(format, columns, how, bytes, dense);
      if (coding.minimums && coding.low == 8) w->shift = fmaxf(w->shift, 128 * largest);
      continue;
    }
    for (size_t k = 0; k < columns; k++) {
      if (taken == ST_FORM_FLOATS) {
        float x = how == LARGEST                                       ? 1
                  : how == SMALLEST                                    ? -1
                  : how == ZERO || (how == ONE_ELEMENT && k != chosen) ? 0
                                                                       : random_float();
        if (id == ST_F16) x = st_f32_from_f16(st_f16_from_f32(x));
        if (id == ST_BF16) x = st_f32_from_bf16(st_bf16_from_f32(x));
        memcpy(bytes + 4 * k, &x, 4);
        dense[k] = x;
        continue;
      }
      int trit = pick(how, -1, has_code3(w->m.form) ? 2 : 1, k == chosen);
      bytes[k] = (uint8_t)trit;
      size_t blocks = w->m.block ? (columns + w->m.block - 1) / w->m.block : 1;
      float *scale = &scales[w->m.block ? r * blocks + k / w->m.block : r];
      if (w->m.block ? k % w->m.block == 0 : k == 0) *scale = random_scale(how);
      dense[k] = (float)trit * *scale;
    }
    if (!has_patterns(w->m.form)) continue;
    make_patterns(columns, (int8_t *)bytes);
    for (size_t k = 0; k < columns; k++) {
      dense[k] = (float)(int8_t)bytes[k] * scales[r * (columns / w->m.block) + k / w->m.block];
    }
  }
}

matrix make_matrix(st_form form, size_t rows, size_t columns, uint32_t block, mode how) {
  st_format format = format_for(form, block);
  bool whole = format.ops && format.ops->row_head;
  block = whole ? (uint32_t)columns : format.block;
  matrix w = {.m = {.form = form, .rows = rows, .columns = columns, .block = has_block(form) ? block : 0}};
  w.m.bfloat = format.ops && format.ops->bfloat;
  size_t groups = (rows + 15) / 16;
  size_t row_bytes = format.block_bytes                           ? columns / format.block * format.block_bytes
                     : st_form_rows_taken(form) == ST_FORM_FLOATS ? columns * 4
                                                                  : columns;
  if (whole) row_bytes += format.ops->row_head;
  size_t blocks = has_block(form) ? (columns + block - 1) / block : 1;
  uint8_t *source = st_aligned_alloc(rows * row_bytes + 64);
  float *scales = st_calloc(groups * 16 * blocks, sizeof *scales);
  w.m.group_bytes = st_form_group_bytes(form, columns, w.m.block);
  w.memory = guarded_alloc(groups * w.m.group_bytes);
  w.dense = st_calloc(rows * columns, sizeof *w.dense);
  make_rows(&w, format, how, source, row_bytes, scales);
  for (size_t g = 0; g < groups; g++) {
    size_t count = rows - g * 16 < 16 ? rows - g * 16 : 16;
    st_form_pack(form, &format, columns, w.m.block, source + g * 16 * row_bytes, scales + g * 16 * blocks, count,
                 w.memory.data + g * w.m.group_bytes);
  }
  w.m.data = w.memory.data;
  w.scales = scales;
  if (st_form_has_row_scales(form)) w.m.scales = scales;
  st_free(source);
  return w;
}

void free_matrix(matrix *w) {
  guarded_free(&w->memory);
  st_free(w->dense);
  st_free(w->scales);
}
