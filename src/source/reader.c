// Reading rows of a weight with positioned reads, strip by strip: as floats, as trits with scales, or as stored.
#include "base/memory.h"
#include "quant/canonical.h"
#include "source/packed.h"
#include "source/scattered.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STRIP_BYTES = 1 << 20 };

// True if all are finite. Branch-free integer arithmetic, for speed.
static bool all_finite(const float *x, uint64_t n) {
  uint32_t bad = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bad |= (bits & 0x7F800000) == 0x7F800000;
  }
  return !bad;
}

static setun_status fail_nonfinite(const st_weight *w, const char *what, uint64_t row, uint64_t columns, const float *x,
                                   uint64_t n, setun_error *err) {
  uint64_t i = 0;
  while (i < n && isfinite(x[i])) i++;
  double found = i < n ? (double)x[i] : (double)NAN;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected finite %s, found %g in row %" PRIu64, w->name, what, found,
                 row + (columns ? i / columns : 0));
}

// ---- strips -------------------------------------------------------------------------------------------------------

// Reads a strip of at most `want` rows, starting at `row` of this weight, into the buffer. strip->row counts from the
// stored tensor's first row.
static setun_status load_whole_rows(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  *strip = st_format_locate(w->format, w->stored, w->first_row + row, want);
  if (!strip->count || strip->offset > w->data->bytes || strip->bytes > w->data->bytes - strip->offset ||
      strip->bytes > SIZE_MAX) {
    return st_fail(err, SETUN_ERROR_STATE, "%s: rows from %" PRIu64 " on are outside the tensor", w->name, row);
  }
  if (!st_reserve(&r->bytes, &r->capacity, (size_t)strip->bytes, 1)) return st_fail_memory(err, w->name);
  setun_status s = st_file_read(&r->directory->parts[w->data->part], w->data->offset + strip->offset, r->bytes,
                                (size_t)strip->bytes, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", w->name);
}

static uint64_t stored_row_bytes(const st_weight *w) {
  if (w->packed.kind) return st_format_row_bytes(w->format, w->stored.columns);
  return w->data->bytes / w->stored.rows + 1;
}

// The rows of a strip's usual size.
static uint64_t usual_rows(const st_weight *w) {
  uint64_t rows = STRIP_BYTES / stored_row_bytes(w);
  return rows ? rows : 1;
}

// The same, limited to that number of rows.
static setun_status load_strip(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t most = usual_rows(w);
  if (st_weight_is_scattered(w)) return st_load_scattered(r, row, want < most ? want : most, strip, err);
  return load_whole_rows(r, row, want < most ? want : most, strip, err);
}

static setun_status check_rows(const st_row_reader *r, uint64_t row, uint64_t count, setun_error *err) {
  uint64_t rows = r->weight->shape.rows;
  if (row <= rows && count <= rows - row) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: rows %" PRIu64 " to %" PRIu64 " of %" PRIu64, r->weight->name, row,
                 row + count, rows);
}

// One row's scale that is not inside a strip's bytes.
static float row_scale(const st_row_reader *r, uint64_t row) {
  if (!r->scales) return 1;
  return r->scales[r->n_scales == 1 ? 0 : row];
}

// ---- opening ------------------------------------------------------------------------------------------------------

// Elements [first, first + count) of a small float tensor.
static setun_status read_scale_tensor(const st_row_reader *r, const st_tensor *t, uint64_t first, uint64_t count,
                                      float *out, setun_error *err) {
  st_weight w = {.name = t->name,
                 .format = t->format,
                 .shape = {st_tensor_elements(t), 1},
                 .stored = {st_tensor_elements(t), 1},
                 .row_step = 1,
                 .data = t};
  if (t->format->block != 1) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected scales in floats, found %s", t->name, t->format->name);
  }
  st_row_reader reader = {.directory = r->directory, .weight = &w};
  setun_status s = st_read_floats(&reader, first, count, out, err);
  st_row_reader_close(&reader);
  return s;
}

static setun_status read_outer_scales(st_row_reader *r, setun_error *err) {
  const st_weight *w = r->weight;
  if (!w->n_scales || !(r->scales = st_malloc((size_t)w->n_scales, sizeof *r->scales))) {
    return st_fail_memory(err, w->name);
  }
  r->n_scales = w->n_scales;
  setun_status s = read_scale_tensor(r, w->scale, w->first_scale, w->n_scales, r->scales, err);
  for (uint64_t i = 0; s == SETUN_OK && w->scale_divides && i < w->n_scales; i++) {
    float inverse = 1.0f / r->scales[i];
    if (!isfinite(inverse)) {
      s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected nonzero scales, which weights are divided by, found %g",
                  w->scale->name, (double)r->scales[i]);
    }
    r->scales[i] = inverse;
  }
  return s;
}

