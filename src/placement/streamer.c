// Reading weights that are not resident.
#define _POSIX_C_SOURCE 200809L
#include "placement/streamer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "placement/copy.h"
#include "placement/expert_state.h"
#include "placement/read_view.h"

#include <pthread.h>
#include <string.h>

// A matrix with borrowed codes.
typedef struct streamed {
  st_weight weight;
  const st_format *format;
  st_dmatrix *matrix;
  int32_t layer;
  bool attention, direct;
  st_stream_range codes;
  size_t range;  // the unit's range that holds its codes
  size_t packed; // offset of its codes in the packed area, unless direct
} streamed;

// The reads of one layer, or a piece of the head. `unit` counts only those with reads.
typedef struct layer_unit {
  size_t first, count;     // of `matrices`
  size_t unit, packed;     // bytes of its packed codes
  st_stream_range *ranges; // [n_ranges]
  size_t n_ranges;
  bool attention, rest; // some of it belongs to the attention, to what follows it
} layer_unit;

struct st_streamer {
  const st_model *model;
  const st_memory_plan *plan;
  st_supply supply;
  st_row_copy *rows;             // rows of an embedding that is not resident; NULL: it is resident
  const st_directory *directory; // as loaded
  st_read_view view;             // the same, read from the ring where that has it
  st_pool *pool;                 // converts weights to the device's order
  bool owns_pool;
  const st_log *log;
  streamed *matrices;
  size_t n_matrices, capacity;
  layer_unit *units; // [n_units] layers, and pieces of the head
  uint32_t n_units;
  st_stream *ring;
  uint8_t *packed;
  size_t packed_bytes;
  const uint8_t **pointers;
  st_expert_cache *experts;   // NULL: they are resident, or there are none
  pthread_mutex_t lock;       // locked during a pass
  int64_t maker;              // the process that owns the lock
  pthread_mutex_t stats_lock; // protects the next three, which may be requested during a pass
  double began;               // the current pass; 0: none
  st_streamer_stats stats;
  uint64_t measured; // bytes that st_streamer_measure read
  uint32_t acquired; // the current unit; UINT32_MAX: none
};

// ---- making -------------------------------------------------------------------------------------------------------

static bool anything_borrowed(const st_memory_plan *p) {
  for (size_t i = 0; i < p->n_items; i++) {
    if (!p->items[i].resident || (p->mapped && p->items[i].direct)) return true;
  }
  return false;
}

setun_status st_streamer_new(const st_model *m, const st_memory_plan *plan, const st_directory *d, st_pool *pool,
                             const st_prefetch_options *prefetch, const st_log *log, st_streamer **streamer,
                             setun_error *err) {
  if (!anything_borrowed(plan)) return SETUN_OK;
  st_streamer *s = st_calloc(1, sizeof *s);
  if (!s) return st_fail_memory(err, "the model's streams");
  s->model = m;
  s->plan = plan;
  s->directory = d;
  s->pool = pool;
  s->log = log;
  s->acquired = UINT32_MAX;
  s->n_units = m->h.n_layer + plan->n_pieces;
  s->maker = st_process_current();
  s->units = st_calloc(s->n_units, sizeof *s->units);
  bool locked = s->units && !pthread_mutex_init(&s->lock, NULL) && !pthread_mutex_init(&s->stats_lock, NULL);
  if (!locked) {
    st_free(s->units);
    st_free(s);
    return st_fail_memory(err, "the model's streams");
  }
  setun_status status = st_read_view_open(&s->view, d, err);
  if (status == SETUN_OK && plan->experts.capacity) {
    status = st_expert_cache_new(m, plan, d, pool, prefetch, log, &s->experts, err);
  }
  if (status == SETUN_OK) {
    *streamer = s;
  } else {
    st_streamer_free(s);
  }
  return status;
}

// Row scales stay resident; only codes are streamed.
static setun_status place_scales(st_streamer *s, const streamed *m, setun_error *err) {
  uint64_t rows = m->weight.shape.rows;
  st_row_reader reader;
  setun_status status = st_row_reader_open(s->directory, &m->weight, &reader, err);
  if (status != SETUN_OK) return status;
  float *scales = st_malloc((size_t)rows, sizeof *scales);
  for (uint64_t i = 0; scales && i < rows; i++) {
    scales[i] = reader.scales ? reader.scales[reader.n_scales == 1 ? 0 : i] : 1;
  }
  const st_matrix_rows beside = {.count = rows, .scales = scales};
  status = scales ? s->model->backend->matrix_write(m->matrix, &beside, err) : st_fail_memory(err, m->weight.name);
  st_free(scales);
  st_row_reader_close(&reader);
  return status;
}

