// Terms as automata: the state after a byte, and whether a state can still reach an end.
#include "constraint/terms_table.h"

#include "base/memory.h"

#include <string.h>

enum { ROW = 256, BLOCK_ROWS = 64 };

static void narrow(st_byte_set *same, const st_byte_set *set, bool in) {
  for (int i = 0; i < 4; i++) same->bits[i] &= in ? set->bits[i] : ~set->bits[i];
}

static st_term derive(st_terms *t, st_term a, uint8_t byte, st_byte_set *same);

// The derivative of a sequence: of its first part, and if that may be empty, also of the rest.
static st_term derive_sequence(st_terms *t, st_term a, uint8_t byte, st_byte_set *same) {
  size_t base = t->n_stack;
  for (;;) {
    st_term_entry e = t->entries[a];
    if (e.kind != ST_KIND_SEQ) {
      st_terms_push(t, derive(t, a, byte, same));
      break;
    }
    st_terms_push(t, st_term_seq(t, derive(t, e.a, byte, same), e.b));
    if (!(t->flags[e.a] & ST_TERM_NULLABLE)) break;
    a = e.b;
  }
  return st_terms_join(t, ST_KIND_ALT, base);
}

static st_term derive_members(st_terms *t, st_term_entry e, uint8_t byte, st_byte_set *same) {
  size_t base = t->n_stack;
  for (uint32_t i = 0; i < e.b; i++) {
    st_term d = derive(t, t->children[e.a + i], byte, same);
    if (e.kind == ST_KIND_AND && d == ST_TERM_EMPTY) { // the others can be skipped: `same` is narrow enough
      t->n_stack = base;
      return ST_TERM_EMPTY;
    }
    st_terms_push(t, d);
  }
  return st_terms_join(t, (st_term_kind)e.kind, base);
}

// Of a decoded text: after the spelling of its next byte.
static st_term derive_decoded(st_terms *t, st_term a, uint8_t byte, st_byte_set *same) {
  static const st_byte_set none = {{0}}, escaped = {{0x4ffffffff, 1u << ('\\' - 64)}};
  char spelled[ST_SPELLED_MOST];
  size_t n = st_term_spell(byte, spelled);
  if (n == 1) {
    narrow(same, &escaped, false);
    return st_term_decoded(t, derive(t, a, byte, same));
  }
  narrow(same, &none, true); // of this byte alone
  st_byte_set_add(same, byte);
  for (size_t i = 0; i < n && a != ST_TERM_EMPTY; i++) {
    st_byte_set any = none;
    a = derive(t, a, (uint8_t)spelled[i], &any);
  }
  return st_term_decoded(t, a);
}

// Brzozowski's derivative; `same` is narrowed to bytes with the same result.
static st_term derive(st_terms *t, st_term a, uint8_t byte, st_byte_set *same) {
  st_term_entry e = t->entries[a];
  if (!st_terms_work(t, 1)) return ST_TERM_EMPTY;
  switch ((st_term_kind)e.kind) {
  case ST_KIND_EMPTY:
  case ST_KIND_EPSILON:
  case ST_KIND_MARK: return ST_TERM_EMPTY;
  case ST_KIND_BYTES: {
    bool in = st_byte_set_has(&t->sets[e.a], byte);
    narrow(same, &t->sets[e.a], in);
    return in ? ST_TERM_EPSILON : ST_TERM_EMPTY;
  }
  case ST_KIND_SEQ: return derive_sequence(t, a, byte, same);
  case ST_KIND_ALT:
  case ST_KIND_AND: return derive_members(t, e, byte, same);
  case ST_KIND_NOT: return st_term_not(t, derive(t, e.a, byte, same));
  case ST_KIND_REPEAT: {
    st_term first = derive(t, e.a, byte, same);
    uint32_t max = e.c == ST_UNBOUNDED ? e.c : e.c - 1;
    return first ? st_term_seq(t, first, st_term_repeat(t, e.a, e.b ? e.b - 1 : 0, max)) : ST_TERM_EMPTY;
  }
  case ST_KIND_AUTOMATON: {
    const st_term_automaton_entry *m = &t->automata[e.a];
    uint8_t c = m->class_of[byte];
    narrow(same, &m->sets[c], true);
    uint32_t next = m->next[(size_t)e.b * m->n_classes + c];
    return next == UINT32_MAX ? ST_TERM_EMPTY
                              : st_terms_intern(t, (st_term_entry){.kind = e.kind, .a = e.a, .b = next});
  }
  case ST_KIND_DECODED: return derive_decoded(t, e.a, byte, same);
  }
  return ST_TERM_EMPTY;
}