// Multiplies the existing scales by another one.
static setun_status add_scale(st_row_reader *r, float scale, const char *what, setun_error *err) {
  if (!isfinite(scale)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a finite %s, found %g", r->weight->name, what, (double)scale);
  }
  if (!r->scales) {
    if (!(r->scales = st_malloc(1, sizeof *r->scales))) return st_fail_memory(err, r->weight->name);
    r->scales[0] = 1;
    r->n_scales = 1;
  }
  for (uint64_t i = 0; i < r->n_scales; i++) r->scales[i] *= scale;
  return SETUN_OK;
}

static setun_status read_inner_scale(st_row_reader *r, setun_error *err) {
  const st_weight *w = r->weight;
  float scale;
  uint64_t at = w->format->ops->scale_offset(w->format, w->stored);
  setun_status s = st_file_read(&r->directory->parts[w->data->part], w->data->offset + at, &scale, sizeof scale, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", w->name);
  return add_scale(r, scale, "scale", err);
}

// mean|w| over the whole matrix, summed in double.
static setun_status absmean(st_row_reader *r, float *mean, setun_error *err) {
  const st_weight *w = r->weight;
  st_absmean all = {0};
  float *x = NULL;
  size_t capacity = 0;
  setun_status s = SETUN_OK;
  for (uint64_t row = 0; row < w->shape.rows && s == SETUN_OK;) {
    st_strip strip;
    if ((s = load_strip(r, row, w->shape.rows - row, &strip, err)) != SETUN_OK) break;
    size_t n = (size_t)(strip.count * w->shape.columns); // each weight takes at least a byte of the buffer
    if (!st_reserve(&x, &capacity, n, sizeof *x)) {
      s = st_fail_memory(err, w->name);
      break;
    }
    w->format->ops->decode(w->format, w->stored, &strip, r->bytes, x);
    st_absmean part = {0};
    st_absmean_add(&part, x, n);
    if (!isfinite(part.sum)) s = fail_nonfinite(w, "weights", row, w->shape.columns, x, n, err);
    all.sum += part.sum;
    all.count += part.count;
    row += strip.count;
  }
  st_free(x);
  *mean = st_absmean_result(&all);
  return s;
}

setun_status st_weight_measure(const st_directory *directory, st_weight *weight, setun_error *err) {
  if (!weight->latent || weight->latent_scale > 0) return SETUN_OK;
  st_row_reader r = {.directory = directory, .weight = weight};
  float mean;
  setun_status s = absmean(&r, &mean, err);
  st_row_reader_close(&r);
  if (s == SETUN_OK) weight->latent_scale = mean;
  return s;
}

setun_status st_weight_recognize(const st_directory *directory, st_weight *weight, uint64_t rows, setun_error *err) {
  const st_weight *w = weight;
  if (w->latent || w->scale || w->shape.rows < 2 || !st_format_is_number(w->format)) return SETUN_OK;
  st_row_reader r = {.directory = directory, .weight = w};
  st_ternary_scan scan;
  float *x = NULL;
  size_t capacity = 0;
  setun_status s = SETUN_OK;
  st_ternary_scan_begin(&scan, w->shape.columns);
  uint64_t last = rows && rows < w->shape.rows ? rows : w->shape.rows;
  for (uint64_t row = 0; row < last && s == SETUN_OK && scan.fits[ST_GRAIN_TENSOR];) {
    st_strip strip;
    if ((s = load_strip(&r, row, last - row, &strip, err)) != SETUN_OK) break;
    if (!st_reserve(&x, &capacity, (size_t)(strip.count * w->shape.columns), sizeof *x)) {
      s = st_fail_memory(err, w->name);
      break;
    }
    w->format->ops->decode(w->format, w->stored, &strip, r.bytes, x);
    st_ternary_scan_rows(&scan, x, strip.count);
    row += strip.count;
  }
  st_free(x);
  st_row_reader_close(&r);
  // Quantizing with the scale reproduces the trits, except for scales below 1e-5, which would be clamped.
  if (s == SETUN_OK && scan.fits[ST_GRAIN_TENSOR] && scan.scale > 1e-5f) {
    weight->latent = true;
    weight->latent_scale = scan.scale;
  }
  return s;
}

setun_status st_row_reader_open(const st_directory *directory, const st_weight *weight, st_row_reader *reader,
                                setun_error *err) {
  st_row_reader r = {.directory = directory, .weight = weight};
  setun_status s = weight->scale ? read_outer_scales(&r, err) : SETUN_OK;
  if (s == SETUN_OK && weight->packed.kind) s = st_packed_open(&r, err);
  if (s == SETUN_OK && weight->format->scales == ST_SCALE_TENSOR) s = read_inner_scale(&r, err);
  if (s == SETUN_OK && weight->latent) {
    float mean = weight->latent_scale;
    if (!(mean > 0)) s = absmean(&r, &mean, err);
    if (s == SETUN_OK) s = add_scale(&r, mean, "mean of magnitudes", err);
  }
  if (s != SETUN_OK) {
    st_row_reader_close(&r);
    return s;
  }
  *reader = r;
  return SETUN_OK;
}

void st_row_reader_close(st_row_reader *reader) {
  st_free(reader->scales);
  st_free(reader->bytes);
  st_free(reader->raw);
  st_free(reader->groups);
  st_free(reader->order);
  st_free(reader->row);
  st_free(reader->trits);
  st_free(reader->block_scales);
  *reader = (st_row_reader){0};
}

uint64_t st_row_reader_bytes(const st_weight *w, uint64_t rows, st_reading how) {
  uint64_t usual = usual_rows(w), at_once = how == ST_READ_STRIPS || rows < usual ? rows : usual;
  uint64_t strip = at_once * stored_row_bytes(w), weights = at_once * w->shape.columns;
  uint64_t row_scales = st_format_row_scales(w->format, w->shape.columns);
  uint64_t bytes = w->n_scales * sizeof(float);
  if (w->packed.kind)
    bytes += at_once * st_format_row_bytes(w->format, w->shape.columns) + st_packed_bytes(w, at_once);
  else if (st_weight_is_scattered(w))
    bytes += strip * (1 + w->row_step);
  else if (how != ST_READ_BYTES)
    bytes += strip;
  if (how == ST_READ_TRITS && w->latent) bytes += weights * sizeof(float);
  if (how != ST_READ_FLOATS) return bytes;
  if (st_weight_is_ternary(w)) bytes += weights;
  if (st_format_is_ternary(w->format)) bytes += at_once * (row_scales ? row_scales : 1) * sizeof(float);
  return bytes;
}

// ---- reading ------------------------------------------------------------------------------------------------------

// Checks the scales in a strip's bytes and multiplies them, or the rows' ones, by the separate scales.
static setun_status complete_scales(const st_row_reader *r, uint64_t row, uint64_t count, float *scales,
                                    setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t per_row = st_format_row_scales(w->format, w->shape.columns), n = per_row ? per_row : 1;
  if (per_row && !all_finite(scales, count * n)) {
    return fail_nonfinite(w, "scales", row, n, scales, count * n, err);
  }
  for (uint64_t i = 0; i < count; i++) {
    float outer = row_scale(r, row + i);
    for (uint64_t k = 0; k < n; k++) scales[i * n + k] = per_row ? scales[i * n + k] * outer : outer;
  }
  return SETUN_OK;
}

// One strip of a ternary format from the buffer: trits, and the complete scale of each row or block.
static setun_status unpack(st_row_reader *r, uint64_t row, const st_strip *strip, int8_t *trits, float *scales,
                           setun_error *err) {
  const st_weight *w = r->weight;
  bool inside = st_format_row_scales(w->format, w->shape.columns) != 0;
  w->format->ops->unpack(w->format, w->stored, strip, r->bytes, trits, inside ? scales : NULL);
  return complete_scales(r, row, strip->count, scales, err);
}

// Floats = trit * scale.
static void expand(const st_weight *w, uint64_t count, const int8_t *trits, const float *scales, float *out) {
  uint64_t k = w->shape.columns, block = w->format->scales == ST_SCALE_BLOCK ? w->format->block : k;
  for (uint64_t i = 0; i < count; i++) {
    for (uint64_t at = 0; at < k; at += block) {
      float scale = *scales++;
      for (uint64_t j = at; j < at + block; j++) out[j] = (float)trits[j] * scale;
    }
    trits += k;
    out += k;
  }
}

static setun_status ternary_floats(st_row_reader *r, uint64_t row, const st_strip *strip, float *out,
                                   setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t per_row = st_format_row_scales(w->format, w->shape.columns);
  // The size of a strip's trits is a small multiple of its bytes, so it does not overflow.
  size_t n = (size_t)(strip->count * w->shape.columns), scales = (size_t)(strip->count * (per_row ? per_row : 1));
  if (!st_reserve(&r->trits, &r->trit_capacity, n, 1) ||
      !st_reserve(&r->block_scales, &r->block_capacity, scales, sizeof *r->block_scales)) {
    return st_fail_memory(err, w->name);
  }
  setun_status s = unpack(r, row, strip, r->trits, r->block_scales, err);
  if (s == SETUN_OK) expand(w, strip->count, r->trits, r->block_scales, out);
  return s;
}

// Puts the columns of rows where they belong.
static void restore_order(st_row_reader *r, uint64_t count, float *out) {
  uint64_t k = r->weight->shape.columns;
  for (uint64_t i = 0; i < count; i++, out += k) {
    memcpy(r->row, out, (size_t)k * sizeof *out);
    for (uint64_t j = 0; j < k; j++) out[r->order[j]] = r->row[j];
  }
}

// One strip of a value format from the buffer, scaled, or quantized and scaled again where it is latent.
static setun_status value_floats(st_row_reader *r, uint64_t row, const st_strip *strip, float *out, setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t k = w->shape.columns, n = strip->count * k;
  w->format->ops->decode(w->format, w->stored, strip, r->bytes, out);
  if (!all_finite(out, n)) return fail_nonfinite(w, "weights", row, k, out, n, err);
  if (r->order) restore_order(r, strip->count, out);
  if (!r->scales) return SETUN_OK;
  if (w->latent && !st_reserve(&r->trits, &r->trit_capacity, (size_t)n, 1)) return st_fail_memory(err, w->name);
  if (w->latent) {
    st_absmean_trits(out, n, r->scales[0], r->trits);
    for (uint64_t i = 0; i < n; i++) out[i] = r->trits[i];
  }
  for (uint64_t i = 0; i < n; i++) out[i] *= row_scale(r, row + i / k);
  return SETUN_OK;
}

setun_status st_read_floats(st_row_reader *reader, uint64_t row, uint64_t count, float *out, setun_error *err) {
  const st_weight *w = reader->weight;
  setun_status s = check_rows(reader, row, count, err);
  while (s == SETUN_OK && count) {
    st_strip strip;
    if ((s = load_strip(reader, row, count, &strip, err)) != SETUN_OK) break;
    s = st_format_is_ternary(w->format) ? ternary_floats(reader, row, &strip, out, err)
                                        : value_floats(reader, row, &strip, out, err);
    row += strip.count;
    count -= strip.count;
    out += strip.count * w->shape.columns;
  }
  return s;
}

// One strip of latent floats as trits.
static setun_status latent_trits(st_row_reader *r, uint64_t row, const st_strip *strip, int8_t *trits, float *scales,
                                 setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t n = strip->count * w->shape.columns;
  if (!st_reserve(&r->block_scales, &r->block_capacity, (size_t)n, sizeof *r->block_scales)) {
    return st_fail_memory(err, w->name);
  }
  w->format->ops->decode(w->format, w->stored, strip, r->bytes, r->block_scales);
  if (!all_finite(r->block_scales, n)) {
    return fail_nonfinite(w, "weights", row, w->shape.columns, r->block_scales, n, err);
  }
  st_absmean_trits(r->block_scales, n, r->scales[0], trits);
  for (uint64_t i = 0; i < strip->count; i++) scales[i] = row_scale(r, row + i);
  return SETUN_OK;
}

setun_status st_read_trits(st_row_reader *reader, uint64_t row, uint64_t count, int8_t *trits, float *scales,
                           setun_error *err) {
  const st_weight *w = reader->weight;
  if (!st_weight_is_ternary(w)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected ternary weights, found %s", w->name, w->format->name);
  }
  uint64_t per_row = st_format_row_scales(w->format, w->shape.columns);
  setun_status s = check_rows(reader, row, count, err);
  while (s == SETUN_OK && count) {
    st_strip strip;
    if ((s = load_strip(reader, row, count, &strip, err)) != SETUN_OK) break;
    s = w->latent ? latent_trits(reader, row, &strip, trits, scales, err)
                  : unpack(reader, row, &strip, trits, scales, err);
    row += strip.count;
    count -= strip.count;
    trits += strip.count * w->shape.columns;
    scales += strip.count * (per_row ? per_row : 1);
  }
  return s;
}

// The rows' bytes, not checked.
static setun_status copy_bytes(st_row_reader *r, uint64_t row, uint64_t count, uint64_t row_bytes, char *to,
                               setun_error *err) {
  const st_weight *w = r->weight;
  if (!st_weight_is_scattered(w)) {
    // Neither product overflows: both are within the tensor, whose size was checked.
    setun_status s =
        st_file_read(&r->directory->parts[w->data->part], w->data->offset + (w->first_row + row) * row_bytes, to,
                     (size_t)(count * row_bytes), err);
    return s == SETUN_OK ? s : st_fail_in(err, s, "%s", w->name);
  }
  while (count) {
    st_strip strip;
    setun_status s = load_strip(r, row, count, &strip, err);
    if (s != SETUN_OK) return s;
    memcpy(to, r->bytes, (size_t)(strip.count * row_bytes));
    to += strip.count * row_bytes;
    row += strip.count;
    count -= strip.count;
  }
  return SETUN_OK;
}

setun_status st_read_bytes(st_row_reader *reader, uint64_t row, uint64_t count, void *out, setun_error *err) {
  const st_weight *w = reader->weight;
  setun_status s = check_rows(reader, row, count, err);
  if (s != SETUN_OK) return s;
  uint64_t bytes = st_format_row_bytes(w->format, w->shape.columns);
  if (!bytes) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: rows of %s are not contiguous", w->name, w->format->name);
  }
  if (w->scale && !st_format_is_ternary(w->format)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: %s weights with a separate scale, %s, are not supported; floats, NVFP4 and ternary formats are",
                   w->name, w->format->name, w->scale->name);
  }
  if ((s = copy_bytes(reader, row, count, bytes, out, err)) != SETUN_OK) return s;
  int64_t bad = st_format_check_scales(w->format, w->shape.columns, out, count * bytes);
  if (bad < 0) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected finite scales, found an infinity or NaN in row %" PRIu64,
                 w->name, row + (uint64_t)bad / bytes);
}

