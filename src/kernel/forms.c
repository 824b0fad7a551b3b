// The forms of matrices: sizes, and packing of 16 rows into a group. docs/kernels.md has the pictures.
#include "kernel/kernel.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <string.h>

enum { TAKES_F = 1 << ST_ACT_F32, TAKES_T = 1 << ST_ACT_INT8_TOKEN, TAKES_B = 1 << ST_ACT_INT8_BLOCK };
enum { TAKES_FB = TAKES_F | TAKES_B, TAKES_FTB = TAKES_FB | TAKES_T };

// The facts of forms.def other than the codings, which layout.h has.
static const struct {
  unsigned takes; // bits of st_activation
  st_form_rows rows;
  st_format_id format; // ST_FORMAT_COUNT: none
  st_form dense;
} forms[ST_FORM_COUNT] = {
#define FORM(id, name, kind, activations, rows, format, dense, ...)                                                    \
  {TAKES_##activations, ST_FORM_##rows, ST_##format, ST_FORM_##dense},
#include "kernel/forms.def"
};

st_form_rows st_form_rows_taken(st_form form) {
  return forms[form].rows;
}

bool st_form_has_row_scales(st_form form) {
  return st_coding_of(form).rule == ST_RULE_ROW;
}

bool st_form_takes(st_form form, st_activation kind) {
  return forms[form].takes >> kind & 1;
}

static bool is_form_of(int form, const st_format *format) {
  if (!st_format_is_ternary(format))
    return forms[form].format == (format->ops->packed_as ? format->ops->packed_as : format->id);
  return forms[form].rows == ST_FORM_TRITS &&
         st_coding_of((st_form)form).by_block == (format->scales == ST_SCALE_BLOCK);
}

st_form st_form_of(const st_format *format) {
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    if (is_form_of(form, format)) return (st_form)form;
  }
  return (st_form)0;
}

bool st_form_is_stored(const st_format *format) {
  return format->ops->codes && format->ops->codes->order == ST_CODES_GROUPS;
}

bool st_form_is_denser(st_form dense, const st_format *format) {
  // 128 columns take 7 pieces, as much time as 140, which costs more with many tokens than it saves.
  enum { SMALLEST_BLOCK = 256 };
  st_form form = st_form_of(format);
  if (st_form_is(dense, ST_KIND_PATTERNS)) return st_format_get(forms[dense].format)->ops == format->ops;
  return dense != form && dense == forms[form].dense &&
         (!st_coding_of(form).by_block || format->block >= SMALLEST_BLOCK);
}

bool st_form_is_direct(st_form dense, const st_format *format) {
  const st_code_layout *l = format->ops->codes;
  return l && l->order == ST_CODES_DIGITS && st_form_is_denser(dense, format);
}

size_t st_form_group_bytes(st_form form, size_t columns, uint32_t block) {
  st_coding c = st_coding_of(form);
  if (c.kind == ST_KIND_FIVES) {
    st_fives f = st_fives_of(form, columns, block);
    return st_round_up(f.blocks * f.bytes, 64);
  }
  if (c.kind == ST_KIND_PATTERNS) return st_round_up((columns + block - 1) / block * st_pattern_block_bytes(block), 64);
  size_t steps = (columns + ST_STEP - 1) / ST_STEP;
  if (!c.head) return st_round_up(steps * st_step_bytes(form), 64);
  size_t each = st_super_steps(form, block), blocks = (steps + each - 1) / each;
  return st_round_up(blocks * (c.head + each * st_step_bytes(form)), 64);
}

static void pack_floats(st_form form, size_t columns, const float *rows, size_t count, uint8_t *group) {
  uint16_t *half = (uint16_t *)(void *)group;
  float *full = (float *)(void *)group;
  st_number number = (st_number)st_coding_of(form).number;
  for (size_t r = 0; r < count; r++) {
    for (size_t k = 0; k < columns; k++) {
      float w = rows[r * columns + k];
      if (number == ST_NUMBER_F32) full[k * ST_GROUP + r] = w;
      if (number == ST_NUMBER_F16) half[k * ST_GROUP + r] = st_f16_from_f32(w);
      if (number == ST_NUMBER_BF16) half[k * ST_GROUP + r] = st_bf16_from_f32(w);
    }
  }
}

static uint32_t load_four(const void *p) {
  uint32_t four;
  memcpy(&four, p, 4);
  return four;
}

static void store_four(uint8_t *p, uint32_t four) {
  memcpy(p, &four, 4);
}

