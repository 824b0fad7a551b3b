// Sequences: tables of shared pages with copy on write.
#include "runtime/sequences.h"

#include "base/memory.h"

#include <string.h>

static const st_hparams *hparams_of(const st_sequences *a) {
  return &a->run->model->h;
}
static uint32_t layers_of(const st_sequences *a) {
  return hparams_of(a)->n_layer;
}
// Blocks of the sinks, which a layer keeps regardless of its first block.
static uint32_t sinks_of(const st_sequences *a, uint32_t layer) {
  return st_blocks(st_layer_sinks(hparams_of(a), &a->run->windows, layer));
}
static st_layer_kind kind_of(const st_sequences *a, uint32_t layer) {
  return st_layer_kind_of(hparams_of(a), &a->run->windows, layer);
}

bool st_sequence_has_page(const st_sequences *a, const st_sequence *s, uint32_t layer, uint32_t block) {
  if (kind_of(a, layer) == ST_LAYER_RECURRENT) return false;
  return block >= s->layers[layer].first || block < sinks_of(a, layer);
}

// Number of a sequence's pages for a layer.
static uint32_t pages_of(const st_sequences *a, const st_sequence *s, uint32_t layer) {
  uint32_t first = s->layers[layer].first, sinks = sinks_of(a, layer);
  if (kind_of(a, layer) == ST_LAYER_RECURRENT) return 0;
  return s->n_blocks - first + (first < sinks ? first : sinks);
}

uint64_t st_sequences_size(const st_model *m, const st_run_options *o) {
  uint32_t pages[ST_LAYER_KINDS];
  uint64_t layer = st_blocks(o->n_ctx) * sizeof(uint32_t) + sizeof(st_layer_cache);
  uint64_t each = sizeof(st_sequence) + m->h.n_layer * layer + (uint64_t)o->n_ctx * sizeof(setun_token);
  uint64_t size = 2 * (uint64_t)o->n_seq * (each + st_states_list_size(o->n_states));
  size += st_page_pool_size(o->n_states);
  st_run_count_pages(&m->h, o, pages);
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) size += st_page_pool_size(pages[kind]);
  return size;
}

static setun_status new_pools(st_sequences *a, setun_error *err) {
  setun_status s = SETUN_OK;
  uint32_t first = 0;
  for (int kind = 0; kind < ST_LAYER_KINDS && s == SETUN_OK; kind++) {
    s = st_page_pool_new(&a->pools[kind], first, a->run->n_pages[kind], err);
    first += a->run->n_pages[kind];
  }
  if (s == SETUN_OK) s = st_page_pool_new(&a->states, 0, a->run->n_states, err);
  return s;
}

setun_status st_sequences_new(st_sequences *a, st_run *run, uint32_t n_max, setun_error *err) {
  size_t pages;
  const st_model *m = run->model;
  *a = (st_sequences){.run = run, .n_max = n_max, .stride = st_blocks(run->n_ctx)};
  a->adapting = st_adapting_of(st_lora_share(m->lora), 1, m->identity);
  setun_status s = new_pools(a, err);
  if (s != SETUN_OK) return s;
  a->all = st_calloc((size_t)2 * n_max, sizeof *a->all);
  bool whole = a->all && st_mul_size(layers_of(a), a->stride, &pages);
  for (size_t i = 0; whole && i < (size_t)2 * n_max; i++) {
    st_sequence *q = &a->all[i];
    q->layers = st_calloc(layers_of(a), sizeof *q->layers);
    q->pages = st_calloc(pages, sizeof *q->pages);
    q->ids = st_calloc(run->n_ctx, sizeof *q->ids);
    q->states = (st_sequence_states){.slot = ST_NO_STATE, .next = ST_NO_STATE};
    q->states.snapshots = st_calloc(run->n_states, sizeof *q->states.snapshots);
    whole = q->layers && q->pages && q->ids && q->states.snapshots;
  }
  return whole ? SETUN_OK : st_fail_memory(err, "the sequences");
}

void st_sequences_free(st_sequences *a) {
  for (size_t i = 0; a->all && i < (size_t)2 * a->n_max; i++) {
    st_free(a->all[i].layers);
    st_free(a->all[i].pages);
    st_free(a->all[i].ids);
    st_free(a->all[i].states.snapshots);
    st_lora_release(a->all[i].adapting.lora);
  }
  st_lora_release(a->adapting.lora);
  st_free(a->all);
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) st_page_pool_free(&a->pools[kind]);
  st_page_pool_free(&a->states);
}

