// One output tensor: reading its rows from the right piece, in the right order, with scales of the right grain, and
// writing its bytes, some rows at a time.
#include "convert/conversion.h"

#include "base/bytes.h"
#include "base/memory.h"

#include <string.h>

enum { COPY_BYTES = 1 << 20 };

void st_item_free(st_item *item) {
  st_free(item->name);
  st_free(item->pieces);
  st_free(item->scales);
  st_layer_deltas_free(item->deltas);
  *item = (st_item){0};
}

void st_item_reader_close(st_item_reader *r) {
  if (r->open) st_row_reader_close(&r->rows);
  st_free(r->native);
  st_free(r->floats);
  st_free(r->ordered);
  st_free(r->wide);
  r->native = r->floats = NULL;
  r->wide = NULL;
  r->native_capacity = r->floats_capacity = r->wide_capacity = 0;
  r->open = 0;
}

// Opens the piece that has the row, and returns the row's index in it and how many rows follow.
static setun_status seek(st_item_reader *r, uint64_t row, uint64_t *inner, uint64_t *left, const st_item_source **piece,
                         setun_error *err) {
  uint64_t each = r->item->pieces[0].weight.shape.rows;
  size_t index = (size_t)(row / each);
  *piece = &r->item->pieces[index];
  *inner = row % each;
  *left = each - *inner;
  if (r->open == index + 1) return SETUN_OK;
  if (r->open) st_row_reader_close(&r->rows);
  r->open = 0;
  setun_status s = st_row_reader_open(r->d, &(*piece)->weight, &r->rows, err);
  if (s == SETUN_OK) r->open = index + 1;
  return s;
}

// The source row for this row. Within a head, interleaved row 2i + j is row i + j * half of the split order.
static uint64_t source_row(const st_item *item, uint64_t row) {
  uint64_t n = item->head_dim, half = n / 2, in = n ? row % n : 0;
  if (item->permute == ST_PERMUTE_INTERLEAVE) return row - in + in / 2 + in % 2 * half;
  if (item->permute == ST_PERMUTE_SPLIT) return row - in + in % half * 2 + in / half;
  return st_heads_source(&item->rows, row);
}

static bool reorders_rows(const st_item *item) {
  return (item->permute != ST_PERMUTE_NONE || item->rows.outer) && item->shape.rows > 1;
}

// The next run of rows that one read can provide: its place in its piece.
static setun_status next_run(st_item_reader *r, uint64_t row, uint64_t count, uint64_t *inner, uint64_t *n,
                             const st_item_source **piece, setun_error *err) {
  bool single = reorders_rows(r->item);
  uint64_t left;
  setun_status s = seek(r, single ? source_row(r->item, row) : row, inner, &left, piece, err);
  *n = single ? 1 : count < left ? count : left;
  return s;
}

// A bias or another vector whose elements belong to reordered rows.
static setun_status reorder_vector(st_item_reader *r, float *x, setun_error *err) {
  const st_item *item = r->item;
  uint64_t n = item->shape.columns;
  if ((item->permute == ST_PERMUTE_NONE && !item->rows.outer) || item->shape.rows != 1) return SETUN_OK;
  if (!st_reserve(&r->floats, &r->floats_capacity, (size_t)n, sizeof *r->floats))
    return st_fail_memory(err, item->name);
  memcpy(r->floats, x, (size_t)n * sizeof *x);
  for (uint64_t i = 0; i < n; i++) x[i] = r->floats[source_row(item, i)];
  return SETUN_OK;
}

static setun_status undo_rotation(st_item_reader *r, uint64_t rows, float *x, setun_error *err) {
  size_t k = (size_t)r->item->shape.columns;
  if (!r->item->undone) return SETUN_OK;
  if (!st_reserve(&r->wide, &r->wide_capacity, k, sizeof *r->wide)) return st_fail_memory(err, r->item->name);
  for (uint64_t i = 0; i < rows; i++) st_rotation_undo(r->item->undone, x + i * k, k, r->wide);
  return SETUN_OK;
}

