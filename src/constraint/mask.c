// Masks: for each configuration, the tokens that stay inside its term; from the nodes of the vocabulary's trie where
// other tokens leave the term, a walk with the configurations at each node.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include "base/memory.h"

#include <string.h>

enum { WORTH_KEEPING = 200 };

// ---- the walk ----

// A place in the walk: one configuration, or a set of several.
typedef struct st_place {
  uint32_t n, set; // n: 0, none; 1, `one`; more, the set
  st_config one;
} st_place;

static bool place_of(st_engine *e, const st_config *configs, size_t n, st_place *place) {
  place->n = (uint32_t)n;
  if (n == 1) place->one = configs[0];
  return n < 2 || st_engine_set(e, configs, n, &place->set);
}

// Computes the place after a byte without stored results; a set stores it if it does not depend on the text before.
static bool next_place(st_matcher *m, st_place from, uint8_t byte, st_place *to) {
  st_engine *e = &m->c->engine;
  st_configs *list = &m->walk;
  list->n = 0;
  e->walk_position = e->walk_text_now = false;
  if (from.n == 1) {
    if (!st_engine_reserve(e, &list->items, &list->capacity, 1, sizeof from.one)) return false;
    list->items[list->n++] = from.one;
    if (!st_engine_step(e, list, 0, 1, byte, list)) return false;
    return place_of(e, list->items + 1, list->n - 1, to);
  }
  st_set set = e->sets.items[from.set];
  if (!st_engine_step(e, &e->sets.configs, set.offset, set.n, byte, list)) return false;
  if (!place_of(e, list->items, list->n, to)) return false;
  if (to->n == 1 && !st_engine_set(e, list->items, 1, &to->set)) return false;
  if (e->walk_position || e->walk_text_now) return true;
  uint32_t *row = st_engine_set_row(e, from.set);
  if (row) row[byte] = to->n ? to->set : ST_SET_NONE;
  return row;
}

static st_place place_in_set(const st_engine *e, uint32_t set) {
  if (set == ST_SET_NONE) return (st_place){.n = 0};
  return (st_place){e->sets.items[set].n, set, e->sets.configs.items[e->sets.items[set].offset]};
}

// Walks the nodes [i, end) of a part of the trie, which are below the place `start` at that depth.
static bool walk(st_matcher *m, const st_trie_part *part, size_t i, size_t end, uint32_t start_depth, st_place start,
                 uint32_t *bits) {
  st_engine *e = &m->c->engine;
  st_terms *t = e->t;
  st_place places[ST_TRIE_DEPTH + 1];
  char *path = m->text + m->length - 1; // path[depth]
  places[start_depth] = start;
  while (i < end) {
    st_trie_node node = part->nodes[i];
    uint32_t depth = st_trie_depth(node);
    uint8_t byte = st_trie_byte(node);
    st_place from = places[depth - 1], to = {.n = 1};
    path[depth] = (char)byte;
    bool known = false;
    if (from.n == 1 && from.one.term != ST_TERM_OF_TOKENS) {
      to.one = (st_config){st_terms_next(t, from.one.term, byte), from.one.stack};
      to.n = to.one.term != ST_TERM_EMPTY;
      known = !to.n || from.one.stack == ST_STACK_ROOT || !(t->flags[to.one.term] & ST_TERM_NULLABLE);
    } else if (from.n > 1) {
      const uint32_t *row = e->sets.items[from.set].row;
      known = row && row[byte] != ST_SET_UNKNOWN;
      if (known) to = place_in_set(e, row[byte]);
    }
    if (!known) {
      e->position = m->length + depth;
      if (!st_terms_work(t, from.n) || !next_place(m, from, byte, &to)) return false;
    }
    if (!to.n) {
      i += st_trie_size(node);
      continue;
    }
    places[depth] = to;
    if (st_trie_token(node) != ST_TRIE_NONE) st_set_bit(bits, (int32_t)st_trie_token(node));
    i++;
  }
  return !t->failure.code;
}