bool st_weight_has_strips(const st_weight *w) {
  return !w->latent && !st_weight_is_scattered(w) && (st_format_is_ternary(w->format) || !w->scale);
}

// Whether no number of `size` bytes has all exponent bits set. Branch-free, for speed.
static bool all_finite_bits(const void *bytes, uint64_t n, size_t size, uint32_t exponent) {
  uint32_t bad = 0;
  if (size == sizeof(float)) return all_finite(bytes, n);
  for (uint64_t i = 0; i < n; i++) {
    uint16_t bits;
    memcpy(&bits, (const char *)bytes + 2 * i, sizeof bits);
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

static setun_status check_values(const st_row_reader *r, uint64_t row, const st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  uint64_t k = w->shape.columns;
  if (!w->format->ops->exponent) return SETUN_OK;
  if (all_finite_bits(r->bytes, strip->count * k, w->format->block_bytes, w->format->ops->exponent)) {
    return SETUN_OK;
  }
  float *x = st_malloc((size_t)(strip->count * k), sizeof *x); // slightly more than the strip's bytes
  if (!x) return st_fail_memory(err, w->name);
  w->format->ops->decode(w->format, w->stored, strip, r->bytes, x);
  setun_status s = fail_nonfinite(w, "weights", row, k, x, strip->count * k, err);
  st_free(x);
  return s;
}

setun_status st_read_strip(st_row_reader *reader, uint64_t row, uint64_t count, st_strip *strip, const void **bytes,
                           float *scales, setun_error *err) {
  const st_weight *w = reader->weight;
  st_strip found;
  if (!st_weight_has_strips(w)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: its rows are not contiguous in the file", w->name);
  }
  setun_status s = check_rows(reader, row, count, err);
  if (s == SETUN_OK) s = load_whole_rows(reader, row, count, &found, err);
  if (s == SETUN_OK && st_format_is_ternary(w->format)) {
    st_format_strip_scales(w->format, w->stored, &found, reader->bytes, scales);
    s = complete_scales(reader, row, found.count, scales, err);
  } else if (s == SETUN_OK) {
    s = check_values(reader, row, &found, err);
  }
  if (s != SETUN_OK) return s;
  *strip = found;
  *bytes = reader->bytes;
  return SETUN_OK;
}