setun_status st_item_floats(st_item_reader *r, uint64_t row, uint64_t count, float *out, setun_error *err) {
  uint64_t k = r->item->shape.columns;
  while (count) {
    uint64_t inner, n;
    const st_item_source *piece;
    setun_status s = next_run(r, row, count, &inner, &n, &piece, err);
    if (s == SETUN_OK) s = st_read_floats(&r->rows, inner, n, out, err);
    if (s == SETUN_OK) s = reorder_vector(r, out, err);
    if (s == SETUN_OK) s = undo_rotation(r, n, out, err);
    if (s == SETUN_OK) s = st_item_order_columns(r, n, k, sizeof *out, out, err);
    if (s == SETUN_OK) s = st_item_convert_rates(r, n * k, out, err);
    if (s != SETUN_OK) return s;
    for (uint64_t i = 0; r->item->add != 0 && i < n * k; i++) out[i] += r->item->add;
    row += n;
    count -= n;
    out += n * k;
  }
  return SETUN_OK;
}

setun_status st_item_bytes(st_item_reader *r, uint64_t row, uint64_t count, void *out, setun_error *err) {
  uint64_t bytes = st_format_row_bytes(r->item->format, r->item->shape.columns);
  char *to = out;
  while (count) {
    uint64_t inner, n;
    const st_item_source *piece;
    setun_status s = next_run(r, row, count, &inner, &n, &piece, err);
    uint64_t block = r->item->format->block, k = r->item->shape.columns;
    if (s == SETUN_OK) s = st_read_bytes(&r->rows, inner, n, to, err);
    if (s == SETUN_OK) s = st_item_order_columns(r, n, k / block, (size_t)(bytes / (k / block)), to, err);
    if (s != SETUN_OK) return s;
    row += n;
    count -= n;
    to += n * bytes;
  }
  return SETUN_OK;
}

// ---- trits --------------------------------------------------------------------------------------------------------

uint64_t st_source_group(const st_item_source *p) {
  uint64_t k = p->weight.shape.columns;
  if (p->grain == ST_GRAIN_128) return 128;
  if (p->grain == ST_GRAIN_256) return 256;
  if (p->grain == ST_GRAIN_NONE && p->weight.format->scales == ST_SCALE_BLOCK && !p->weight.latent) {
    return p->weight.format->block;
  }
  return k;
}

// Rows of floats recognized as trits.
static setun_status split_floats(st_item_reader *r, const st_item_source *p, uint64_t row, uint64_t count,
                                 uint64_t group, int8_t *trits, setun_error *err) {
  size_t n = (size_t)(count * p->weight.shape.columns);
  if (!st_reserve(&r->floats, &r->floats_capacity, n, sizeof *r->floats)) return st_fail_memory(err, p->weight.name);
  setun_status s = st_read_floats(&r->rows, row, count, r->floats, err);
  if (s != SETUN_OK) return s;
  float *scale = r->native;
  for (size_t at = 0; at < n; at += (size_t)group, scale++) {
    if (!st_ternary_split(r->floats + at, (size_t)group, trits + at, scale)) {
      return st_fail(err, SETUN_ERROR_STATE, "%s: its weights changed while they were read", p->weight.name);
    }
    if (p->grain == ST_GRAIN_TENSOR) *scale = p->grain_scale;
  }
  return SETUN_OK;
}

static bool all_zero(const int8_t *trits, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (trits[i]) return false;
  return true;
}

// The mean of the scales of groups that are not all zero.
static float mean_scale(const float *scales, uint64_t groups, const int8_t *trits, uint64_t group) {
  double sum = 0;
  uint64_t n = 0;
  for (uint64_t g = 0; g < groups; g++) {
    if (all_zero(trits + g * group, group)) continue;
    sum += (double)scales[g];
    n++;
  }
  return n ? (float)(sum / (double)n) : 0;
}

