// Scans of stored tensors, strip by strip.
#include "convert/check.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

// The first number that is none, or infinite, in a strip of plain floats: its byte's offset in the strip; -1: none, or
// memory for `floats` was short, and then *failed says so.
typedef struct float_buffer {
  float *data;
  size_t capacity;
  bool failed;
} float_buffer;

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
    int64_t at =
        plain ? check_floats(format, shape, strip, bytes, floats) : st_format_check_scales(format, bytes, strip->bytes);
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
      s = st_fail(err, SETUN_ERROR_STATE, "%s: rows from %llu on lie outside the tensor", tensor->name,
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