static void allow_tokens(const st_matcher *m, const st_token_set *set, uint32_t *bits) {
  uint32_t size = m->c->trie->size;
  for (size_t i = 0; !set->negated && i < set->n; i++) {
    if (set->ids[i] >= 0 && (uint32_t)set->ids[i] < size) st_set_bit(bits, set->ids[i]);
  }
  for (uint32_t i = 0; set->negated && i < size; i++) {
    if (st_token_set_has(set, (int32_t)i)) st_set_bit(bits, (int32_t)i);
  }
}

// ---- the mask ----

// A term with the same mask: counts that no token can reach are replaced by no limit, so that the positions of a long
// text share one stored result.
static st_term without_far_counts(st_constraint *c, st_term term) {
  st_terms *t = c->engine.t;
  st_term_entry e = t->entries[term];
  uint32_t far = c->trie->most_bytes + 1;
  if (e.kind != ST_KIND_SEQ) return term;
  st_term_entry r = t->entries[e.a];
  if (r.kind != ST_KIND_REPEAT || t->flags[e.a] & ST_TERM_SEARCHED) return term;
  if (r.b <= far && (r.c <= far || r.c == ST_UNBOUNDED)) return term;
  return st_term_seq(t, st_term_repeat(t, r.a, r.b < far ? r.b : far, r.c <= far ? r.c : ST_UNBOUNDED), e.b);
}

// Writes the bytes that lead to a node after the text.
static bool write_path(st_matcher *m, const st_trie_part *part, size_t node) {
  const char *bytes;
  size_t n;
  if (st_token_bytes(m->c->trie, part->tokens[part->below[node].first], &bytes, &n, NULL)) return false;
  memcpy(m->text + m->length, bytes, st_trie_depth(part->nodes[node]));
  return true;
}

// Adds the tokens that leave the configuration's term.
static bool add_exits(st_matcher *m, st_config config, const st_inside *inside, uint32_t *bits, size_t *work) {
  st_constraint *c = m->c;
  st_engine *e = &c->engine;
  const st_trie_part *part = st_inside_part(c->trie, inside);
  const st_exit *exits = inside->exits;
  st_term last = ST_TERM_EMPTY; // the term whose end leads to `place`, which does not depend on the text
  st_place place = {0};
  for (uint32_t i = 0, n = inside->n_exits; i < n; i++) {
    size_t node = exits[i].node, size = st_trie_size(part->nodes[node]);
    uint32_t depth = st_trie_depth(part->nodes[node]), token = st_trie_token(part->nodes[node]);
    bool same = exits[i].term == last;
    if ((!same || size > 1) && !write_path(m, part, node)) return false;
    if (!same) {
      e->position = m->length + depth;
      e->walk_position = e->walk_text_now = false;
      m->walk.n = 0;
      st_engine_leave(e, exits[i].term, config.stack, &m->walk);
      st_engine_merge(e, &m->walk, 0);
      if (e->failure.code || !place_of(e, m->walk.items, m->walk.n, &place)) return false;
      last = e->walk_position || e->walk_text_now ? ST_TERM_EMPTY : exits[i].term; // which has no exit
    }
    if (!place.n) continue;
    if (token != ST_TRIE_NONE) st_set_bit(bits, (int32_t)token);
    *work += size;
    if (size > 1 && !walk(m, part, node + 1, node + size, depth, place, bits)) return false;
  }
  return true;
}

static void add_inside(const st_constraint *c, const st_inside *inside, uint32_t *bits) {
  size_t words = st_mask_words(c->trie->size);
  for (size_t i = 0; inside->ready && i < words; i++) bits[i] |= c->trie->ready[inside->ready][i];
  for (size_t i = 0; inside->bits && i < words; i++) bits[i] |= inside->bits[i];
  const int32_t *tokens = st_inside_part(c->trie, inside)->tokens;
  for (size_t i = 0; i < inside->n_tokens; i++) st_set_bit(bits, tokens[inside->tokens[i]]);
}

