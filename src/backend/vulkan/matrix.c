// Weights: the forms in which rows are kept, packing into them, and vectors.
//
// Rows follow each other, each of whole words, so that a subgroup that takes a row reads consecutive words. Formats
// that a device computes wrongly are expanded to float32 first.
#include "backend/vulkan/device.h"

#include "base/float16.h"
#include "base/memory.h"

#include <string.h>

enum { TRITS_OF_2 = 16, TRITS_OF_5 = 20 }; // columns of a word

// `d`: NULL: one that computes all forms.
static bool is_lost(const st_device *d, st_vk_form form) {
  return d && d->lost_forms >> form & 1;
}

// The form in which rows are written; borrowed codes keep it.
static st_vk_form written_form(const st_device *d, const st_format *f) {
  st_vk_values values;
  if (st_format_is_ternary(f)) return f->scales == ST_SCALE_BLOCK ? ST_VK_BLOCKS2 : ST_VK_TRITS2;
  if (st_vk_values_of(f, &values)) return d && d->lost_formats[f->id] ? ST_VK_F32 : ST_VK_VALUES;
  if (!st_format_is_float(f) || f->block_bytes != sizeof(uint16_t)) return ST_VK_F32;
  st_vk_form form = f->ops->exponent == 0x7C00 ? ST_VK_F16 : ST_VK_BF16; // the bits of half precision's exponent
  return is_lost(d, form) ? ST_VK_F32 : form;
}

static st_vk_form form_of(const st_device *d, const st_matrix_desc *desc) {
  st_vk_form form = written_form(d, desc->format);
  bool five = form == ST_VK_TRITS2 && desc->precision == ST_PRECISION_INT8 && desc->ownership == ST_OWNED;
  return five && !is_lost(d, ST_VK_TRITS5) ? ST_VK_TRITS5 : form;
}

// That with the smallest blocks.
bool st_vk_desc_of(st_vk_form form, bool int8, st_matrix_desc *desc) {
  st_matrix_desc one = {.shape = desc->shape, .precision = int8 ? ST_PRECISION_INT8 : ST_PRECISION_FLOAT};
  uint32_t least = UINT32_MAX;
  for (int i = 0; i < 2 * ST_FORMAT_COUNT; i++) {
    one.format = st_format_get((st_format_id)(i / 2));
    one.ownership = i % 2 ? ST_BORROWED : ST_OWNED;
    if ((int8 && !st_format_is_ternary(one.format)) || form_of(NULL, &one) != form || one.format->block >= least)
      continue;
    *desc = one;
    least = one.format->block;
  }
  return least < UINT32_MAX;
}

static uint64_t words_of(st_vk_form form, uint64_t columns, const st_format *f) {
  st_vk_values values = {0};
  uint32_t block = f->block;
  switch (form) {
  case ST_VK_F32: return columns;
  case ST_VK_F16:
  case ST_VK_BF16: return (columns + 1) / 2;
  case ST_VK_TRITS2: return (columns + TRITS_OF_2 - 1) / TRITS_OF_2;
  case ST_VK_TRITS5: return (columns + TRITS_OF_5 - 1) / TRITS_OF_5;
  case ST_VK_BLOCKS2: return (columns + block - 1) / block * (block / TRITS_OF_2 + 1); // and a scale
  case ST_VK_VALUES: return st_vk_values_of(f, &values) ? st_vk_values_words(&values, columns) : 0;
  }
  return 0;
}

static st_rows rows_of(const st_device *d, const st_format *f) {
  if (st_format_is_ternary(f)) return ST_ROWS_TRITS;
  return written_form(d, f) == ST_VK_F32 && !(st_format_is_float(f) && f->block_bytes == sizeof(float)) ? ST_ROWS_FLOAT
                                                                                                        : ST_ROWS_BYTES;
}

static bool has_row_scales(st_vk_form form) {
  return form == ST_VK_TRITS2 || form == ST_VK_TRITS5;
}

// The form in which a matrix's rows will be kept, after its products were checked, unless they were before. What fails
// here is reported where the matrix is made.
static st_vk_form checked_form(const st_device *d, const st_matrix_desc *desc, setun_error *err, setun_status *status) {
  st_vk_form form = form_of(d, desc);
  bool int8 = desc->precision == ST_PRECISION_INT8 && st_format_is_ternary(desc->format);
  *status = form == ST_VK_VALUES ? st_vk_check_format((st_device *)d, desc->format, err)
                                 : st_vk_check_form((st_device *)d, form, int8, err);
  return form_of(d, desc);
}