// Converts one row's scales from groups of `from` weights to groups of `to`.
static bool regroup(const float *native, uint64_t from, uint64_t to, uint64_t columns, const int8_t *trits, bool round,
                    float *out) {
  for (uint64_t at = 0; at < columns; at += to, out++) {
    const float *first = native + at / from;
    if (to <= from) {
      *out = *first;
    } else if (!st_scales_merge(first, to / from, trits + at, from, out)) {
      if (!round) return false;
      *out = mean_scale(first, to / from, trits + at, from);
    }
  }
  return true;
}

static setun_status read_run(st_item_reader *r, const st_item_source *p, uint64_t inner, uint64_t n, uint64_t group,
                             int8_t *trits, float *scales, setun_error *err) {
  uint64_t k = p->weight.shape.columns, from = st_source_group(p), per_row = k / from, out = k / group;
  if (!st_reserve(&r->native, &r->native_capacity, (size_t)(n * per_row), sizeof *r->native)) {
    return st_fail_memory(err, p->weight.name);
  }
  setun_status s = p->grain != ST_GRAIN_NONE ? split_floats(r, p, inner, n, from, trits, err)
                                             : st_read_trits(&r->rows, inner, n, trits, r->native, err);
  if (s == SETUN_OK) s = st_item_order_columns(r, n, k, 1, trits, err);
  if (s == SETUN_OK) s = st_item_order_columns(r, n, per_row, sizeof *r->native, r->native, err);
  for (uint64_t i = 0; i < n && s == SETUN_OK; i++) {
    if (regroup(r->native + i * per_row, from, group, k, trits + i * k, r->round, scales + i * out)) continue;
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: scales of %llu weights differ within a group of %llu in row %llu",
                p->weight.name, (unsigned long long)from, (unsigned long long)group, (unsigned long long)(inner + i));
  }
  return s;
}

static setun_status quantize_floats(st_item_reader *r, uint64_t row, uint64_t count, int8_t *trits, float *scales,
                                    setun_error *err) {
  const st_item *item = r->item;
  const st_quantizer *q = r->quantizer;
  float *x = st_malloc((size_t)(count * item->shape.columns), sizeof *x);
  setun_status s = x ? st_item_floats(r, row, count, x, err) : st_fail_memory(err, item->name);
  if (s == SETUN_OK) {
    s = q->ternary(q->context, item->name, item->shape, item->format, row, count, x, trits, scales, err);
  }
  st_free(x);
  return s;
}

setun_status st_item_trits(st_item_reader *r, uint64_t row, uint64_t count, uint64_t group, int8_t *trits,
                           float *scales, setun_error *err) {
  uint64_t k = r->item->shape.columns;
  if (r->item->quantized) return quantize_floats(r, row, count, trits, scales, err);
  while (count) {
    uint64_t inner, n;
    const st_item_source *piece;
    setun_status s = next_run(r, row, count, &inner, &n, &piece, err);
    if (s == SETUN_OK) s = read_run(r, piece, inner, n, group, trits, scales, err);
    if (s != SETUN_OK) return s;
    row += n;
    count -= n;
    trits += n * k;
    scales += n * (k / group);
  }
  return SETUN_OK;
}