// 4 trits as 4 codes, trit + 1: the low two bits of -1, 0, 1, 2 are 3, 0, 1, 2.
static uint32_t codes_of(const int8_t *trits) {
  return ((load_four(trits) & 0x03030303u) + 0x01010101u) & 0x03030303u;
}

// Row r's columns [0, padded) of steps at `out`, those from n on (all of them, when row is NULL) trit 0.
static void pack_trits(const int8_t *row, size_t n, size_t padded, size_t r, uint8_t *out) {
  for (size_t k = 0; k < padded; k += 16, out += 64) {
    int8_t part[16] = {0};
    const int8_t *trits = part;
    if (row && k + 16 <= n) {
      trits = row + k;
    } else if (row && k < n) {
      memcpy(part, row + k, n - k);
    }
    store_four(out + 4 * r,
               codes_of(trits) | codes_of(trits + 4) << 2 | codes_of(trits + 8) << 4 | codes_of(trits + 12) << 6);
  }
}

static void pack_rows_of_trits(size_t columns, const int8_t *rows, size_t count, uint8_t *group) {
  for (size_t r = 0; r < ST_GROUP; r++) {
    pack_trits(r < count ? rows + r * columns : NULL, columns, st_round_up(columns, ST_STEP), r, group);
  }
}

static void pack_blocks_of_trits(st_form form, size_t columns, uint32_t block, const int8_t *rows, const float *scales,
                                 size_t count, uint8_t *group) {
  size_t blocks = (columns + block - 1) / block;
  for (size_t b = 0; b < blocks; b++) {
    uint16_t *half = (uint16_t *)(void *)group;
    size_t first = b * block, n = columns - first < block ? columns - first : block;
    for (size_t r = 0; r < ST_GROUP; r++) {
      half[r] = r < count ? st_f16_from_f32(scales[r * blocks + b]) : 0;
      pack_trits(r < count ? rows + r * columns + first : NULL, n, block, r, group + ST_SCALES);
    }
    group += ST_SCALES + (size_t)block / ST_STEP * st_step_bytes(form);
  }
}

// One step of row r: each 4 codes, of so many low and high bits, to their part's place in one plane or two.
static inline void pack_codes(unsigned n_low, unsigned n_high, const uint8_t codes[ST_STEP], size_t r, uint8_t *out) {
  uint32_t low = 0x01010101u * ((1u << n_low) - 1), high = 0x01010101u * ((1u << n_high) - 1);
  for (unsigned i = 0; i < ST_STEP / 4; i++) {
    uint32_t four = load_four(codes + 4 * i);
    uint8_t *at = out + i * n_low / 8 * 64 + 4 * r;
    store_four(at, load_four(at) | (four & low) << i * n_low % 8);
    if (!n_high) continue;
    at = out + 64 * n_low + i * n_high / 8 * 64 + 4 * r;
    store_four(at, load_four(at) | (four >> n_low & high) << i * n_high % 8);
  }
}

// The same with the numbers of bits as constants, where forms have them: matrices that stream are packed for each pass.
static void pack_step(unsigned n_low, unsigned n_high, const uint8_t codes[ST_STEP], size_t r, uint8_t *out) {
  switch (8 * n_low + n_high) {
  case 8 * 2: pack_codes(2, 0, codes, r, out); break;
  case 8 * 2 + 1: pack_codes(2, 1, codes, r, out); break;
  case 8 * 4: pack_codes(4, 0, codes, r, out); break;
  case 8 * 4 + 1: pack_codes(4, 1, codes, r, out); break;
  case 8 * 4 + 2: pack_codes(4, 2, codes, r, out); break;
  case 8 * 8: pack_codes(8, 0, codes, r, out); break;
  default: pack_codes(n_low, n_high, codes, r, out); break;
  }
}

// One step of row r with at most two codes of each four that are not 0.
static void pack_sparse(const uint8_t codes[ST_STEP], size_t r, uint8_t *out) {
  for (unsigned i = 0; i < ST_STEP / 4; i++, codes += 4) {
    unsigned pair = 0;
    for (unsigned p = 0; p < 6; p++) {
      unsigned there = 0, both = 0;
      for (unsigned j = 0; j < 4; j++) there += codes[j] != 0;
      for (unsigned j = 0; j < 2; j++) both += codes[st_sparse_places[p][j]] != 0;
      if (both == there) {
        pair = p;
        break;
      }
    }
    uint8_t *at = out + i / 4 * 64 + 4 * r + i % 2 * 2, *place = out + 128 + 4 * r + i % 2 * 2;
    for (unsigned j = 0; j < 2; j++) {
      unsigned column = st_sparse_places[pair][j];
      at[j] = (uint8_t)(at[j] | codes[column] << i / 2 % 2 * 4);
      place[j] = (uint8_t)(place[j] | column << i / 2 * 2);
    }
  }
}

