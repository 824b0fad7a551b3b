// The memory plan's decisions: which matrices are resident.
#include "placement/memory_plan.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

// Of one unit.
static bool are_together(const st_memory_item *a, const st_memory_item *b) {
  return a->layer == b->layer && a->attention == b->attention && a->expert == b->expert;
}

static bool is_same(const st_memory_item *a, int i, const st_memory_item *b, int j) {
  return a->tensors[i] == b->tensors[j] && a->offset[i] == b->offset[j] && a->bytes[i] == b->bytes[j];
}

bool st_memory_plan_add(st_memory_plan *p, const st_memory_item *item) {
  if (!st_reserve(&p->items, &p->capacity, p->n_items + 1, sizeof *p->items)) return false;
  st_memory_item *to = &p->items[p->n_items];
  *to = *item;
  for (size_t k = p->n_items++; k-- > 0 && are_together(&p->items[k], item);) {
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      for (int j = 0; j < ST_ITEM_TENSORS; j++) to->shared[i] |= is_same(&p->items[k], j, item, i);
    }
  }
  return true;
}

// ---- the cost of a choice ------------------------------------------------------------------------------------------

static bool streams(const st_memory_item *i) {
  return i->layer >= 0 && !i->resident;
}

// Through the ring; experts have a cache.
static bool is_in_ring(const st_memory_item *i) {
  return streams(i) && i->expert < 0;
}

static uint64_t bytes_of(const st_memory_item *item, int i) {
  return item->bytes[i] ? item->bytes[i] : item->tensors[i]->bytes;
}

// Bytes of reading one of the item's tensors: whole blocks, at any offset.
static uint64_t read_of(const st_memory_item *item, int i) {
  return bytes_of(item, i) / BLOCK * BLOCK + 2 * BLOCK;
}

// The layer's unit; its items are consecutive from `first` on.
static st_unit_size size_of(const st_memory_plan *p, size_t first) {
  st_unit_size size = {0, 0};
  for (size_t k = first; k < p->n_items && p->items[k].layer == p->items[first].layer; k++) {
    const st_memory_item *item = &p->items[k];
    if (!is_in_ring(item)) continue;
    if (!item->direct) size.packed += item->codes;
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      if (!item->shared[i]) size.stored += read_of(item, i);
    }
  }
  return size;
}

static st_unit_size largest_of(const st_unit_size *a, const st_unit_size *b) {
  return (st_unit_size){a->stored > b->stored ? a->stored : b->stored, a->packed > b->packed ? a->packed : b->packed};
}

st_unit_size st_memory_plan_largest(const st_memory_plan *p) {
  st_unit_size most = {0, 0};
  for (size_t k = 0; k < p->n_items; k++) {
    if (p->items[k].layer < 0 || (k && p->items[k].layer == p->items[k - 1].layer)) continue;
    st_unit_size size = size_of(p, k);
    most = largest_of(&most, &size);
  }
  return most;
}

bool st_memory_plan_cut_head(const st_memory_plan *p) {
  return p->n_pieces && !p->items[p->first_piece].resident;
}

// While it is being loaded, or in each pass.
static uint64_t largest_copying(const st_memory_plan *p, bool resident) {
  uint64_t most = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_memory_item *i = &p->items[k];
    bool copied = resident ? !streams(i) && !(p->mapped && i->direct) : streams(i) && !i->direct;
    if (copied && i->copying > most) most = i->copying;
  }
  return most;
}

// What a cache of experts takes.
static uint64_t expert_area(const st_expert_plan *e, uint64_t capacity) {
  if (!capacity) return 0;
  uint64_t deltas = e->with_deltas ? st_huge_pages(ST_DELTA_BUFFERS * e->delta) : 0;
  if (e->direct) return st_huge_pages(capacity * e->record) + deltas;
  return st_huge_pages(capacity * e->codes) + st_huge_pages(e->n_buffers * e->record);
}

