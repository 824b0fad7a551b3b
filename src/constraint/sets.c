// Sets of configurations as states: even a text with several readings is followed with one lookup per byte.
#include "constraint/engine.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

enum { ROW = 256, MOST_KEPT = 64 << 20, MOST_SETS = 200000 };

static size_t find_slot(const st_sets *s, const st_config *configs, size_t n) {
  size_t mask = s->n_slots - 1, at = st_hash(ST_HASH_START, configs, n * sizeof *configs) & mask;
  for (; s->slots[at]; at = (at + 1) & mask) {
    const st_set *set = &s->items[s->slots[at] - 1];
    if (set->n == n && !memcmp(s->configs.items + set->offset, configs, n * sizeof *configs)) break;
  }
  return at;
}

static bool grow(st_engine *e) {
  st_sets *s = &e->sets;
  if (s->n * 2 < s->n_slots) return true;
  size_t n = s->n_slots ? 2 * s->n_slots : 256;
  uint32_t *slots = st_calloc(n, sizeof *slots);
  if (!slots) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the states of a constraint");
  st_free(s->slots);
  s->slots = slots;
  s->n_slots = n;
  for (size_t i = 0; i < s->n; i++) {
    s->slots[find_slot(s, s->configs.items + s->items[i].offset, s->items[i].n)] = (uint32_t)i + 1;
  }
  return true;
}

bool st_engine_set(st_engine *e, const st_config *configs, size_t n, uint32_t *set) {
  st_sets *s = &e->sets;
  if (!grow(e)) return false;
  size_t at = find_slot(s, configs, n);
  if (!s->slots[at]) {
    if (!st_engine_reserve(e, &s->items, &s->capacity, s->n + 1, sizeof *s->items) ||
        !st_engine_reserve(e, &s->configs.items, &s->configs.capacity, s->configs.n + n, sizeof *configs)) {
      return false;
    }
    if (n) memcpy(s->configs.items + s->configs.n, configs, n * sizeof *configs);
    s->items[s->n++] = (st_set){.offset = s->configs.n, .n = (uint32_t)n};
    s->configs.n += n;
    s->slots[at] = (uint32_t)s->n;
  }
  *set = s->slots[at] - 1;
  return true;
}

uint32_t *st_engine_set_row(st_engine *e, uint32_t set) {
  st_set *s = &e->sets.items[set];
  if (s->row) return s->row;
  s->row = st_malloc(ROW, sizeof *s->row);
  if (!s->row) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the states of a constraint"), NULL;
  memset(s->row, 0xff, ROW * sizeof *s->row); // ST_SET_UNKNOWN
  e->sets.kept += ROW * sizeof *s->row;
  return st_engine_count(e) ? s->row : NULL;
}

void st_engine_keep_mask(st_engine *e, uint32_t set, const uint32_t *bits, size_t words) {
  st_set *s = &e->sets.items[set];
  s->mask = st_malloc(words, sizeof *bits);
  if (!s->mask) return; // it is built again the next time
  memcpy(s->mask, bits, words * sizeof *bits);
  e->sets.kept += words * sizeof *bits;
}

void st_engine_free_sets(st_engine *e) {
  st_sets *s = &e->sets;
  for (size_t i = 0; i < s->n; i++) st_free(s->items[i].row), st_free(s->items[i].mask);
  st_free(s->items), st_free(s->configs.items), st_free(s->slots);
  *s = (st_sets){0};
}

void st_engine_trim_sets(st_engine *e) {
  size_t most = e->limits.max_bytes / 4 < MOST_KEPT ? e->limits.max_bytes / 4 : MOST_KEPT;
  if (e->sets.kept > most || e->sets.n > MOST_SETS) st_engine_free_sets(e);
}
