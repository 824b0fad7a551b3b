// Reads every weight once before anything is written, to find what the target cannot hold: invalid codes, scales that
// differ where only one is kept, scales and floats that the target cannot represent. Also scans of stored tensors,
// which look for invalid codes and count zeros.
#include "convert/conversion.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_WEIGHTS = 1 << 20, CHUNK_BYTES = 1 << 20 };

// ---- scans ---------------------------------------------------------------------------------------------------------

typedef struct float_buffer {
  float *data;
  size_t capacity;
  bool failed;
} float_buffer;

// The first NaN or infinity in a strip of plain floats: its byte's offset in the strip; -1: none, or out of
// memory for `floats` (floats->failed).
static int64_t check_floats(const st_format *format, st_shape shape, const st_strip *strip, const void *bytes,
                            float_buffer *floats) {
  uint64_t n = strip->bytes / format->block_bytes;
  floats->failed = !st_reserve(&floats->data, &floats->capacity, (size_t)n, sizeof *floats->data);
  if (floats->failed) return -1;
  format->ops->decode(format, shape, strip, bytes, floats->data);
  for (uint64_t i = 0; i < n; i++) {
    if (!isfinite(floats->data[i])) return (int64_t)(i * format->block_bytes);
  }
  return -1;
}

static int64_t check_strip(const st_format *format, st_shape shape, const st_strip *strip, const void *bytes,
                           bool strict, float_buffer *floats) {
  if (!st_format_is_ternary(format)) {
    bool plain = format->block == 1 && !strict;
    int64_t at = plain ? check_floats(format, shape, strip, bytes, floats)
                       : st_format_check_scales(format, shape.columns, bytes, strip->bytes);
    return at < 0 ? at : at + (int64_t)strip->offset;
  }
  if (format->ops->two_is_valid && !strict) return -1;
  return format->ops->check(format, shape, strip, bytes);
}

setun_status st_check_tensor(const st_directory *d, const st_tensor *tensor, const st_format *format, st_shape stored,
                             bool strict, int64_t *offset, setun_error *err) {
  uint8_t *bytes = NULL;
  float_buffer floats = {0};
  size_t capacity = 0;
  setun_status s = SETUN_OK;
  uint64_t most = CHUNK_BYTES / (tensor->bytes / stored.rows + 1) + 1;
  *offset = -1;
  for (uint64_t row = 0; row < stored.rows && *offset < 0 && s == SETUN_OK;) {
    st_strip strip = st_format_locate(format, stored, row, most);
    if (!strip.count || strip.offset > tensor->bytes || strip.bytes > tensor->bytes - strip.offset) {
      s = st_fail(err, SETUN_ERROR_STATE, "%s: rows from %llu on are outside the tensor", tensor->name,
                  (unsigned long long)row);
    } else if (!st_reserve(&bytes, &capacity, (size_t)strip.bytes, 1)) {
      s = st_fail_memory(err, tensor->name);
    } else {
      s = st_file_read(&d->parts[tensor->part], tensor->offset + strip.offset, bytes, (size_t)strip.bytes, err);
      if (s != SETUN_OK) st_fail_in(err, s, "%s", tensor->name);
    }
    if (s == SETUN_OK) *offset = check_strip(format, stored, &strip, bytes, strict, &floats);
    if (floats.failed) s = st_fail_memory(err, tensor->name);
    row += strip.count;
  }
  st_free(bytes);
  st_free(floats.data);
  return s;
}

static void count_rows(const int8_t *trits, uint64_t rows, uint64_t columns, uint8_t *used, st_zeros *z) {
  for (uint64_t r = 0; r < rows; r++, trits += columns) {
    for (uint64_t k = 0; k < columns; k++) {
      z->zeros += trits[k] == 0;
      used[k] |= trits[k] != 0;
    }
  }
}