static uint32_t *row_of(st_terms *t, st_term a) {
  if (t->rows[a]) return t->rows[a];
  if (!t->rows_left) {
    if (!st_terms_reserve(t, &t->blocks, &t->blocks_capacity, t->n_blocks + 1, sizeof *t->blocks)) return NULL;
    uint32_t *block = st_malloc(BLOCK_ROWS * ROW, sizeof *block);
    size_t size = BLOCK_ROWS * ROW * sizeof *block;
    if (!block) return st_terms_fail(t, SETUN_ERROR_MEMORY, "out of memory for the states of a constraint"), NULL;
    if (!st_terms_charge(t, size)) {
      st_terms_discharge(t, size);
      st_free(block);
      return NULL;
    }
    memset(block, 0xff, size); // ST_TERM_UNKNOWN
    t->blocks[t->n_blocks++] = block;
    t->rows_left = BLOCK_ROWS;
  }
  return t->rows[a] = t->blocks[t->n_blocks - 1] + ROW * --t->rows_left;
}

// The derivative without a check for emptiness: it may be a term that matches nothing.
static st_term raw_step(st_terms *t, st_term a, uint8_t byte) {
  uint32_t *row = row_of(t, a);
  if (!row) return ST_TERM_EMPTY;
  if (row[byte] != ST_TERM_UNKNOWN) return row[byte];
  st_byte_set same = {{~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0}};
  st_term next = derive(t, a, byte, &same);
  if (t->failure.code) return ST_TERM_EMPTY;
  for (int i = 0; i < 4; i++) {
    for (uint64_t bits = same.bits[i]; bits; bits &= bits - 1) row[64 * i + __builtin_ctzll(bits)] = next;
  }
  return next;
}

// ---- emptiness ----

// A search from a state to an accepting state. The state to visit next is alternately the oldest and the newest that is
// left, so that neither many states nearby nor a long way alone make it slow.
typedef struct st_reached {
  st_term state;
  uint32_t parent; // index of the state before it; UINT32_MAX: none
  bool visited;
} st_reached;
typedef struct st_search {
  st_reached *items;
  size_t n, capacity;
  uint32_t *newest; // indexes: a stack of states, some of which were visited as the oldest
  size_t n_newest, newest_capacity;
  size_t oldest;
  bool turn;
  uint32_t *slots; // hash set of states: index + 1
  size_t n_slots;
} st_search;

static bool grow_search(st_terms *t, st_search *s) {
  size_t n = s->n_slots ? 2 * s->n_slots : 64;
  uint32_t *slots = st_calloc(n, sizeof *slots);
  if (!slots) {
    st_terms_fail(t, SETUN_ERROR_MEMORY, "out of memory for a search of states");
    return false;
  }
  for (size_t i = 0; i < s->n; i++) {
    size_t at = s->items[i].state * 2654435769u & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = (uint32_t)i + 1;
  }
  st_free(s->slots);
  st_terms_charge(t, (n - s->n_slots) * sizeof *slots);
  s->slots = slots;
  s->n_slots = n;
  return !t->failure.code;
}

