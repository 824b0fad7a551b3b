// The forms of matrices: sizes, and packing of 16 rows into a group. docs/kernels.md has the pictures.
#include "kernel/kernel.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <string.h>

st_form st_form_of(const st_format *format) {
  if (format->scales == ST_SCALE_BLOCK) return ST_FORM_T16B;
  if (st_format_is_ternary(format)) return ST_FORM_T16;
  switch (format->id) {
  case ST_F16: return ST_FORM_F16;
  case ST_BF16: return ST_FORM_BF16;
  case ST_Q8_0: return ST_FORM_Q8;
  case ST_Q4_0: return ST_FORM_Q4;
  case ST_Q4_1: return ST_FORM_Q4M;
  case ST_Q5_0: return ST_FORM_Q5;
  case ST_Q5_1: return ST_FORM_Q5M;
  case ST_IQ4_NL: return ST_FORM_NL;
  case ST_MXFP4: return ST_FORM_MX;
  case ST_IQ4_XS: return ST_FORM_NLK;
  case ST_Q2_K: return ST_FORM_Q2K;
  case ST_Q3_K: return ST_FORM_Q3K;
  case ST_Q4_K: return ST_FORM_Q4K;
  case ST_Q5_K: return ST_FORM_Q5K;
  case ST_Q6_K: return ST_FORM_Q6K;
  default: return ST_FORM_F32;
  }
}

size_t st_form_group_bytes(st_form form, size_t columns, uint32_t block) {
  if (form >= ST_FORM_T5) {
    st_fives f = st_fives_of(form, columns, block);
    return st_round_up(f.blocks * f.bytes, 64);
  }
  st_coding c = st_coding_of(form);
  size_t steps = (columns + ST_STEP - 1) / ST_STEP;
  if (!c.head) return st_round_up(steps * st_step_bytes(form), 64);
  size_t each = st_super_steps(form, block), blocks = (steps + each - 1) / each;
  return st_round_up(blocks * (c.head + each * st_step_bytes(form)), 64);
}

static void pack_floats(st_form form, size_t columns, const float *rows, size_t count, uint8_t *group) {
  uint16_t *half = (uint16_t *)(void *)group;
  float *full = (float *)(void *)group;
  for (size_t r = 0; r < count; r++) {
    for (size_t k = 0; k < columns; k++) {
      float w = rows[r * columns + k];
      if (form == ST_FORM_F32) full[k * ST_GROUP + r] = w;
      if (form == ST_FORM_F16) half[k * ST_GROUP + r] = st_f16_from_f32(w);
      if (form == ST_FORM_BF16) half[k * ST_GROUP + r] = st_bf16_from_f32(w);
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

// Row r's columns [0, padded) of t16 blocks at `out`, those from n on (all of them, when row is NULL) trit 0.
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

static void pack_t16b(size_t columns, uint32_t block, const int8_t *rows, const float *scales, size_t count,
                      uint8_t *group) {
  size_t blocks = (columns + block - 1) / block;
  for (size_t b = 0; b < blocks; b++) {
    uint16_t *half = (uint16_t *)(void *)group;
    size_t first = b * block, n = columns - first < block ? columns - first : block;
    for (size_t r = 0; r < ST_GROUP; r++) {
      half[r] = r < count ? st_f16_from_f32(scales[r * blocks + b]) : 0;
      pack_trits(r < count ? rows + r * columns + first : NULL, n, block, r, group + ST_SCALES);
    }
    group += ST_SCALES + (size_t)block / ST_STEP * st_step_bytes(ST_FORM_T16B);
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

// One step's scales of row r, where they are bytes: `back` points behind the codes.
static void pack_scales(st_form form, const st_block_parts *p, size_t step, size_t r, uint8_t *back) {
  st_coding c = st_coding_of(form);
  if (form == ST_FORM_Q2K) {
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
  uint16_t d = p->d, m = (uint16_t)(c.head ? p->m ^ 0x8000 : p->m);
  if (form == ST_FORM_MX) {
    out[r] = p->scales[0];
  } else {
    memcpy(out + 2 * r, &d, 2);
    if (c.minimums) memcpy(out + ST_SCALES + 2 * r, &m, 2);
  }
  out += c.head + c.front;
  for (size_t step = 0; step < columns / ST_STEP; step++, out += st_step_bytes(form)) {
    if (form == ST_FORM_Q6K) { // heads are mostly of this kind, and packed for each pass where they stream
      pack_codes(4, 2, p->codes + step * ST_STEP, r, out);
    } else {
      pack_codes(c.low, c.high, p->codes + step * ST_STEP, r, out);
    }
    pack_scales(form, p, step, r, out + 64 * (c.low + c.high));
  }
}

// Rows of a format whose blocks are what a head, or a step, has scales for.
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

void st_form_pack(st_form form, const st_format *format, size_t columns, uint32_t block, const void *rows,
                  const float *scales, size_t count, uint8_t *group) {
  memset(group, 0, st_form_group_bytes(form, columns, block));
  switch (form) {
  case ST_FORM_F32:
  case ST_FORM_F16:
  case ST_FORM_BF16: pack_floats(form, columns, rows, count, group); break;
  case ST_FORM_T16:
    for (size_t r = 0; r < ST_GROUP; r++) {
      const int8_t *row = r < count ? (const int8_t *)rows + r * columns : NULL;
      pack_trits(row, columns, st_round_up(columns, ST_STEP), r, group);
    }
    break;
  case ST_FORM_T5:
  case ST_FORM_T5B: st_form_pack_fives(form, columns, block, rows, scales, count, group); break;
  case ST_FORM_T16B: pack_t16b(columns, block, rows, scales, count, group); break;
  case ST_FORM_COUNT: break;
  default: pack_blocks(form, format, columns, rows, count, group);
  }
}