static bool is_dropped(const st_sequences *a, const st_sequence *s) {
  return (size_t)(s - a->all) >= a->n_max;
}

// ---- beginning and ending -----------------------------------------------------------------------------------------

setun_status st_sequence_get(const st_sequences *a, int number, st_sequence **sequence, setun_error *err) {
  if (number < 0 || (uint32_t)number >= a->n_max || !a->all[number].used) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence: expected the number of an existing sequence, found %d",
                   number);
  }
  *sequence = &a->all[number];
  return SETUN_OK;
}

static st_sequence *find_unused(const st_sequences *a, size_t first) {
  for (size_t i = first; i < first + a->n_max; i++) {
    if (!a->all[i].used) return &a->all[i];
  }
  return NULL;
}

setun_status st_sequence_add(st_sequences *a, st_sequence **sequence, setun_error *err) {
  st_sequence *s = find_unused(a, 0);
  if (!s) {
    return st_fail(err, SETUN_ERROR_LIMIT, "all %u sequences of the context are in use: drop one (n_seq_max)",
                   a->n_max);
  }
  s->used = true;
  s->adapting = a->adapting;
  st_lora_share(s->adapting.lora);
  *sequence = s;
  return SETUN_OK;
}

// Releases a layer's pages from a block on, and those before a block.
static void release_from(st_sequences *a, st_sequence *s, uint32_t from) {
  for (; s->n_blocks > from; s->n_blocks--) {
    uint32_t block = s->n_blocks - 1;
    for (uint32_t layer = layers_of(a); layer; layer--) {
      if (!st_sequence_has_page(a, s, layer - 1, block)) continue;
      st_page_release(&a->pools[kind_of(a, layer - 1)], *st_sequence_page(a, s, layer - 1, block), is_dropped(a, s));
    }
  }
}
static void release_before(st_sequences *a, st_sequence *s, uint32_t layer, uint32_t end) {
  for (uint32_t *first = &s->layers[layer].first; *first < end; ++*first) {
    if (*first < sinks_of(a, layer)) continue;
    st_page_release(&a->pools[kind_of(a, layer)], *st_sequence_page(a, s, layer, *first), is_dropped(a, s));
  }
}

// Removes the sequence from the cache.
static void release_all(st_sequences *a, st_sequence *s) {
  release_from(a, s, 0);
  st_states_truncate(a, s, 0);
  memset(s->layers, 0, layers_of(a) * sizeof *s->layers);
  s->cached = 0;
}

static void evict(st_sequences *a, st_sequence *s) {
  release_all(a, s);
  st_lora_release(s->adapting.lora);
  s->adapting.lora = NULL;
  s->used = false;
  s->position = s->forgotten = 0;
}

static void replace(st_adapting *old, const st_adapting *adapting) {
  st_lora_share(adapting->lora);
  st_lora_release(old->lora);
  *old = *adapting;
}

void st_sequence_adapt(st_sequences *a, st_sequence *s, const st_adapting *adapting) {
  if (s->adapting.identity != adapting->identity) release_all(a, s);
  replace(&s->adapting, adapting);
}

void st_sequences_adapt(st_sequences *a, const st_adapting *adapting) {
  replace(&a->adapting, adapting);
}

// The least recently used dropped sequence; NULL: none.
static st_sequence *least_recent(const st_sequences *a) {
  st_sequence *found = NULL;
  for (size_t i = a->n_max; i < (size_t)2 * a->n_max; i++) {
    st_sequence *s = &a->all[i];
    if (s->used && (!found || s->last_use < found->last_use)) found = s;
  }
  return found;
}

// Moves a sequence to an unused place: from the active ones to the dropped ones, or back.
static void move(st_sequences *a, st_sequence *from, st_sequence *to) {
  st_sequence unused = *to;
  *to = *from;
  *from = unused;
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    for (uint32_t block = 0; block < to->n_blocks; block++) {
      if (!st_sequence_has_page(a, to, layer, block)) continue;
      st_page_set_idle(&a->pools[kind_of(a, layer)], *st_sequence_page(a, to, layer, block), is_dropped(a, to));
    }
  }
  st_states_set_idle(a, to, is_dropped(a, to));
}

