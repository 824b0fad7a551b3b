// The slots, their contents, and the passes that request experts.
#define _POSIX_C_SOURCE 200809L
#include "placement/expert_cache.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "placement/copy.h"
#include "placement/delta_reader.h"
#include "placement/expert_policy.h"
#include "placement/read_view.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define NONE UINT32_MAX
enum {
  PREFETCHES = 2, // at a time: a layer's own experts wait for no more than these
  DENSE_PART = 16 // a pass that uses all but this part of a layer's experts is expected to do so in the next one
};
enum { MATRICES_MOST = 3, RANGES_MOST = MATRICES_MOST * ST_ITEM_TENSORS, ALIGNMENT = 64 };

// A matrix that has no codes itself.
typedef struct expert_matrix {
  st_weight weight;
  const st_format *format;
  st_dmatrix *matrix;
  size_t range; // direct: the record's range that holds its codes
  size_t codes; // otherwise: the offset of its codes in a slot
} expert_matrix;

// One expert of one layer.
typedef struct expert_record {
  size_t first; // of `matrices`
  st_stream_range ranges[RANGES_MOST];
  uint32_t count, n_ranges; // of matrices; 0: the layer has no experts
  size_t codes;             // bytes of its matrices in the device's order
  size_t unit;              // of the stream
  uint32_t slot;            // NONE: it is neither in the cache nor being read
} expert_record;

typedef enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY } slot_state;

// Why an expert is read before its layer is reached.
typedef enum read_reason {
  READ_WANTED,    // it is not
  READ_PREDICTED, // by the routers
  READ_IN_TURN    // most experts of the layer before were used, and so probably will be those of this one
} read_reason;

typedef struct cache_slot {
  slot_state state;
  bool pinned;       // the pass needs its expert
  read_reason ahead; // not READ_WANTED: the layer was not reached yet
  uint32_t record;   // the one in it
  uint32_t buffer;   // the stream's slot that its expert is read into
  // How its expert is made from another one, whose codes it has; NULL: it is read as a whole.
  const st_delta_link *link;
  uint32_t delta; // the buffer that the delta is read into
} cache_slot;

// The state of an expert that a pass needs.
typedef enum want_state { WANT_MISSING, WANT_COMING, WANT_GIVEN, WANT_DONE } want_state;

struct st_expert_cache {
  const st_model *model;
  const st_memory_plan *plan;
  const st_directory *directory;
  const st_log *log;
  st_pool *pool;
  st_read_view view;
  uint32_t n_expert, n_records; // of a layer, and of all layers
  expert_record *records;       // [n_records], layer by layer
  expert_matrix *matrices;
  size_t n_matrices, capacity;
  bool direct; // records are used in place: slot i is the stream's slot i
  st_stream *stream;
  uint8_t *codes; // [n_slots][slot_codes]; NULL where records are direct
  size_t slot_codes, codes_bytes;
  cache_slot *slots; // [n_slots]
  uint32_t n_slots, n_empty;
  bool *busy; // [n_buffers] whether a buffer is being read into; NULL where records are direct
  uint32_t n_buffers;
  st_delta_reader *deltas; // NULL: there are none
  st_expert_policy *policy;
  st_expert_demand demand;
  st_expert_prefetch *prefetch;
  uint32_t expected_most;          // experts of the layers ahead that are predicted
  uint32_t prefetches[PREFETCHES]; // records that are being read ahead; NONE: no more
  want_state *wants;               // [n_expert] of the demand
  uint32_t *records_wanted;        // [n_expert] of the demand
  uint32_t next_missing;           // of the demand: all before it are present or being read
  uint32_t last_layer;             // of the pass's last demand; NONE: it had none
  uint32_t kept_layer;             // all of whose experts are wanted next, so that none of them is evicted; NONE: no
  uint32_t next_in_turn;           // of its experts: those before it are present or being read
  pthread_mutex_t lock;            // of the members below, for callers that read them during a pass
  int64_t maker;                   // the process that owns the lock
  uint64_t *hits, *misses;         // [n_layer]
  uint64_t made, made_bytes;       // see st_expert_stats.deltas
  uint64_t prefetched, prefetch_hits, in_turn;
  double recall[ST_PREFETCH_DISTANCES];
  st_prefetch_effect effect;
  double packed_s;
  st_expert_rule rule;
};

// ---- making -------------------------------------------------------------------------------------------------------