setun_status st_count_zeros(const st_directory *d, const st_weight *weight, st_zeros *zeros, setun_error *err) {
  uint64_t k = weight->shape.columns, chunk = CHUNK_BYTES / (k + 1) + 1;
  uint64_t per_row = st_format_row_scales(weight->format, k);
  st_zeros z = {.weights = weight->shape.rows * k, .columns = k};
  st_row_reader r;
  setun_status s = st_row_reader_open(d, weight, &r, err);
  if (s != SETUN_OK) return s;
  int8_t *trits = st_malloc((size_t)(chunk * k), 1);
  uint8_t *used = st_calloc((size_t)k, 1);
  float *scales = st_malloc((size_t)(chunk * (per_row ? per_row : 1)), sizeof *scales);
  if (!trits || !used || !scales) s = st_fail_memory(err, weight->name);
  for (uint64_t row = 0; row < weight->shape.rows && s == SETUN_OK; row += chunk) {
    uint64_t n = weight->shape.rows - row < chunk ? weight->shape.rows - row : chunk;
    s = st_read_trits(&r, row, n, trits, scales, err);
    if (s == SETUN_OK) count_rows(trits, n, k, used, &z);
  }
  for (uint64_t i = 0; i < k && s == SETUN_OK; i++) z.zero_columns += !used[i];
  st_free(trits);
  st_free(used);
  st_free(scales);
  st_row_reader_close(&r);
  if (s == SETUN_OK) *zeros = z;
  return s;
}

// ---- progress ------------------------------------------------------------------------------------------------------

uint64_t st_item_chunk(const st_item *item) {
  uint64_t rows = CHUNK_WEIGHTS / (item->shape.columns + 1);
  bool mixes = item->format && st_format_is_ternary(item->format) && item->format->ops->locate;
  if (mixes) return rows < 16 ? 16 : rows / 16 * 16;
  return rows ? rows : 1;
}

setun_status st_conversion_progress(st_conversion *p, uint64_t weights, setun_error *err) {
  p->work_done += weights;
  double fraction = p->work_total ? (double)p->work_done / (double)p->work_total : 1;
  if (!p->o->progress || p->o->progress(fraction < 1 ? fraction : 1, p->o->user)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_CANCELED, "the conversion was canceled");
}

// ---- suggestions -----------------------------------------------------------------------------------------------

static bool holds_f32(const st_format *f) {
  return !st_scale_fits(f, 0x1.fffffep-1f) ? false : true;
}

// "t2, t5": layouts for these rows with a scale for every `group` weights or fewer, in float32 if needed.
static const char *fitting(const st_item *item, uint64_t group, bool f32, char text[200]) {
  size_t n = 0;
  text[0] = 0;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    bool fine = group >= item->shape.columns || (f->scales == ST_SCALE_BLOCK && group % f->block == 0);
    if (!st_format_is_ternary(f) || f->gguf_type < 0 || !fine || (f32 && !holds_f32(f))) continue;
    if (!st_format_holds_all(f)) continue; // which also restricts the trits
    if (st_format_writable(f, item->shape, NULL) != SETUN_OK || n > 160) continue;
    n += (size_t)snprintf(text + n, 200 - n, "%s%s", n ? ", " : "", f->name);
  }
  if (n < 180) snprintf(text + n, 200 - n, "%sf32", n ? ", " : "");
  return text;
}

// ---- invalid codes ------------------------------------------------------------------------------------------------

static setun_status check_codes(const st_conversion *p, const st_item *item, setun_error *err) {
  bool two = !st_format_is_ternary(item->format) || item->format->ops->two_is_valid;
  for (size_t i = 0; i < item->n_pieces; i++) {
    const st_weight *w = &item->pieces[i].weight;
    if (!st_format_is_ternary(w->format) || w->first_row) continue; // the first of a stack represents all
    int64_t at;
    setun_status s = st_check_tensor(p->d, w->data, w->format, w->stored, !two, &at, err);
    if (s != SETUN_OK) return s;
    if (at < 0) continue;
    if (w->format->ops->two_is_valid) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "%s: the byte at offset %lld holds a weight of +2 scales, which %s cannot hold; q2_0, q2_0-128, "
                     "pq2_0 and f32 can",
                     w->name, (long long)at, item->format->name);
    }
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: invalid code in the byte at offset %lld of the tensor (%s)", w->name,
                   (long long)at, w->format->name);
  }
  return SETUN_OK;
}