// Recomputes everything that depends on `resident`.
static void add_up(st_memory_plan *p) {
  st_unit_size most = {0, 0};
  bool rows = false;
  p->resident = p->streamed = p->rearranged = p->copied = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    bool begins = !k || p->items[k].layer != p->items[k - 1].layer;
    if (p->items[k].resident) p->resident += p->items[k].own;
    if (p->items[k].layer >= 0 && !p->items[k].resident && p->items[k].codes > p->copied) p->copied = p->items[k].codes;
    rows = rows || (p->items[k].rows && !p->items[k].resident);
    if (!begins || p->items[k].layer < 0) continue;
    st_unit_size size = size_of(p, k);
    p->streamed += size.stored;
    p->rearranged += size.packed;
    most = largest_of(&most, &size);
  }
  // Matrices share pieces of 64 MiB, whose last huge page is half full on average.
  p->rounding = st_huge_pages(p->resident + p->vectors) - p->resident - p->vectors + p->resident / 64;
  const st_expert_plan *e = &p->experts;
  p->expert_area = expert_area(e, e->capacity);
  p->streamed += st_expert_token_bytes(e);
  p->ring = st_huge_pages(ST_RING_SLOTS * most.stored);
  p->packed = st_huge_pages(most.packed) + (rows ? p->row_area : 0);
  uint64_t session = p->session + largest_copying(p, false);
  uint64_t loading = largest_copying(p, true);
  p->work = session > loading ? session : loading;
}

static bool is_in_a_layer(const st_memory_plan *p, const st_tensor *tensor) {
  for (size_t k = 0; k < p->n_items; k++) {
    for (int i = 0; p->items[k].layer >= 0 && i < ST_ITEM_TENSORS; i++) {
      if (p->items[k].tensors[i] == tensor) return true;
    }
  }
  return false;
}

// All matrix bytes in the files, counted like streamed ones; an embedding that is also the head counts once.
static uint64_t stored_of(const st_memory_plan *p) {
  uint64_t stored = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_memory_item *item = &p->items[k];
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      bool counted = item->shared[i] || (item->layer < 0 && is_in_a_layer(p, item->tensors[i]));
      if (!counted) stored += read_of(item, i);
    }
  }
  return stored;
}

// ---- experts ------------------------------------------------------------------------------------------------------

// Whole blocks of a file.
typedef struct block_span {
  const st_tensor *tensor; // for its file
  uint64_t first, end;
} block_span;

// The bytes to read for the expert whose items begin at `first`: a block that two of its tensors share counts once.
static uint64_t record_of(const st_memory_plan *p, size_t first, size_t end) {
  enum { SPANS = 3 * ST_ITEM_TENSORS }; // gate, up and down
  block_span spans[SPANS];
  size_t n = 0;
  uint64_t bytes = 0;
  for (size_t k = first; k < end; k++) {
    const st_memory_item *item = &p->items[k];
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i] && n < SPANS; i++) {
      uint64_t from = item->tensors[i]->offset + item->offset[i];
      block_span s = {item->tensors[i], from / BLOCK * BLOCK, (from + bytes_of(item, i) + BLOCK - 1) / BLOCK * BLOCK};
      size_t at = n++;
      for (; at && (spans[at - 1].tensor->part > s.tensor->part ||
                    (spans[at - 1].tensor->part == s.tensor->part && spans[at - 1].first > s.first));
           at--) {
        spans[at] = spans[at - 1];
      }
      spans[at] = s;
    }
  }
  uint64_t end_before = 0;
  for (size_t i = 0; i < n; i++) {
    if (!i || spans[i].tensor->part != spans[i - 1].tensor->part) end_before = 0;
    uint64_t from = spans[i].first > end_before ? spans[i].first : end_before;
    if (spans[i].end > from) bytes += spans[i].end - from;
    if (spans[i].end > end_before) end_before = spans[i].end;
  }
  return bytes;
}

static uint64_t stored_bytes(const st_memory_item *item) {
  uint64_t bytes = 0;
  for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) bytes += bytes_of(item, i);
  return bytes;
}

// Compares the expert whose items are [k, end) with that at `first`, of the same layer, matrix by matrix.
static void find_unequal(st_memory_plan *p, size_t first, size_t k, size_t end) {
  for (size_t i = k; i < end; i++) {
    const st_memory_item *a = &p->items[first + (i - k)], *b = &p->items[i];
    bool other = a->expert != p->items[first].expert || a->layer != b->layer; // the first expert has fewer matrices
    if (!other && a->codes == b->codes && stored_bytes(a) == stored_bytes(b)) continue;
    p->experts.unequal = b->tensors[0];
    p->experts.equal_to = a->tensors[0];
    p->experts.bytes_found = stored_bytes(b);
    p->experts.bytes_expected = other ? 0 : stored_bytes(a);
    return;
  }
}