// ---- writing -------------------------------------------------------------------------------------------------------

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
  bool values = item->kind == ST_ITEM_VALUES;
  float *x = values ? st_malloc((size_t)(chunk * k), sizeof *x) : NULL;
  void *bytes = st_malloc((size_t)chunk, (size_t)row_bytes);
  setun_status s = bytes && (x || !values) ? SETUN_OK : st_fail_memory(err, item->name);
  for (uint64_t row = 0; row < item->shape.rows && s == SETUN_OK; row += chunk) {
    uint64_t n = item->shape.rows - row < chunk ? item->shape.rows - row : chunk;
    st_strip strip = {.row = row, .count = n, .offset = row * row_bytes, .bytes = n * row_bytes};
    s = values ? st_item_floats(&r, row, n, x, err) : st_item_bytes(&r, row, n, bytes, err);
    if (s == SETUN_OK && values) {
      const st_quantizer *q = item->quantized ? p->o->quantizer : NULL;
      if (q)
        s = q->encode(q->context, item->name, item->shape, item->format, row, n, x, bytes, err);
      else
        item->format->ops->encode(item->format, item->shape, &strip, x, bytes);
    }
    if (s == SETUN_OK && values) {
      int64_t bad = st_format_check_scales(item->format, k, bytes, strip.bytes);
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

// ---- writing trits
// --------------------------------------------------------------------------------------------------------

typedef struct {
  st_conversion *p;
  const st_item *item;
  st_item_reader reader;
  int8_t *trits;
  float *scales;
  uint8_t *bytes; // rows of a chunk
  size_t capacity;
  uint64_t group;
} trit_writer;

// Packs rows [row, row + n) into the strip's place in the buffer, which begins at offset `base` of the tensor.
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

// Strips that share no bytes.
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

// Formats with rows of several parts in a byte: byte rows [at, at + n) hold rows of all parts.
static setun_status write_parts(trit_writer *w, uint64_t chunk, st_output *out, setun_error *err) {
  const st_item *item = w->item;
  uint64_t rows = item->shape.rows, parts = item->format->ops->row_parts, k = item->shape.columns;
  uint64_t each = rows / parts + (rows % parts != 0);
  setun_status s = SETUN_OK;
  for (uint64_t at = 0; at < each && s == SETUN_OK; at += chunk) {
    uint64_t n = each - at < chunk ? each - at : chunk;
    s = make_room(w, n * k, err);
    for (uint64_t part = 0; part < parts && s == SETUN_OK; part++) {
      uint64_t row = part * each + at;
      if (row >= rows) break;
      st_strip strip = st_format_locate(item->format, item->shape, row, n);
      s = pack_rows(w, &strip, at * k, err);
    }
    if (s == SETUN_OK) s = st_output_write(out, w->bytes, (size_t)(n * k), err);
  }
  return s;
}

// After the codes, up to the tensor's end: the single scale (1 where separate scales multiply it), and zeros.
static setun_status write_tail(const st_item *item, st_output *out, setun_error *err) {
  uint8_t tail[32] = {0};
  uint64_t n = item->bytes - item->format->ops->scale_offset(item->format, item->shape);
  st_store_f32(tail, item->n_scales == 1 ? item->scales[0] : 1);
  return st_output_write(out, tail, n < sizeof tail ? (size_t)n : sizeof tail, err);
}

static setun_status write_trits(st_conversion *p, const st_item *item, st_output *out, setun_error *err) {
  uint64_t k = item->shape.columns, chunk = st_item_chunk(item);
  trit_writer w = {.p = p, .item = item};
  w.reader = (st_item_reader){.d = p->d, .item = item, .quantizer = p->o->quantizer, .round = p->o->round_scales};
  w.group = item->format->scales == ST_SCALE_BLOCK ? item->format->block : k;
  w.trits = st_malloc((size_t)(chunk * k), 1);
  w.scales = st_malloc((size_t)(chunk * (k / w.group)), sizeof *w.scales);
  setun_status s = w.trits && w.scales ? SETUN_OK : st_fail_memory(err, item->name);
  if (s == SETUN_OK) {
    s = item->format->ops->row_parts ? write_parts(&w, chunk, out, err) : write_strips(&w, chunk, out, err);
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
  switch (item->kind) {
  case ST_ITEM_COPY: return copy_tensor(p, item, out, err);
  case ST_ITEM_TRITS: return write_trits(p, item, out, err);
  case ST_ITEM_STACK: return st_item_write_stack(p, item, out, err);
  case ST_ITEM_GPTQ: return st_item_write_gptq(p, item, out, err);
  case ST_ITEM_DELTAS: return st_item_write_deltas(p, item, out, err);
  case ST_ITEM_SCALES: return write_scales(p, item, out, err);
  default: return write_rows(p, item, out, err);
  }
}