// ---- trits --------------------------------------------------------------------------------------------------------

typedef struct {
  st_item_reader reader;
  int8_t *trits;
  float *scales;
  uint64_t chunk, group;
  bool *counts; // by row: whether it is not all zero, so that its scale is meaningful
} trit_pass;

static void close_pass(trit_pass *t) {
  st_item_reader_close(&t->reader);
  st_free(t->trits);
  st_free(t->scales);
  st_free(t->counts);
}

static setun_status open_pass(const st_conversion *p, const st_item *item, trit_pass *t, setun_error *err) {
  uint64_t k = item->shape.columns;
  t->reader = (st_item_reader){.d = p->d, .item = item, .quantizer = p->o->quantizer, .round = p->o->round_scales};
  t->chunk = st_item_chunk(item);
  t->group = item->format->scales == ST_SCALE_BLOCK ? item->format->block : k;
  t->trits = st_malloc((size_t)(t->chunk * k), 1);
  t->scales = st_malloc((size_t)(t->chunk * (k / t->group)), sizeof *t->scales);
  t->counts = st_calloc((size_t)item->shape.rows, sizeof *t->counts);
  return t->trits && t->scales && t->counts ? SETUN_OK : st_fail_memory(err, item->name);
}

static setun_status check_fit(const st_conversion *p, const st_item *item, uint64_t row, uint64_t n,
                              const float *scales, uint64_t per_row, setun_error *err) {
  char names[200];
  for (uint64_t i = 0; i < n * per_row; i++) {
    float scale = scales[i];
    if (st_scale_fits(item->format, scale)) continue;
    if (p->o->round_scales && isfinite(st_scale_rounded(item->format, scale))) continue;
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: the scale %.9g of row %llu is not a half-precision number, as %s stores; suitable layouts: %s (or "
        "round the scales)",
        item->name, (double)scale, (unsigned long long)(row + i / per_row), item->format->name,
        fitting(item, st_source_group(&item->pieces[0]), true, names));
  }
  return SETUN_OK;
}

static bool any_trit(const int8_t *trits, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (trits[i]) return true;
  return false;
}

// Layouts that can hold only some patterns of trits.
static setun_status check_trits(const st_item *item, uint64_t row, uint64_t n, const int8_t *trits, setun_error *err) {
  for (uint64_t i = 0; i < n; i++) {
    int64_t at = st_format_check_trits(item->format, item->shape.columns, trits + i * item->shape.columns);
    if (at < 0) continue;
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: %s holds exactly one zero in every four weights of a group, unlike the %u from column %lld of row "
        "%llu",
        item->name, item->format->name, (unsigned)item->format->block, (long long)at, (unsigned long long)(row + i));
  }
  return SETUN_OK;
}

static setun_status pass_rows(st_conversion *p, st_item *item, trit_pass *t, setun_error *err) {
  uint64_t k = item->shape.columns, per_row = k / t->group;
  for (uint64_t row = 0; row < item->shape.rows; row += t->chunk) {
    uint64_t n = item->shape.rows - row < t->chunk ? item->shape.rows - row : t->chunk;
    setun_status s = st_item_trits(&t->reader, row, n, t->group, t->trits, t->scales, err);
    if (s == SETUN_ERROR_UNSUPPORTED && err) {
      setun_error inner = *err;
      char names[200];
      return st_fail(err, s, "%.300s; layouts that keep them separate: %s", inner.message,
                     fitting(item, st_source_group(&item->pieces[0]), false, names));
    }
    if (s == SETUN_OK) s = check_trits(item, row, n, t->trits, err);
    if (s == SETUN_OK) s = check_fit(p, item, row, n, t->scales, per_row, err);
    if (s == SETUN_OK) s = st_conversion_progress(p, n * k, err);
    if (s != SETUN_OK) return s;
    if (!item->scales) continue;
    memcpy(item->scales + row, t->scales, (size_t)n * sizeof *t->scales);
    for (uint64_t i = 0; i < n; i++) t->counts[row + i] = t->scales[i] != 0 || any_trit(t->trits + i * k, k);
  }
  return SETUN_OK;
}