setun_status st_expert_cache_new(const st_model *m, const st_memory_plan *plan, const st_directory *d, st_pool *pool,
                                 const st_prefetch_options *prefetch, const st_log *log, st_expert_cache **cache,
                                 setun_error *err) {
  st_expert_cache *c = st_calloc(1, sizeof *c);
  if (!c) return st_fail_memory(err, "the cache of experts");
  c->model = m;
  c->plan = plan;
  c->directory = d;
  c->pool = pool;
  c->log = log;
  c->n_expert = m->h.n_expert;
  c->n_records = m->h.n_expert * m->h.n_layer; // both are bounded, see hparams.h
  c->direct = plan->experts.direct;
  c->last_layer = c->kept_layer = NONE;
  c->expected_most = prefetch->distance * m->h.n_expert_used;
  c->maker = st_process_current();
  pthread_mutex_init(&c->lock, NULL);
  c->records = st_calloc(c->n_records, sizeof *c->records);
  c->wants = st_calloc(c->n_expert, sizeof *c->wants);
  c->records_wanted = st_calloc(c->n_expert, sizeof *c->records_wanted);
  c->hits = st_calloc(m->h.n_layer, sizeof *c->hits);
  c->misses = st_calloc(m->h.n_layer, sizeof *c->misses);
  for (uint32_t i = 0; c->records && i < c->n_records; i++) c->records[i].slot = NONE;
  bool whole = c->records && c->wants && c->records_wanted && c->hits && c->misses;
  for (int i = 0; i < PREFETCHES; i++) c->prefetches[i] = NONE;
  for (int i = 0; i < ST_PREFETCH_DISTANCES; i++) c->recall[i] = (double)NAN;
  setun_status s = whole ? st_read_view_open(&c->view, d, err) : st_fail_memory(err, "the cache of experts");
  if (s == SETUN_OK) s = st_expert_prefetch_new(m->h.n_layer, c->n_expert, prefetch, &c->prefetch, err);
  if (s == SETUN_OK) c->effect = st_expert_prefetch_effect(c->prefetch);
  if (s == SETUN_OK) {
    *cache = c;
  } else {
    st_expert_cache_free(c);
  }
  return s;
}

// Finds this range among the record's ranges, and adds it if it is new.
static size_t enter_range(expert_record *r, st_stream_range range) {
  size_t i = 0;
  while (i < r->n_ranges && (r->ranges[i].file != range.file || r->ranges[i].offset != range.offset ||
                             r->ranges[i].bytes != range.bytes)) {
    i++;
  }
  if (i == r->n_ranges) r->ranges[r->n_ranges++] = range;
  return i;
}

setun_status st_expert_cache_add(st_expert_cache *c, const st_memory_item *item, const st_weight *w,
                                 const st_format *format, st_dmatrix *matrix, setun_error *err) {
  expert_record *r = &c->records[(uint32_t)item->layer * c->n_expert + (uint32_t)item->expert];
  if (r->count == MATRICES_MOST) {
    return st_fail(err, SETUN_ERROR_STATE, "%s: expected at most %d matrices of an expert", w->name, MATRICES_MOST);
  }
  if (!st_reserve(&c->matrices, &c->capacity, c->n_matrices + 1, sizeof *c->matrices)) {
    return st_fail_memory(err, "the cache of experts");
  }
  expert_matrix m = {.weight = *w, .format = format, .matrix = matrix, .codes = r->codes};
  for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
    size_t range = enter_range(r, st_memory_item_range(item, i, c->directory));
    if (!i) m.range = range;
  }
  if (!r->count++) r->first = c->n_matrices;
  r->codes += (size_t)(item->codes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  c->matrices[c->n_matrices++] = m;
  return SETUN_OK;
}

static setun_status open_stream(st_expert_cache *c, setun_error *err) {
  st_stream_unit *units = st_calloc(c->n_records, sizeof *units);
  if (!units) return st_fail_memory(err, "the cache of experts");
  size_t n = 0;
  for (uint32_t i = 0; i < c->n_records; i++) {
    expert_record *r = &c->records[i];
    if (!r->count) continue;
    r->unit = n;
    units[n++] = (st_stream_unit){.ranges = r->ranges, .n_ranges = r->n_ranges};
  }
  const st_stream_options options = {.slots = (int)(c->direct ? c->n_slots : c->n_buffers),
                                     .on_demand = true,
                                     .direct = true,
                                     .uring = true,
                                     .touching = c->pool,
                                     .log = c->log};
  setun_status s = st_stream_new(units, n, &options, &c->stream, err);
  st_free(units);
  return s;
}

