// Integers with zero points in a Hugging Face directory: each matrix as the four tensors of GPTQ checkpoints, in the
// version whose zero points are stored as they are (gptq_v2), with consecutive columns in groups.
#include "convert/conversion.h"

#include "base/bytes.h"
#include "base/memory.h"
#include "quant/fit.h"

#include <string.h>

enum { QWEIGHT, QZEROS, SCALES, GROUPS, PARTS };

static const struct {
  const char *name, *dtype;
} parts[PARTS] = {{"qweight", "I32"}, {"qzeros", "I32"}, {"scales", "F16"}, {"g_idx", "I32"}};

bool st_conversion_is_gptq(const st_conversion *p, const st_item *item) {
  const st_format *f = item->n_pieces == 1 ? item->pieces[0].weight.format : NULL;
  return p->o->integers && !p->to_gguf && f && f->ops->zero_points && !item->undone;
}

setun_status st_conversion_decide_gptq(st_item *item, setun_error *err) {
  const st_format *f = item->pieces[0].weight.format;
  item->kind = ST_ITEM_GPTQ;
  item->format = f;
  if (item->shape.rows * st_zp_bits(f) % 32 == 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: zero points of %u bits fill whole words for a multiple of %u rows, these are %llu", item->name,
                 st_zp_bits(f), st_zp_bits(f) == 3 ? 32 : 32 / st_zp_bits(f), (unsigned long long)item->shape.rows);
}

// The dimensions and bytes of a part, from the whole matrix.
static void size_part(st_item *item, uint32_t part) {
  const st_format *f = item->pieces[0].weight.format;
  uint64_t n = item->shape.rows, k = item->shape.columns, bits = st_zp_bits(f), groups = k / f->block;
  const uint64_t dims[PARTS][2] = {
      [QWEIGHT] = {n, k * bits / 32}, [QZEROS] = {n * bits / 32, groups}, [SCALES] = {n, groups}, [GROUPS] = {k, 1}};
  item->part = part;
  item->n_dims = part == GROUPS ? 1 : 2;
  memcpy(item->dims, (uint64_t[4]){dims[part][0], dims[part][1], 1, 1}, sizeof item->dims);
  item->bytes = dims[part][0] * dims[part][1] * (part == SCALES ? 2 : 4);
  item->format = NULL;
  item->dtype = parts[part].dtype;
}

static setun_status make_part(const st_item *whole, uint32_t part, st_item *out, setun_error *err) {
  st_buffer name = {0};
  size_t n = strlen(whole->name) - strlen("weight");
  *out = *whole;
  out->scales = NULL;
  out->pieces = st_malloc(1, sizeof *out->pieces);
  bool named = st_buffer_append(&name, whole->name, n) && st_buffer_text(&name, parts[part].name);
  out->name = name.data;
  if (!out->pieces || !named) return st_fail_memory(err, whole->name);
  out->pieces[0] = whole->pieces[0];
  size_part(out, part);
  return SETUN_OK;
}

setun_status st_conversion_expand_gptq(st_conversion *p, setun_error *err) {
  size_t n = p->n_items, found = 0, at = 0;
  for (size_t i = 0; i < n; i++) found += p->items[i].kind == ST_ITEM_GPTQ;
  if (!found) return SETUN_OK;
  st_item *all = st_calloc(n + (PARTS - 1) * found, sizeof *all);
  if (!all) return st_fail_memory(err, "the conversion");
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n; i++) {
    st_item *item = &p->items[i];
    if (item->kind != ST_ITEM_GPTQ) {
      all[at++] = *item;
      continue;
    }
    for (uint32_t part = 0; part < PARTS && s == SETUN_OK; part++) s = make_part(item, part, &all[at++], err);
    st_item_free(item);
  }
  st_free(p->items);
  p->items = all;
  p->n_items = p->capacity = at;
  return s;
}

// One tensor being made, from the matrix's blocks row by row.
typedef struct {
  uint32_t part;
  const st_format *format;
  uint64_t rows, columns;
  uint8_t *bytes;
} maker;

// Bits of a stream in words that are `stride` apart, from word `first` on.
static void put_bits(maker *m, uint64_t first, uint64_t stride, uint64_t bit, uint32_t value) {
  unsigned bits = st_zp_bits(m->format), shift = bit % 32;
  uint8_t *at = m->bytes + 4 * (first + bit / 32 * stride);
  st_store_u32(at, st_load_u32(at) | value << shift);
  if (shift + bits <= 32) return;
  at += 4 * stride;
  st_store_u32(at, st_load_u32(at) | value >> (32 - shift));
}

static void take_block(maker *m, uint64_t row, uint64_t group, const uint8_t *block) {
  const st_format *f = m->format;
  unsigned bits = st_zp_bits(f), sign = bits == 8 ? 128 : 0;
  st_block_parts b;
  st_format_parts(f, block, &b);
  if (m->part == SCALES) st_store_u16(m->bytes + 2 * (group * m->rows + row), b.d);
  if (m->part == QZEROS) {
    uint32_t zero = (uint32_t)((int)(int8_t)b.minimums[0] + (int)sign);
    put_bits(m, group * (m->rows * bits / 32), 1, row * bits, zero);
  }
  for (uint32_t i = 0; m->part == QWEIGHT && i < f->block; i++) {
    put_bits(m, row, m->rows, (group * f->block + i) * bits, b.codes[i] ^ sign);
  }
}

static setun_status take_rows(st_conversion *p, const st_item *item, maker *m, setun_error *err) {
  st_item whole = *item;
  whole.format = m->format;
  uint64_t chunk = st_item_chunk(&whole), row_bytes = st_format_row_bytes(m->format, m->columns);
  st_item_reader r = {.d = p->d, .item = &whole};
  uint8_t *rows = st_malloc((size_t)chunk, (size_t)row_bytes);
  setun_status s = rows ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t row = 0; row < m->rows && s == SETUN_OK; row += chunk) {
    uint64_t n = m->rows - row < chunk ? m->rows - row : chunk, groups = m->columns / m->format->block;
    s = st_item_bytes(&r, row, n, rows, err);
    for (uint64_t i = 0; i < n * groups && s == SETUN_OK; i++) {
      take_block(m, row + i / groups, i % groups, rows + i * m->format->block_bytes);
    }
  }
  st_item_reader_close(&r);
  st_free(rows);
  return s;
}

setun_status st_item_write_gptq(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  const st_format *f = item->pieces[0].weight.format;
  maker m = {.part = item->part, .format = f, .rows = item->shape.rows, .columns = item->shape.columns};
  m.bytes = st_calloc((size_t)item->bytes, 1);
  setun_status s = m.bytes ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t k = 0; s == SETUN_OK && m.part == GROUPS && k < m.columns; k++) {
    st_store_u32(m.bytes + 4 * k, (uint32_t)(k / f->block));
  }
  if (s == SETUN_OK && m.part != GROUPS) s = take_rows(p, item, &m, err);
  if (s == SETUN_OK) s = st_output_write(out, m.bytes, (size_t)item->bytes, err);
  if (s == SETUN_OK && m.part == QWEIGHT) s = st_conversion_progress(p, m.rows * m.columns, err);
  st_free(m.bytes);
  return s;
}
