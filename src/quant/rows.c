// Formats whose tensors are rows of blocks: the loops around reading and writing one block.
#include "quant/rows.h"

#include "quant/fit.h"

void st_value_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out) {
  const uint8_t *bytes = data;
  uint64_t blocks = shape.columns / format->block * strip->count;
  for (uint64_t i = 0; i < blocks; i++)
    format->ops->value->decode(bytes + i * format->block_bytes, out + i * format->block);
}

void st_value_encode(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data) {
  uint8_t *bytes = data;
  uint64_t blocks = shape.columns / format->block * strip->count;
  for (uint64_t i = 0; i < blocks; i++)
    format->ops->value->encode(in + i * format->block, bytes + i * format->block_bytes);
}

void st_format_bound_scales(const st_format *format, uint8_t *blocks, size_t n) {
  const st_value_block *v = format->ops->value;
  for (size_t i = 0; i < n && !v; i++) blocks[i] &= 0xBF; // 8-bit floats
  for (size_t at = 0; v && at < n; at += format->block_bytes) {
    for (uint32_t k = 0; k < v->n_scales; k++) blocks[at + v->scale_at[k] + 1] &= 0xBF;
    if (v->e8m0) blocks[at] = 112 + blocks[at] % 16;
  }
}

void st_fit_rows(const st_format *format, uint64_t rows, uint64_t columns, const float *in, const float *importance,
                 void *out) {
  const st_value_block *value = format->ops->value;
  st_strip strip = {.count = rows, .bytes = rows * columns / format->block * format->block_bytes};
  if (!value || !value->fit) {
    format->ops->encode(format, (st_shape){rows, columns}, &strip, in, out);
    return;
  }
  uint8_t *to = out;
  for (uint64_t r = 0; r < rows; r++) {
    for (uint64_t k = 0; k < columns; k += format->block, in += format->block, to += format->block_bytes) {
      value->fit(in, importance ? importance + k : NULL, to);
    }
  }
}

static float load_scale(const st_ternary_rows *rows, const uint8_t *p) {
  return rows->scale_type == ST_SCALE_F16 ? st_load_f16(p) : st_load_f32(p);
}

static void store_scale(const st_ternary_rows *rows, float scale, uint8_t *p) {
  if (rows->scale_type == ST_SCALE_F16)
    st_store_f16(p, scale);
  else
    st_store_f32(p, scale);
}

static size_t step_weights(const st_ternary_rows *rows, uint64_t left) {
  return left < rows->step ? (size_t)left : rows->step;
}

void st_rows_unpack(const st_format *format, st_shape shape, const st_strip *strip, const void *data, int8_t *trits,
                    float *scales) {
  const st_ternary_rows *rows = format->ops->rows;
  uint64_t row_bytes = st_format_row_bytes(format, shape.columns);
  for (uint64_t r = 0; r < strip->count; r++) {
    const uint8_t *p = (const uint8_t *)data + r * row_bytes;
    if (scales && format->scales == ST_SCALE_ROW) *scales++ = load_scale(rows, p);
    p += rows->head;
    for (uint64_t k = 0; k < shape.columns; k += rows->step, p += rows->step_bytes) {
      size_t n = step_weights(rows, shape.columns - k);
      rows->unpack(p, n, trits);
      trits += n;
      if (scales && format->scales == ST_SCALE_BLOCK) *scales++ = load_scale(rows, p + rows->scale_at);
    }
  }
}

void st_format_strip_scales(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                            float *scales) {
  const st_ternary_rows *rows = format->ops->rows;
  uint64_t row_bytes = st_format_row_bytes(format, shape.columns);
  for (uint64_t r = 0; r < strip->count; r++) {
    const uint8_t *p = (const uint8_t *)data + r * row_bytes;
    if (format->scales == ST_SCALE_ROW) *scales++ = load_scale(rows, p);
    if (format->scales != ST_SCALE_BLOCK) continue;
    p += rows->head + rows->scale_at;
    for (uint64_t k = 0; k < shape.columns; k += rows->step, p += rows->step_bytes) *scales++ = load_scale(rows, p);
  }
}

int64_t st_rows_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data) {
  const st_ternary_rows *rows = format->ops->rows;
  uint64_t row_bytes = st_format_row_bytes(format, shape.columns);
  for (uint64_t r = 0; r < strip->count; r++) {
    uint64_t at = r * row_bytes + rows->head;
    for (uint64_t k = 0; k < shape.columns; k += rows->step, at += rows->step_bytes) {
      ptrdiff_t bad = rows->check((const uint8_t *)data + at, step_weights(rows, shape.columns - k));
      if (bad >= 0) return (int64_t)(strip->offset + at) + bad;
    }
  }
  return -1;
}

void st_rows_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                  const float *scales, void *data) {
  const st_ternary_rows *rows = format->ops->rows;
  uint64_t row_bytes = st_format_row_bytes(format, shape.columns);
  for (uint64_t r = 0; r < strip->count; r++) {
    uint8_t *p = (uint8_t *)data + r * row_bytes;
    if (format->scales == ST_SCALE_ROW) store_scale(rows, *scales++, p);
    p += rows->head;
    for (uint64_t k = 0; k < shape.columns; k += rows->step, p += rows->step_bytes) {
      size_t n = step_weights(rows, shape.columns - k);
      rows->pack(trits, n, p);
      trits += n;
      if (format->scales == ST_SCALE_BLOCK) store_scale(rows, *scales++, p + rows->scale_at);
    }
  }
}

int64_t st_format_check_trits(const st_format *format, uint64_t columns, const int8_t *row) {
  const st_ternary_rows *rows = format->ops->rows;
  for (uint64_t k = 0; rows && rows->holds && k < columns; k += rows->step) {
    if (!rows->holds(row + k)) return (int64_t)k;
  }
  return -1;
}

bool st_format_holds_all(const st_format *format) {
  return !format->ops->rows || !format->ops->rows->holds;
}

static int32_t trit_dot(const int8_t *trits, const int8_t *x, size_t n) {
  int32_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += trits[i] * x[i];
  return sum;
}

// A step is unpacked into a few registers' worth of trits, never a row.
void st_rows_dot(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
                 const int8_t *x, int32_t *sums) {
  const st_ternary_rows *rows = format->ops->rows;
  const uint8_t *p = (const uint8_t *)data + (row - strip->row) * st_format_row_bytes(format, shape.columns);
  bool by_block = format->scales == ST_SCALE_BLOCK;
  int8_t trits[ST_STEP_MAX];
  int32_t sum = 0;
  p += rows->head;
  for (uint64_t k = 0; k < shape.columns; k += rows->step, p += rows->step_bytes) {
    size_t n = step_weights(rows, shape.columns - k);
    rows->unpack(p, n, trits);
    int32_t part = trit_dot(trits, x + k, n);
    if (by_block)
      *sums++ = part;
    else
      sum += part;
  }
  if (!by_block) *sums = sum;
}

ptrdiff_t st_find_code3(const uint8_t *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (st_has_code3(bytes[i])) return (ptrdiff_t)i;
  return -1;
}
