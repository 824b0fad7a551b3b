// Writing the bytes of output tensors, some rows at a time.
#include "convert/conversion.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <string.h>

enum { COPY_BYTES = 1 << 20 };

static setun_status copy_tensor(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  const st_tensor *t = item->copied;
  uint8_t *bytes = st_malloc(COPY_BYTES, 1);
  setun_status s = bytes ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t at = 0; at < t->bytes && s == SETUN_OK; at += COPY_BYTES) {
    size_t n = t->bytes - at < COPY_BYTES ? (size_t)(t->bytes - at) : COPY_BYTES;
    s = st_file_read(&p->d->parts[t->part], t->offset + at, bytes, n, err);
    if (s == SETUN_OK) s = st_output_write(out, bytes, n, err);
  }
  st_free(bytes);
  return s == SETUN_OK ? st_conversion_progress(p, item->shape.rows * item->shape.columns, err) : s;
}

// Rows as bytes, or floats encoded.
static setun_status write_rows(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  uint64_t k = item->shape.columns, chunk = st_item_chunk(item), row_bytes = st_format_row_bytes(item->format, k);
  st_item_reader r = {.d = p->d, .item = item};
  bool values = item->how == ST_HOW_VALUES;
  float *x = values ? st_malloc((size_t)(chunk * k), sizeof *x) : NULL;
  void *bytes = st_malloc((size_t)chunk, (size_t)row_bytes);
  setun_status s = bytes && (x || !values) ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t row = 0; row < item->shape.rows && s == SETUN_OK; row += chunk) {
    uint64_t n = item->shape.rows - row < chunk ? item->shape.rows - row : chunk;
    st_strip strip = {.row = row, .count = n, .offset = row * row_bytes, .bytes = n * row_bytes};
    s = values ? st_item_floats(&r, row, n, x, err) : st_item_bytes(&r, row, n, bytes, err);
    if (s == SETUN_OK && values) {
      item->format->ops->encode(item->format, item->shape, &strip, x, bytes);
      int64_t bad = st_format_check_scales(item->format, bytes, strip.bytes);
      if (bad >= 0) {
        s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: weights too large for %s in row %llu", item->name,
                    item->format->name, (unsigned long long)(row + (uint64_t)bad / row_bytes));
      }
    }
    if (s == SETUN_OK) s = st_output_write(out, bytes, (size_t)strip.bytes, err);
    if (s == SETUN_OK) s = st_conversion_progress(p, n * k, err);
  }
  st_item_reader_close(&r);
  st_free(x);
  st_free(bytes);
  return s;
}

// ---- trits --------------------------------------------------------------------------------------------------------

typedef struct {
  st_conversion *p;
  const st_item *item;
  st_item_reader reader;
  int8_t *trits;
  float *scales;
  uint8_t *bytes; // of a chunk
  size_t capacity;
  uint64_t group;
} trit_writer;

// Rows [row, row + n) into the strip's place in the buffer, which begins at `base` of the tensor.
static setun_status pack_rows(trit_writer *w, const st_strip *strip, uint64_t base, setun_error *err) {
  const st_item *item = w->item;
  uint64_t n = strip->count, per_row = item->shape.columns / w->group;
  setun_status s = st_item_trits(&w->reader, strip->row, n, w->group, w->trits, w->scales, err);
  if (s != SETUN_OK) return s;
  for (uint64_t i = 0; i < n * per_row && w->p->o->round_scales; i++) {
    w->scales[i] = st_scale_rounded(item->format, w->scales[i]);
  }
  item->format->ops->pack(item->format, item->shape, strip, w->trits, w->scales, w->bytes + (strip->offset - base));
  return st_conversion_progress(w->p, n * item->shape.columns, err);
}

static setun_status make_room(trit_writer *w, uint64_t bytes, setun_error *err) {
  if (!st_reserve(&w->bytes, &w->capacity, (size_t)bytes, 1)) return st_fail_memory(err, w->item->name);
  memset(w->bytes, 0, (size_t)bytes);
  return SETUN_OK;
}