bool st_sequences_forget(st_sequences *a) {
  st_sequence *s = least_recent(a);
  if (s) evict(a, s);
  return s != NULL;
}

void st_sequence_drop(st_sequences *a, st_sequence *s) {
  st_sequence_trim(a, s);
  s->position = s->cached;
  if (!s->position || s->forgotten) { // what was forgotten cannot be compared
    evict(a, s);
    return;
  }
  st_sequence *to = find_unused(a, a->n_max);
  if (!to) evict(a, to = least_recent(a));
  st_states_truncate(a, s, s->cached); // apart from its snapshots it is no longer needed
  s->last_use = ++a->clock;
  st_lora_release(s->adapting.lora);
  s->adapting.lora = NULL;
  move(a, s, to);
}

void st_sequence_trim(st_sequences *a, st_sequence *s) {
  release_from(a, s, st_blocks(s->cached));
  if (!s->cached) release_all(a, s);
}

uint32_t st_sequence_visible(const st_sequences *a, uint32_t layer, uint32_t position) {
  return st_layer_first(hparams_of(a), &a->run->windows, layer, position);
}

// Whether the cache has everything that the token at position n sees, apart from states.
static bool is_whole(const st_sequences *a, const st_sequence *s, uint32_t n) {
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    if (s->layers[layer].first > st_sequence_visible(a, layer, n)) return false;
  }
  return n <= s->cached;
}

setun_status st_sequence_truncate(st_sequences *a, st_sequence *s, uint32_t n, setun_error *err) {
  uint32_t sinks = a->run->windows.sinks;
  if (s->forgotten && n > sinks && (n < s->forgotten || !is_whole(a, s, n - s->forgotten))) {
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "truncate: expected at most %u tokens, or enough to keep the next token's window, since others were "
                   "forgotten; found %u of %u",
                   sinks, n, s->forgotten + s->position);
  }
  if (n > sinks) n -= s->forgotten; // otherwise no forgotten ones remain
  if (n <= sinks) s->forgotten = 0;
  s->position = n;
  if (s->cached <= n) return SETUN_OK;
  uint32_t reach = st_states_reach(a, s, n);
  if (is_whole(a, s, reach)) {
    st_states_truncate(a, s, reach);
    s->cached = reach;
    st_sequence_trim(a, s);
  } else {
    release_all(a, s);
  }
  return SETUN_OK;
}

void st_sequence_wrap(st_sequences *a, st_sequence *s) {
  const st_windows *w = &a->run->windows;
  uint32_t blocks = w->period / ST_CACHE_POSITIONS;
  if (!w->period || s->cached < w->period + w->kept) return;
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    release_before(a, s, layer, st_sequence_visible(a, layer, s->cached));
    uint32_t first = s->layers[layer].first, *pages = st_sequence_page(a, s, layer, 0);
    memmove(pages + first - blocks, pages + first, (s->n_blocks - first) * sizeof *pages);
    s->layers[layer].first = first - blocks;
  }
  s->n_blocks -= blocks;
  s->cached -= w->period;
  s->position -= w->period;
  s->forgotten += w->period;
  memmove(s->ids + w->sinks, s->ids + w->sinks + w->period, (s->position - w->sinks) * sizeof *s->ids);
}

void st_sequence_copy(st_sequences *a, const st_sequence *from, st_sequence *to, uint32_t n) {
  to->position = n;
  to->forgotten = from->forgotten;
  to->cached = n < from->cached ? n : from->cached;
  to->n_blocks = st_blocks(to->cached);
  memcpy(to->ids, from->ids, n * sizeof *to->ids);
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    to->layers[layer] = from->layers[layer];
    for (uint32_t block = 0; block < to->n_blocks; block++) {
      if (!st_sequence_has_page(a, to, layer, block)) continue;
      uint32_t page = *st_sequence_page(a, from, layer, block);
      *st_sequence_page(a, to, layer, block) = page;
      st_page_share(&a->pools[kind_of(a, layer)], page, is_dropped(a, to));
    }
  }
  st_states_share(a, from, to, to->cached);
}