// The common scale of some rows; false if they differ. Rows of zeros with scale 0 match any scale.
static bool common_scale(const float *scales, const bool *counts, uint64_t n, float *out) {
  bool found = false;
  *out = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (!counts[i]) continue;
    if (found && memcmp(&scales[i], out, sizeof *out)) return false;
    *out = scales[i];
    found = true;
  }
  return true;
}

static float mean_of(const float *scales, const bool *counts, uint64_t n) {
  double sum = 0;
  uint64_t used = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (!counts[i]) continue;
    sum += (double)scales[i];
    used++;
  }
  return used ? (float)(sum / (double)used) : 0;
}

// The smallest equivalent set of scales: one, one per stacked expert, or one per row.
static setun_status reduce(const st_conversion *p, st_item *item, const bool *counts, setun_error *err) {
  float one;
  uint64_t rows = item->shape.rows, each = rows / item->n_pieces;
  item->n_scales = rows;
  if (common_scale(item->scales, counts, rows, &one)) {
    item->scales[0] = one;
    item->n_scales = 1;
    return SETUN_OK;
  }
  if (!p->to_gguf) { // a checkpoint has one per matrix
    if (p->o->round_scales) {
      item->scales[0] = mean_of(item->scales, counts, rows);
      item->n_scales = 1;
      return SETUN_OK;
    }
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: its rows have separate scales, and hf-u8 has one per matrix; in GGUF t2, t5, t16 and i2_s have "
                   "one per row (or round the scales)",
                   item->name);
  }
  uint64_t pieces = 0;
  float *ones = item->n_pieces > 1 ? st_malloc(item->n_pieces, sizeof *ones) : NULL;
  while (ones && pieces < item->n_pieces &&
         common_scale(item->scales + pieces * each, counts + pieces * each, each, &ones[pieces])) {
    pieces++;
  }
  if (ones && pieces == item->n_pieces) {
    memcpy(item->scales, ones, item->n_pieces * sizeof *ones);
    item->n_scales = item->n_pieces;
  }
  st_free(ones);
  return SETUN_OK;
}

// The divisor in the original checkpoint, if the GGUF file made from it records it.
static bool kept_divisor(const st_conversion *p, const st_item *item, float scale, float *divisor) {
  const st_meta *names = st_metadata_find(&p->d->metadata, "setun.divisors.tensors");
  const st_meta *values = st_metadata_find(&p->d->metadata, "setun.divisors.values");
  const char *name = item->pieces[0].weight.name;
  if (!names || names->type != ST_META_ARRAY || names->element != ST_META_STRING) return false;
  if (!values || values->type != ST_META_ARRAY || values->element != ST_META_F32) return false;
  for (uint64_t i = 0; i < names->count && i < values->count; i++) {
    float d = (float)st_meta_number(values, i);
    bool same = names->as.texts[i].length == strlen(name) && !memcmp(names->as.texts[i].data, name, strlen(name));
    if (!same || 1.0f / d != scale) continue;
    *divisor = d;
    return true;
  }
  return false;
}

bool st_conversion_divisor(const st_conversion *p, const st_item *item, float scale, float *divisor) {
  if (kept_divisor(p, item, scale, divisor)) return true;
  float d = 1.0f / scale, up = nextafterf(d, INFINITY), down = nextafterf(d, 0);
  const float tries[] = {d, up, down};
  for (int i = 0; i < 3; i++) {
    if (!isfinite(tries[i]) || tries[i] == 0 || 1.0f / tries[i] != scale) continue;
    *divisor = tries[i];
    return true;
  }
  return false;
}