// Whether each expert is three ranges of codes, so that deltas can be applied to them.
static bool has_codes(const expert_record *r, const st_expert_cache *c) {
  if (r->count != ST_DELTA_MATRICES || r->n_ranges != ST_DELTA_MATRICES) return false;
  for (uint32_t i = 0; i < r->n_ranges; i++) {
    if (c->matrices[r->first + i].range != i) return false;
  }
  return true;
}

static setun_status open_deltas(st_expert_cache *c, setun_error *err) {
  const st_expert_plan *p = &c->plan->experts;
  bool of_use = p->with_deltas;
  for (uint32_t i = 0; i < c->n_records; i++) of_use = of_use && (!c->records[i].count || has_codes(&c->records[i], c));
  if (of_use) {
    return st_delta_reader_new(&p->deltas, c->directory, c->model->h.n_layer, c->n_expert, c->log, &c->deltas, err);
  }
  st_log_write(c->log, SETUN_LOG_INFO,
               "the differences between experts in this file are not used, because its experts "
               "are not used in the order in which they are stored");
  return SETUN_OK;
}

setun_status st_expert_cache_open(st_expert_cache *c, setun_error *err) {
  const st_expert_plan *p = &c->plan->experts;
  c->n_slots = p->capacity;
  c->n_buffers = p->n_buffers;
  for (uint32_t i = 0; i < c->n_records; i++) {
    if (c->records[i].codes > c->slot_codes) c->slot_codes = c->records[i].codes;
  }
  if (!c->direct) {
    // The plan may have assumed that float matrices are ternary; if they are not, they take more memory.
    uint64_t fit = (uint64_t)p->capacity * p->codes / (c->slot_codes ? c->slot_codes : 1);
    if (fit < c->n_slots) c->n_slots = fit > p->used ? (uint32_t)fit : p->used;
    c->busy = st_calloc(c->n_buffers, sizeof *c->busy);
    bool fits = st_mul_size(c->n_slots, c->slot_codes, &c->codes_bytes);
    if (fits) c->codes = st_pages_alloc(c->codes_bytes, true);
    if (!c->busy || !c->codes) {
      return st_fail(err, SETUN_ERROR_MEMORY, "out of memory: %u experts of %zu bytes", c->n_slots, c->slot_codes);
    }
    st_pool_touch(c->pool, c->codes, c->codes_bytes);
  }
  c->n_empty = c->n_slots;
  c->slots = st_calloc(c->n_slots, sizeof *c->slots);
  if (!c->slots) return st_fail_memory(err, "the cache of experts");
  setun_status s =
      st_expert_policy_new(c->model->h.n_layer, c->n_expert, c->model->h.n_expert_used, c->n_slots, &c->policy, err);
  if (s == SETUN_OK) c->rule = st_expert_policy_rule(c->policy);
  if (s == SETUN_OK) s = open_stream(c, err);
  return s == SETUN_OK && p->deltas.n ? open_deltas(c, err) : s;
}

void st_expert_cache_free(st_expert_cache *c) {
  if (!c) return;
  st_stream_free(c->stream);
  st_delta_reader_free(c->deltas);
  st_expert_policy_free(c->policy);
  st_expert_prefetch_free(c->prefetch);
  st_read_view_close(&c->view);
  if (c->codes) st_pages_free(c->codes, c->codes_bytes);
  st_free(c->slots);
  st_free(c->busy);
  st_free(c->records);
  st_free(c->matrices);
  st_free(c->wants);
  st_free(c->records_wanted);
  st_free(c->hits);
  st_free(c->misses);
  if (c->maker == st_process_current()) pthread_mutex_destroy(&c->lock);
  st_free(c);
}

// ---- slots --------------------------------------------------------------------------------------------------------

// After each change of a slot: whether its expert may be evicted.
static void offer(st_expert_cache *c, const cache_slot *slot) {
  st_expert_policy_offer(c->policy, slot->record, slot->state == SLOT_READY && !slot->pinned && !slot->ahead);
}

static void empty(st_expert_cache *c, cache_slot *slot) {
  if (slot->state != SLOT_EMPTY) {
    c->records[slot->record].slot = NONE;
    st_expert_policy_offer(c->policy, slot->record, false);
    c->n_empty++;
  }
  *slot = (cache_slot){.state = SLOT_EMPTY};
}

// An empty slot, or the one whose expert is evicted first; NONE if all are in use.
static uint32_t find_slot(const st_expert_cache *c) {
  for (uint32_t i = 0; c->n_empty && i < c->n_slots; i++) {
    if (c->slots[i].state == SLOT_EMPTY) return i;
  }
  uint32_t record = st_expert_policy_first(c->policy, c->kept_layer);
  return record == NONE ? NONE : c->records[record].slot;
}