// The number of leading tokens of a sequence that equal the ids, at most `most`, if they are in the cache; otherwise 0.
static uint32_t common_prefix(const st_sequences *a, const st_sequence *s, const setun_token *ids, uint32_t most) {
  uint32_t n = 0;
  if (s->forgotten || s->adapting.identity != a->adapting.identity) return 0;
  if (most > s->cached) most = s->cached;
  while (n < most && s->ids[n] == ids[n]) n++;
  n = st_states_reach(a, s, n);
  return is_whole(a, s, n) ? n : 0;
}

setun_status st_sequence_reuse(st_sequences *a, const setun_token *ids, size_t n, st_sequence **sequence,
                               setun_error *err) {
  uint32_t most = n > a->run->n_ctx ? a->run->n_ctx : (uint32_t)n, longest = 0;
  st_sequence *best = NULL, *to = NULL;
  setun_status status = st_sequence_add(a, &to, err);
  if (status != SETUN_OK) return status;
  for (size_t i = 0; most && i < (size_t)2 * a->n_max; i++) {
    st_sequence *s = &a->all[i];
    uint32_t found = s->used ? common_prefix(a, s, ids, most - 1) : 0;
    if (found > longest) longest = found, best = s;
  }
  if (best && is_dropped(a, best) && longest == best->position) {
    st_adapting adapting = to->adapting;
    to->adapting.lora = NULL;
    to->used = false;
    move(a, best, to); // as it was, so that its last page need not be copied
    to->adapting = adapting;
  } else if (best) {
    st_sequence_copy(a, best, to, longest);
    if (is_dropped(a, best)) best->last_use = ++a->clock;
  }
  *sequence = to;
  return SETUN_OK;
}

// ---- pages for a call ---------------------------------------------------------------------------------------------

// Page counts for the layers of each kind.
typedef struct page_counts {
  uint64_t of[ST_LAYER_KINDS];
} page_counts;

// The block in which a sequence continues, and its first block without pages.
static uint32_t partial_block(const st_sequence *s) {
  return s->cached / ST_CACHE_POSITIONS;
}

// Whether the page in which the i-th sequence continues must be copied because others use it. Sequences before it in
// the call have their copies by then. `forgotten`: as if dropped sequences were gone.
static bool is_shared(const st_sequences *a, const st_growth *g, size_t i, uint32_t layer, bool forgotten) {
  const st_sequence *s = g[i].sequence;
  const st_page_pool *p = &a->pools[kind_of(a, layer)];
  uint32_t block = partial_block(s);
  if (!g[i].n || block >= s->n_blocks || kind_of(a, layer) == ST_LAYER_RECURRENT) return false;
  uint32_t page = *st_sequence_page(a, s, layer, block);
  uint32_t users = forgotten ? st_page_users(p, page) : p->users[page - p->first];
  for (size_t k = 0; k < i && users > 1; k++) {
    const st_sequence *other = g[k].sequence;
    bool copies = g[k].n && partial_block(other) == block && block < other->n_blocks;
    users -= copies && *st_sequence_page(a, other, layer, block) == page;
  }
  return users > 1;
}

static uint32_t limit_of(const st_sequences *a, uint32_t layer) {
  return st_layer_blocks(hparams_of(a), &a->run->windows, layer, a->run->n_ctx, a->run->n_batch);
}

// The most pages of a layer that a sequence has while it grows.
static uint32_t most_blocks(const st_sequences *a, const st_growth *g, uint32_t layer) {
  const st_sequence *s = g->sequence;
  uint32_t now = pages_of(a, s, layer), most = st_blocks(s->cached + g->n), limit = limit_of(a, layer);
  if (!g->n) return now;
  most -= st_sequence_visible(a, layer, s->cached);
  most += sinks_of(a, layer);
  if (most > limit) most = limit;
  return most > now ? most : now;
}

// Pages that the sequences need at once, in addition to those they have.
static page_counts pages_needed(const st_sequences *a, const st_growth *g, size_t n, bool forgotten) {
  page_counts needed = {{0}};
  for (size_t i = 0; i < n; i++) {
    uint32_t blocks = st_blocks(g[i].sequence->cached + g[i].n);
    for (uint32_t layer = 0; layer < layers_of(a); layer++) {
      uint32_t limit = limit_of(a, layer),
               more = blocks > g[i].sequence->n_blocks ? blocks - g[i].sequence->n_blocks : 0;
      needed.of[kind_of(a, layer)] += (more < limit ? more : limit) + is_shared(a, g, i, layer, forgotten);
    }
  }
  return needed;
}

