// Reading the rows of output tensors: from the right piece, in the right order, with scales of the right grain.
#include "convert/pieces.h"

#include "base/memory.h"

#include <string.h>

void st_item_free(st_item *item) {
  st_free(item->name);
  st_free(item->pieces);
  st_free(item->scales);
  *item = (st_item){0};
}

void st_item_reader_close(st_item_reader *r) {
  if (r->open) st_row_reader_close(&r->rows);
  st_free(r->native);
  st_free(r->floats);
  r->native = r->floats = NULL;
  r->native_capacity = r->floats_capacity = 0;
  r->open = 0;
}

// Opens the piece that has the row, and says which of its rows that is and how many follow in it.
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

// Which source row becomes this row. Within a head, interleaved row 2i + j is row i + j * half of the split order.
static uint64_t source_row(const st_item *item, uint64_t row) {
  uint64_t n = item->head_dim, half = n / 2, in = n ? row % n : 0;
  if (item->permute == ST_PERMUTE_INTERLEAVE) return row - in + in / 2 + in % 2 * half;
  if (item->permute == ST_PERMUTE_SPLIT) return row - in + in % half * 2 + in / half;
  return row;
}

static bool reorders_rows(const st_item *item) {
  return item->permute != ST_PERMUTE_NONE && item->shape.rows > 1;
}

// The next run of rows that one read can bring: where it stands in its piece.
static setun_status next_run(st_item_reader *r, uint64_t row, uint64_t count, uint64_t *inner, uint64_t *n,
                             const st_item_source **piece, setun_error *err) {
  bool single = reorders_rows(r->item);
  uint64_t left;
  setun_status s = seek(r, single ? source_row(r->item, row) : row, inner, &left, piece, err);
  *n = single ? 1 : count < left ? count : left;
  return s;
}

// A bias or another vector whose elements belong to rows that change places.
static setun_status reorder_vector(st_item_reader *r, float *x, setun_error *err) {
  const st_item *item = r->item;
  uint64_t n = item->shape.columns;
  if (item->permute == ST_PERMUTE_NONE || item->shape.rows != 1) return SETUN_OK;
  if (!st_reserve(&r->floats, &r->floats_capacity, (size_t)n, sizeof *r->floats))
    return st_fail_memory(err, item->name);
  memcpy(r->floats, x, (size_t)n * sizeof *x);
  for (uint64_t i = 0; i < n; i++) x[i] = r->floats[source_row(item, i)];
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
    if (s == SETUN_OK) s = st_read_bytes(&r->rows, inner, n, to, err);
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

// Rows of recognized floats.
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

// The mean of the scales of groups that are not zero altogether.
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

// One row's scales from groups of `from` weights to groups of `to`.
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
  for (uint64_t i = 0; i < n && s == SETUN_OK; i++) {
    if (regroup(r->native + i * per_row, from, group, k, trits + i * k, r->round, scales + i * out)) continue;
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "%s: the scales of each %llu weights differ within a group of %llu in row %llu", p->weight.name,
                (unsigned long long)from, (unsigned long long)group, (unsigned long long)(inner + i));
  }
  return s;
}

setun_status st_item_trits(st_item_reader *r, uint64_t row, uint64_t count, uint64_t group, int8_t *trits,
                           float *scales, setun_error *err) {
  uint64_t k = r->item->shape.columns;
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
