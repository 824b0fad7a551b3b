// Packing of a file's own bytes into groups of 16 rows, for formats that need not become trits or floats first: 2-bit
// codes only change places, half-precision floats are transposed, and five digits a byte are looked up (pack_digits.c).
// The result is that of st_form_pack with the same weights.
#include "kernel/kernel.h"

#include "base/float16.h"
#include "kernel/layout.h"

#include <string.h>

// Whether the format's own numbers are the form's, two bytes each.
static bool is_half(const st_format *format) {
  st_coding c = st_coding_of(st_form_of(format));
  return c.kind == ST_KIND_FLOATS && c.number != ST_NUMBER_F32;
}

bool st_form_takes_strips(const st_format *format, st_shape shape) {
  if (is_half(format)) return true;
  const st_code_layout *l = format->ops->codes;
  if (!l || shape.columns % l->step || shape.columns % ST_STEP) return false;
  return !l->rows || shape.rows % l->rows == 0;
}

static uint32_t load_four(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, 4);
  return four;
}

// ---- codes --------------------------------------------------------------------------------------------------------

// 16 columns of a row whose codes are in 16 bytes at one shift: four words of four codes each, combined.
static uint32_t join(uint32_t a, uint32_t b, uint32_t c, uint32_t d, unsigned shift) {
  const uint32_t mask = 0x03030303;
  return (a >> shift & mask) | (b >> shift & mask) << 2 | (c >> shift & mask) << 4 | (d >> shift & mask) << 6;
}

// 4 * width columns of 16 rows, `stride` bytes apart, to width / 4 blocks of 64 bytes.
static void pack_planes(const st_code_layout *l, const uint8_t *rows, size_t stride, uint8_t *out) {
  uint32_t x[8][ST_GROUP], block[ST_GROUP];
  for (size_t r = 0; r < ST_GROUP; r++) {
    for (size_t i = 0; i < l->width / 4u; i++) x[i][r] = load_four(rows + r * stride + 4 * i);
  }
  for (int plane = 0; plane < 4; plane++) {
    unsigned shift = (unsigned)(l->first + plane * l->next);
    for (size_t i = 0; i < l->width / 4u; i += 4, out += 64) {
      for (size_t r = 0; r < ST_GROUP; r++) block[r] = join(x[i][r], x[i + 1][r], x[i + 2][r], x[i + 3][r], shift);
      memcpy(out, block, sizeof block);
    }
  }
}

// 16 columns of 16 rows with 4 consecutive ones a byte.
static void pack_consecutive(const uint8_t *rows, size_t stride, uint8_t *out) {
  uint32_t x[ST_GROUP];
  for (size_t r = 0; r < ST_GROUP; r++) x[r] = st_transpose_codes(load_four(rows + r * stride));
  memcpy(out, x, sizeof x);
}

// `columns` columns, a multiple of 16, of 16 rows.
static void pack_codes(const st_code_layout *l, const uint8_t *rows, size_t stride, size_t columns, uint8_t *out) {
  size_t span = l->width == 1 ? 16 : 4u * l->width;
  for (size_t k = 0; k < columns; k += span, rows += span / 4, out += span * 4) {
    if (l->width == 1) {
      pack_consecutive(rows, stride, out);
    } else {
      pack_planes(l, rows, stride, out);
    }
  }
}

// Rows that share bytes with others.
static void pack_shared(const st_format *format, st_shape shape, const st_strip *strip, const uint8_t *bytes,
                        uint64_t row, uint8_t *group) {
  for (size_t r = 0; r < ST_GROUP; r++) {
    st_code_run run = format->ops->run(shape, row + r, 0);
    const uint8_t *in = bytes + (run.offset - strip->offset);
    for (size_t k = 0; k < shape.columns; k += 16, in += 16) {
      uint32_t word = join(load_four(in), load_four(in + 4), load_four(in + 8), load_four(in + 12), run.shift);
      memcpy(group + 4 * k + 4 * r, &word, 4);
    }
  }
}