static uint64_t bytes_of(st_vk_form form, const st_matrix_desc *desc) {
  return desc->shape.rows * words_of(form, desc->shape.columns, desc->format) * sizeof(uint32_t);
}

st_matrix_info st_vk_matrix_info(const st_device *d, const st_matrix_desc *desc) {
  st_matrix_desc owned = *desc;
  setun_status status;
  owned.ownership = ST_OWNED;
  st_vk_form own = checked_form(d, &owned, NULL, &status), written = written_form(d, desc->format);
  return (st_matrix_info){.codes = bytes_of(written, desc),
                          .own = bytes_of(own, desc),
                          .beside = has_row_scales(written) ? desc->shape.rows * sizeof(float) : 0,
                          .rows = rows_of(d, desc->format),
                          .row_unit = 1};
}

void st_vk_matrix_free(st_dmatrix *m) {
  if (!m) return;
  st_vk_piece_free(m->device, &m->codes);
  st_vk_piece_free(m->device, &m->scales);
  st_free(m);
}

setun_status st_vk_matrix_new(st_device *d, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err) {
  enum { MOST = 1 << 30 }; // shaders count words and columns in 32 bits with a sign
  setun_status status;
  st_vk_form form = checked_form(d, desc, err, &status);
  if (status != SETUN_OK) return status;
  uint64_t words = words_of(form, desc->shape.columns, desc->format), all;
  if (!st_mul_u64(words, desc->shape.rows, &all) || all > MOST || desc->shape.rows > MOST) {
    return st_fail(err, SETUN_ERROR_LIMIT, "%s: a matrix of %llu x %llu is too large for the device", d->traits.name,
                   (unsigned long long)desc->shape.rows, (unsigned long long)desc->shape.columns);
  }
  st_dmatrix *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "a matrix");
  *m = (st_dmatrix){.device = d,
                    .format = desc->format,
                    .form = form,
                    .int8 = desc->precision == ST_PRECISION_INT8 && st_format_is_ternary(desc->format),
                    .rows = (uint32_t)desc->shape.rows,
                    .columns = (uint32_t)desc->shape.columns,
                    .block = desc->format->block,
                    .row_words = (uint32_t)words,
                    .row_scales = has_row_scales(form)};
  if (form == ST_VK_VALUES) st_vk_values_of(desc->format, &m->values);
  setun_status s = SETUN_OK;
  if (desc->ownership == ST_OWNED)
    s = st_vk_piece_new(d, all * sizeof(uint32_t), "weights", &m->codes, err);
  else
    st_vk_note_borrowed(d, all * sizeof(uint32_t));
  if (s == SETUN_OK && m->row_scales) {
    s = st_vk_piece_new(d, (uint64_t)m->rows * sizeof(float), "scales of weights", &m->scales, err);
  }
  if (s != SETUN_OK) {
    st_vk_matrix_free(m);
    return s;
  }
  m->bytes = m->codes.size + m->scales.size;
  *matrix = m;
  return SETUN_OK;
}

void st_vk_matrix_borrow(st_dmatrix *m, void *codes) {
  m->source = codes;
}

uint64_t st_vk_matrix_bytes(const st_dmatrix *m) {
  return m->bytes;
}

// ---- packing ------------------------------------------------------------------------------------------------------

// Columns [0, n) of a row as 2-bit codes, trit + 1, which padding has as well.
static void pack_twos(const int8_t *trits, uint32_t n, uint32_t words, uint32_t *out) {
  for (uint32_t k = 0; k < words; k++) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < TRITS_OF_2; i++) {
      uint32_t column = k * TRITS_OF_2 + i, code = column < n ? (uint32_t)(trits[column] + 1) : 1;
      word |= code << (i % 4 * 8 + i / 4 * 2);
    }
    out[k] = word;
  }
}

// The same as digits in base 3, of which a byte has five: the byte is the fraction v / 243 in 256ths, rounded up, so
// that each multiplication by 3 moves the next digit above it. False: a code is not a trit.
static bool pack_fives(const int8_t *trits, uint32_t n, uint32_t words, uint32_t *out) {
  bool whole = true;
  for (uint32_t k = 0; k < words; k++) {
    uint32_t word = 0;
    for (uint32_t j = 0; j < 4; j++) {
      uint32_t v = 0;
      for (uint32_t p = 0; p < 5; p++) {
        uint32_t column = k * TRITS_OF_5 + 4 * p + j;
        int trit = column < n ? trits[column] : 0;
        whole = whole && trit <= 1;
        v = 3 * v + (uint32_t)(trit + 1);
      }
      word |= (v * 256 + 242) / 243 << 8 * j;
    }
    out[k] = word;
  }
  return whole;
}