// Pages that become free when the sequences release what they no longer see.
static page_counts pages_unseen(const st_sequences *a, const st_growth *g, size_t n) {
  page_counts unseen = {{0}};
  for (size_t i = 0; i < n; i++) {
    const st_sequence *s = g[i].sequence;
    for (uint32_t layer = 0; layer < layers_of(a) && g[i].n; layer++) {
      uint32_t end = st_sequence_visible(a, layer, s->cached);
      for (uint32_t block = s->layers[layer].first; block < end; block++) {
        if (block < sinks_of(a, layer)) continue;
        unseen.of[kind_of(a, layer)] +=
            st_page_users(&a->pools[kind_of(a, layer)], *st_sequence_page(a, s, layer, block)) == 1;
      }
    }
  }
  return unseen;
}

// The most pages of layers with a window that all sequences have during the call. The cache has at least as many if
// n_cache was not specified.
static uint64_t most_in_windows(const st_sequences *a, const st_growth *g, size_t n) {
  uint64_t most = 0;
  for (size_t i = 0; i < a->n_max; i++) {
    st_growth growth = {&a->all[i], 0};
    for (size_t k = 0; k < n; k++) growth.n = g[k].sequence == growth.sequence ? g[k].n : growth.n;
    for (uint32_t layer = 0; layer < layers_of(a) && growth.sequence->used; layer++) {
      if (kind_of(a, layer) == ST_LAYER_WINDOW) most += most_blocks(a, &growth, layer);
    }
  }
  return most;
}

// Pages for layers of a kind that only this sequence uses, apart from dropped ones.
static uint32_t pages_alone(const st_sequences *a, const st_sequence *s, int kind) {
  uint32_t n = 0;
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    if ((int)kind_of(a, layer) != kind) continue;
    for (uint32_t block = 0; block < s->n_blocks; block++) {
      if (!st_sequence_has_page(a, s, layer, block)) continue;
      n += st_page_users(&a->pools[kind], *st_sequence_page(a, s, layer, block)) == 1;
    }
  }
  return n;
}

// The sequence of the call, or outside it, that alone uses the most pages for layers of a kind; NULL: none uses any.
static const st_sequence *largest_of(const st_sequences *a, const st_growth *g, size_t n, int kind, bool in_call,
                                     uint32_t *pages) {
  const st_sequence *most = NULL;
  *pages = 0;
  for (size_t i = 0; i < a->n_max; i++) {
    const st_sequence *s = &a->all[i];
    bool grows = false;
    for (size_t k = 0; k < n; k++) grows = grows || g[k].sequence == s;
    uint32_t alone = s->used && grows == in_call ? pages_alone(a, s, kind) : 0;
    if (alone > *pages) *pages = alone, most = s;
  }
  return most;
}

static setun_status fail_full(const st_sequences *a, const st_growth *g, size_t n, int kind, uint64_t needed,
                              setun_error *err) {
  const st_page_pool *p = &a->pools[kind];
  uint32_t frees = 0, unused = p->n_free + p->n_idle;
  const st_sequence *most = largest_of(a, g, n, kind, false, &frees);
  const char *instead = most ? "" : "use fewer tokens or truncate the call's sequences: ";
  if (!most) most = largest_of(a, g, n, kind, true, &frees);
  if (!most) {
    return st_fail(err, SETUN_ERROR_LIMIT,
                   "the KV cache is full: expected %llu free pages for the call, found %u of %u; use fewer tokens "
                   "(n_cache)",
                   (unsigned long long)needed, unused, p->n_pages);
  }
  return st_fail(err, SETUN_ERROR_LIMIT,
                 "the KV cache is full: expected %llu free pages for the call, found %u of %u; %sdropping sequence %d "
                 "of %u tokens would free %u (n_cache)",
                 (unsigned long long)needed, unused, p->n_pages, instead, st_sequence_number(a, most), most->position,
                 frees);
}

