// Sequences: tables of shared pages, copied when they are written to.
#include "runtime/sequences.h"

#include "base/memory.h"

#include <string.h>

uint64_t st_sequences_size(const st_model *m, const st_run_options *o) {
  uint64_t table = (uint64_t)m->h.n_layer * st_run_blocks(o->n_ctx) * sizeof(uint32_t);
  uint64_t each = sizeof(st_sequence) + table + (uint64_t)o->n_ctx * sizeof(setun_token);
  return 2 * (uint64_t)o->n_seq * each + st_page_pool_size(m->h.n_layer * o->n_blocks);
}

setun_status st_sequences_new(st_sequences *a, st_run *run, uint32_t n_max, setun_error *err) {
  size_t pages;
  *a = (st_sequences){.run = run, .n_max = n_max, .stride = st_run_blocks(run->n_ctx)};
  setun_status s = st_page_pool_new(&a->pool, run->n_pages, err);
  if (s != SETUN_OK) return s;
  a->all = st_calloc((size_t)2 * n_max, sizeof *a->all);
  bool whole = a->all && st_mul_size(run->model->h.n_layer, a->stride, &pages);
  for (size_t i = 0; whole && i < (size_t)2 * n_max; i++) {
    a->all[i].pages = st_calloc(pages, sizeof *a->all[i].pages);
    a->all[i].ids = st_calloc(run->n_ctx, sizeof *a->all[i].ids);
    whole = a->all[i].pages && a->all[i].ids;
  }
  return whole ? SETUN_OK : st_fail_memory(err, "the sequences");
}

void st_sequences_free(st_sequences *a) {
  for (size_t i = 0; a->all && i < (size_t)2 * a->n_max; i++) {
    st_free(a->all[i].pages);
    st_free(a->all[i].ids);
  }
  st_free(a->all);
  st_page_pool_free(&a->pool);
}

static bool is_dropped(const st_sequences *a, const st_sequence *s) {
  return (size_t)(s - a->all) >= a->n_max;
}

static uint32_t layers_of(const st_sequences *a) {
  return a->run->model->h.n_layer;
}

// ---- beginning and ending -----------------------------------------------------------------------------------------

setun_status st_sequence_get(const st_sequences *a, int number, st_sequence **sequence, setun_error *err) {
  if (number < 0 || (uint32_t)number >= a->n_max || !a->all[number].used) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sequence: expected the number of one that there is, found %d", number);
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
    return st_fail(err, SETUN_ERROR_LIMIT, "the context has its %u sequences: dropping one makes room (n_seq_max)",
                   a->n_max);
  }
  s->used = true;
  s->position = s->n_blocks = 0;
  *sequence = s;
  return SETUN_OK;
}

// Gives back the pages from block `first` on.
static void release_blocks(st_sequences *a, st_sequence *s, uint32_t first) {
  for (uint32_t block = s->n_blocks; block > first; block--) {
    for (uint32_t layer = layers_of(a); layer; layer--) {
      st_page_release(&a->pool, *st_sequence_page(a, s, layer - 1, block - 1), is_dropped(a, s));
    }
  }
  if (first < s->n_blocks) s->n_blocks = first;
}

static void forget(st_sequences *a, st_sequence *s) {
  release_blocks(a, s, 0);
  s->used = false;
}

// Of those dropped; NULL: there is none.
static st_sequence *least_recent(const st_sequences *a) {
  st_sequence *found = NULL;
  for (size_t i = a->n_max; i < (size_t)2 * a->n_max; i++) {
    st_sequence *s = &a->all[i];
    if (s->used && (!found || s->last_use < found->last_use)) found = s;
  }
  return found;
}

// A sequence moves to an unused place: from those that there are to those dropped, or back.
static void move(st_sequences *a, st_sequence *from, st_sequence *to) {
  st_sequence unused = *to;
  *to = *from;
  *from = unused;
  for (uint32_t block = 0; block < to->n_blocks; block++) {
    for (uint32_t layer = 0; layer < layers_of(a); layer++) {
      st_page_set_idle(&a->pool, *st_sequence_page(a, to, layer, block), is_dropped(a, to));
    }
  }
}