// Blocks of codes, then their scales.
static void pack_blocks(const st_dmatrix *m, const int8_t *trits, const float *scales, uint32_t *out) {
  uint32_t blocks = (m->columns + m->block - 1) / m->block, each = m->block / TRITS_OF_2;
  for (uint32_t b = 0; b < blocks; b++) {
    uint32_t first = b * m->block, left = m->columns - first;
    pack_twos(trits + first, left < m->block ? left : m->block, each, out + (size_t)b * each);
  }
  memcpy(out + (size_t)blocks * each, scales, blocks * sizeof *scales);
}

static setun_status pack_row(const st_dmatrix *m, const st_matrix_rows *r, uint64_t i, uint32_t *out,
                             setun_error *err) {
  const int8_t *trits = (const int8_t *)r->data + i * m->columns;
  uint32_t blocks = m->form == ST_VK_BLOCKS2 ? (m->columns + m->block - 1) / m->block : 0;
  switch (m->form) {
  case ST_VK_TRITS2: pack_twos(trits, m->columns, m->row_words, out); break;
  case ST_VK_BLOCKS2: pack_blocks(m, trits, r->scales + i * blocks, out); break;
  case ST_VK_VALUES: {
    size_t bytes = (size_t)st_format_row_bytes(m->format, m->columns);
    st_vk_values_pack(&m->values, m->columns, (const uint8_t *)r->data + i * bytes, out);
    break;
  }
  case ST_VK_TRITS5:
    if (pack_fives(trits, m->columns, m->row_words, out)) break;
    return st_fail(err, SETUN_ERROR_FORMAT, "row %llu: expected weights of -1, 0 and 1, found 2",
                   (unsigned long long)(r->row + i));
  default: {
    size_t bytes = m->columns * (m->form == ST_VK_F32 ? sizeof(float) : sizeof(uint16_t));
    out[m->row_words - 1] = 0; // half of it may be padding
    memcpy(out, (const uint8_t *)r->data + i * bytes, bytes);
  }
  }
  return SETUN_OK;
}

setun_status st_vk_matrix_write(st_dmatrix *m, const st_matrix_rows *r, setun_error *err) {
  setun_status s = SETUN_OK;
  size_t row_bytes = m->row_words * sizeof(uint32_t), n = (size_t)r->count;
  uint32_t *packed = NULL;
  if (r->data && m->codes.size && !(packed = st_malloc(n, row_bytes))) return st_fail_memory(err, "rows of weights");
  uint32_t *to = packed ? packed : (uint32_t *)(void *)((uint8_t *)m->source + r->row * row_bytes);
  for (size_t i = 0; r->data && i < n && s == SETUN_OK; i++) s = pack_row(m, r, i, to + i * m->row_words, err);
  if (packed && s == SETUN_OK)
    s = st_vk_piece_write(m->device, &m->codes, r->row * row_bytes, packed, n * row_bytes, err);
  if (m->row_scales && r->scales && s == SETUN_OK) {
    s = st_vk_piece_write(m->device, &m->scales, r->row * sizeof(float), r->scales, n * sizeof(float), err);
  }
  st_free(packed);
  return s;
}

uint64_t st_vk_matrix_borrows(const st_dmatrix *m) {
  return m->codes.size ? 0 : st_vk_aligned((uint64_t)m->rows * m->row_words * sizeof(uint32_t));
}

VkDeviceAddress st_vk_matrix_codes(st_queue *q, const st_dmatrix *m) {
  if (m->codes.size) return m->codes.address;
  return st_vk_stream_copy(q, m->source, (uint64_t)m->rows * m->row_words * sizeof(uint32_t));
}

// ---- vectors ------------------------------------------------------------------------------------------------------

setun_status st_vk_vector_new(st_device *d, const float *values, size_t n, st_dvector **vector, setun_error *err) {
  st_dvector *v = st_calloc(1, sizeof *v);
  if (!v) return st_fail_memory(err, "a vector of weights");
  v->device = d;
  setun_status s = st_host_vector_open(&v->host, d, values, n, err);
  if (s == SETUN_OK) s = st_vk_piece_new(d, n * sizeof *values, "a vector of weights", &v->values, err);
  if (s == SETUN_OK) s = st_vk_piece_write(d, &v->values, 0, values, n * sizeof *values, err);
  if (s == SETUN_OK) {
    *vector = v;
  } else {
    st_vk_vector_free(v);
  }
  return s;
}

void st_vk_vector_free(st_dvector *v) {
  if (!v) return;
  st_host_vector_close(&v->host);
  st_vk_piece_free(v->device, &v->values);
  st_free(v);
}