static bool search_add(st_terms *t, st_search *s, st_term a, uint32_t parent) {
  if (s->n * 2 >= s->n_slots && !grow_search(t, s)) return false;
  size_t at = a * 2654435769u & (s->n_slots - 1);
  for (; s->slots[at]; at = (at + 1) & (s->n_slots - 1)) {
    if (s->items[s->slots[at] - 1].state == a) return true;
  }
  if (!st_terms_reserve(t, &s->items, &s->capacity, s->n + 1, sizeof *s->items) ||
      !st_terms_reserve(t, &s->newest, &s->newest_capacity, s->n_newest + 1, sizeof *s->newest)) {
    return false;
  }
  s->newest[s->n_newest++] = (uint32_t)s->n;
  s->items[s->n++] = (st_reached){a, parent, false};
  s->slots[at] = (uint32_t)s->n;
  return true;
}

// The index of the state to visit next; UINT32_MAX: all were visited.
static uint32_t search_next(st_search *s) {
  s->turn = !s->turn;
  while (s->turn && s->n_newest) {
    uint32_t i = s->newest[--s->n_newest];
    if (!s->items[i].visited) return i;
  }
  while (s->oldest < s->n && s->items[s->oldest].visited) s->oldest++;
  return s->oldest < s->n ? (uint32_t)s->oldest : UINT32_MAX;
}

static void search_free(st_terms *t, st_search *s) {
  st_terms_discharge(t, s->capacity * sizeof *s->items + s->newest_capacity * sizeof *s->newest +
                            s->n_slots * sizeof *s->slots);
  st_free(s->items), st_free(s->newest), st_free(s->slots);
}

static bool leaves_out_few(const st_terms *t, st_term a);

// Does the term certainly match infinitely many texts?
static bool surely_infinite(const st_terms *t, st_term a) {
  const st_term_entry *e = &t->entries[a];
  if (t->flags[a] & ST_TERM_INFINITE) return true;
  if (e->kind == ST_KIND_AND) return leaves_out_few(t, a);
  return e->kind == ST_KIND_SEQ && !(t->flags[e->b] & ST_TERM_SEARCHED) && surely_infinite(t, e->a);
}

// Is it an infinite language without a finite one? Then it is not empty.
static bool leaves_out_few(const st_terms *t, st_term a) {
  st_term_entry e = t->entries[a];
  uint32_t infinite = 0;
  for (uint32_t i = 0; e.kind == ST_KIND_AND && i < e.b; i++) {
    st_term member = t->children[e.a + i];
    const st_term_entry *m = &t->entries[member];
    if (m->kind == ST_KIND_NOT && t->flags[m->a] & ST_TERM_FINITE) continue;
    if (infinite++ || !surely_infinite(t, member)) return false;
  }
  return infinite == 1;
}

// The result if it is known without a search: 1 not empty, 0 empty, -1 unknown.
static int known_emptiness(const st_terms *t, st_term a) {
  if (a == ST_TERM_EMPTY || t->flags[a] & ST_TERM_DEAD) return 0;
  if (t->flags[a] & (ST_TERM_NULLABLE | ST_TERM_KNOWN) || !(t->flags[a] & ST_TERM_SEARCHED)) return 1;
  return leaves_out_few(t, a) ? 1 : -1;
}

static void found(st_terms *t, const st_search *s, uint32_t at) {
  for (; at != UINT32_MAX; at = s->items[at].parent) t->flags[s->items[at].state] |= ST_TERM_KNOWN;
}

// Visits a state: true if one of its successors is known to match something.
static bool search_visit(st_terms *t, st_search *s, uint32_t i) {
  st_term last = ST_TERM_EMPTY, state = s->items[i].state;
  s->items[i].visited = true;
  st_terms_work(t, 16);
  for (int byte = 0; byte < 256 && !t->failure.code; byte++) {
    st_term next = raw_step(t, state, (uint8_t)byte);
    if (next == last) continue; // neighbouring bytes mostly have the same successor
    last = next;
    int known = known_emptiness(t, next);
    if (known > 0) return true;
    if (known < 0 && !search_add(t, s, next, i)) return false;
  }
  return false;
}

