// The table of formats, and what follows from it: sizes and places of rows.
#include "quant/quant.h"

#include "base/memory.h"
#include "quant/rows.h"
#include "quant/runs.h"

#include <inttypes.h>
#include <string.h>

#define FORMAT(id, name, gguf, block, bytes, scales, ops) extern const st_format_ops ops;
#include "quant/formats.def"
#undef FORMAT

static const st_format formats[ST_FORMAT_COUNT] = {
#define FORMAT(id, name, gguf, block, bytes, scales, ops)                                                              \
  {ST_##id, name, gguf, block, bytes, ST_SCALE_##scales, &(ops)},
#include "quant/formats.def"
#undef FORMAT
};

const st_format *st_format_get(st_format_id id) {
  return (unsigned)id < ST_FORMAT_COUNT ? &formats[id] : NULL;
}

const st_format *st_format_by_name(const char *name) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++)
    if (!strcmp(formats[i].name, name)) return &formats[i];
  return NULL;
}

const st_format *st_format_by_layout(const char *name, bool *divides) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++) {
    const char *dividing = formats[i].ops->dividing;
    *divides = dividing && !strcmp(dividing, name);
    if (*divides) return &formats[i];
  }
  return st_format_by_name(name);
}

const st_format *st_format_by_dtype(const char *dtype) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++)
    if (formats[i].ops->dtype && !strcmp(formats[i].ops->dtype, dtype)) return &formats[i];
  return NULL;
}

const st_format *st_format_by_hf_method(const char *method) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++) {
    const st_hf_blocks *blocks = formats[i].ops->hf_blocks;
    if (blocks && (!method || !strcmp(blocks->method, method))) return &formats[i];
  }
  return NULL;
}

const st_format *st_format_of_affine(uint32_t bits, uint32_t group, bool bfloat) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++) {
    const st_format_ops *ops = formats[i].ops;
    if (ops->affine_bits && ops->affine_bits == bits && formats[i].block == group && ops->bfloat == bfloat)
      return &formats[i];
  }
  return NULL;
}

const st_format *st_format_of_floats(void) {
  return &formats[ST_F32];
}

const st_format *st_format_of_latent(void) {
  return &formats[ST_HF_U8];
}

const st_format *st_format_by_gguf_type(uint32_t type) {
  for (int i = 0; i < ST_FORMAT_COUNT; i++)
    if (formats[i].gguf_type == (int64_t)type) return &formats[i];
  return NULL;
}

const st_format *st_format_next_reading(const st_format *format) {
  if (format->gguf_type < 0) return NULL;
  for (int i = (int)format->id + 1; i < ST_FORMAT_COUNT; i++)
    if (formats[i].gguf_type == format->gguf_type) return &formats[i];
  return NULL;
}

const st_format *st_format_of_synthetic(st_synthetic_part part) {
  int i = 0;
  while (i < ST_FORMAT_COUNT - 1 && formats[i].ops->synthetic != part) i++;
  return &formats[i];
}

bool st_format_is_ambiguous(const st_format *format) {
  if (format->gguf_type < 0) return false;
  const st_format *first = st_format_by_gguf_type((uint32_t)format->gguf_type);
  return st_format_next_reading(first) || st_gguf_type_rivals((uint32_t)format->gguf_type);
}

// False on overflow.
static bool row_bytes(const st_format *format, uint64_t columns, uint64_t *bytes) {
  const st_ternary_rows *rows = format->ops->rows;
  if (!rows) {
    return st_mul_u64(columns / format->block, format->block_bytes, bytes) &&
           st_add_u64(*bytes, format->ops->row_head, bytes);
  }
  // A partial step takes whole bytes.
  uint64_t tail = (columns % rows->step * rows->step_bytes + rows->step - 1) / rows->step;
  return st_mul_u64(columns / rows->step, rows->step_bytes, bytes) && st_add_u64(*bytes, tail + rows->head, bytes);
}

uint64_t st_format_row_bytes(const st_format *format, uint64_t columns) {
  uint64_t bytes;
  return !format->ops->locate && row_bytes(format, columns, &bytes) ? bytes : 0;
}

setun_status st_format_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err) {
  if (!shape.rows || !shape.columns)
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: a tensor of %" PRIu64 " by %" PRIu64 " weights is empty", format->name,
                   shape.rows, shape.columns);
  if (format->ops->size) return format->ops->size(format, shape, bytes, err);
  if (shape.columns % format->block)
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: rows must be a multiple of %" PRIu32 " weights, these have %" PRIu64,
                   format->name, format->block, shape.columns);
  uint64_t row, all;
  if (!row_bytes(format, shape.columns, &row) || !st_mul_u64(row, shape.rows, &all))
    return st_fail_too_large(format, shape, err);
  *bytes = all;
  return SETUN_OK;
}

int64_t st_format_check_scales(const st_format *format, uint64_t columns, const void *data, uint64_t bytes) {
  const st_value_block *value = format->ops->value;
  const uint8_t *block = data;
  const uint16_t exponent = format->ops->bfloat ? 0x7F80 : 0x7C00;
  uint64_t row = format->ops->row_head ? st_format_row_bytes(format, columns) : bytes;
  for (uint64_t at = 0; format->ops->row_head && at + 2 <= bytes; at += row)
    if ((st_load_u16(block + at) & exponent) == exponent) return (int64_t)at;
  for (uint32_t i = 0; value && i < value->n_scales; i++)
    for (uint64_t at = value->scale_at[i]; at + 2 <= bytes; at += format->block_bytes)
      if ((st_load_u16(block + at) & exponent) == exponent) return (int64_t)at;
  for (uint64_t at = 0; value && value->e8m0 && at < bytes; at += format->block_bytes)
    if (block[at] == 0xFF) return (int64_t)at;
  for (uint64_t at = 0; format->ops->invalid && at < bytes; at += format->block_bytes) {
    int64_t bad = format->ops->invalid(format, block + at);
    if (bad >= 0) return (int64_t)at + bad;
  }
  return -1;
}

bool st_format_parts(const st_format *format, const uint8_t *block, st_block_parts *parts) {
  const st_value_block *value = format->ops->value;
  if (!value || (!value->parts && !format->ops->parts)) return false;
  if (value->n_scales > 0) parts->d = st_load_u16(block + value->scale_at[0]);
  if (value->n_scales > 1) parts->m = st_load_u16(block + value->scale_at[1]);
  if (format->ops->parts)
    format->ops->parts(format, block, parts);
  else
    value->parts(block, parts);
  return true;
}

setun_status st_format_writable(const st_format *format, st_shape shape, setun_error *err) {
  uint64_t bytes;
  if (!format->ops->encode && !format->ops->pack)
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: this format is read but not written", format->name);
  if (shape.columns % format->block)
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: rows must be a multiple of %" PRIu32 " weights, these have %" PRIu64
                   " (t2, t5 and t16 take any)",
                   format->name, format->block, shape.columns);
  return st_format_size(format, shape, &bytes, err);
}

st_strip st_format_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want) {
  if (format->ops->locate) return format->ops->locate(format, shape, row, want);
  uint64_t bytes = st_format_row_bytes(format, shape.columns), left = shape.rows - row;
  uint64_t count = want < left ? want : left;
  return (st_strip){.row = row, .count = count, .offset = row * bytes, .bytes = count * bytes};
}