void st_sequence_drop(st_sequences *a, st_sequence *s) {
  st_sequence_trim(a, s);
  if (!s->position) {
    forget(a, s);
    return;
  }
  st_sequence *to = find_unused(a, a->n_max);
  if (!to) forget(a, to = least_recent(a));
  s->last_use = ++a->clock;
  move(a, s, to);
}

void st_sequence_trim(st_sequences *a, st_sequence *s) {
  release_blocks(a, s, st_run_blocks(s->position));
}

void st_sequence_truncate(st_sequences *a, st_sequence *s, uint32_t n) {
  s->position = n;
  st_sequence_trim(a, s);
}

void st_sequence_copy(st_sequences *a, const st_sequence *from, st_sequence *to, uint32_t n) {
  to->position = n;
  to->n_blocks = st_run_blocks(n);
  memcpy(to->ids, from->ids, n * sizeof *to->ids);
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    for (uint32_t block = 0; block < to->n_blocks; block++) {
      uint32_t page = *st_sequence_page(a, from, layer, block);
      *st_sequence_page(a, to, layer, block) = page;
      st_page_share(&a->pool, page, is_dropped(a, to));
    }
  }
}

// Tokens of a sequence that are those of the ids, at most `most`.
static uint32_t common_prefix(const st_sequence *s, const setun_token *ids, uint32_t most) {
  uint32_t n = 0;
  if (most > s->position) most = s->position;
  while (n < most && s->ids[n] == ids[n]) n++;
  return n;
}

setun_status st_sequence_reuse(st_sequences *a, const setun_token *ids, size_t n, st_sequence **sequence,
                               setun_error *err) {
  uint32_t most = n > a->run->n_ctx ? a->run->n_ctx : (uint32_t)n, longest = 0;
  st_sequence *best = NULL, *to = NULL;
  setun_status status = st_sequence_add(a, &to, err);
  if (status != SETUN_OK) return status;
  for (size_t i = 0; most && i < (size_t)2 * a->n_max; i++) {
    st_sequence *s = &a->all[i];
    uint32_t found = s->used ? common_prefix(s, ids, most - 1) : 0;
    if (found > longest) longest = found, best = s;
  }
  if (best && is_dropped(a, best) && longest == best->position) {
    to->used = false;
    move(a, best, to); // as it was, so that its last page need not be copied
  } else if (best) {
    st_sequence_copy(a, best, to, longest);
    if (is_dropped(a, best)) best->last_use = ++a->clock;
  }
  *sequence = to;
  return SETUN_OK;
}

// ---- pages for a call ---------------------------------------------------------------------------------------------

// The block that a sequence goes on in, and the first one that it has no pages for.
static uint32_t partial_block(const st_sequence *s) {
  return s->position / ST_CACHE_POSITIONS;
}

// Whether the page that the i-th sequence goes on in is to be copied, since somebody else uses it. Those before it in
// the call have copies by then. `forgotten`: as if those dropped were.
static bool is_shared(const st_sequences *a, const st_growth *g, size_t i, uint32_t layer, bool forgotten) {
  const st_sequence *s = g[i].sequence;
  uint32_t block = partial_block(s);
  if (!g[i].n || block >= s->n_blocks) return false;
  uint32_t page = *st_sequence_page(a, s, layer, block), users = a->pool.users[page];
  if (forgotten) users -= a->pool.idle[page];
  for (size_t k = 0; k < i && users > 1; k++) {
    const st_sequence *other = g[k].sequence;
    bool copies = g[k].n && partial_block(other) == block && block < other->n_blocks;
    users -= copies && *st_sequence_page(a, other, layer, block) == page;
  }
  return users > 1;
}

static uint64_t pages_needed(const st_sequences *a, const st_growth *g, size_t n, bool forgotten) {
  uint64_t needed = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t blocks = st_run_blocks(g[i].sequence->position + g[i].n);
    if (blocks > g[i].sequence->n_blocks) needed += (uint64_t)(blocks - g[i].sequence->n_blocks) * layers_of(a);
    for (uint32_t layer = 0; layer < layers_of(a); layer++) needed += is_shared(a, g, i, layer, forgotten);
  }
  return needed;
}