static setun_status validate_trits(st_conversion *p, st_item *item, setun_error *err) {
  trit_pass t = {0};
  bool outer = item->format->scales == ST_SCALE_OUTER || item->format->scales == ST_SCALE_TENSOR;
  setun_status s = open_pass(p, item, &t, err);
  if (s == SETUN_OK && outer && !(item->scales = st_calloc((size_t)item->shape.rows, sizeof *item->scales))) {
    s = st_fail_memory(err, item->name);
  }
  if (s == SETUN_OK) s = pass_rows(p, item, &t, err);
  if (s == SETUN_OK && outer) s = reduce(p, item, t.counts, err);
  close_pass(&t);
  float divisor;
  if (s == SETUN_OK && p->o->divides && !p->o->round_scales &&
      !st_conversion_divisor(p, item, item->scales[0], &divisor)) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "%s: no float32 number has the scale %.9g as its reciprocal, as hf-u8-div stores it; hf-u8 holds it "
                "(or round the scales)",
                item->name, (double)item->scales[0]);
  }
  return s;
}

// ---- values -------------------------------------------------------------------------------------------------------

static setun_status compare(const st_item *item, bool rounds, uint64_t row, const float *x, const float *y, uint64_t n,
                            setun_error *err) {
  uint64_t k = item->shape.columns;
  for (uint64_t i = 0; i < n; i++) {
    if (!isfinite(y[i])) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %.9g in row %llu is beyond %s; f32 holds it", item->name,
                     (double)x[i], (unsigned long long)(row + i / k), item->format->name);
    }
    if (x[i] == y[i] || item->lossy || rounds) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %.9g in row %llu is not exact in %s; f32 holds it%s", item->name,
                   (double)x[i], (unsigned long long)(row + i / k), item->format->name,
                   st_source_is_ternary(&item->pieces[0]) ? " (or round the scales)" : "");
  }
  return SETUN_OK;
}

// Encodes and decodes, and compares.
static setun_status validate_values(st_conversion *p, st_item *item, setun_error *err) {
  uint64_t k = item->shape.columns, chunk = st_item_chunk(item), row_bytes = st_format_row_bytes(item->format, k);
  st_item_reader r = {.d = p->d, .item = item};
  float *x = st_malloc((size_t)(2 * chunk * k), sizeof *x);
  void *bytes = st_malloc((size_t)chunk, (size_t)row_bytes);
  setun_status s = x && bytes ? SETUN_OK : st_fail_memory(err, item->name);
  bool rounds = p->o->round_scales && st_source_is_ternary(&item->pieces[0]);
  bool plain = item->format->block == 1; // others were requested by name; their blocks' scales are checked when written
  for (uint64_t row = 0; row < item->shape.rows && s == SETUN_OK; row += chunk) {
    uint64_t n = item->shape.rows - row < chunk ? item->shape.rows - row : chunk;
    st_strip strip = {.row = row, .count = n, .bytes = n * row_bytes};
    s = st_item_floats(&r, row, n, x, err);
    if (s == SETUN_OK && plain) {
      item->format->ops->encode(item->format, item->shape, &strip, x, bytes);
      item->format->ops->decode(item->format, item->shape, &strip, bytes, x + chunk * k);
      s = compare(item, rounds, row, x, x + chunk * k, n * k, err);
    }
    if (s == SETUN_OK) s = st_conversion_progress(p, n * k, err);
  }
  st_item_reader_close(&r);
  st_free(x);
  st_free(bytes);
  return s;
}

setun_status st_conversion_validate(st_conversion *p, st_item *item, setun_error *err) {
  setun_status s = item->pieces && item->kind != ST_ITEM_STACK ? check_codes(p, item, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  switch (item->kind) {
  case ST_ITEM_TRITS: return validate_trits(p, item, err);
  case ST_ITEM_VALUES: return validate_values(p, item, err);
  default: return st_conversion_progress(p, item->shape.rows * item->shape.columns, err);
  }
}
