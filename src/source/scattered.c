// Assembling rows that are not contiguous: every second row of a tensor, and MXFP4 with scales in a separate tensor.
#include "source/scattered.h"

#include "base/memory.h"
#include "source/packed.h"

#include <string.h>

// The stored rows [first, first + count), `row_bytes` each, of one of the weight's tensors.
static setun_status read_rows(const st_row_reader *r, const st_tensor *t, uint64_t first, uint64_t count,
                              uint64_t row_bytes, void *to, setun_error *err) {
  setun_status s =
      st_file_read(&r->directory->parts[t->part], t->offset + first * row_bytes, to, (size_t)(count * row_bytes), err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", t->name);
}

setun_status st_load_scattered(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  if (w->packed.kind) return st_packed_load(r, row, want, strip, err);
  uint64_t bytes = st_format_row_bytes(w->format, w->shape.columns), block = w->format->block_bytes;
  uint64_t blocks = w->block_scales ? bytes / block : 0, data_bytes = bytes - blocks, scale_bytes = blocks;
  uint64_t first = w->first_row + row * w->row_step, span = (want - 1) * w->row_step + 1;
  if (first + span > w->stored.rows) {
    return st_fail(err, SETUN_ERROR_STATE, "%s: rows from %llu on lie outside the tensor", w->name,
                   (unsigned long long)row);
  }
  // A strip is about a megabyte, for which at most twice as much is read; one row is within the file.
  if (!st_reserve(&r->raw, &r->raw_capacity, (size_t)(span * (data_bytes + scale_bytes)), 1) ||
      !st_reserve(&r->bytes, &r->capacity, (size_t)(want * bytes), 1)) {
    return st_fail_memory(err, w->name);
  }
  uint8_t *data = r->raw, *scales = data + span * data_bytes;
  setun_status s = read_rows(r, w->data, first, span, data_bytes, data, err);
  if (s == SETUN_OK && scale_bytes) s = read_rows(r, w->block_scales, first, span, scale_bytes, scales, err);
  if (s != SETUN_OK) return s;
  for (uint64_t i = 0; i < want; i++) {
    uint8_t *to = (uint8_t *)r->bytes + i * bytes;
    const uint8_t *from = data + i * w->row_step * data_bytes;
    if (!w->block_scales) {
      memcpy(to, from, (size_t)bytes);
      continue;
    }
    const uint8_t *scale = scales + i * w->row_step * scale_bytes;
    for (uint64_t b = 0; b < blocks; b++) {
      w->format->ops->hf_blocks->join(scale[b], from + (block - 1) * b, to + block * b);
    }
  }
  *strip = (st_strip){.row = w->first_row + row, .count = want, .offset = 0, .bytes = want * bytes};
  return SETUN_OK;
}
