// Links between experts, and a stream of deltas.
#include "placement/delta_reader.h"

#include "base/memory.h"
#include "placement/memory_plan.h"

#include <string.h>

struct st_delta_reader {
  const st_expert_deltas *deltas;
  uint32_t n_expert;
  st_delta_link *links; // of each expert, the shortest delta first
  size_t *first;        // [n_layer * n_expert + 1] of `links`
  st_stream *stream;    // a unit is a delta
  bool busy[ST_DELTA_BUFFERS];
};

// ---- making -------------------------------------------------------------------------------------------------------

static void add_link(st_delta_reader *r, size_t *n, uint32_t of, uint32_t base, uint32_t delta) {
  st_delta_link *links = r->links + r->first[of];
  size_t at = n[of]++;
  uint64_t bytes = r->deltas->items[delta].bytes;
  for (; at && r->deltas->items[links[at - 1].delta].bytes > bytes; at--) links[at] = links[at - 1];
  links[at] = (st_delta_link){base, delta};
}

static setun_status make_links(st_delta_reader *r, uint32_t n_layer, setun_error *err) {
  const st_expert_deltas *d = r->deltas;
  size_t n_experts = (size_t)n_layer * r->n_expert;
  size_t *n = st_calloc(n_experts, sizeof *n);
  r->first = st_calloc(n_experts + 1, sizeof *r->first);
  r->links = st_calloc(2 * d->n, sizeof *r->links);
  bool whole = n && r->first && r->links;
  for (size_t i = 0; whole && i < d->n; i++) {
    r->first[d->items[i].layer * r->n_expert + d->items[i].first + 1]++;
    r->first[d->items[i].layer * r->n_expert + d->items[i].second + 1]++;
  }
  for (size_t i = 0; whole && i < n_experts; i++) r->first[i + 1] += r->first[i];
  for (uint32_t i = 0; whole && i < d->n; i++) {
    uint32_t a = d->items[i].layer * r->n_expert + d->items[i].first;
    uint32_t b = d->items[i].layer * r->n_expert + d->items[i].second;
    add_link(r, n, a, b, i);
    add_link(r, n, b, a, i);
  }
  st_free(n);
  return whole ? SETUN_OK : st_fail_memory(err, "the experts' deltas");
}

static setun_status open_stream(st_delta_reader *r, const st_directory *d, const st_log *log, setun_error *err) {
  const st_stream_options options = {
      .slots = ST_DELTA_BUFFERS, .on_demand = true, .direct = true, .uring = true, .log = log};
  st_stream_unit *units = st_calloc(r->deltas->n, sizeof *units);
  st_stream_range *ranges = st_calloc(r->deltas->n, sizeof *ranges);
  setun_status s = units && ranges ? SETUN_OK : st_fail_memory(err, "the experts' deltas");
  for (size_t i = 0; s == SETUN_OK && i < r->deltas->n; i++) {
    const st_expert_delta *delta = &r->deltas->items[i];
    const st_file *file = &d->parts[r->deltas->tensors[delta->layer]->part];
    ranges[i] = (st_stream_range){.file = file, .offset = delta->offset, .bytes = delta->bytes};
    units[i] = (st_stream_unit){.ranges = &ranges[i], .n_ranges = 1};
  }
  if (s == SETUN_OK) s = st_stream_new(units, r->deltas->n, &options, &r->stream, err);
  st_free(units);
  st_free(ranges);
  return s;
}

setun_status st_delta_reader_new(const st_expert_deltas *deltas, const st_directory *d, uint32_t n_layer,
                                 uint32_t n_expert, const st_log *log, st_delta_reader **reader, setun_error *err) {
  st_delta_reader *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, "the experts' deltas");
  r->deltas = deltas;
  r->n_expert = n_expert;
  setun_status s = make_links(r, n_layer, err);
  if (s == SETUN_OK) s = open_stream(r, d, log, err);
  if (s == SETUN_OK) {
    *reader = r;
  } else {
    st_delta_reader_free(r);
  }
  return s;
}