// The mask without end tokens and tokens that are too long for the trie. `work`: roughly
// how many nodes were visited that the next time will be visited again.
static bool compute(st_matcher *m, const st_config *now, size_t n, uint32_t *bits, size_t *work) {
  st_constraint *c = m->c;
  st_engine *e = &c->engine;
  st_configs together = {0}; // configurations that are walked together
  bool fine = true;
  e->text = m->text;
  for (size_t i = 0; fine && i < n; i++) {
    if (now[i].term == ST_TERM_OF_TOKENS) {
      allow_tokens(m, &e->g->tokens[e->frames[now[i].stack].a], bits);
      continue;
    }
    const st_inside *inside = st_constraint_inside(c, without_far_counts(c, now[i].term));
    if (!inside) {
      fine = false;
    } else if (inside->separable) {
      add_inside(c, inside, bits);
      fine = add_exits(m, now[i], inside, bits, work);
    } else {
      fine = st_engine_reserve(e, &together.items, &together.capacity, n, sizeof *now);
      if (fine) together.items[together.n++] = now[i];
    }
  }
  if (fine && together.n) {
    st_place start;
    *work += c->trie->all.n;
    fine = place_of(e, together.items, together.n, &start) && walk(m, &c->trie->all, 0, c->trie->all.n, 0, start, bits);
  }
  st_free(together.items);
  for (size_t i = 0; fine && i < c->trie->n_same; i++) {
    uint32_t first = (uint32_t)c->trie->same[i].first;
    if (bits[first / 32] >> first % 32 & 1) st_set_bit(bits, c->trie->same[i].other);
  }
  return fine;
}

// The same, stored for other texts in the same state. Needs the lock.
static bool fill(st_matcher *m, uint32_t *bits, bool *may_end) {
  st_engine *e = &m->c->engine;
  size_t n, size = st_mask_words(m->c->trie->size);
  const st_config *now = st_matcher_now(m, &n);
  uint32_t set;
  for (size_t i = 0; i < n; i++) *may_end |= now[i].stack == ST_STACK_END;
  st_engine_trim_sets(e);
  st_engine_trim_insides(e);
  if (!st_engine_trim_places(e)) return false;
  if (!st_engine_set(e, now, n, &set)) return false;
  const uint32_t *kept = e->sets.items[set].mask;
  if (kept) {
    memcpy(bits, kept, size * sizeof *bits);
    return true;
  }
  size_t work = 0;
  e->walk_text = false;
  if (!compute(m, now, n, bits, &work)) return false;
  if (!e->walk_text && work > WORTH_KEEPING) st_engine_keep_mask(e, set, bits, size);
  return true;
}

// The position in a text, for messages: its last bytes, on one line.
static void describe_place(const st_matcher *m, char out[64]) {
  size_t n = m->length < 40 ? m->length : 40;
  for (size_t i = 0; i < n; i++) {
    char c = m->text[m->length - n + i];
    out[i] = c >= ' ' && c <= '~' ? c : '?';
  }
  out[n] = '\0';
}

setun_status st_matcher_mask(st_matcher *m, uint32_t *bits, size_t n, setun_error *err) {
  const st_token_trie *trie = m->c->trie;
  if (n < st_mask_words(trie->size)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "a mask of %zu words, expected %zu", n, st_mask_words(trie->size));
  }
  if (m->steps[m->n_steps - 1].ended) return st_fail(err, SETUN_ERROR_STATE, "the constrained text has ended");
  memset(bits, 0, n * sizeof *bits);
  bool may_end = false;
  setun_status status = st_matcher_room(m, ST_TRIE_DEPTH, err);
  if (status) return status;
  pthread_mutex_lock(&m->c->lock);
  st_terms_begin_steps(m->c->engine.t);
  bool filled = fill(m, bits, &may_end);
  status = st_constraint_status(m->c, err);
  pthread_mutex_unlock(&m->c->lock);
  if (status) return status;
  if (!filled) return st_fail_memory(err, "a mask");
  for (size_t i = 0; i < trie->n_lengthy; i++) {
    if (st_matcher_allows(m, trie->lengthy[i])) st_set_bit(bits, trie->lengthy[i]);
  }
  for (size_t i = 0; may_end && i < trie->n_ends; i++) st_set_bit(bits, trie->ends[i]);
  for (size_t i = 0; i < n; i++) {
    if (bits[i]) return SETUN_OK;
  }
  char place[64];
  describe_place(m, place);
  return st_fail(err, SETUN_ERROR_STATE,
                 "no token of the vocabulary may follow \"%s\" (byte %zu of the constrained text)", place, m->length);
}