// `row` counts from the tensor's first, as strip->row does.
static void pack_ternary(st_form form, const st_format *format, st_shape shape, const st_strip *strip,
                         const uint8_t *bytes, const float *scales, uint64_t row, uint8_t *group) {
  const st_code_layout *l = format->ops->codes;
  size_t columns = (size_t)shape.columns;
  if (l->order == ST_CODES_GROUPS) {
    size_t size = st_form_group_bytes(form, columns, 1);
    memcpy(group, bytes + (row - strip->row) / ST_GROUP * size, size);
    return;
  }
  if (l->order == ST_CODES_DIGITS) {
    size_t size = (columns + 4) / 5;
    st_pack_digits(form, columns, bytes + (size_t)(row - strip->row) * size, group);
    return;
  }
  if (l->order == ST_CODES_SHARED) {
    pack_shared(format, shape, strip, bytes, row, group);
    return;
  }
  size_t stride = l->head + columns / l->step * l->step_bytes, steps = columns / l->step;
  const uint8_t *in = bytes + (size_t)(row - strip->row) * stride + l->head + l->lead;
  for (size_t s = 0; s < steps; s++, in += l->step_bytes, group += l->step * 4u) {
    if (format->scales == ST_SCALE_BLOCK) {
      uint16_t half[ST_GROUP];
      for (size_t r = 0; r < ST_GROUP; r++) half[r] = st_f16_from_f32(scales[r * steps + s]);
      memcpy(group, half, sizeof half);
      group += ST_SCALES;
    }
    pack_codes(l, in, stride, l->step, group);
  }
}

// ---- halves -------------------------------------------------------------------------------------------------------

static uint64_t load_eight(const uint8_t *p) {
  uint64_t eight;
  memcpy(&eight, p, 8);
  return eight;
}

// 4 columns of 4 rows, transposed.
static void transpose_four(const uint8_t *rows, size_t stride, uint8_t *out) {
  const uint64_t even = 0x0000FFFF0000FFFF, low = 0x00000000FFFFFFFF;
  uint64_t a = load_eight(rows), b = load_eight(rows + stride);
  uint64_t c = load_eight(rows + 2 * stride), d = load_eight(rows + 3 * stride);
  uint64_t ab0 = (a & even) | (b & even) << 16, ab1 = (a >> 16 & even) | (b & ~even);
  uint64_t cd0 = (c & even) | (d & even) << 16, cd1 = (c >> 16 & even) | (d & ~even);
  const uint64_t columns[4] = {(ab0 & low) | cd0 << 32, (ab1 & low) | cd1 << 32, ab0 >> 32 | (cd0 & ~low),
                               ab1 >> 32 | (cd1 & ~low)};
  for (size_t k = 0; k < 4; k++) memcpy(out + k * 2 * ST_GROUP, &columns[k], 8);
}

static void pack_halves(st_form form, size_t columns, const uint8_t *rows, uint8_t *group) {
  size_t stride = 2 * columns, whole = columns / 4 * 4;
  for (size_t k = 0; k < whole; k += 4) {
    for (size_t r = 0; r < ST_GROUP; r += 4) {
      transpose_four(rows + r * stride + 2 * k, stride, group + k * 2 * ST_GROUP + 2 * r);
    }
  }
  for (size_t k = whole; k < columns; k++) {
    for (size_t r = 0; r < ST_GROUP; r++) memcpy(group + (k * ST_GROUP + r) * 2, rows + r * stride + 2 * k, 2);
  }
  size_t used = columns * 2 * ST_GROUP;
  memset(group + used, 0, st_form_group_bytes(form, columns, 1) - used);
}

void st_form_pack_strip(st_form form, const st_format *format, st_shape shape, const st_strip *strip, const void *bytes,
                        const float *scales, uint64_t row, uint8_t *group) {
  if (is_half(format)) {
    size_t columns = (size_t)shape.columns;
    pack_halves(form, columns, (const uint8_t *)bytes + (size_t)(row - strip->row) * 2 * columns, group);
  } else {
    pack_ternary(form, format, shape, strip, bytes, scales, row, group);
  }
}
