// Assembling rows that are not contiguous: every second row of a tensor, and blocks with scales, or scales and
// minimums, in separate tensors.
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

// The tensors that a row is put together from, and the bytes of each in a row.
typedef struct {
  const st_tensor *tensors[3];
  uint64_t bytes[3], all;
} row_parts;

static row_parts parts_of(const st_weight *w) {
  row_parts p = {.tensors = {w->data, w->block_scales, w->block_minimums}};
  for (int i = 0; i < 3 && p.tensors[i]; i++) {
    p.bytes[i] = p.tensors[i]->bytes / w->stored.rows;
    p.all += p.bytes[i];
  }
  return p;
}

// Blocks from their parts: `from` has a row of each tensor.
static void join_row(const st_weight *w, const row_parts *p, const uint8_t *const from[3], uint8_t *to) {
  uint64_t size = w->format->block_bytes, blocks = p->all / size;
  if (!w->block_scales) {
    memcpy(to, from[0], (size_t)p->all);
    return;
  }
  if (!w->block_minimums) {
    for (uint64_t b = 0; b < blocks; b++) {
      w->format->ops->hf_blocks->join(from[1][b], from[0] + (size - 1) * b, to + size * b);
    }
    return;
  }
  for (uint64_t b = 0; b < blocks; b++, to += size) {
    memcpy(to, from[1] + 2 * b, 2);
    memcpy(to + 2, from[2] + 2 * b, 2);
    memcpy(to + 4, from[0] + (size - 4) * b, (size_t)(size - 4));
  }
}

setun_status st_load_scattered(st_row_reader *r, uint64_t row, uint64_t want, st_strip *strip, setun_error *err) {
  const st_weight *w = r->weight;
  if (w->packed.kind) return st_packed_load(r, row, want, strip, err);
  row_parts p = parts_of(w);
  uint64_t first = w->first_row + row * w->row_step, span = (want - 1) * w->row_step + 1;
  if (first + span > w->stored.rows) {
    return st_fail(err, SETUN_ERROR_STATE, "%s: rows from %llu on lie outside the tensor", w->name,
                   (unsigned long long)row);
  }
  // A strip is about a megabyte, for which at most twice as much is read; one row is within the file.
  if (!st_reserve(&r->raw, &r->raw_capacity, (size_t)(span * p.all), 1) ||
      !st_reserve(&r->bytes, &r->capacity, (size_t)(want * p.all), 1)) {
    return st_fail_memory(err, w->name);
  }
  const uint8_t *from[3] = {NULL};
  uint8_t *raw = r->raw;
  for (int i = 0; i < 3 && p.tensors[i]; i++) {
    setun_status s = read_rows(r, p.tensors[i], first, span, p.bytes[i], raw, err);
    if (s != SETUN_OK) return s;
    from[i] = raw;
    raw += span * p.bytes[i];
  }
  for (uint64_t i = 0; i < want; i++) {
    join_row(w, &p, from, (uint8_t *)r->bytes + i * p.all);
    for (int k = 0; k < 3 && p.tensors[k]; k++) from[k] += w->row_step * p.bytes[k];
  }
  *strip = (st_strip){.row = w->first_row + row, .count = want, .offset = 0, .bytes = want * p.all};
  return SETUN_OK;
}