static void release_unseen(st_sequences *a, const st_growth *g, size_t n) {
  for (size_t i = 0; i < n; i++) {
    st_sequence *s = g[i].sequence;
    for (uint32_t layer = 0; layer < layers_of(a) && g[i].n; layer++) {
      release_before(a, s, layer, st_sequence_visible(a, layer, s->cached));
    }
  }
}

setun_status st_sequences_begin(st_sequences *a, const st_growth *g, size_t n, setun_error *err) {
  page_counts needed = pages_needed(a, g, n, true), unseen = pages_unseen(a, g, n);
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) {
    const st_page_pool *p = &a->pools[kind];
    if (needed.of[kind] <= p->n_free + p->n_idle + unseen.of[kind]) continue;
    if (kind == ST_LAYER_WINDOW && most_in_windows(a, g, n) <= p->n_pages) continue;
    return fail_full(a, g, n, kind, needed.of[kind], err);
  }
  release_unseen(a, g, n);
  return SETUN_OK;
}

// Gives a sequence its own copy of the page in which it continues.
static void copy_partial(st_sequences *a, st_sequence *s, uint32_t layer) {
  uint32_t *page = st_sequence_page(a, s, layer, partial_block(s)),
           copy = st_page_acquire(&a->pools[kind_of(a, layer)]);
  a->run->model->backend->cache_copy_page(a->run->queue, a->run->cache, *page, copy);
  st_page_release(&a->pools[kind_of(a, layer)], *page, false);
  *page = copy;
}

// Layers grow together, so that used pages are adjacent.
static void extend(st_sequences *a, st_sequence *s, uint32_t blocks) {
  for (; s->n_blocks < blocks; s->n_blocks++) {
    for (uint32_t layer = 0; layer < layers_of(a); layer++) {
      if (!st_sequence_has_page(a, s, layer, s->n_blocks)) continue;
      *st_sequence_page(a, s, layer, s->n_blocks) = st_page_acquire(&a->pools[kind_of(a, layer)]);
    }
  }
}

// The kind of layer that lacks pages; ST_LAYER_KINDS: none.
static int short_kind(const st_sequences *a, const page_counts *needed) {
  int kind = 0;
  while (kind < ST_LAYER_KINDS && needed->of[kind] <= a->pools[kind].n_free) kind++;
  return kind;
}

setun_status st_sequences_reserve(st_sequences *a, const st_growth *g, size_t n, setun_error *err) {
  release_unseen(a, g, n);
  for (;;) {
    page_counts needed = pages_needed(a, g, n, false);
    int kind = short_kind(a, &needed);
    st_sequence *dropped = kind < ST_LAYER_KINDS ? least_recent(a) : NULL;
    if (kind == ST_LAYER_KINDS) break;
    if (!dropped) return fail_full(a, g, n, kind, needed.of[kind], err);
    evict(a, dropped);
  }
  for (size_t i = 0; i < n; i++) {
    st_sequence *s = g[i].sequence;
    for (uint32_t layer = 0; layer < layers_of(a); layer++) {
      if (is_shared(a, g + i, 0, layer, false)) copy_partial(a, s, layer);
    }
    extend(a, s, st_blocks(s->cached + g[i].n));
    st_states_begin(a, s);
  }
  return SETUN_OK;
}

setun_status st_sequence_replace(st_sequences *a, st_sequence *s, uint32_t n, const uint32_t *firsts,
                                 setun_error *err) {
  const st_growth growth = {s, n};
  page_counts needed = {{0}};
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    uint32_t sinks = sinks_of(a, layer), first = firsts[layer];
    if (kind_of(a, layer) == ST_LAYER_RECURRENT) continue;
    needed.of[kind_of(a, layer)] += st_blocks(n) - first + (first < sinks ? first : sinks);
  }
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) {
    const st_page_pool *p = &a->pools[kind];
    if (needed.of[kind] <= (uint64_t)p->n_free + p->n_idle + pages_alone(a, s, kind)) continue;
    return fail_full(a, &growth, 1, kind, needed.of[kind], err);
  }
  st_sequence_truncate(a, s, 0, NULL);
  while (short_kind(a, &needed) < ST_LAYER_KINDS) evict(a, least_recent(a));
  for (uint32_t layer = 0; layer < layers_of(a); layer++) s->layers[layer].first = firsts[layer];
  extend(a, s, st_blocks(n));
  return SETUN_OK;
}