// A buffer for reading into the slot; NONE if all are in use.
static uint32_t find_buffer(const st_expert_cache *c, uint32_t slot) {
  if (c->direct) return slot;
  uint32_t i = 0;
  while (i < c->n_buffers && c->busy[i]) i++;
  return i < c->n_buffers ? i : NONE;
}

// Where a slot has the record's codes, or is to have them.
static st_delta_codes codes_of(const st_expert_cache *c, uint32_t slot, uint32_t record) {
  const expert_record *r = &c->records[record];
  st_delta_codes to = {.bytes = {0}};
  st_stream_locate(c->stream, slot, r->unit, to.codes);
  for (int i = 0; i < ST_DELTA_MATRICES; i++) to.bytes[i] = (size_t)r->ranges[i].bytes;
  return to;
}

static bool is_ready(void *context, uint32_t record) {
  const st_expert_cache *c = context;
  uint32_t at = c->records[record].slot;
  return at != NONE && c->slots[at].state == SLOT_READY;
}

// Begins to make the slot's expert from another one in the cache, where there is a delta for that. That one's codes
// are copied at once, so that it may be evicted meanwhile.
static void begin_delta(st_expert_cache *c, uint32_t at) {
  cache_slot *slot = &c->slots[at];
  const st_delta_link *link = st_delta_reader_find(c->deltas, slot->record, is_ready, c);
  if (!link || (slot->delta = st_delta_reader_begin(c->deltas, link)) == NONE) return;
  slot->link = link;
  st_delta_codes from = codes_of(c, c->records[link->base].slot, link->base), to = codes_of(c, at, slot->record);
  st_delta_copy(&from, &to, c->pool);
}

// Begins to read the record. False: all slots are in use.
static bool begin_reading(st_expert_cache *c, uint32_t record, read_reason why) {
  uint32_t at = find_slot(c), buffer = at == NONE ? NONE : find_buffer(c, at);
  if (buffer == NONE) return false;
  cache_slot *slot = &c->slots[at];
  empty(c, slot);
  *slot = (cache_slot){.state = SLOT_READING, .pinned = !why, .ahead = why, .record = record, .buffer = buffer};
  c->n_empty--;
  if (c->deltas) begin_delta(c, at);
  c->records[record].slot = at;
  if (!c->direct) c->busy[buffer] = true;
  if (!slot->link) st_stream_fetch(c->stream, buffer, c->records[record].unit);
  return true;
}

static bool has_arrived(st_expert_cache *c, const cache_slot *slot) {
  return slot->link ? st_delta_reader_arrived(c->deltas, slot->delta) : st_stream_arrived(c->stream, slot->buffer);
}

// Cancels the read into the slot, which is empty then.
static void cancel(st_expert_cache *c, cache_slot *slot) {
  if (slot->link) {
    st_delta_reader_discard(c->deltas, slot->delta);
  } else {
    st_stream_discard(c->stream, slot->buffer);
  }
  if (!c->direct) c->busy[slot->buffer] = false;
  empty(c, slot);
}

// Turns the other expert's codes into those of the slot's, as soon as the delta has arrived.
static setun_status apply_delta(st_expert_cache *c, uint32_t at, const uint8_t **pointers, setun_error *err) {
  const cache_slot *slot = &c->slots[at];
  st_delta_codes to = codes_of(c, at, slot->record);
  setun_status s = st_delta_reader_apply(c->deltas, slot->delta, slot->link, &to, c->pool, err);
  for (int i = 0; i < ST_DELTA_MATRICES; i++) pointers[i] = to.codes[i];
  pthread_mutex_lock(&c->lock);
  c->made++;
  c->made_bytes += st_delta_reader_bytes(c->deltas, slot->link);
  pthread_mutex_unlock(&c->lock);
  return s;
}

static setun_status pack(st_expert_cache *c, const expert_record *r, uint8_t *codes, setun_error *err) {
  const st_backend *b = c->model->backend;
  setun_status s = SETUN_OK;
  for (size_t k = r->first; k < r->first + r->count && s == SETUN_OK; k++) {
    const expert_matrix *m = &c->matrices[k];
    b->matrix_borrow(m->matrix, codes + m->codes);
    s = st_copy_matrix(&(st_copy){b, c->model->device, &c->view.directory, &m->weight, m->format, m->matrix}, c->pool,
                       err);
  }
  return s;
}