// The slots of a cache are equally large, and a file whose experts differ within a layer is more likely damaged than
// intended.
static setun_status check_equal(const st_expert_plan *e, setun_error *err) {
  if (!e->unequal) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: expected %llu bytes, as %s of the same layer has, found %llu: experts that are not resident must "
                 "be equal in size (a larger memory budget keeps them resident)",
                 e->unequal->name, (unsigned long long)e->bytes_expected, e->equal_to->name,
                 (unsigned long long)e->bytes_found);
}

// What the cache's slots have to hold.
static void measure_experts(st_memory_plan *p) {
  enum { ALIGNMENT = 64, BUFFERS_MOST = 8 };
  st_expert_plan *e = &p->experts;
  int32_t layer = -1;
  size_t first = 0; // item of the layer
  e->direct = true;
  for (size_t k = 0; k < p->n_items; k++) e->direct = e->direct && (p->items[k].expert < 0 || p->items[k].direct);
  for (size_t k = 0, end; k < p->n_items; k = end) {
    uint64_t codes = 0;
    for (end = k + 1; p->items[k].expert >= 0 && end < p->n_items && are_together(&p->items[k], &p->items[end]);) end++;
    if (p->items[k].expert < 0) continue;
    for (size_t i = k; i < end; i++) {
      codes += (p->items[i].codes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      if (!p->mapped) p->items[i].direct = e->direct; // a cache has all of one kind
    }
    uint64_t record = record_of(p, k, end);
    if (!e->n || p->items[k].layer != layer) first = k;
    if (!e->unequal) find_unequal(p, first, k, end);
    if (record > e->record) e->record = record;
    if (codes > e->codes) e->codes = codes;
    e->records += record;
    e->n++;
    e->n_layers += p->items[k].layer != layer;
    layer = p->items[k].layer;
  }
  e->n_buffers = e->used < 2 ? 2 : e->used > BUFFERS_MOST ? BUFFERS_MOST : e->used;
}

static bool are_codes_in_order(const st_memory_plan *p) {
  for (size_t k = 0; k < p->n_items; k++) {
    const st_format *f = p->items[k].tensors[0]->format;
    bool in_order = f && f->ops->codes && f->ops->codes->order == ST_CODES_GROUPS;
    if (p->items[k].expert >= 0 && !in_order) return false;
  }
  return true;
}

// Whether the file's differences between experts are of use, and what they take.
static setun_status measure_deltas(st_memory_plan *p, setun_error *err) {
  st_expert_plan *e = &p->experts;
  for (size_t i = 0; i < e->deltas.n; i++) {
    const st_expert_delta *d = &e->deltas.items[i];
    if (d->bytes < e->record) continue;
    return st_fail(
        err, SETUN_ERROR_FORMAT,
        "%s: expected deltas shorter than an expert, of at most %llu bytes, found %llu for experts %u and %u",
        e->deltas.tensors[d->layer]->name, (unsigned long long)e->record, (unsigned long long)d->bytes,
        (unsigned)d->first, (unsigned)d->second);
  }
  e->with_deltas = e->deltas.n && e->direct && !p->mapped && are_codes_in_order(p);
  e->delta = e->deltas.longest / BLOCK * BLOCK + 2 * BLOCK;
  return SETUN_OK;
}

// ---- the choice ---------------------------------------------------------------------------------------------------

// Items that are resident together or not at all.
typedef enum part_kind { PART_HEAD, PART_ATTENTION, PART_REST, PART_EXPERTS, PART_EMBEDDING, PART_KINDS } part_kind;

static part_kind kind_of(const st_memory_plan *p, const st_memory_item *i) {
  if (i->layer < 0) return PART_EMBEDDING;
  if (i->layer >= (int32_t)p->n_layer) return PART_HEAD;
  if (i->expert >= 0) return PART_EXPERTS;
  return i->attention ? PART_ATTENTION : PART_REST;
}

// The number of experts that a token uses in one layer, or the one that a test sets.
static uint32_t least_experts(const st_memory_plan *p) {
  return p->experts.forced ? *p->experts.forced : p->experts.used;
}

// Makes the part resident or not; a layer's part has many items.
static void set_part(st_memory_plan *p, part_kind kind, uint32_t layer, bool resident) {
  for (size_t k = 0; k < p->n_items; k++) {
    st_memory_item *i = &p->items[k];
    bool of_layer = kind == PART_ATTENTION || kind == PART_REST;
    bool same = kind_of(p, i) == kind && (!of_layer || i->layer == (int32_t)layer);
    if (same && (i->layer >= 0 || i->rows)) i->resident = resident;
  }
  if (kind == PART_EXPERTS && p->experts.n) p->experts.capacity = resident ? 0 : least_experts(p);
}

// 0, 1/2, 1/4, 3/4, 1/8, ... of n: every prefix of the sequence is spread evenly. Yields each layer once.
static uint32_t spread(uint32_t i, uint32_t n, bool *taken) {
  uint64_t fraction = 0;
  for (int bit = 0; bit < 32; bit++) fraction |= (uint64_t)(i >> bit & 1) << (31 - bit);
  uint32_t at = (uint32_t)(fraction * n >> 32);
  while (taken[at]) at = (at + 1) % n;
  taken[at] = true;
  return at;
}

static bool fits(const st_memory_plan *p) {
  bool host = !p->budget || st_memory_plan_total(p) + ST_MEMORY_RESERVE <= p->budget;
  return host && (!p->device_budget || st_memory_plan_device(p) <= p->device_budget);
}

// Gives the cache of experts what is left of the budget.
static void fill_experts(st_memory_plan *p) {
  st_expert_plan *e = &p->experts;
  if (!e->capacity || e->forced || p->resident_parts) return;
  uint32_t least = e->capacity, most = e->n + 1; // the largest that fits is between
  while (most - least > 1) {
    e->capacity = least + (most - least) / 2;
    add_up(p);
    *(fits(p) ? &least : &most) = e->capacity;
  }
  e->capacity = least;
  add_up(p);
}

// Makes parts resident, one after the other, while the total stays within the budget.
static setun_status fill_budget(st_memory_plan *p, setun_error *err) {
  bool *taken = st_calloc(p->n_layer ? p->n_layer : 1, sizeof *taken);
  if (!taken) return st_fail_memory(err, "the memory plan");
  uint32_t parts = 0;
  for (part_kind kind = PART_HEAD; kind < PART_KINDS; kind++) {
    if (kind == PART_EXPERTS && !p->experts.n) continue;
    bool of_layers = kind == PART_ATTENTION || kind == PART_REST;
    memset(taken, 0, p->n_layer);
    for (uint32_t i = 0; i < (of_layers ? p->n_layer : 1); i++) {
      uint32_t layer = of_layers ? spread(i, p->n_layer, taken) : 0;
      set_part(p, kind, layer, true);
      add_up(p);
      if (p->resident_parts ? parts < *p->resident_parts : fits(p))
        parts++;
      else
        set_part(p, kind, layer, false);
    }
    if (kind == PART_EXPERTS) fill_experts(p);
  }
  add_up(p);
  st_free(taken);
  return SETUN_OK;
}

static void set_all(st_memory_plan *p, bool resident) {
  for (size_t k = 0; k < p->n_items; k++) {
    p->items[k].resident = resident || (p->items[k].layer < 0 && !p->items[k].rows);
  }
  p->experts.capacity = resident || !p->experts.n ? 0 : least_experts(p);
  add_up(p);
}

// With a mapped file, everything possible is used in place.
static void map(st_memory_plan *p) {
  set_all(p, true);
  for (size_t k = 0; k < p->n_items; k++) {
    if (p->items[k].direct) p->resident -= p->items[k].own;
  }
}

// The least budget to report, in whole MiB: the process's own memory varies by up to 1.7 MiB between starts (depending
// on which pages of its code the system maps at once), and the least must suffice in the next start.
static uint64_t with_room(uint64_t bytes) {
  const uint64_t room = 2 << 20, step = 1 << 20;
  return (bytes + room + step - 1) / step * step;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// The smallest budget that suffices in this process with the chosen batch; and that of the device.
static uint64_t needed_by(st_memory_plan *p) {
  if (p->mapped) {
    map(p);
    p->device_least = st_memory_plan_device(p);
    return st_memory_plan_total(p) + ST_MEMORY_RESERVE;
  }
  set_all(p, true);
  uint64_t whole = st_memory_plan_total(p), device = st_memory_plan_device(p);
  set_all(p, false);
  p->device_least = smaller(device, st_memory_plan_device(p)); // a ring for two layers may be larger than the layers
  return smaller(whole, st_memory_plan_total(p)) + ST_MEMORY_RESERVE;
}

static void take_batch(st_memory_plan *p, const st_batch_choice *choice) {
  p->n_batch = choice->n_batch;
  p->session = choice->session;
  p->cache = choice->cache;
  p->pages = choice->pages;
}

// The largest batch within the budget, and the least budget; `*needed` excludes the reserve.
static void choose_batch(st_memory_plan *p, uint64_t *needed) {
  bool chosen = false;
  for (uint32_t i = 0; i < p->n_batches; i++) {
    st_batch_choice before = {p->n_batch, p->session, p->cache, p->pages};
    take_batch(p, &p->batches[i]);
    *needed = needed_by(p);
    if (chosen) take_batch(p, &before);
    bool enough = !p->device_budget || p->device_budget >= p->device_least;
    chosen = chosen || (enough && (!p->budget || p->budget >= *needed));
  }
  p->least = with_room(*needed);
}

static setun_status fail_device(const st_memory_plan *p, const st_directory *d, uint64_t needed, setun_error *err) {
  return st_fail(err, SETUN_ERROR_MEMORY,
                 "%s: expected at least %lluM of the device's memory for this context and batch, found %.1fM (a "
                 "smaller context or batch takes less, and a smaller format of the cache)",
                 d->path, (unsigned long long)((needed + (1 << 20) - 1) >> 20), (double)p->device_budget / (1 << 20));
}

setun_status st_memory_plan_decide(st_memory_plan *p, const st_directory *d, setun_error *err) {
  p->stored = stored_of(p);
  measure_experts(p);
  setun_status deltas = measure_deltas(p, err);
  if (deltas != SETUN_OK) return deltas;
  uint64_t needed = 0;
  choose_batch(p, &needed);
  set_all(p, true);
  p->device_whole = st_memory_plan_device(p);
  if (p->resident_parts) {
    set_all(p, false);
    setun_status s = fill_budget(p, err);
    return s == SETUN_OK && p->experts.capacity ? check_equal(&p->experts, err) : s;
  }
  if (p->mapped) map(p);
  if (fits(p)) return SETUN_OK;
  if (p->device_budget && p->device_budget < p->device_least) return fail_device(p, d, p->device_least, err);
  if (p->budget && p->budget < needed) {
    return st_fail(err, SETUN_ERROR_MEMORY,
                   "%s: expected at least %lluM of memory for this context and batch, found %.1fM (a smaller context "
                   "or batch takes less)",
                   d->path, (unsigned long long)(p->least >> 20), (double)p->budget / (1 << 20));
  }
  if (p->mapped) return SETUN_OK;
  set_all(p, false);
  setun_status s = fill_budget(p, err);
  if (s == SETUN_OK && p->device_budget && st_memory_plan_device(p) > p->device_budget)
    return fail_device(p, d, st_memory_plan_device(p), err);
  return s == SETUN_OK && p->experts.capacity ? check_equal(&p->experts, err) : s;
}

// ---- units --------------------------------------------------------------------------------------------------------

st_stream_range st_memory_item_range(const st_memory_item *item, int i, const st_directory *d) {
  const st_tensor *t = item->tensors[i];
  return (st_stream_range){
      .file = &d->parts[t->part], .offset = t->offset + item->offset[i], .bytes = bytes_of(item, i)};
}

setun_status st_memory_plan_unit(const st_memory_plan *p, const st_directory *d, uint32_t layer,
                                 st_stream_range **ranges, size_t *n, setun_error *err) {
  size_t capacity = 0;
  *ranges = NULL;
  *n = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_memory_item *item = &p->items[k];
    if (item->layer != (int32_t)layer || !is_in_ring(item)) continue;
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      if (item->shared[i]) continue;
      if (!st_reserve(ranges, &capacity, *n + 1, sizeof **ranges)) {
        st_free(*ranges);
        return st_fail_memory(err, "the memory plan");
      }
      (*ranges)[(*n)++] = st_memory_item_range(item, i, d);
    }
  }
  return SETUN_OK;
}

void st_memory_plan_free(st_memory_plan *p) {
  st_free(p->items);
  st_free(p->spans);
  st_expert_deltas_free(&p->experts.deltas);
  *p = (st_memory_plan){0};
}