// Strips that share no byte.
static setun_status write_strips(trit_writer *w, uint64_t chunk, st_output *out, setun_error *err) {
  const st_item *item = w->item;
  setun_status s = SETUN_OK;
  for (uint64_t row = 0; row < item->shape.rows && s == SETUN_OK;) {
    st_strip strip = st_format_locate(item->format, item->shape, row, chunk);
    s = make_room(w, strip.bytes, err);
    if (s == SETUN_OK) s = pack_rows(w, &strip, strip.offset, err);
    if (s == SETUN_OK) s = st_output_write(out, w->bytes, (size_t)strip.bytes, err);
    row += strip.count;
  }
  return s;
}

// hf-u8: byte rows [at, at + n) hold the rows of all four quarters.
static setun_status write_quarters(trit_writer *w, uint64_t chunk, st_output *out, setun_error *err) {
  const st_item *item = w->item;
  uint64_t rows = item->shape.rows, quarter = rows / 4 + (rows % 4 != 0), k = item->shape.columns;
  setun_status s = SETUN_OK;
  for (uint64_t at = 0; at < quarter && s == SETUN_OK; at += chunk) {
    uint64_t n = quarter - at < chunk ? quarter - at : chunk;
    s = make_room(w, n * k, err);
    for (uint64_t q = 0; q < 4 && s == SETUN_OK; q++) {
      uint64_t row = q * quarter + at;
      if (row >= rows) break;
      st_strip strip = st_format_locate(item->format, item->shape, row, n);
      s = pack_rows(w, &strip, at * k, err);
    }
    if (s == SETUN_OK) s = st_output_write(out, w->bytes, (size_t)(n * k), err);
  }
  return s;
}

// i2_s: the scale in the first of 32 bytes, 1 where others stand beside.
static setun_status write_tail(const st_item *item, st_output *out, setun_error *err) {
  uint8_t tail[32] = {0};
  st_store_f32(tail, item->n_scales == 1 ? item->scales[0] : 1);
  return st_output_write(out, tail, sizeof tail, err);
}

static setun_status write_trits(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  uint64_t k = item->shape.columns, chunk = st_item_chunk(item);
  trit_writer w = {.p = p, .item = item};
  w.reader = (st_item_reader){.d = p->d, .item = item, .round = p->o->round_scales};
  w.group = item->format->scales == ST_SCALE_BLOCK ? item->format->block : k;
  w.trits = st_malloc((size_t)(chunk * k), 1);
  w.scales = st_malloc((size_t)(chunk * (k / w.group)), sizeof *w.scales);
  setun_status s = w.trits && w.scales ? SETUN_OK : st_fail_memory(err, item->name);
  if (s == SETUN_OK) {
    s = item->format->id == ST_HF_U8 ? write_quarters(&w, chunk, out, err) : write_strips(&w, chunk, out, err);
  }
  if (s == SETUN_OK && item->format->scales == ST_SCALE_TENSOR) s = write_tail(item, out, err);
  st_item_reader_close(&w.reader);
  st_free(w.trits);
  st_free(w.scales);
  st_free(w.bytes);
  return s;
}

static setun_status write_scales(const st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  const st_item *of = item->scales ? item : &p->items[item->of];
  setun_status s = SETUN_OK;
  for (uint64_t i = 0; i < of->n_scales && s == SETUN_OK; i++) {
    uint8_t bytes[4];
    float scale = of->scales[i];
    if (item->divides && !st_conversion_divisor(p, of, scale, &scale)) scale = 1.0f / of->scales[i];
    st_store_f32(bytes, scale);
    s = st_output_write(out, bytes, sizeof bytes, err);
  }
  return s;
}

setun_status st_item_write(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  uint64_t start = out->length;
  setun_status s;
  switch (item->how) {
  case ST_HOW_COPY: s = copy_tensor(p, item, out, err); break;
  case ST_HOW_TRITS: s = write_trits(p, item, out, err); break;
  case ST_HOW_STACK: s = st_item_write_stack(p, item, out, err); break;
  case ST_HOW_SCALES: s = write_scales(p, item, out, err); break;
  default: s = write_rows(p, item, out, err);
  }
  if (s == SETUN_OK && out->length - start != item->bytes) {
    s = st_fail(err, SETUN_ERROR_STATE, "%s: planned %llu bytes, wrote %llu", item->name,
                (unsigned long long)item->bytes, (unsigned long long)(out->length - start));
  }
  return s;
}