// Sets the codes of the record's matrices.
static setun_status bind(st_expert_cache *c, uint32_t at, const uint8_t *const *pointers, setun_error *err) {
  const expert_record *r = &c->records[c->slots[at].record];
  setun_status s = st_read_view_check(&c->view, err);
  for (size_t k = r->first; s == SETUN_OK && c->direct && k < r->first + r->count; k++) {
    const expert_matrix *m = &c->matrices[k];
    c->model->backend->matrix_borrow(m->matrix, (void *)pointers[m->range]);
  }
  if (s != SETUN_OK || c->direct) return s;
  double start = st_clock_seconds();
  c->view.ranges = r->ranges;
  c->view.pointers = pointers;
  c->view.n_ranges = r->n_ranges;
  s = pack(c, r, c->codes + at * c->slot_codes, err);
  c->view.n_ranges = 0;
  pthread_mutex_lock(&c->lock);
  c->packed_s += st_clock_seconds() - start;
  pthread_mutex_unlock(&c->lock);
  return s;
}

// Waits until the read into the slot is complete, and makes its expert ready; after a failure the slot is empty.
static setun_status complete(st_expert_cache *c, uint32_t at, setun_error *err) {
  const uint8_t *pointers[RANGES_MOST];
  cache_slot *slot = &c->slots[at];
  setun_status s =
      slot->link ? apply_delta(c, at, pointers, err) : st_stream_wait(c->stream, slot->buffer, pointers, err);
  slot->link = NULL;
  if (s == SETUN_OK) s = bind(c, at, pointers, err);
  if (!c->direct) c->busy[slot->buffer] = false;
  slot->state = SLOT_READY;
  if (s != SETUN_OK) {
    empty(c, slot);
  } else {
    offer(c, slot);
  }
  return s;
}

// ---- passes -------------------------------------------------------------------------------------------------------

static uint32_t record_of(const st_expert_cache *c, uint32_t place) {
  return c->demand.layer * c->n_expert + c->demand.experts[place];
}

static cache_slot *slot_of(const st_expert_cache *c, uint32_t place) {
  return &c->slots[c->records[record_of(c, place)].slot];
}

// Begins to read missing experts in the demand's order, as far as there is room.
static void read_missing(st_expert_cache *c) {
  for (; c->next_missing < c->demand.n; c->next_missing++) {
    want_state *want = &c->wants[c->next_missing];
    if (*want != WANT_MISSING) continue;
    if (!begin_reading(c, record_of(c, c->next_missing), READ_WANTED)) return;
    *want = WANT_COMING;
  }
}

// ---- reading ahead ------------------------------------------------------------------------------------------------

// Only records that are used where they are read: to convert others takes time that is not idle. While a prompt is
// computed all slots are in use.
static bool may_prefetch(const st_expert_cache *c) {
  return c->direct && c->demand.n + 2 * PREFETCHES + c->expected_most <= c->n_slots;
}

static bool is_absent(void *context, uint32_t record) {
  const st_expert_cache *c = context;
  return c->records[record].slot == NONE && c->records[record].count;
}

// Whether a read that the pass waits for, or soon will, has not ended.
static bool is_reading_wanted(st_expert_cache *c) {
  for (uint32_t i = 0; i < c->demand.n; i++) {
    bool reading = c->wants[i] == WANT_COMING && slot_of(c, i)->state == SLOT_READING;
    if (c->wants[i] == WANT_MISSING || (reading && !has_arrived(c, slot_of(c, i)))) return true;
  }
  return false;
}

// Begins to read expected experts if the disk is idle.
static void read_ahead(st_expert_cache *c) {
  if (!st_expert_prefetch_distance(c->prefetch) || !may_prefetch(c) || is_reading_wanted(c)) return;
  for (int i = 0; i < PREFETCHES; i++) {
    uint32_t before = c->prefetches[i];
    const cache_slot *slot =
        before == NONE || c->records[before].slot == NONE ? NULL : &c->slots[c->records[before].slot];
    if (slot && slot->state == SLOT_READING && !has_arrived(c, slot)) continue;
    uint32_t record = st_expert_prefetch_next(c->prefetch, is_absent, c);
    if (record == NONE || !begin_reading(c, record, READ_PREDICTED)) return;
    c->prefetches[i] = record;
    pthread_mutex_lock(&c->lock);
    c->prefetched++;
    pthread_mutex_unlock(&c->lock);
  }
}

