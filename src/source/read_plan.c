// The places of each unit's bytes in a slot: ranges sorted, extended to whole blocks, and merged where they touch.
#define _GNU_SOURCE
#include "base/memory.h"
#include "source/stream_private.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 4096, BLOCK_MOST = 1 << 20, SLOTS_MOST = 64 };

typedef struct {
  size_t file, range;
  uint64_t offset, bytes;
} placed_range;

// The alignment of direct reads of the file; 0 if the system does not support them.
static size_t direct_alignment(const st_file *file) {
#if defined(STATX_DIOALIGN) && defined(AT_EMPTY_PATH)
  struct statx stx;
  if (!statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) && (stx.stx_mask & STATX_DIOALIGN)) {
    size_t memory = stx.stx_dio_mem_align, offset = stx.stx_dio_offset_align;
    if (memory > BLOCK || offset > BLOCK_MOST || (offset & (offset - 1))) return 0;
    return offset;
  }
#else
  (void)file;
#endif
  return BLOCK;
}

static int compare_ranges(const void *a, const void *b) {
  const placed_range *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->range < y->range ? -1 : x->range > y->range;
}

static setun_status check_range(const st_stream_range *r, size_t unit, setun_error *err) {
  if (r->offset <= r->file->size && r->bytes <= r->file->size - r->offset) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "%s: unit %zu: expected %" PRIu64 " bytes at offset %" PRIu64 ", found a file of %" PRIu64 " bytes",
                 r->file->path, unit, r->bytes, r->offset, r->file->size);
}

// The file's index in the plan, adding it if necessary; the plan has room.
static size_t find_file(st_read_plan *plan, const st_file *file) {
  size_t i = 0;
  while (i < plan->n_files && plan->files[i].file != file) i++;
  if (i == plan->n_files) {
    plan->files[plan->n_files++] = (st_planned_file){file, direct_alignment(file)};
    if (plan->files[i].alignment > plan->alignment) plan->alignment = plan->files[i].alignment;
  }
  return i;
}

static setun_status check_arguments(const st_stream_unit *units, size_t n_units, const st_stream_options *options,
                                    setun_error *err) {
  if (!n_units) return st_fail(err, SETUN_ERROR_ARGUMENT, "streaming: expected at least 1 unit, found 0");
  if (options->slots < 1 || (!options->on_demand && (options->slots < 2 || options->slots > SLOTS_MOST))) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "streaming: expected 2 to %d buffers, found %d", SLOTS_MOST,
                   options->slots);
  }
  if (options->n_tail > n_units) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "streaming: expected a tail of at most %zu units, found %zu", n_units,
                   options->n_tail);
  }
  for (size_t u = 0; u < n_units; u++) {
    for (size_t i = 0; i < units[u].n_ranges; i++) {
      setun_status s = check_range(&units[u].ranges[i], u, err);
      if (s != SETUN_OK) return s;
    }
  }
  return SETUN_OK;
}

// Adds the files, which determines the alignment, before the layout. False when out of memory.
static bool enter_files(const st_stream_unit *units, size_t n_units, st_read_plan *plan) {
  size_t capacity = 0;
  for (size_t u = 0; u < n_units; u++) {
    for (size_t i = 0; i < units[u].n_ranges; i++) {
      if (!st_reserve(&plan->files, &capacity, plan->n_files + 1, sizeof *plan->files)) return false;
      find_file(plan, units[u].ranges[i].file);
    }
  }
  return true;
}

// Appends the unit's extents to the plan, which has room for one per range. False: larger than memory can be.
static bool lay_out(st_read_plan *plan, size_t unit, placed_range *sorted, size_t n) {
  uint64_t mask = plan->alignment - 1;
  size_t end = 0, *places = plan->places + plan->first_range[unit], first = plan->first_extent[unit];
  size_t n_extents = first;
  qsort(sorted, n, sizeof *sorted, compare_ranges);
  for (size_t i = 0; i < n; i++) {
    const placed_range *r = &sorted[i];
    places[r->range] = 0;
    if (!r->bytes) continue;
    uint64_t from = r->offset & ~mask, to = (r->offset + r->bytes + mask) & ~mask;
    st_extent *e = n_extents > first ? &plan->extents[n_extents - 1] : NULL;
    if (to - from > SIZE_MAX / 2) return false;
    if (!e || e->file != r->file || from > e->offset + e->bytes) {
      e = &plan->extents[n_extents++];
      *e = (st_extent){.file = r->file, .offset = from, .at = end};
    }
    if (to > e->offset + e->bytes) {
      size_t more = (size_t)(to - e->offset - e->bytes);
      e->bytes += more;
      if (!st_add_size(end, more, &end) || end > SIZE_MAX / 2) return false;
    }
    places[r->range] = e->at + (size_t)(r->offset - e->offset);
  }
  plan->first_extent[unit + 1] = n_extents;
  if (end > plan->slot_bytes) plan->slot_bytes = end;
  return true;
}

static bool lay_out_all(const st_stream_unit *units, st_read_plan *plan, placed_range *sorted) {
  for (size_t u = 0; u < plan->n_units; u++) {
    size_t n = units[u].n_ranges;
    plan->first_range[u + 1] = plan->first_range[u] + n;
    for (size_t i = 0; i < n; i++) {
      const st_stream_range *r = &units[u].ranges[i];
      sorted[i] = (placed_range){find_file(plan, r->file), i, r->offset, r->bytes};
    }
    if (!lay_out(plan, u, sorted, n)) return false;
  }
  return true;
}

setun_status st_read_plan_make(const st_stream_unit *units, size_t n_units, const st_stream_options *options,
                               st_read_plan *plan, setun_error *err) {
  size_t all = 0, most = 0, bytes;
  *plan = (st_read_plan){.n_units = n_units, .alignment = BLOCK};
  setun_status s = check_arguments(units, n_units, options, err);
  if (s != SETUN_OK) return s;
  for (size_t u = 0; u < n_units; u++) {
    if (!st_add_size(all, units[u].n_ranges, &all)) return st_fail_memory(err, "the ring's plan");
    if (units[u].n_ranges > most) most = units[u].n_ranges;
  }
  placed_range *sorted = st_malloc(most, sizeof *sorted);
  plan->extents = st_malloc(all, sizeof *plan->extents);
  plan->places = st_malloc(all, sizeof *plan->places);
  plan->first_extent = st_calloc(n_units + 1, sizeof *plan->first_extent);
  plan->first_range = st_calloc(n_units + 1, sizeof *plan->first_range);
  plan->slot_bytes = plan->alignment;
  if (!sorted || !plan->extents || !plan->places || !plan->first_extent || !plan->first_range ||
      !enter_files(units, n_units, plan)) {
    s = st_fail_memory(err, "the ring's plan");
  } else if (!lay_out_all(units, plan, sorted) || !st_mul_size(plan->slot_bytes, (size_t)options->slots, &bytes) ||
             !st_pages_size(bytes)) {
    s = st_fail(err, SETUN_ERROR_MEMORY, "streaming: %d buffers are more than memory can hold", options->slots);
  }
  st_free(sorted);
  if (s != SETUN_OK) st_read_plan_free(plan);
  return s;
}

void st_read_plan_free(st_read_plan *plan) {
  st_free(plan->files);
  st_free(plan->extents);
  st_free(plan->places);
  st_free(plan->first_extent);
  st_free(plan->first_range);
  *plan = (st_read_plan){0};
}