// In place in the mapped file, whose pages are loaded on access.
static setun_status borrow_mapped(st_streamer *s, const streamed *m, setun_error *err) {
  const st_tensor *t = m->weight.data;
  uint8_t *file = NULL;
  setun_status status = st_file_map(&s->view.directory.parts[t->part], &file, err);
  if (status == SETUN_OK) s->model->backend->matrix_borrow(m->matrix, file + m->codes.offset);
  return status;
}

setun_status st_streamer_add(st_streamer *s, const st_memory_item *item, const st_weight *w, const st_format *format,
                             st_dmatrix *matrix, setun_error *err) {
  streamed m = {.weight = *w,
                .format = format,
                .matrix = matrix,
                .layer = item->layer,
                .codes = st_memory_item_range(item, 0, s->directory),
                .attention = item->attention,
                .direct = item->direct};
  setun_status status = m.direct ? place_scales(s, &m, err) : SETUN_OK;
  if (status != SETUN_OK) return status;
  if (item->resident) return borrow_mapped(s, &m, err);
  if (item->expert >= 0) return st_expert_cache_add(s->experts, item, w, format, matrix, err);
  layer_unit *unit = &s->units[item->layer];
  if (!st_reserve(&s->matrices, &s->capacity, s->n_matrices + 1, sizeof *s->matrices)) {
    return st_fail_memory(err, "the model's streams");
  }
  if (!unit->count++) unit->first = s->n_matrices;
  m.packed = unit->packed;
  if (!m.direct) unit->packed += (size_t)item->codes;
  unit->attention = unit->attention || item->attention;
  unit->rest = unit->rest || !item->attention;
  s->matrices[s->n_matrices++] = m;
  return SETUN_OK;
}

setun_status st_streamer_add_rows(st_streamer *s, const st_weight *w, const st_format *format, st_precision precision,
                                  setun_error *err) {
  const st_copy copy = {s->model->backend, s->model->device, s->directory, w, format, NULL};
  return st_row_copy_new(&copy, s->model->device, precision, &s->rows, err);
}

// The unit's range that begins at the matrix's codes.
static size_t range_of(const layer_unit *u, const st_stream_range *r) {
  size_t i = 0;
  while (i + 1 < u->n_ranges && (u->ranges[i].file != r->file || u->ranges[i].offset != r->offset)) i++;
  return i;
}

static setun_status list_ranges(st_streamer *s, st_stream_unit *list, size_t *n, size_t *most, setun_error *err) {
  for (uint32_t i = 0; i < s->n_units; i++) {
    layer_unit *u = &s->units[i];
    if (!u->count) continue;
    setun_status status = st_memory_plan_unit(s->plan, s->directory, i, &u->ranges, &u->n_ranges, err);
    if (status != SETUN_OK) return status;
    for (size_t k = u->first; k < u->first + u->count; k++) {
      s->matrices[k].range = range_of(u, &s->matrices[k].codes);
    }
    u->unit = *n;
    list[(*n)++] = (st_stream_unit){.ranges = u->ranges, .n_ranges = u->n_ranges};
    if (u->n_ranges > *most) *most = u->n_ranges;
    if (u->packed > s->packed_bytes) s->packed_bytes = u->packed;
  }
  return SETUN_OK;
}

setun_status st_streamer_open(st_streamer *s, setun_error *err) {
  size_t n = 0, most = 0;
  st_stream_options options = {.slots = ST_RING_SLOTS, .direct = true, .uring = true, .log = s->log};
  st_stream_unit *list = st_calloc(s->n_units, sizeof *list);
  if (!list) return st_fail_memory(err, "the model's streams");
  setun_status status = list_ranges(s, list, &n, &most, err);
  if (st_memory_plan_cut_head(s->plan)) options.n_tail = s->plan->n_pieces;
  if (status == SETUN_OK && n) {
    s->pointers = st_malloc(most, sizeof *s->pointers);
    if (s->packed_bytes) s->packed = st_pages_alloc(s->packed_bytes, true);
    bool whole = s->pointers && (s->packed || !s->packed_bytes);
    status = whole ? st_stream_new(list, n, &options, &s->ring, err) : st_fail_memory(err, "the model's streams");
  }
  st_free(list);
  if (status == SETUN_OK && s->experts) status = st_expert_cache_open(s->experts, err);
  s->owns_pool = status == SETUN_OK;
  return status;
}