// A pass over many tokens that used nearly all of a layer's experts will do so in the next layer: their reading begins
// as soon as this layer's has, so that the disk is not idle meanwhile.
static void read_in_turn(st_expert_cache *c) {
  const st_expert_demand *d = &c->demand;
  bool dense = d->n_tokens > 1 && d->n >= c->n_expert - c->n_expert / DENSE_PART;
  if (!c->direct || !dense || d->layer + 1 == c->model->h.n_layer) return;
  for (uint32_t i = 0; i < d->n; i++) {
    if (c->wants[i] == WANT_MISSING) return;
  }
  if (c->kept_layer == NONE) c->next_in_turn = 0;
  c->kept_layer = d->layer + 1;
  for (; c->next_in_turn < c->n_expert; c->next_in_turn++) {
    uint32_t record = c->kept_layer * c->n_expert + c->next_in_turn;
    if (!is_absent(c, record)) continue;
    if (!begin_reading(c, record, READ_IN_TURN)) return;
    pthread_mutex_lock(&c->lock);
    c->in_turn++;
    pthread_mutex_unlock(&c->lock);
  }
}

// A layer is reached: from now on, experts that were read ahead for it are like any other, and unfinished reads of
// experts that it does not need are dropped. A failed read is repeated, and reported, only if the layer needs the
// expert. Returns how many of the experts that were read ahead it needs.
static uint64_t finish_prefetched(st_expert_cache *c, uint32_t layer) {
  uint64_t hits = 0;
  for (uint32_t e = 0; e < c->n_expert; e++) {
    uint32_t at = c->records[layer * c->n_expert + e].slot;
    cache_slot *slot = at == NONE ? NULL : &c->slots[at];
    if (!slot || !slot->ahead) continue;
    hits += slot->pinned && slot->ahead == READ_PREDICTED;
    slot->ahead = READ_WANTED;
    offer(c, slot);
    if (slot->pinned || slot->state != SLOT_READING) continue;
    if (has_arrived(c, slot)) {
      setun_error unreported;
      complete(c, at, &unreported);
    } else {
      cancel(c, slot);
    }
  }
  return hits;
}

void st_expert_cache_expect(st_expert_cache *c, uint32_t layer, uint32_t distance, const uint32_t *experts,
                            uint32_t n) {
  st_expert_prefetch_expect(c->prefetch, layer, distance, experts, n);
  read_ahead(c);
}

uint32_t st_expert_cache_ahead(const st_expert_cache *c) {
  return may_prefetch(c) ? st_expert_prefetch_distance(c->prefetch) : 0;
}

// ---- what a pass requests -----------------------------------------------------------------------------------------

setun_status st_expert_cache_want(st_expert_cache *c, const st_expert_demand *demand, setun_error *err) {
  uint64_t hits = 0;
  c->demand = *demand;
  c->next_missing = 0;
  c->kept_layer = NONE;
  if (c->last_layer == NONE) {
    st_expert_policy_pass(c->policy, demand->n_tokens);
    st_expert_prefetch_begin(c->prefetch, demand->n_tokens, st_clock_seconds());
  }
  c->last_layer = demand->layer;
  for (uint32_t i = 0; i < demand->n; i++) {
    uint32_t record = record_of(c, i);
    bool there = c->records[record].slot != NONE;
    if (!c->records[record].count) {
      c->demand.n = 0;
      return st_fail(err, SETUN_ERROR_STATE, "layer %u: expert %u is not one of the cache's", demand->layer,
                     demand->experts[i]);
    }
    cache_slot *slot = there ? &c->slots[c->records[record].slot] : NULL;
    c->wants[i] = there ? WANT_COMING : WANT_MISSING;
    if (there) {
      slot->pinned = true;
      offer(c, slot);
    }
    hits += there && slot->ahead != READ_IN_TURN;
  }
  st_expert_prefetch_used(c->prefetch, demand->layer, demand->experts, demand->n);
  uint64_t prefetch_hits = finish_prefetched(c, demand->layer);
  for (uint32_t i = 0; i < demand->n; i++) c->records_wanted[i] = record_of(c, i);
  st_expert_policy_want(c->policy, c->records_wanted, demand->n);
  read_missing(c);
  // While the disk reads: these experts are pinned, so that their use does not change which others are evicted.
  for (uint32_t i = 0; i < demand->n; i++) st_expert_policy_use(c->policy, c->records_wanted[i], demand->tokens[i]);
  pthread_mutex_lock(&c->lock);
  c->hits[demand->layer] += hits;
  c->prefetch_hits += prefetch_hits;
  for (uint32_t d = 0; d < ST_PREFETCH_DISTANCES; d++) c->recall[d] = st_expert_prefetch_recall(c->prefetch, d + 1);
  c->misses[demand->layer] += demand->n - hits;
  c->rule = st_expert_policy_rule(c->policy);
  pthread_mutex_unlock(&c->lock);
  return SETUN_OK;
}