// Pages that a sequence has alone, but for those dropped.
static uint32_t pages_alone(const st_sequences *a, const st_sequence *s) {
  uint32_t n = 0;
  for (uint32_t layer = 0; layer < layers_of(a); layer++) {
    for (uint32_t block = 0; block < s->n_blocks; block++) {
      uint32_t page = *st_sequence_page(a, s, layer, block);
      n += a->pool.users[page] - a->pool.idle[page] == 1;
    }
  }
  return n;
}

static setun_status fail_full(const st_sequences *a, const st_growth *g, size_t n, uint64_t needed, setun_error *err) {
  const st_page_pool *p = &a->pool;
  const st_sequence *most = NULL;
  uint32_t frees = 0, unused = p->n_free + p->n_idle;
  for (size_t i = 0; i < a->n_max; i++) {
    const st_sequence *s = &a->all[i];
    bool grows = false;
    for (size_t k = 0; k < n; k++) grows = grows || g[k].sequence == s;
    uint32_t alone = s->used && !grows ? pages_alone(a, s) : 0;
    if (alone > frees) frees = alone, most = s;
  }
  if (!most) {
    return st_fail(err, SETUN_ERROR_LIMIT,
                   "the KV cache is full: expected %llu free pages for the call, found %u of %u; only fewer tokens, or "
                   "truncating the sequences of the call, would do (n_cache)",
                   (unsigned long long)needed, unused, p->n_pages);
  }
  return st_fail(err, SETUN_ERROR_LIMIT,
                 "the KV cache is full: expected %llu free pages for the call, found %u of %u; dropping sequence %d of "
                 "%u tokens would free %u (n_cache)",
                 (unsigned long long)needed, unused, p->n_pages, st_sequence_number(a, most), most->position, frees);
}

// A copy of the page that a sequence goes on in, for itself.
static void copy_partial(st_sequences *a, st_sequence *s, uint32_t layer) {
  uint32_t *page = st_sequence_page(a, s, layer, partial_block(s)), copy = st_page_acquire(&a->pool);
  a->run->model->backend->cache_copy_page(a->run->queue, a->run->cache, *page, copy);
  st_page_release(&a->pool, *page, false);
  *page = copy;
}

setun_status st_sequences_reserve(st_sequences *a, const st_growth *g, size_t n, setun_error *err) {
  uint64_t needed = pages_needed(a, g, n, true);
  if (needed > (uint64_t)a->pool.n_free + a->pool.n_idle) return fail_full(a, g, n, needed, err);
  while (pages_needed(a, g, n, false) > a->pool.n_free) forget(a, least_recent(a));
  for (size_t i = 0; i < n; i++) {
    st_sequence *s = g[i].sequence;
    uint32_t blocks = st_run_blocks(s->position + g[i].n);
    for (uint32_t layer = 0; layer < layers_of(a); layer++) {
      if (is_shared(a, g + i, 0, layer, false)) copy_partial(a, s, layer);
    }
    for (; s->n_blocks < blocks; s->n_blocks++) { // layers grow together, so that what is used lies together
      for (uint32_t layer = 0; layer < layers_of(a); layer++) {
        *st_sequence_page(a, s, layer, s->n_blocks) = st_page_acquire(&a->pool);
      }
    }
  }
  return SETUN_OK;
}

setun_status st_sequence_replace(st_sequences *a, st_sequence *s, uint32_t n, setun_error *err) {
  const st_growth growth = {s, n};
  uint64_t needed = (uint64_t)st_run_blocks(n) * layers_of(a);
  if (needed > (uint64_t)a->pool.n_free + a->pool.n_idle + pages_alone(a, s)) {
    return fail_full(a, &growth, 1, needed, err);
  }
  st_sequence_truncate(a, s, 0);
  return st_sequences_reserve(a, &growth, 1, err);
}