// A sequence matches something if each of its parts does, which is decided once for each part; all that follows a part
// would otherwise be searched again from each of its states.
static bool parts_are_empty(st_terms *t, st_term a) {
  st_term at = a;
  bool empty = false;
  for (; !empty && t->entries[at].kind == ST_KIND_SEQ; at = t->entries[at].b)
    empty = st_term_is_empty(t, t->entries[at].a);
  empty = empty || st_term_is_empty(t, at);
  if (t->failure.code) return empty;
  if (empty) t->flags[a] |= ST_TERM_DEAD;
  for (at = a; !empty && t->entries[at].kind == ST_KIND_SEQ; at = t->entries[at].b) t->flags[at] |= ST_TERM_KNOWN;
  return empty;
}

// Begins the search with a term, or with each member of a union: these are searched in turn, since one that matches
// nothing may have many states. False: one of them is known to match something.
static bool search_begin(st_terms *t, st_search *s, st_term a) {
  st_term_entry e = t->entries[a];
  if (e.kind != ST_KIND_ALT) return search_add(t, s, a, UINT32_MAX);
  for (uint32_t i = 0; i < e.b && !t->failure.code; i++) {
    st_term member = t->children[e.a + i];
    int known = known_emptiness(t, member);
    if (known > 0) return false;
    if (known < 0) search_add(t, s, member, UINT32_MAX);
  }
  return !t->failure.code;
}

bool st_term_is_empty(st_terms *t, st_term a) {
  int known = known_emptiness(t, a);
  if (known >= 0) return !known;
  if (t->entries[a].kind == ST_KIND_SEQ) return parts_are_empty(t, a);
  st_search s = {0};
  bool is_empty = search_begin(t, &s, a);
  for (uint32_t i; is_empty && !t->failure.code && (i = search_next(&s)) != UINT32_MAX;) {
    if (!search_visit(t, &s, i)) continue;
    found(t, &s, i);
    is_empty = false;
  }
  for (size_t i = 0; is_empty && !t->failure.code && i < s.n; i++) t->flags[s.items[i].state] |= ST_TERM_DEAD;
  if (!t->failure.code) t->flags[a] |= is_empty ? ST_TERM_DEAD : ST_TERM_KNOWN;
  search_free(t, &s);
  return is_empty;
}

st_term st_term_step(st_terms *t, st_term a, uint8_t byte) {
  st_term next = raw_step(t, a, byte);
  if (next == ST_TERM_EMPTY || !(t->flags[next] & ST_TERM_SEARCHED)) return next;
  if (!st_term_is_empty(t, next)) return next;
  uint32_t *row = t->rows[a]; // stored for the next query
  for (int i = 0; row && i < ROW; i++) {
    if (row[i] == next) row[i] = ST_TERM_EMPTY;
  }
  return ST_TERM_EMPTY;
}

bool st_term_matches(st_terms *t, st_term a, const char *bytes, size_t n) {
  for (size_t i = 0; i < n && a != ST_TERM_EMPTY; i++) a = st_term_step(t, a, (uint8_t)bytes[i]);
  return t->flags[a] & ST_TERM_NULLABLE;
}

void st_term_marks(const st_terms *t, st_term a, void (*mark)(void *user, uint32_t mark), void *user) {
  if (!(t->flags[a] & ST_TERM_NULLABLE)) return;
  st_term_entry e = t->entries[a]; // `mark` may add terms
  switch ((st_term_kind)e.kind) {
  case ST_KIND_MARK: mark(user, e.a); return;
  case ST_KIND_SEQ: st_term_marks(t, e.b, mark, user); return;
  case ST_KIND_ALT:
  case ST_KIND_AND:
    for (uint32_t i = 0; i < e.b; i++) st_term_marks(t, t->children[e.a + i], mark, user);
    return;
  default: return;
  }
}