// Returns the ready experts that were not returned yet, at most `most`; in order, only those before the first that is
// not ready.
static uint32_t give(st_expert_cache *c, bool in_order, uint32_t *places, uint32_t most) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->demand.n && n < most; i++) {
    if (c->wants[i] == WANT_DONE) continue;
    bool ready = c->wants[i] == WANT_COMING && slot_of(c, i)->state == SLOT_READY;
    if (!ready && in_order) break;
    if (!ready) continue;
    c->wants[i] = WANT_GIVEN;
    places[n++] = i;
  }
  return n;
}

// Completes the reads that have arrived: all of them, or only the first if completing takes time.
static setun_status complete_arrived(st_expert_cache *c, bool *any, setun_error *err) {
  setun_status s = SETUN_OK;
  *any = false;
  for (uint32_t i = 0; i < c->demand.n && s == SETUN_OK && (c->direct || !*any); i++) {
    if (c->wants[i] != WANT_COMING || slot_of(c, i)->state != SLOT_READING) continue;
    if (!has_arrived(c, slot_of(c, i))) continue;
    s = complete(c, c->records[record_of(c, i)].slot, err);
    *any = true;
  }
  return s;
}

// All slots hold experts that come later in the order: the last one that is there is evicted, and will be read again.
// False: none is there yet.
static bool give_up_last(st_expert_cache *c) {
  for (uint32_t i = c->demand.n; i-- > 0;) {
    if (c->wants[i] != WANT_COMING || slot_of(c, i)->state != SLOT_READY) continue;
    empty(c, slot_of(c, i));
    c->wants[i] = WANT_MISSING;
    return true;
  }
  return false;
}

// Waits for the first expert that was not returned; if it is not being read yet, makes room for it, or waits for one
// that can make room.
static setun_status wait_for_one(st_expert_cache *c, bool in_order, setun_error *err) {
  bool missing = false;
  for (uint32_t i = 0; i < c->demand.n; i++) {
    if (c->wants[i] == WANT_COMING) return complete(c, c->records[record_of(c, i)].slot, err);
    if (c->wants[i] != WANT_MISSING || !in_order) continue;
    if (give_up_last(c)) return SETUN_OK;
    missing = true;
  }
  if (missing) return SETUN_OK; // reads for other layers take all room; they end by themselves
  return st_fail(err, SETUN_ERROR_STATE, "layer %u: all requested experts were already returned", c->demand.layer);
}

setun_status st_expert_cache_next(st_expert_cache *c, bool in_order, uint32_t *places, uint32_t *n, setun_error *err) {
  setun_status s = SETUN_OK;
  uint32_t most = *n;
  bool any;
  do {
    read_missing(c);
    read_ahead(c);
    read_in_turn(c);
    if ((*n = give(c, in_order, places, most))) return SETUN_OK;
    s = complete_arrived(c, &any, err);
    if (s == SETUN_OK && !any) s = wait_for_one(c, in_order, err);
  } while (s == SETUN_OK);
  return s;
}

void st_expert_cache_done(st_expert_cache *c) {
  for (uint32_t i = 0; i < c->demand.n; i++) {
    if (c->wants[i] != WANT_GIVEN) continue;
    c->wants[i] = WANT_DONE;
    slot_of(c, i)->pinned = false;
    offer(c, slot_of(c, i));
  }
}

void st_expert_cache_end(st_expert_cache *c) {
  for (uint32_t i = 0; i < c->n_slots; i++) {
    cache_slot *slot = &c->slots[i];
    slot->pinned = false;
    slot->ahead = READ_WANTED;
    if (slot->state == SLOT_READING) cancel(c, slot);
    if (slot->state == SLOT_READY) offer(c, slot);
  }
  if (c->last_layer != NONE) {
    st_expert_prefetch_end(c->prefetch, st_clock_seconds());
    pthread_mutex_lock(&c->lock);
    c->effect = st_expert_prefetch_effect(c->prefetch);
    pthread_mutex_unlock(&c->lock);
  }
  c->demand.n = 0;
  c->last_layer = c->kept_layer = NONE;
}

void st_expert_cache_poll(st_expert_cache *c) {
  st_stream_poll(c->stream);
  if (c->deltas) st_delta_reader_poll(c->deltas);
  read_ahead(c);
  read_in_turn(c);
}

// ---- the cache's contents -----------------------------------------------------------------------------------------

