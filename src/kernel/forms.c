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
  case ST_Q8_0:
  case ST_Q5_0:
  case ST_IQ4_NL: return ST_FORM_Q8; // small integers times a half-precision scale
  case ST_Q4_0: return ST_FORM_Q4;
  case ST_Q4_1: return ST_FORM_Q4M;
  default: return ST_FORM_F32;
  }
}

size_t st_form_group_bytes(st_form form, size_t columns, uint32_t block) {
  size_t steps = (columns + ST_STEP - 1) / ST_STEP;
  if (form != ST_FORM_T16B) return st_round_up(steps * st_step_bytes(form), 64);
  size_t blocks = (columns + block - 1) / block;
  return st_round_up(blocks * (ST_SCALES + (size_t)block / ST_STEP * st_step_bytes(form)), 64);
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

// One block of 32 columns of row r: 4-bit codes, element j in the low half of byte j and element j + 16 in the high
// half as Q4_0 and Q4_1 store them, to byte 4r + j of 64: columns 8i + j low, 8i + 4 + j high.
static void pack_nibbles(const uint8_t *codes, size_t r, uint8_t *out) {
  const uint32_t low = 0x0F0F0F0Fu;
  for (size_t i = 0; i < 2; i++) {
    uint32_t a = load_four(codes + 8 * i), b = load_four(codes + 8 * i + 4);
    store_four(out + i * 64 + 4 * r, (a & low) | (b & low) << 4);
    store_four(out + (i + 2) * 64 + 4 * r, (a >> 4 & low) | (b & ~low));
  }
}

// The integers of one block of 32 columns whose format becomes Q8. `in` follows the block's scale.
static void read_codes(st_format_id id, const uint8_t *in, int8_t codes[ST_STEP]) {
  uint32_t fifth = 0;
  if (id == ST_Q8_0) {
    memcpy(codes, in, ST_STEP);
    return;
  }
  if (id == ST_Q5_0) {
    fifth = (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
    in += 4;
  }
  for (size_t k = 0; k < ST_STEP; k++) {
    unsigned code = k < 16 ? in[k] & 15u : in[k - 16] >> 4;
    codes[k] = id == ST_IQ4_NL ? st_iq4_values[code] : (int8_t)((int)(code | (fifth >> k & 1) << 4) - 16);
  }
}

static void pack_blocks(st_form form, const st_format *format, size_t columns, const uint8_t *rows, size_t count,
                        uint8_t *group) {
  size_t blocks = columns / ST_STEP, row_bytes = blocks * format->block_bytes;
  for (size_t b = 0; b < blocks; b++, group += st_step_bytes(form)) {
    for (size_t r = 0; r < count; r++) {
      const uint8_t *in = rows + r * row_bytes + b * format->block_bytes;
      memcpy(group + 2 * r, in, 2);
      if (form == ST_FORM_Q8) {
        int8_t codes[ST_STEP];
        read_codes(format->id, in + 2, codes);
        for (size_t k = 0; k < ST_STEP; k += 4) memcpy(group + ST_SCALES + k / 4 * 64 + 4 * r, codes + k, 4);
      } else if (form == ST_FORM_Q4) {
        pack_nibbles(in + 2, r, group + ST_SCALES);
      } else {
        memcpy(group + ST_SCALES + 2 * r, in + 2, 2);
        pack_nibbles(in + 4, r, group + 2 * ST_SCALES);
      }
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
  case ST_FORM_T16B: pack_t16b(columns, block, rows, scales, count, group); break;
  case ST_FORM_Q8:
  case ST_FORM_Q4:
  case ST_FORM_Q4M: pack_blocks(form, format, columns, rows, count, group); break;
  case ST_FORM_COUNT: break;
  }
}