// One step's scales of row r, where they are bytes: `back` points after the codes.
static void pack_scales(st_form form, const st_block_parts *p, size_t step, size_t r, uint8_t *back) {
  st_coding c = st_coding_of(form);
  if (c.rule == ST_RULE_NIBBLES) {
    for (size_t sub = 2 * step; sub < 2 * step + 2; sub++, back += ST_GROUP) {
      back[r] = (uint8_t)(p->scales[sub] | p->minimums[sub] << 4);
    }
  } else if (c.back) {
    for (size_t sub = c.subs * step; sub < c.subs * (step + 1); sub++, back += ST_GROUP) back[r] = p->scales[sub];
    if (c.minimums) back[r] = p->minimums[step];
  }
}

// One block of row r; the K formats subtract their minimums, whose scale gets the other sign for that.
static void pack_block(st_form form, const st_block_parts *p, size_t columns, size_t r, uint8_t *out) {
  st_coding c = st_coding_of(form);
  uint16_t d = p->d, m = (uint16_t)(c.head && c.back ? p->m ^ 0x8000 : p->m);
  if (c.rule == ST_RULE_E8M0) {
    out[r] = p->scales[0];
  } else {
    memcpy(out + 2 * r, &d, 2);
    if (c.rule == ST_RULE_ZERO)
      out[ST_SCALES + r] = p->minimums[0];
    else if (c.minimums)
      memcpy(out + ST_SCALES + 2 * r, &m, 2);
  }
  out += c.head + c.front;
  for (size_t step = 0; step < columns / ST_STEP; step++, out += st_step_bytes(form)) {
    if (c.sparse)
      pack_sparse(p->codes + step * ST_STEP, r, out);
    else
      pack_step(c.low, c.high, p->codes + step * ST_STEP, r, out);
    pack_scales(form, p, step, r, out + 64 * (c.low + c.high));
  }
}

// Rows of a format whose blocks correspond to heads, or to steps.
static void pack_blocks(st_form form, const st_format *format, size_t columns, const uint8_t *rows, size_t count,
                        uint8_t *group) {
  size_t blocks = columns / format->block;
  size_t bytes = st_coding_of(form).head + format->block / ST_STEP * st_step_bytes(form);
  st_block_parts parts = {0};
  for (size_t b = 0; b < blocks; b++, group += bytes) {
    for (size_t r = 0; r < count; r++) {
      st_format_parts(format, rows + (r * blocks + b) * format->block_bytes, &parts);
      pack_block(form, &parts, format->block, r, group);
    }
  }
}

// Rows of bytes with one scale: one block of all columns, with zero points of 0.
static void pack_whole_rows(st_form form, const st_format *format, size_t columns, const uint8_t *rows, size_t count,
                            uint8_t *group) {
  size_t bytes = (size_t)st_format_row_bytes(format, columns);
  st_coding c = st_coding_of(form);
  for (size_t r = 0; r < count; r++, rows += bytes) {
    const uint8_t *codes = rows + format->ops->row_head;
    uint8_t *out = group + c.head;
    memcpy(group + 2 * r, rows, 2);
    for (size_t k = 0; k < columns; k += ST_STEP, out += st_step_bytes(form))
      pack_step(c.low, c.high, codes + k, r, out);
  }
}

void st_form_pack(st_form form, const st_format *format, size_t columns, uint32_t block, const void *rows,
                  const float *scales, size_t count, uint8_t *group) {
  memset(group, 0, st_form_group_bytes(form, columns, block));
  st_coding c = st_coding_of(form);
  switch (forms[form].rows) {
  case ST_FORM_FLOATS: pack_floats(form, columns, rows, count, group); break;
  case ST_FORM_BLOCKS:
    if (format->ops->row_head)
      pack_whole_rows(form, format, columns, rows, count, group);
    else
      pack_blocks(form, format, columns, rows, count, group);
    break;
  case ST_FORM_TRITS:
    if (c.kind == ST_KIND_FIVES)
      st_form_pack_fives(form, columns, block, rows, scales, count, group);
    else if (c.kind == ST_KIND_PATTERNS)
      st_form_pack_patterns(columns, block, rows, scales, count, group);
    else if (c.by_block)
      pack_blocks_of_trits(form, columns, block, rows, scales, count, group);
    else
      pack_rows_of_trits(columns, rows, count, group);
    break;
  }
}