size_t st_expert_cache_list(const st_expert_cache *c, uint32_t *experts) {
  size_t n = 0;
  for (uint32_t i = 0; i < c->n_slots; i++) {
    if (c->slots[i].state != SLOT_READY) continue;
    size_t at = n++;
    for (; at && st_expert_policy_before(c->policy, experts[at - 1], c->slots[i].record); at--) {
      experts[at] = experts[at - 1];
    }
    experts[at] = c->slots[i].record;
  }
  return n;
}

setun_status st_expert_cache_warm(st_expert_cache *c, const uint32_t *experts, size_t n, setun_error *err) {
  setun_status s = SETUN_OK;
  uint32_t empty_slots = 0;
  size_t begun = 0, completed = 0;
  for (uint32_t i = 0; i < c->n_slots; i++) empty_slots += c->slots[i].state == SLOT_EMPTY;
  while (s == SETUN_OK && completed < n) {
    bool begin =
        begun < n && empty_slots && c->records[experts[begun]].count && c->records[experts[begun]].slot == NONE;
    if (begin && begin_reading(c, experts[begun], READ_WANTED)) {
      empty_slots--;
      begun++;
      continue;
    }
    if (!begin && begun < n) {
      begun++;
      continue;
    }
    uint32_t at = c->records[experts[completed++]].slot;
    if (at == NONE || c->slots[at].state != SLOT_READING) continue;
    s = complete(c, at, err);
    if (s != SETUN_OK) continue;
    c->slots[at].pinned = false;
    offer(c, &c->slots[at]);
  }
  st_expert_policy_pass(c->policy, 1);
  for (size_t i = n; s == SETUN_OK && i-- > 0;) {
    if (c->records[experts[i]].slot != NONE) st_expert_policy_use(c->policy, experts[i], 1);
  }
  return s;
}

// ---- figures ------------------------------------------------------------------------------------------------------

setun_status st_expert_cache_measure(st_expert_cache *c, uint64_t total_bytes, uint64_t *read, setun_error *err) {
  enum { AT_ONCE = 8 };
  const uint8_t *pointers[RANGES_MOST];
  uint32_t buffers = c->direct ? c->n_slots : c->n_buffers, n = 0, waited = 0;
  uint64_t before = st_stream_get_stats(c->stream).bytes;
  setun_status s = SETUN_OK;
  if (buffers > AT_ONCE) buffers = AT_ONCE;
  for (uint32_t i = 0; c->direct && i < buffers; i++) empty(c, &c->slots[i]);
  *read = 0;
  for (uint32_t i = 0; s == SETUN_OK && *read < total_bytes; i = (i + 1) % c->n_records) {
    if (!c->records[i].count) continue;
    if (n >= buffers) s = st_stream_wait(c->stream, waited++ % buffers, pointers, err);
    if (s == SETUN_OK) st_stream_fetch(c->stream, n++ % buffers, c->records[i].unit);
    *read = st_stream_get_stats(c->stream).bytes - before;
  }
  for (uint32_t i = 0; i < buffers; i++) st_stream_discard(c->stream, i);
  *read = st_stream_get_stats(c->stream).bytes - before;
  return s;
}

st_expert_stats st_expert_cache_get_stats(const st_expert_cache *c) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock; // caches are made by st_expert_cache_new, none of them constant
  st_expert_stats stats = {.read = st_stream_get_stats(c->stream)};
  if (c->deltas) {
    st_stream_stats deltas = st_delta_reader_stats(c->deltas);
    stats.read.bytes += deltas.bytes;
    stats.read.reads += deltas.reads;
    stats.read.busy_s += deltas.busy_s;
    stats.read.waited_s += deltas.waited_s;
  }
  pthread_mutex_lock(lock);
  for (uint32_t i = 0; i < c->model->h.n_layer; i++) {
    stats.hits += c->hits[i];
    stats.misses += c->misses[i];
  }
  stats.deltas = c->made;
  stats.delta_bytes = c->made_bytes;
  stats.prefetched = c->prefetched;
  stats.prefetch_hits = c->prefetch_hits;
  stats.in_turn = c->in_turn;
  memcpy(stats.recall, c->recall, sizeof stats.recall);
  stats.effect = c->effect;
  stats.packed_s = c->packed_s;
  stats.rule = st_expert_rule_name(c->rule);
  pthread_mutex_unlock(lock);
  return stats;
}

void st_expert_cache_count_layer(const st_expert_cache *c, uint32_t layer, uint64_t *hits, uint64_t *misses) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock;
  pthread_mutex_lock(lock);
  *hits = c->hits[layer];
  *misses = c->misses[layer];
  pthread_mutex_unlock(lock);
}
