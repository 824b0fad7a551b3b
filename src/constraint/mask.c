// Masks: walks the vocabulary's trie with the configurations at each node; if none is left, all tokens below are
// skipped. The masks of tokens of plain string text are precomputed, and are used where any text may come.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include "base/memory.h"

#include <string.h>

// ---- precomputed masks ----

// What is known about a term: whether all texts of a number of plain characters (see trie.h) are beginnings of texts
// that it matches.
enum { UNKNOWN, NONE, FIRST_SLICE }; // FIRST_SLICE + i: those of slice i

// The states of UTF-8 between characters and within them, as the next byte's range and the state after it.
typedef struct st_utf8_move {
  uint8_t from, first, last, to;
} st_utf8_move;
static const st_utf8_move MOVES[] = {
    {0, 0x20, 0x21, 0}, {0, 0x23, 0x5B, 0}, {0, 0x5D, 0x7E, 0}, {0, 0xC2, 0xDF, 1}, {0, 0xE0, 0xE0, 2},
    {0, 0xE1, 0xEC, 3}, {0, 0xED, 0xED, 4}, {0, 0xEE, 0xEF, 3}, {0, 0xF0, 0xF0, 5}, {0, 0xF1, 0xF3, 6},
    {0, 0xF4, 0xF4, 7}, {1, 0x80, 0xBF, 0}, {2, 0xA0, 0xBF, 1}, {3, 0x80, 0xBF, 1}, {4, 0x80, 0x9F, 1},
    {5, 0x90, 0xBF, 3}, {6, 0x80, 0xBF, 3}, {7, 0x80, 0x8F, 3},
};
enum { N_MOVES = sizeof MOVES / sizeof *MOVES, MOST_PLACES = 256, MOST_INSIDE = 64 };

typedef struct st_places { // terms between characters, and the number of characters before each
  st_term terms[MOST_PLACES];
  uint16_t characters[MOST_PLACES];
  uint32_t n;
} st_places;

static bool add_place(st_places *p, st_term term, uint16_t characters) {
  for (uint32_t i = p->n; i-- > 0;) {
    if (p->terms[i] == term) return true; // it was reached after as many characters, or fewer
  }
  if (p->n == MOST_PLACES) return false;
  p->terms[p->n] = term, p->characters[p->n++] = characters;
  return true;
}

// Adds the places that plain characters lead to from place i; false: one of them is not allowed, or there are too many
// places.
static bool all_characters(st_terms *t, st_places *p, uint32_t i) {
  st_term inside[MOST_INSIDE] = {p->terms[i]};
  uint8_t states[MOST_INSIDE] = {0};
  for (int at = 0, n = 1; at < n; at++) {
    for (int k = 0; k < N_MOVES; k++) {
      const st_utf8_move *m = &MOVES[k];
      st_term last = ST_TERM_EMPTY;
      for (unsigned byte = m->first; m->from == states[at] && byte <= m->last; byte++) {
        st_term next = st_terms_next(t, inside[at], (uint8_t)byte);
        if (next == ST_TERM_EMPTY) return false;
        if (next == last) continue;
        last = next;
        if (m->to == 0) {
          if (!add_place(p, next, (uint16_t)(p->characters[i] + 1))) return false;
          continue;
        }
        int known = 0;
        while (known < n && (inside[known] != next || states[known] != m->to)) known++;
        if (known < n) continue;
        if (n == MOST_INSIDE) return false;
        inside[n] = next, states[n++] = m->to;
      }
    }
  }
  return true;
}

// How many arbitrary plain characters may come, up to `most`, found by trying. Once they lead to no new place, any
// number may come.
static uint32_t try_characters(st_terms *t, st_term term, uint32_t most) {
  st_places p = {.n = 0};
  add_place(&p, term, 0);
  for (uint32_t i = 0; i < p.n && p.characters[i] < most; i++) {
    if (!all_characters(t, &p, i)) return p.characters[i];
  }
  return most;
}

static int slice_of(st_constraint *c, st_term term);

// The same from the term's form, as far as possible.
static uint32_t count_characters(st_constraint *c, st_term term, uint32_t most, int depth) {
  static const uint32_t of_slice[] = {0, ST_SLICE_SHORT, ST_SLICE_MIDDLE};
  st_terms *t = c->engine.t;
  st_term_entry e = t->entries[term];
  uint32_t best = 0;
  if (e.kind == ST_KIND_SEQ) return count_characters(c, e.a, most, depth);
  if (e.kind == ST_KIND_REPEAT) {
    if (try_characters(t, e.a, 1) < 1) return 0;
    // after one of them, the repeated term is done
    return st_terms_next(t, e.a, 'a') == ST_TERM_EPSILON ? (e.c < most ? e.c : most) : 0;
  }
  if (e.kind == ST_KIND_ALT && depth < 4) {
    for (uint32_t i = 0; i < e.b && best < most; i++) {
      uint32_t count = count_characters(c, t->children[e.a + i], most, depth + 1);
      if (count > best) best = count;
    }
    return best;
  }
  if (e.kind != ST_KIND_AND) return 0;
  int slice = slice_of(c, term);
  return slice == ST_SLICES - 1 ? most : of_slice[slice + 1];
}

