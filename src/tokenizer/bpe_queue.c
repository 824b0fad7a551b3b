// A priority queue for the pairs of a long word: lowest rank first, and of equal ranks the leftmost.
//
// Merging one pair nearly always makes pairs of worse ranks, and a long word is long because it repeats itself. So
// items wait in groups of equal rank; only the ranks of the groups are in a heap, and a group is processed from left to
// right. The rare new item with a rank no worse than the current group's goes to a separate small heap.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <stdlib.h>

#define NONE UINT32_MAX

enum { FIRST_GROUPS = 256 };

void st_bpe_queue_free(st_bpe_queue *q) {
  st_free(q->groups);
  st_free(q->nodes);
  st_free(q->ranks.items);
  st_free(q->urgent.items);
  st_free(q->order);
  *q = (st_bpe_queue){0};
}

static st_bpe_queue_group *new_groups(size_t n) {
  st_bpe_queue_group *g = st_malloc(n, sizeof *g);
  for (size_t i = 0; g && i < n; i++) g[i].rank = NONE;
  return g;
}

bool st_bpe_queue_reset(st_bpe_queue *q) {
  st_free(q->groups);
  q->groups = new_groups(FIRST_GROUPS);
  q->group_mask = FIRST_GROUPS - 1;
  q->n_groups = q->n_nodes = q->ranks.n = q->urgent.n = 0;
  q->open = false;
  q->cursor = NONE;
  return q->groups != NULL;
}

static st_bpe_queue_group *find_group(st_bpe_queue_group *groups, size_t mask, uint32_t rank) {
  for (size_t i = rank * 0x9E3779B97F4A7C15u >> 32 & mask;; i = (i + 1) & mask) {
    if (groups[i].rank == rank || groups[i].rank == NONE) return &groups[i];
  }
}

static bool grow_groups(st_bpe_queue *q) {
  size_t size = (q->group_mask + 1) * 4;
  st_bpe_queue_group *fresh = new_groups(size);
  if (!fresh) return false;
  for (size_t i = 0; i <= q->group_mask; i++) {
    if (q->groups[i].rank != NONE) *find_group(fresh, size - 1, q->groups[i].rank) = q->groups[i];
  }
  st_free(q->groups);
  q->groups = fresh;
  q->group_mask = size - 1;
  return true;
}

static bool before(st_bpe_queue_item a, st_bpe_queue_item b) {
  return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static bool push(st_bpe_heap *heap, st_bpe_queue_item item) {
  if (!st_reserve(&heap->items, &heap->capacity, heap->n + 1, sizeof *heap->items)) return false;
  st_bpe_queue_item *h = heap->items;
  size_t i = heap->n++;
  for (; i && before(item, h[(i - 1) / 2]); i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
  h[i] = item;
  return true;
}

static st_bpe_queue_item pop(st_bpe_heap *heap) {
  st_bpe_queue_item *h = heap->items, top = h[0], last = h[--heap->n];
  size_t i = 0, n = heap->n;
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && before(h[child + 1], h[child])) child++;
    if (!before(h[child], last)) break;
    h[i] = h[child];
  }
  h[i] = last;
  return top;
}

bool st_bpe_queue_push(st_bpe_queue *q, uint32_t rank, uint32_t at) {
  if (q->open && rank <= q->rank) return push(&q->urgent, (st_bpe_queue_item){rank, at});
  st_bpe_queue_group *g = find_group(q->groups, q->group_mask, rank);
  if (g->rank == NONE) {
    if ((q->n_groups + 1) * 2 > q->group_mask) {
      if (!grow_groups(q)) return false;
      g = find_group(q->groups, q->group_mask, rank);
    }
    *g = (st_bpe_queue_group){rank, NONE, NONE, true};
    q->n_groups++;
    if (!push(&q->ranks, (st_bpe_queue_item){rank, 0})) return false;
  }
  if (!st_reserve(&q->nodes, &q->nodes_capacity, q->n_nodes + 1, sizeof *q->nodes)) return false;
  uint32_t node = (uint32_t)q->n_nodes++;
  q->nodes[node] = (st_bpe_queue_node){at, NONE};
  if (g->tail == NONE) {
    g->head = node;
  } else {
    q->nodes[g->tail].next = node;
    if (at < q->nodes[g->tail].at) g->sorted = false;
  }
  g->tail = node;
  return true;
}

static int by_position(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static bool sort_group(st_bpe_queue *q, const st_bpe_queue_group *g) {
  size_t n = 0;
  for (uint32_t i = g->head; i != NONE; i = q->nodes[i].next) n++;
  if (!st_reserve(&q->order, &q->order_capacity, n, sizeof *q->order)) return false;
  n = 0;
  for (uint32_t i = g->head; i != NONE; i = q->nodes[i].next) q->order[n++] = q->nodes[i].at;
  qsort(q->order, n, sizeof *q->order, by_position);
  n = 0;
  for (uint32_t i = g->head; i != NONE; i = q->nodes[i].next) q->nodes[i].at = q->order[n++];
  return true;
}

// Opens the group of the best rank that waits. Ranks at or below it go to the small heap from now on, so that a group
// is opened once.
static bool open_next(st_bpe_queue *q) {
  q->rank = pop(&q->ranks).rank;
  q->open = true;
  st_bpe_queue_group *g = find_group(q->groups, q->group_mask, q->rank);
  q->cursor = g->head;
  return g->sorted || sort_group(q, g);
}

bool st_bpe_queue_pop(st_bpe_queue *q, st_bpe_queue_item *item, bool *found) {
  *found = true;
  if (q->cursor == NONE && !q->urgent.n) {
    *found = q->ranks.n != 0;
    if (!*found) return true;
    if (!open_next(q)) return false;
  }
  st_bpe_queue_item next = {q->rank, q->cursor == NONE ? 0 : q->nodes[q->cursor].at};
  if (q->urgent.n && (q->cursor == NONE || before(q->urgent.items[0], next))) {
    *item = pop(&q->urgent);
    return true;
  }
  *item = next;
  q->cursor = q->nodes[q->cursor].next;
  return true;
}
