// The plan's decisions: which matrices are held.
#include "model/memory_plan.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096, HUGE_PAGE = 2 << 20 };

bool st_memory_plan_add(st_memory_plan *p, const st_plan_item *item) {
  if (!st_reserve(&p->items, &p->capacity, p->n_items + 1, sizeof *p->items)) return false;
  st_plan_item *to = &p->items[p->n_items];
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

typedef struct unit_size {
  uint64_t stored, packed;
} unit_size;

static bool streams(const st_plan_item *i) {
  return i->layer >= 0 && !i->held;
}

// The layer's unit; its items stand one after the other from `first` on.
static unit_size size_of(const st_memory_plan *p, size_t first) {
  unit_size size = {0, 0};
  for (size_t k = first; k < p->n_items && p->items[k].layer == p->items[first].layer; k++) {
    const st_plan_item *item = &p->items[k];
    if (!streams(item)) continue;
    if (!item->direct) size.packed += item->codes;
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      if (!item->shared[i]) size.stored += item->tensors[i]->bytes / BLOCK * BLOCK + 2 * BLOCK;
    }
  }
  return size;
}

// Recomputes what depends on `held`.
static void add_up(st_memory_plan *p) {
  unit_size most = {0, 0};
  p->held = p->streamed = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    bool begins = !k || p->items[k].layer != p->items[k - 1].layer;
    if (!streams(&p->items[k])) p->held += p->items[k].own;
    if (!begins || p->items[k].layer < 0) continue;
    unit_size size = size_of(p, k);
    p->streamed += size.stored;
    if (size.stored > most.stored) most.stored = size.stored;
    if (size.packed > most.packed) most.packed = size.packed;
  }
  p->rounding = p->held / 64; // matrices lie together in pieces of 64 MiB, whose last huge page is half full on average
  p->ring = most.stored ? ST_RING_SLOTS * most.stored + HUGE_PAGE : 0;
  p->packed = most.packed ? most.packed + HUGE_PAGE : 0;
}

// ---- the choice ---------------------------------------------------------------------------------------------------

// Whether to hold the attention or the rest of a layer.
static void hold(st_memory_plan *p, uint32_t layer, bool attention, bool held) {
  for (size_t k = 0; k < p->n_items; k++) {
    st_plan_item *i = &p->items[k];
    if (i->layer == (int32_t)layer && i->attention == attention) i->held = held;
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

// Holds one part after the other while the whole stays within the budget.
static bool fits(const st_memory_plan *p) {
  return st_memory_plan_total(p) + ST_PLAN_RESERVE <= p->budget;
}

static setun_status hold_what_fits(st_memory_plan *p, setun_error *err) {
  bool *taken = st_calloc(p->n_layer ? p->n_layer : 1, sizeof *taken);
  if (!taken) return st_fail_memory(err, "the plan");
  uint32_t parts = 0;
  for (int part = 0; part < 2; part++) {
    memset(taken, 0, p->n_layer);
    for (uint32_t i = 0; i < p->n_layer; i++) {
      uint32_t layer = spread(i, p->n_layer, taken);
      hold(p, layer, part == 0, true);
      add_up(p);
      if (p->held_parts ? parts < *p->held_parts : fits(p))
        parts++;
      else
        hold(p, layer, part == 0, false);
    }
  }
  add_up(p);
  st_free(taken);
  return SETUN_OK;
}

static void hold_all(st_memory_plan *p, bool held) {
  for (size_t k = 0; k < p->n_items; k++) p->items[k].held = held || p->items[k].layer < 0;
  add_up(p);
}

// In a mapped file everything that can be is used in place.
static void map(st_memory_plan *p) {
  hold_all(p, true);
  for (size_t k = 0; k < p->n_items; k++) {
    if (p->items[k].direct) p->held -= p->items[k].own;
  }
}

// "1.2 GB" or "34 MB", rounded up.
static const char *size_text(uint64_t bytes, char text[32]) {
  if (bytes >= 1000000000) {
    snprintf(text, 32, "%.2f GB", (double)(bytes / 10000000 + 1) / 100);
  } else {
    snprintf(text, 32, "%llu MB", (unsigned long long)(bytes / 1000000 + 1));
  }
  return text;
}

setun_status st_memory_plan_decide(st_memory_plan *p, const st_directory *d, setun_error *err) {
  char least[32], budget[32];
  hold_all(p, false);
  p->least = st_memory_plan_total(p);
  if (p->held_parts) return hold_what_fits(p, err);
  hold_all(p, true);
  if (st_memory_plan_total(p) < p->least) p->least = st_memory_plan_total(p); // a ring for two layers may be more
  if (p->mapped) {
    map(p);
    p->least = st_memory_plan_total(p);
  }
  p->least += ST_PLAN_RESERVE;
  if (!p->budget || fits(p)) return SETUN_OK;
  if (p->budget < p->least) {
    return st_fail(
        err, SETUN_ERROR_MEMORY,
        "%s: expected at least %s of memory for this context and batch, found %s (a smaller --ctx or --batch "
        "takes less)",
        d->path, size_text(p->least, least), size_text(p->budget, budget));
  }
  return p->mapped ? SETUN_OK : hold_what_fits(p, err);
}

// ---- units --------------------------------------------------------------------------------------------------------

setun_status st_memory_plan_unit(const st_memory_plan *p, const st_directory *d, uint32_t layer,
                                 st_stream_range **ranges, size_t *n, setun_error *err) {
  size_t capacity = 0;
  *ranges = NULL;
  *n = 0;
  for (size_t k = 0; k < p->n_items; k++) {
    const st_plan_item *item = &p->items[k];
    if (item->layer != (int32_t)layer || !streams(item)) continue;
    for (int i = 0; i < ST_ITEM_TENSORS && item->tensors[i]; i++) {
      const st_tensor *t = item->tensors[i];
      if (item->shared[i]) continue;
      if (!st_reserve(ranges, &capacity, *n + 1, sizeof **ranges)) {
        st_free(*ranges);
        return st_fail_memory(err, "the plan");
      }
      (*ranges)[(*n)++] = (st_stream_range){.file = &d->parts[t->part], .offset = t->offset, .bytes = t->bytes};
    }
  }
  return SETUN_OK;
}

void st_memory_plan_free(st_memory_plan *p) {
  st_free(p->items);
  *p = (st_memory_plan){0};
}