void st_streamer_free(st_streamer *s) {
  if (!s) return;
  st_stream_free(s->ring);
  st_row_copy_free(s->rows);
  st_expert_cache_free(s->experts);
  if (s->owns_pool) st_pool_free(s->pool);
  for (uint32_t i = 0; i < s->n_units; i++) st_free(s->units[i].ranges);
  st_read_view_close(&s->view);
  if (s->packed) st_pages_free(s->packed, s->packed_bytes);
  st_free(s->units);
  st_free(s->matrices);
  st_free(s->pointers);
  if (s->maker == st_process_current()) {
    pthread_mutex_destroy(&s->stats_lock);
    pthread_mutex_destroy(&s->lock);
  }
  st_free(s);
}

// ---- passes -------------------------------------------------------------------------------------------------------

static void add_time(st_streamer *s, double *sum, double since) {
  double elapsed = st_clock_seconds() - since;
  pthread_mutex_lock(&s->stats_lock);
  *sum += elapsed;
  pthread_mutex_unlock(&s->stats_lock);
}

static void begin(void *context, st_supply_part part, uint32_t heads) {
  st_streamer *s = context;
  pthread_mutex_lock(&s->lock);
  pthread_mutex_lock(&s->stats_lock);
  s->began = st_clock_seconds();
  pthread_mutex_unlock(&s->stats_lock);
  s->acquired = UINT32_MAX;
  if (s->ring) st_stream_start(s->ring, part == ST_SUPPLY_HEAD, heads);
}

static void end(void *context) {
  st_streamer *s = context;
  if (s->experts) st_expert_cache_end(s->experts);
  pthread_mutex_lock(&s->stats_lock);
  s->stats.passes_s += st_clock_seconds() - s->began;
  s->began = 0;
  pthread_mutex_unlock(&s->stats_lock);
  pthread_mutex_unlock(&s->lock);
}

// Converts matrices stored in another order to the device's.
static setun_status pack(st_streamer *s, const layer_unit *u, setun_error *err) {
  const st_backend *b = s->model->backend;
  setun_status status = SETUN_OK;
  double start = st_clock_seconds();
  s->view.ranges = u->ranges;
  s->view.pointers = s->pointers;
  s->view.n_ranges = u->n_ranges;
  for (size_t k = u->first; k < u->first + u->count && status == SETUN_OK; k++) {
    const streamed *m = &s->matrices[k];
    if (m->direct) continue;
    b->matrix_borrow(m->matrix, s->packed + m->packed);
    status = st_copy_matrix(&(st_copy){b, s->model->device, &s->view.directory, &m->weight, m->format, m->matrix},
                            s->pool, err);
  }
  s->view.n_ranges = 0;
  add_time(s, &s->stats.packed_s, start);
  return status;
}

static setun_status acquire(void *context, uint32_t unit, bool attention, setun_error *err) {
  st_streamer *s = context;
  const layer_unit *u = &s->units[unit];
  bool arrives = s->ring && u->count && s->acquired != unit && (u->attention || !attention);
  setun_status status = arrives ? st_stream_acquire(s->ring, u->unit, s->pointers, err) : SETUN_OK;
  if (status == SETUN_OK && (arrives || attention)) status = st_read_view_check(&s->view, err);
  if (status != SETUN_OK || !arrives) return status;
  s->acquired = unit;
  for (size_t k = u->first; k < u->first + u->count; k++) {
    const streamed *m = &s->matrices[k];
    if (m->direct) s->model->backend->matrix_borrow(m->matrix, (void *)s->pointers[m->range]);
  }
  return u->packed ? pack(s, u, err) : SETUN_OK;
}

static void release(void *context, uint32_t unit) {
  st_streamer *s = context;
  if (s->acquired != unit) return;
  st_stream_release(s->ring, s->units[unit].unit);
  s->acquired = UINT32_MAX;
}

st_streamer_stats st_streamer_get_stats(const st_streamer *s) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&s->stats_lock; // streamers come from st_streamer_new and are not constant
  pthread_mutex_lock(lock);
  st_streamer_stats stats = s->stats;
  uint64_t measured = s->measured;
  pthread_mutex_unlock(lock);
  if (s->ring) stats.read = st_stream_get_stats(s->ring);
  if (s->experts) {
    st_expert_stats experts = st_expert_cache_get_stats(s->experts);
    stats.read.bytes += experts.read.bytes;
    stats.read.reads += experts.read.reads;
    stats.read.busy_s += experts.read.busy_s;
    stats.read.waited_s += experts.read.waited_s;
    stats.read.how = experts.read.how;
    stats.packed_s += experts.packed_s;
    stats.expert_hits = experts.hits;
    stats.expert_misses = experts.misses;
    stats.expert_rule = experts.rule;
    stats.deltas = experts.deltas;
    stats.delta_bytes = experts.delta_bytes;
    stats.prefetched = experts.prefetched;
    stats.prefetch_hits = experts.prefetch_hits;
    stats.experts_in_turn = experts.in_turn;
    memcpy(stats.recall, experts.recall, sizeof stats.recall);
    stats.effect = experts.effect;
  }
  stats.read.bytes -= measured;
  pthread_mutex_lock(lock); // last, so that passes have taken at least as long as they have waited
  stats.passes_s = s->stats.passes_s + (s->began > 0 ? st_clock_seconds() - s->began : 0);
  pthread_mutex_unlock(lock);
  return stats;
}