void st_delta_reader_free(st_delta_reader *r) {
  if (!r) return;
  st_stream_free(r->stream);
  st_free(r->links);
  st_free(r->first);
  st_free(r);
}

// ---- reading ------------------------------------------------------------------------------------------------------

const st_delta_link *st_delta_reader_find(const st_delta_reader *r, uint32_t expert,
                                          bool (*present)(void *context, uint32_t expert), void *context) {
  for (size_t i = r->first[expert]; i < r->first[expert + 1]; i++) {
    if (present(context, r->links[i].base)) return &r->links[i];
  }
  return NULL;
}

uint32_t st_delta_reader_begin(st_delta_reader *r, const st_delta_link *link) {
  uint32_t buffer = 0;
  while (buffer < ST_DELTA_BUFFERS && r->busy[buffer]) buffer++;
  if (buffer == ST_DELTA_BUFFERS) return UINT32_MAX;
  r->busy[buffer] = true;
  st_stream_fetch(r->stream, buffer, link->delta);
  return buffer;
}

bool st_delta_reader_arrived(st_delta_reader *r, uint32_t buffer) {
  return st_stream_arrived(r->stream, buffer);
}

void st_delta_reader_discard(st_delta_reader *r, uint32_t buffer) {
  st_stream_discard(r->stream, buffer);
  r->busy[buffer] = false;
}

void st_delta_reader_poll(st_delta_reader *r) {
  st_stream_poll(r->stream);
}

st_stream_stats st_delta_reader_stats(const st_delta_reader *r) {
  return st_stream_get_stats(r->stream);
}

uint64_t st_delta_reader_bytes(const st_delta_reader *r, const st_delta_link *link) {
  return r->deltas->items[link->delta].bytes;
}

// ---- applying -----------------------------------------------------------------------------------------------------

typedef struct copying {
  const st_delta_codes *from, *to;
} copying;

static void copy_part(void *context, int index, int threads) {
  const copying *c = context;
  for (int i = index; i < ST_DELTA_MATRICES; i += threads) memcpy(c->to->codes[i], c->from->codes[i], c->to->bytes[i]);
}

void st_delta_copy(const st_delta_codes *from, const st_delta_codes *to, st_pool *pool) {
  st_pool_run(pool, copy_part, &(copying){from, to});
}

typedef struct applying {
  st_trit_delta matrices[ST_DELTA_MATRICES];
  const uint8_t *strings[ST_DELTA_MATRICES];
  st_delta_codes *to;
  bool back, fit[ST_DELTA_MATRICES];
} applying;

static void apply_part(void *context, int index, int threads) {
  applying *a = context;
  for (int i = index; i < ST_DELTA_MATRICES; i += threads) {
    a->fit[i] = st_trit_delta_apply(&a->matrices[i], a->strings[i], a->back, a->to->codes[i], a->to->bytes[i]);
  }
}

setun_status st_delta_reader_apply(st_delta_reader *r, uint32_t buffer, const st_delta_link *link, st_delta_codes *to,
                                   st_pool *pool, setun_error *err) {
  const st_expert_delta *d = &r->deltas->items[link->delta];
  applying a = {.to = to, .back = link->base % r->n_expert == d->second};
  const uint8_t *bytes;
  setun_status s = st_stream_wait(r->stream, buffer, &bytes, err);
  if (s == SETUN_OK) s = st_expert_delta_open(r->deltas, d, bytes, a.matrices, a.strings, err);
  if (s == SETUN_OK) {
    st_pool_run(pool, apply_part, &a);
    bool fits = a.fit[0] && a.fit[1] && a.fit[2];
    if (!fits) s = st_expert_delta_fail(r->deltas, d, err);
  }
  r->busy[buffer] = false;
  return s;
}
