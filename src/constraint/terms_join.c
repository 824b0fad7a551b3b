// Alternatives and intersections in their normal form: flat, sorted, without duplicates, and with members merged when
// two of them form one term, so that automata have few different states.
#include "constraint/terms_table.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

bool st_terms_push(st_terms *t, st_term a) {
  if (!st_terms_reserve(t, &t->stack, &t->stack_capacity, t->n_stack + 1, sizeof *t->stack)) return false;
  t->stack[t->n_stack++] = a;
  return true;
}

static int compare_terms(const void *a, const void *b) {
  st_term x = *(const st_term *)a, y = *(const st_term *)b;
  return (x > y) - (x < y);
}
static int compare_keys(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

// Sorts the members from `base` on and removes duplicates.
static void sort_members(st_terms *t, size_t base) {
  size_t n = t->n_stack - base, kept = 0;
  st_term *list = t->stack + base;
  if (n > 1) qsort(list, n, sizeof *list, compare_terms);
  for (size_t i = 0; i < n; i++) {
    if (!kept || list[i] != list[kept - 1]) list[kept++] = list[i];
  }
  t->n_stack = base + kept;
}

// Replaces members of the same kind by their own members, and removes members without effect. True: the result is
// `*absorbed` alone.
static bool flatten(st_terms *t, st_term_kind kind, size_t base, st_term *absorbed) {
  size_t kept = base, end = t->n_stack;
  for (size_t i = base; i < end; i++) {
    st_term a = t->stack[i];
    const st_term_entry *e = &t->entries[a];
    bool everything = e->kind == ST_KIND_NOT && e->a == ST_TERM_EMPTY;
    if (kind == ST_KIND_ALT ? everything : a == ST_TERM_EMPTY) return *absorbed = a, true;
    if (kind == ST_KIND_ALT ? a == ST_TERM_EMPTY : everything) continue;
    if (e->kind != kind) {
      t->stack[kept++] = a;
      continue;
    }
    for (uint32_t c = 0; c < e->b; c++) {
      if (!st_terms_push(t, t->children[e->a + c])) return *absorbed = ST_TERM_EMPTY, true;
    }
  }
  if (t->n_stack > end) memmove(t->stack + kept, t->stack + end, (t->n_stack - end) * sizeof *t->stack);
  t->n_stack -= end - kept;
  return false;
}

// Splits a member into its first part and the rest.
static st_term head_of(const st_terms *t, st_term a) {
  return t->entries[a].kind == ST_KIND_SEQ ? t->entries[a].a : a;
}
static st_term tail_of(const st_terms *t, st_term a) {
  return t->entries[a].kind == ST_KIND_SEQ ? t->entries[a].b : ST_TERM_EPSILON;
}

// Two first parts merged, or ST_TERM_EMPTY if they do not form one term: merges sets of bytes, and repeats of the same
// term with adjacent counts.
static st_term join_heads(st_terms *t, st_term x, st_term y) {
  st_term_entry a = t->entries[x], b = t->entries[y];
  if (a.kind == ST_KIND_BYTES && b.kind == ST_KIND_BYTES) {
    st_byte_set set = t->sets[a.a];
    for (int i = 0; i < 4; i++) set.bits[i] |= t->sets[b.a].bits[i];
    return st_term_bytes(t, &set);
  }
  if (a.kind != ST_KIND_REPEAT || b.kind != ST_KIND_REPEAT || a.a != b.a) return ST_TERM_EMPTY;
  uint32_t min = a.b < b.b ? a.b : b.b, max = a.c > b.c ? a.c : b.c;
  uint32_t gap_from = a.b < b.b ? a.c : b.c, gap_to = a.b < b.b ? b.b : a.b;
  if (gap_from != ST_UNBOUNDED && gap_to > gap_from && gap_to - gap_from > 1) return ST_TERM_EMPTY;
  return st_term_repeat(t, a.a, min, max);
}

// Merges members with the same rest if their first parts can be merged.
static void join_members(st_terms *t, size_t base) {
  size_t n = t->n_stack - base, candidates = 0;
  for (size_t i = base; i < t->n_stack; i++) {
    st_term_kind kind = t->entries[head_of(t, t->stack[i])].kind;
    candidates += kind == ST_KIND_BYTES || kind == ST_KIND_REPEAT;
  }
  if (candidates < 2) return;
  uint64_t few[32], *keys = n <= 32 ? few : st_malloc(n, sizeof *keys);
  if (!keys) return; // larger than necessary, but correct
  for (size_t i = 0; i < n; i++) keys[i] = (uint64_t)tail_of(t, t->stack[base + i]) << 32 | t->stack[base + i];
  qsort(keys, n, sizeof *keys, compare_keys);
  t->n_stack = base;
  for (size_t i = 0, next; i < n; i = next) {
    st_term tail = (st_term)(keys[i] >> 32);
    size_t first = t->n_stack;
    for (next = i; next < n && keys[next] >> 32 == tail; next++) {
      st_term member = (st_term)keys[next];
      for (size_t j = first; j < t->n_stack; j++) {
        st_term joined = join_heads(t, head_of(t, t->stack[j]), head_of(t, member));
        if (joined == ST_TERM_EMPTY) continue;
        member = st_term_seq(t, joined, tail);
        t->stack[j] = t->stack[--t->n_stack]; // the merged member may be merged again
        j = first - 1;
      }
      st_terms_push(t, member); // there is room: it was on the stack before
    }
  }
  if (keys != few) st_free(keys);
}

static void drop_epsilon(st_terms *t, size_t base) {
  if (t->n_stack - base < 2 || t->stack[base] != ST_TERM_EPSILON) return; // sorted: it comes first
  for (size_t i = base + 1; i < t->n_stack; i++) {
    if (!(t->flags[t->stack[i]] & ST_TERM_NULLABLE)) continue;
    memmove(t->stack + base, t->stack + base + 1, (t->n_stack - base - 1) * sizeof *t->stack);
    t->n_stack--;
    return;
  }
}

static bool has_member(const st_terms *t, size_t base, st_term a) {
  return bsearch(&a, t->stack + base, t->n_stack - base, sizeof a, compare_terms);
}

// Intersections with a simple result: of complements, of sets of bytes, with the empty text. True: see `*result`.
static bool known_intersection(st_terms *t, size_t base, st_term *result) {
  st_term final = ST_TERM_EMPTY;
  st_byte_set set = {{~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0}};
  unsigned all = ST_TERM_NULLABLE;
  size_t n_bytes = 0;
  for (size_t i = base; i < t->n_stack; i++) {
    st_term a = t->stack[i];
    const st_term_entry *e = &t->entries[a];
    all &= t->flags[a];
    if (e->kind == ST_KIND_NOT && has_member(t, base, e->a)) return *result = ST_TERM_EMPTY, true;
    if (t->flags[a] & ST_TERM_FINAL) final = a; // the last: a mark has a greater id than ST_TERM_EPSILON
    if (e->kind != ST_KIND_BYTES) continue;
    for (int w = 0; w < 4; w++) set.bits[w] &= t->sets[e->a].bits[w];
    n_bytes++;
  }
  if (final) return *result = all & ST_TERM_NULLABLE ? final : ST_TERM_EMPTY, true;
  if (n_bytes < 2) return false;
  size_t kept = base;
  for (size_t i = base; i < t->n_stack; i++) {
    if (t->entries[t->stack[i]].kind != ST_KIND_BYTES) t->stack[kept++] = t->stack[i];
  }
  t->n_stack = kept;
  st_term one = st_term_bytes(t, &set);
  if (one == ST_TERM_EMPTY) return *result = ST_TERM_EMPTY, true;
  st_terms_push(t, one);
  sort_members(t, base);
  return false;
}

st_term st_terms_join(st_terms *t, st_term_kind kind, size_t base) {
  st_term result = ST_TERM_EMPTY;
  if (t->failure.code || flatten(t, kind, base, &result)) {
    t->n_stack = base;
    return result;
  }
  sort_members(t, base);
  if (!st_terms_work(t, t->n_stack - base)) return t->n_stack = base, ST_TERM_EMPTY;
  if (kind == ST_KIND_ALT && t->n_stack - base > 1) {
    join_members(t, base);
    sort_members(t, base);
    drop_epsilon(t, base);
  }
  if (kind == ST_KIND_AND && known_intersection(t, base, &result)) {
    t->n_stack = base;
    return result;
  }
  if (t->n_stack - base == 1) {
    result = t->stack[base];
  } else if (t->n_stack == base) {
    result = kind == ST_KIND_ALT ? ST_TERM_EMPTY : st_term_not(t, ST_TERM_EMPTY);
  } else {
    result = st_terms_intern_list(t, kind, base);
  }
  t->n_stack = base;
  return result;
}

static st_term join_list(st_terms *t, st_term_kind kind, const st_term *list, size_t n) {
  size_t base = t->n_stack;
  for (size_t i = 0; i < n; i++) {
    if (!st_terms_push(t, list[i])) return t->n_stack = base, ST_TERM_EMPTY;
  }
  return st_terms_join(t, kind, base);
}
st_term st_term_alt(st_terms *t, const st_term *list, size_t n) {
  return join_list(t, ST_KIND_ALT, list, n);
}
st_term st_term_and(st_terms *t, const st_term *list, size_t n) {
  return join_list(t, ST_KIND_AND, list, n);
}