void st_streamer_count_experts(const st_streamer *s, uint32_t layer, uint64_t *hits, uint64_t *misses) {
  if (s->experts) st_expert_cache_count_layer(s->experts, layer, hits, misses);
}

setun_status st_streamer_save_experts(st_streamer *s, const char *path, setun_error *err) {
  if (!s->experts) return st_fail(err, SETUN_ERROR_STATE, "%s: expected a cache of experts, found none", path);
  pthread_mutex_lock(&s->lock);
  setun_status status = st_expert_state_save(s->experts, s->model, path, err);
  pthread_mutex_unlock(&s->lock);
  return status;
}

setun_status st_streamer_load_experts(st_streamer *s, const char *path, setun_error *err) {
  return s->experts ? st_expert_state_load(s->experts, s->model, path, err) : SETUN_OK;
}

static void poll(void *context) {
  const st_streamer *s = context;
  if (s->ring) st_stream_poll(s->ring);
  if (s->experts) st_expert_cache_poll(s->experts);
}

static setun_status want(void *context, const st_expert_demand *demand, setun_error *err) {
  return st_expert_cache_want(((st_streamer *)context)->experts, demand, err);
}

static setun_status next(void *context, bool in_order, uint32_t *places, uint32_t *n, setun_error *err) {
  return st_expert_cache_next(((st_streamer *)context)->experts, in_order, places, n, err);
}

static void done(void *context) {
  st_expert_cache_done(((st_streamer *)context)->experts);
}

static bool ahead(void *context, uint32_t layer, uint32_t distance) {
  const st_streamer *s = context;
  return distance <= st_expert_cache_ahead(s->experts) && !s->units[layer].rest;
}

static void expect(void *context, uint32_t layer, uint32_t distance, const uint32_t *experts, uint32_t n) {
  st_expert_cache_expect(((st_streamer *)context)->experts, layer, distance, experts, n);
}

static setun_status read_rows(void *context, const int32_t *ids, uint32_t n, const st_dmatrix **rows,
                              setun_error *err) {
  return st_row_copy_read(((st_streamer *)context)->rows, ids, n, rows, err);
}

const st_supply *st_streamer_supply(st_streamer *s) {
  s->supply = (st_supply){s, begin, acquire, release, end, poll, read_rows, NULL, NULL, NULL, NULL, NULL};
  if (s->experts) {
    s->supply.want = want;
    s->supply.next = next;
    s->supply.done = done;
    s->supply.ahead = ahead;
    s->supply.expect = expect;
  }
  return &s->supply;
}

// Rounds over all units of the ring.
static setun_status read_ring(st_streamer *s, uint64_t total_bytes, uint64_t *read, setun_error *err) {
  setun_status status = SETUN_OK;
  uint64_t before = st_stream_get_stats(s->ring).bytes;
  st_stream_start(s->ring, false, 1);
  *read = 0;
  while (status == SETUN_OK && *read < total_bytes) {
    for (uint32_t i = 0; i < s->n_units && status == SETUN_OK; i++) {
      if (!s->units[i].count) continue;
      status = st_stream_acquire(s->ring, s->units[i].unit, s->pointers, err);
      if (status == SETUN_OK) st_stream_release(s->ring, s->units[i].unit);
    }
    st_stream_start(s->ring, false, 1); // continues with what was read ahead
    *read = st_stream_get_stats(s->ring).bytes - before;
  }
  return status;
}

setun_status st_streamer_measure(st_streamer *s, uint64_t total_bytes, double *bytes_per_s, setun_error *err) {
  if (!s->ring && !s->experts) return st_fail(err, SETUN_ERROR_STATE, "nothing is streamed");
  uint64_t read = 0;
  pthread_mutex_lock(&s->lock);
  double start = st_clock_seconds();
  setun_status status =
      s->experts ? st_expert_cache_measure(s->experts, total_bytes, &read, err) : read_ring(s, total_bytes, &read, err);
  *bytes_per_s = (double)read / (st_clock_seconds() - start);
  pthread_mutex_lock(&s->stats_lock);
  s->measured += read;
  pthread_mutex_unlock(&s->stats_lock);
  pthread_mutex_unlock(&s->lock);
  return status;
}