// The same for an intersection: one that excludes only a few texts of an unbounded repeat is handled like the repeat;
// others are tried.
static uint32_t count_in_intersection(st_constraint *c, st_term term, uint32_t most) {
  st_terms *t = c->engine.t;
  st_term of;
  if (st_term_leaves_out_few(t, term, &of)) {
    st_term_entry e = t->entries[of];
    if (e.kind == ST_KIND_SEQ) e = t->entries[e.a];
    if (e.kind == ST_KIND_REPEAT && e.c == ST_UNBOUNDED && count_characters(c, of, most, 0) == most) return most;
  }
  return try_characters(t, term, most);
}

// The largest slice all of whose tokens may come in this state; -1: none.
static int slice_of(st_constraint *c, st_term term) {
  if (term >= c->slices_capacity) {
    size_t before = c->slices_capacity;
    if (!st_reserve(&c->slices, &c->slices_capacity, (size_t)term + 1, 1)) return -1;
    memset(c->slices + before, UNKNOWN, c->slices_capacity - before);
  }
  if (c->slices[term] == UNKNOWN) {
    uint32_t most = c->trie->most_characters > ST_SLICE_MIDDLE ? c->trie->most_characters : ST_SLICE_MIDDLE;
    bool intersection = c->engine.t->entries[term].kind == ST_KIND_AND;
    uint32_t n = intersection ? count_in_intersection(c, term, most) : count_characters(c, term, most, 0);
    int level = n >= c->trie->most_characters ? 2 : n >= ST_SLICE_MIDDLE ? 1 : n >= ST_SLICE_SHORT ? 0 : -1;
    c->slices[term] = (uint8_t)(level < 0 ? NONE : FIRST_SLICE + level);
  }
  return c->slices[term] - FIRST_SLICE;
}

// ---- the walk ----

static void set_bit(uint32_t *bits, uint32_t i) {
  bits[i / 32] |= 1u << i % 32;
}

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

// Walks a part of the trie from a place.
static bool walk(st_matcher *m, const st_trie_part *part, st_place start, uint32_t *bits) {
  st_engine *e = &m->c->engine;
  st_terms *t = e->t;
  st_place places[ST_TRIE_DEPTH + 1];
  char *path = m->text + m->length - 1; // path[depth]
  places[0] = start;
  for (size_t i = 0; i < part->n;) {
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
    if (st_trie_token(node) != ST_TRIE_NONE) set_bit(bits, st_trie_token(node));
    i++;
  }
  return !t->failure.code;
}

static void allow_tokens(const st_matcher *m, const st_token_set *set, uint32_t *bits) {
  uint32_t size = m->c->trie->size;
  for (size_t i = 0; !set->negated && i < set->n; i++) {
    if (set->ids[i] >= 0 && (uint32_t)set->ids[i] < size) set_bit(bits, (uint32_t)set->ids[i]);
  }
  for (uint32_t i = 0; set->negated && i < size; i++) {
    if (st_token_set_has(set, (int32_t)i)) set_bit(bits, i);
  }
}

// The mask without end tokens and tokens that are too long for the trie.
static bool compute(st_matcher *m, const st_config *now, size_t n, uint32_t *bits) {
  st_constraint *c = m->c;
  st_engine *e = &c->engine;
  st_place start;
  int slice = -1;
  for (size_t i = 0; i < n; i++) {
    if (now[i].term == ST_TERM_OF_TOKENS) {
      allow_tokens(m, &e->g->tokens[e->frames[now[i].stack].a], bits);
      continue;
    }
    int own = slice_of(c, now[i].term);
    if (own > slice) slice = own;
  }
  for (size_t i = 0; slice >= 0 && i < st_mask_words(c->trie->size); i++) bits[i] |= c->trie->slices[slice][i];
  e->text = m->text;
  if (!place_of(e, now, n, &start) || !walk(m, slice >= 0 ? &c->trie->without[slice] : &c->trie->all, start, bits)) {
    return false;
  }
  for (size_t i = 0; i < c->trie->n_same; i++) {
    uint32_t first = (uint32_t)c->trie->same[i].first;
    if (bits[first / 32] >> first % 32 & 1) set_bit(bits, (uint32_t)c->trie->same[i].other);
  }
  return true;
}

// The same, stored for other texts in the same state. Needs the lock.
static bool fill(st_matcher *m, uint32_t *bits, bool *may_end) {
  st_engine *e = &m->c->engine;
  size_t n, size = st_mask_words(m->c->trie->size);
  const st_config *now = st_matcher_now(m, &n);
  uint32_t set;
  for (size_t i = 0; i < n; i++) *may_end |= now[i].stack == ST_STACK_END;
  st_engine_trim_sets(e);
  if (!st_engine_set(e, now, n, &set)) return false;
  const uint32_t *kept = e->sets.items[set].mask;
  if (kept) {
    memcpy(bits, kept, size * sizeof *bits);
    return true;
  }
  e->walk_text = false;
  if (!compute(m, now, n, bits)) return false;
  if (!e->walk_text) st_engine_keep_mask(e, set, bits, size);
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
    if (st_matcher_allows(m, trie->lengthy[i])) set_bit(bits, (uint32_t)trie->lengthy[i]);
  }
  for (size_t i = 0; may_end && i < trie->n_ends; i++) set_bit(bits, (uint32_t)trie->ends[i]);
  for (size_t i = 0; i < n; i++) {
    if (bits[i]) return SETUN_OK;
  }
  char place[64];
  describe_place(m, place);
  return st_fail(err, SETUN_ERROR_STATE,
                 "no token of the vocabulary may follow \"%s\" (byte %zu of the constrained text)", place, m->length);
}
