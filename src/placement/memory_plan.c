// The memory plan's decisions: which matrices are resident.
#include "placement/memory_plan.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

bool st_memory_plan_add(st_memory_plan *p, const st_memory_item *item) {
  if (!st_reserve(&p->items, &p->capacity, p->n_items + 1, sizeof *p->items)) return false;
  st_memory_item *to = &p->items[p->n_items];
  *to = *item;
  for (size_t k = p->n_items++;
       k-- > 0 && p->items[k].layer == item->layer && p->items[k].attention == item->attention;) {
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      for (int j = 0; j < ST_ITEM_TENSORS; j++) to->shared[i] |= p->items[k].tensors[j] == item->tensors[i];
    }
  }
  return true;
}

// ---- what a choice costs ------------------------------------------------------------------------------------------

static bool streams(const st_memory_item *i) {
  return i->layer >= 0 && !i->resident;
}

// What a read of one of the item's tensors takes: whole blocks, wherever it begins.
static uint64_t read_of(const st_memory_item *item, int i) {
  return (item->bytes ? item->bytes : item->tensors[i]->bytes) / BLOCK * BLOCK + 2 * BLOCK;
}

// The layer's unit; its items stand one after the other from `first` on.
static st_unit_size size_of(const st_memory_plan *p, size_t first) {
  st_unit_size size = {0, 0};
  for (size_t k = first; k < p->n_items && p->items[k].layer == p->items[first].layer; k++) {
    const st_memory_item *item = &p->items[k];
    if (!streams(item)) continue;
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

// While it is loaded, or in each pass.
static uint64_t largest_copying(const st_memory_plan *p, bool resident) {
  uint64_t most = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_memory_item *i = &p->items[k];
    bool copied = resident ? !streams(i) && !(p->mapped && i->direct) : streams(i) && !i->direct;
    if (copied && i->copying > most) most = i->copying;
  }
  return most;
}

// Recomputes what depends on `resident`.
static void add_up(st_memory_plan *p) {
  st_unit_size most = {0, 0};
  bool rows = false;
  p->resident = p->streamed = p->rearranged = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    bool begins = !k || p->items[k].layer != p->items[k - 1].layer;
    if (p->items[k].resident) p->resident += p->items[k].own;
    rows = rows || (p->items[k].rows && !p->items[k].resident);
    if (!begins || p->items[k].layer < 0) continue;
    st_unit_size size = size_of(p, k);
    p->streamed += size.stored;
    p->rearranged += size.packed;
    most = largest_of(&most, &size);
  }
  // Matrices lie together in pieces of 64 MiB, whose last huge page is half full on average.
  p->rounding = st_huge_pages(p->resident + p->vectors) - p->resident - p->vectors + p->resident / 64;
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

// All of what the files hold, counted as what streams is; an embedding that is the head too, once.
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

// ---- the choice ---------------------------------------------------------------------------------------------------

// What is resident or not as one.
typedef enum part_kind { PART_HEAD, PART_ATTENTION, PART_REST, PART_EMBEDDING, PART_KINDS } part_kind;

static part_kind kind_of(const st_memory_plan *p, const st_memory_item *i) {
  if (i->layer < 0) return PART_EMBEDDING;
  if (i->layer >= (int32_t)p->n_layer) return PART_HEAD;
  return i->attention ? PART_ATTENTION : PART_REST;
}

// Makes the part resident or not; those of layers are many.
static void set_part(st_memory_plan *p, part_kind kind, uint32_t layer, bool resident) {
  for (size_t k = 0; k < p->n_items; k++) {
    st_memory_item *i = &p->items[k];
    bool of_layer = kind == PART_ATTENTION || kind == PART_REST;
    bool same = kind_of(p, i) == kind && (!of_layer || i->layer == (int32_t)layer);
    if (same && (i->layer >= 0 || i->rows)) i->resident = resident;
  }
}

// 0, 1/2, 1/4, 3/4, 1/8, ... of n: any beginning of the sequence is spread evenly. Gives each layer once.
static uint32_t spread(uint32_t i, uint32_t n, bool *taken) {
  uint64_t fraction = 0;
  for (int bit = 0; bit < 32; bit++) fraction |= (uint64_t)(i >> bit & 1) << (31 - bit);
  uint32_t at = (uint32_t)(fraction * n >> 32);
  while (taken[at]) at = (at + 1) % n;
  taken[at] = true;
  return at;
}

static bool fits(const st_memory_plan *p) {
  return st_memory_plan_total(p) + ST_MEMORY_RESERVE <= p->budget;
}

// Makes one part after the other resident while the whole stays within the budget.
static setun_status fill_budget(st_memory_plan *p, setun_error *err) {
  bool *taken = st_calloc(p->n_layer ? p->n_layer : 1, sizeof *taken);
  if (!taken) return st_fail_memory(err, "the memory plan");
  uint32_t parts = 0;
  for (part_kind kind = PART_HEAD; kind < PART_KINDS; kind++) {
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
  }
  add_up(p);
  st_free(taken);
  return SETUN_OK;
}

static void set_all(st_memory_plan *p, bool resident) {
  for (size_t k = 0; k < p->n_items; k++) {
    p->items[k].resident = resident || (p->items[k].layer < 0 && !p->items[k].rows);
  }
  add_up(p);
}

// In a mapped file everything that can be is used in place.
static void map(st_memory_plan *p) {
  set_all(p, true);
  for (size_t k = 0; k < p->n_items; k++) {
    if (p->items[k].direct) p->resident -= p->items[k].own;
  }
}

// What to name as the least, in whole MiB: what the process has by itself changes by up to 1.7 MiB from one start to
// the next (which pages of its code the system maps at once), and the least has to do in the next one.
static uint64_t with_room(uint64_t bytes) {
  const uint64_t room = 2 << 20, step = 1 << 20;
  return (bytes + room + step - 1) / step * step;
}

// The smallest budget that does in this process, with the batch that is chosen.
static uint64_t needed_by(st_memory_plan *p) {
  if (p->mapped) {
    map(p);
    return st_memory_plan_total(p) + ST_MEMORY_RESERVE;
  }
  set_all(p, true);
  uint64_t whole = st_memory_plan_total(p);
  set_all(p, false);
  uint64_t least = st_memory_plan_total(p);
  return (whole < least ? whole : least) + ST_MEMORY_RESERVE; // a ring for two layers may be more than they are
}

static void take_batch(st_memory_plan *p, const st_batch_choice *choice) {
  p->n_batch = choice->n_batch;
  p->session = choice->session;
  p->cache = choice->cache;
  p->pages = choice->pages;
}

// The largest batch that the budget allows, and the least of all, of which `*needed` has no room.
static void choose_batch(st_memory_plan *p, uint64_t *needed) {
  bool chosen = false;
  for (uint32_t i = 0; i < p->n_batches; i++) {
    st_batch_choice before = {p->n_batch, p->session, p->cache, p->pages};
    take_batch(p, &p->batches[i]);
    *needed = needed_by(p);
    if (chosen) take_batch(p, &before);
    chosen = chosen || !p->budget || p->budget >= *needed;
  }
  p->least = with_room(*needed);
}

setun_status st_memory_plan_decide(st_memory_plan *p, const st_directory *d, setun_error *err) {
  p->stored = stored_of(p);
  uint64_t needed = 0;
  choose_batch(p, &needed);
  if (p->resident_parts) {
    set_all(p, false);
    return fill_budget(p, err);
  }
  if (p->mapped) {
    map(p);
  } else {
    set_all(p, true);
  }
  if (!p->budget || fits(p)) return SETUN_OK;
  if (p->budget < needed) {
    return st_fail(
        err, SETUN_ERROR_MEMORY,
        "%s: expected at least %lluM of memory for this context and batch, found %.1fM (a smaller context or "
        "batch takes less)",
        d->path, (unsigned long long)(p->least >> 20), (double)p->budget / (1 << 20));
  }
  if (p->mapped) return SETUN_OK;
  set_all(p, false);
  return fill_budget(p, err);
}

// ---- units --------------------------------------------------------------------------------------------------------

st_stream_range st_memory_item_range(const st_memory_item *item, int i, const st_directory *d) {
  const st_tensor *t = item->tensors[i];
  return (st_stream_range){
      .file = &d->parts[t->part], .offset = t->offset + item->offset, .bytes = item->bytes ? item->bytes : t->bytes};
}

setun_status st_memory_plan_unit(const st_memory_plan *p, const st_directory *d, uint32_t layer,
                                 st_stream_range **ranges, size_t *n, setun_error *err) {
  size_t capacity = 0;
  *ranges = NULL;
  *n = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_memory_item *item = &p->items[k];
    if (item->layer != (int32_t)layer || !streams(item)) continue;
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
  *p = (st_memory_plan){0};
}
