// The table of terms: creates each term once, in a normal form that keeps automata small; and its limits.
#define _POSIX_C_SOURCE 200809L
#include "constraint/terms_table.h"

#include "base/hash.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEPTH = 1000, CHECKED_STEPS = 8192 };

// ---- limits ----

static const st_constraint_limits defaults = {.max_bytes = 256 << 20,
                                              .max_states = 1000000,
                                              .max_stacks = 1000000,
                                              .max_configs = 2000,
                                              .max_steps = 2000000,
                                              .max_milliseconds = 10000};

static void set_limits(st_constraint_limits *l, const st_constraint_limits *given) {
  *l = given ? *given : defaults;
  if (!l->max_bytes) l->max_bytes = defaults.max_bytes;
  if (!l->max_states) l->max_states = defaults.max_states;
  if (!l->max_stacks) l->max_stacks = defaults.max_stacks;
  if (!l->max_configs) l->max_configs = defaults.max_configs;
  if (!l->max_steps) l->max_steps = defaults.max_steps;
  if (!l->max_milliseconds) l->max_milliseconds = defaults.max_milliseconds;
}

static uint64_t processor_nanoseconds(void) {
  struct timespec t = {0};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

st_term st_terms_fail(st_terms *t, setun_status code, const char *message) {
  if (!t->failure.code) st_fail(&t->failure, code, "%s", message);
  return ST_TERM_EMPTY;
}

bool st_terms_reserve(st_terms *t, void *items, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return true;
  if (t->failure.code) return false;
  size_t before = *capacity;
  if (!st_reserve(items, capacity, need, size)) {
    st_terms_fail(t, SETUN_ERROR_MEMORY, "out of memory for the states of a constraint");
    return false;
  }
  return st_terms_charge(t, (*capacity - before) * size);
}

bool st_terms_charge(st_terms *t, size_t bytes) {
  t->bytes += bytes;
  if (t->bytes <= t->limits.max_bytes) return true;
  if (!t->failure.code) {
    st_fail(&t->failure, SETUN_ERROR_LIMIT, "the constraint takes more than its %zu KiB of memory",
            t->limits.max_bytes >> 10);
  }
  return false;
}
void st_terms_discharge(st_terms *t, size_t bytes) {
  t->bytes -= bytes;
}

void st_terms_begin_steps(st_terms *t) {
  t->work = 0;
  t->work_check = t->limits.max_steps;
  t->deadline = 0;
}

bool st_terms_check_work(st_terms *t) {
  if (t->failure.code) return false;
  if (!t->deadline) {
    st_fail(&t->failure, SETUN_ERROR_LIMIT, "the next tokens of the constraint take more than %u steps to compute",
            t->limits.max_steps);
    return false;
  }
  t->work_check = t->work + CHECKED_STEPS;
  if (processor_nanoseconds() < t->deadline) return true;
  st_fail(&t->failure, SETUN_ERROR_LIMIT, "the constraint takes more than %u ms of processor time to compile",
          t->limits.max_milliseconds);
  return false;
}

// ---- the table ----

static uint64_t entry_hash(const st_terms *t, const st_term_entry *e, const uint32_t *children) {
  uint32_t words[4] = {e->kind, e->a, e->b, e->c};
  if (e->kind == ST_KIND_ALT || e->kind == ST_KIND_AND) {
    words[1] = 0;
    return st_hash(st_hash(ST_HASH_START, words, sizeof words), children, e->b * sizeof *children);
  }
  if (e->kind == ST_KIND_BYTES) return st_hash(e->kind, &t->sets[e->a], sizeof *t->sets);
  return st_hash(ST_HASH_START, words, sizeof words);
}

static bool entry_equal(const st_terms *t, const st_term_entry *x, const st_term_entry *e, const uint32_t *children) {
  if (x->kind != e->kind || x->b != e->b || x->c != e->c) return false;
  if (e->kind == ST_KIND_ALT || e->kind == ST_KIND_AND) {
    return !memcmp(&t->children[x->a], children, e->b * sizeof *children);
  }
  if (e->kind == ST_KIND_BYTES) return !memcmp(&t->sets[x->a], &t->sets[e->a], sizeof *t->sets);
  return x->a == e->a;
}

static bool grow_slots(st_terms *t) {
  size_t n = t->n_slots ? 2 * t->n_slots : 1024;
  uint32_t *slots = st_calloc(n, sizeof *slots);
  if (!slots) {
    st_terms_fail(t, SETUN_ERROR_MEMORY, "out of memory for the states of a constraint");
    return false;
  }
  for (uint32_t i = 0; i < t->n; i++) {
    const st_term_entry *e = &t->entries[i];
    size_t at = entry_hash(t, e, &t->children[e->a]) & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = i + 1;
  }
  st_free(t->slots);
  size_t more = (n - t->n_slots) * sizeof *slots;
  t->slots = slots;
  t->n_slots = n;
  return st_terms_charge(t, more);
}

// Derives from a term's members whether it matches the empty text, or nothing else, and how many texts it matches.
static unsigned entry_flags(const st_terms *t, const st_term_entry *e) {
  enum { SIZE = ST_TERM_FINITE | ST_TERM_INFINITE };
  const uint8_t *f = t->flags;
  unsigned any = 0, all = ST_TERM_NULLABLE | ST_TERM_FINAL | ST_TERM_FINITE, flags;
  switch ((st_term_kind)e->kind) {
  case ST_KIND_EMPTY: return ST_TERM_FINAL | ST_TERM_FINITE;
  case ST_KIND_EPSILON:
  case ST_KIND_MARK: return ST_TERM_NULLABLE | ST_TERM_FINAL | ST_TERM_FINITE;
  case ST_KIND_BYTES: return ST_TERM_FINITE;
  case ST_KIND_SEQ:
    flags = (f[e->a] & f[e->b] & (ST_TERM_NULLABLE | ST_TERM_FINITE)) | ((f[e->a] | f[e->b]) & ST_TERM_SEARCHED);
    return flags & ST_TERM_SEARCHED ? flags : flags | ((f[e->a] | f[e->b]) & ST_TERM_INFINITE);
  case ST_KIND_ALT:
  case ST_KIND_AND:
    for (uint32_t i = 0; i < e->b; i++) any |= f[t->children[e->a + i]], all &= f[t->children[e->a + i]];
    if (e->kind == ST_KIND_ALT)
      return (any & (ST_TERM_NULLABLE | ST_TERM_SEARCHED | ST_TERM_INFINITE)) | (all & ~ST_TERM_NULLABLE);
    return (all & ST_TERM_NULLABLE) | (any & (ST_TERM_FINAL | ST_TERM_FINITE)) | ST_TERM_SEARCHED;
  case ST_KIND_NOT: return (~f[e->a] & ST_TERM_NULLABLE) | ST_TERM_SEARCHED;
  case ST_KIND_REPEAT:
    flags = (e->b ? f[e->a] & ST_TERM_NULLABLE : ST_TERM_NULLABLE) | (f[e->a] & ST_TERM_SEARCHED);
    if (e->c != ST_UNBOUNDED) return flags | (f[e->a] & SIZE);
    return flags & ST_TERM_SEARCHED ? flags : flags | ST_TERM_INFINITE;
  case ST_KIND_AUTOMATON: return t->automata[e->a].accepts[e->b] ? ST_TERM_NULLABLE : 0;
  case ST_KIND_DECODED: return f[e->a] & (ST_TERM_NULLABLE | ST_TERM_SEARCHED);
  }
  return 0;
}

static unsigned entry_depth(const st_terms *t, const st_term_entry *e) {
  unsigned depth = 0;
  switch ((st_term_kind)e->kind) {
  case ST_KIND_SEQ: // the rest of a sequence is visited in a loop, without recursion
    depth = t->entries[e->a].depth + 1u;
    return depth > t->entries[e->b].depth ? depth : t->entries[e->b].depth;
  case ST_KIND_ALT:
  case ST_KIND_AND:
    for (uint32_t i = 0; i < e->b; i++) {
      unsigned d = t->entries[t->children[e->a + i]].depth;
      if (d > depth) depth = d;
    }
    return depth + 1;
  case ST_KIND_NOT:
  case ST_KIND_REPEAT:
  case ST_KIND_DECODED: return t->entries[e->a].depth + 1u;
  default: return 0;
  }
}

// The entry's id, new if no equal entry exists. `children` are those of an alternative or intersection.
static st_term intern(st_terms *t, st_term_entry e, const uint32_t *children) {
  bool list = e.kind == ST_KIND_ALT || e.kind == ST_KIND_AND;
  if (!st_terms_work(t, list ? 1 + e.b : 1) || t->failure.code) return ST_TERM_EMPTY;
  if ((size_t)t->n * 2 >= t->n_slots && !grow_slots(t)) return ST_TERM_EMPTY;
  size_t mask = t->n_slots - 1, at = entry_hash(t, &e, children) & mask;
  for (; t->slots[at]; at = (at + 1) & mask) {
    if (entry_equal(t, &t->entries[t->slots[at] - 1], &e, children)) return t->slots[at] - 1;
  }
  if (t->n >= t->limits.max_states) {
    st_fail(&t->failure, SETUN_ERROR_LIMIT, "the constraint's automata need more than %u states", t->limits.max_states);
    return ST_TERM_EMPTY;
  }
  if (!st_terms_reserve(t, &t->entries, &t->entries_capacity, (size_t)t->n + 1, sizeof *t->entries) ||
      !st_terms_reserve(t, &t->flags, &t->flags_capacity, (size_t)t->n + 1, 1) ||
      !st_terms_reserve(t, &t->rows, &t->rows_capacity, (size_t)t->n + 1, sizeof *t->rows)) {
    return ST_TERM_EMPTY;
  }
  if (list) {
    if (t->n_children + e.b > UINT32_MAX ||
        !st_terms_reserve(t, &t->children, &t->children_capacity, t->n_children + e.b, sizeof *children)) {
      return t->failure.code ? ST_TERM_EMPTY : st_terms_fail(t, SETUN_ERROR_LIMIT, "the constraint is too large");
    }
    memcpy(&t->children[t->n_children], children, e.b * sizeof *children);
    e.a = (uint32_t)t->n_children;
    t->n_children += e.b;
  }
  unsigned depth = entry_depth(t, &e);
  if (depth > MOST_DEPTH) return st_terms_fail(t, SETUN_ERROR_LIMIT, "an expression is nested too deeply");
  e.depth = (uint16_t)depth;
  t->entries[t->n] = e;
  t->flags[t->n] = (uint8_t)entry_flags(t, &e);
  t->rows[t->n] = NULL;
  t->slots[at] = t->n + 1;
  return t->n++;
}

st_term st_terms_intern(st_terms *t, st_term_entry e) {
  return intern(t, e, NULL);
}
st_term st_terms_intern_list(st_terms *t, st_term_kind kind, size_t base) {
  return intern(t, (st_term_entry){.kind = (uint8_t)kind, .b = (uint32_t)(t->n_stack - base)}, t->stack + base);
}

setun_status st_terms_new(const st_constraint_limits *limits, st_terms **out, setun_error *err) {
  st_terms *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "a constraint");
  set_limits(&t->limits, limits);
  t->deadline = processor_nanoseconds() + (uint64_t)t->limits.max_milliseconds * 1000000u;
  t->work_check = CHECKED_STEPS;
  st_terms_reserve(t, &t->stack, &t->stack_capacity, 64, sizeof *t->stack); // not NULL, also for empty lists
  intern(t, (st_term_entry){.kind = ST_KIND_EMPTY}, NULL);
  intern(t, (st_term_entry){.kind = ST_KIND_EPSILON}, NULL);
  if (t->failure.code) {
    if (err) *err = t->failure;
    setun_status code = t->failure.code;
    st_terms_free(t);
    return code;
  }
  *out = t;
  return SETUN_OK;
}

void st_terms_free(st_terms *t) {
  if (!t) return;
  for (size_t i = 0; i < t->n_blocks; i++) st_free(t->blocks[i]);
  for (size_t i = 0; i < t->n_automata; i++) {
    st_free(t->automata[i].sets), st_free(t->automata[i].next), st_free(t->automata[i].accepts);
  }
  st_free(t->entries), st_free(t->flags), st_free(t->rows), st_free(t->slots), st_free(t->children);
  st_free(t->sets), st_free(t->automata), st_free(t->blocks), st_free(t->stack);
  st_free(t);
}

setun_status st_terms_status(const st_terms *t, setun_error *err) {
  if (t->failure.code && err) *err = t->failure;
  return t->failure.code;
}
size_t st_terms_bytes(const st_terms *t) {
  return t->bytes;
}

// ---- constructors ----

bool st_term_is_nullable(const st_terms *t, st_term a) {
  return t->flags[a] & ST_TERM_NULLABLE;
}

st_term st_term_bytes(st_terms *t, const st_byte_set *set) {
  if (!(set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3])) return ST_TERM_EMPTY;
  if (!st_terms_reserve(t, &t->sets, &t->sets_capacity, t->n_sets + 1, sizeof *t->sets)) return ST_TERM_EMPTY;
  t->sets[t->n_sets] = *set; // stored only if the term is new
  uint32_t before = t->n;
  st_term id = intern(t, (st_term_entry){.kind = ST_KIND_BYTES, .a = (uint32_t)t->n_sets}, NULL);
  t->n_sets += t->n > before;
  return id;
}

st_term st_term_text(st_terms *t, const char *bytes, size_t n) {
  st_term tail = ST_TERM_EPSILON;
  while (n--) {
    st_byte_set set = {{0}};
    st_byte_set_add(&set, (uint8_t)bytes[n]);
    tail = st_term_seq(t, st_term_bytes(t, &set), tail);
  }
  return tail;
}

st_term st_term_mark(st_terms *t, uint32_t mark) {
  return intern(t, (st_term_entry){.kind = ST_KIND_MARK, .a = mark}, NULL);
}

st_term st_term_seq(st_terms *t, st_term a, st_term b) {
  if (a == ST_TERM_EMPTY || b == ST_TERM_EMPTY) return ST_TERM_EMPTY;
  if (a == ST_TERM_EPSILON) return b;
  if (b == ST_TERM_EPSILON) return a;
  // Sequences are nested to the right: the parts of a are prepended to b one by one, the last one first.
  size_t base = t->n_stack;
  while (t->entries[a].kind == ST_KIND_SEQ) {
    if (!st_terms_push(t, t->entries[a].a)) return t->n_stack = base, ST_TERM_EMPTY;
    a = t->entries[a].b;
  }
  st_term all = intern(t, (st_term_entry){.kind = ST_KIND_SEQ, .a = a, .b = b}, NULL);
  while (t->n_stack > base) {
    all = intern(t, (st_term_entry){.kind = ST_KIND_SEQ, .a = t->stack[--t->n_stack], .b = all}, NULL);
  }
  return all;
}

st_term st_term_not(st_terms *t, st_term a) {
  if (t->entries[a].kind == ST_KIND_NOT) return t->entries[a].a;
  return intern(t, (st_term_entry){.kind = ST_KIND_NOT, .a = a}, NULL);
}

// (x{m,n}){min,max} as x{of_min,of_max}, if that is the same: k and k + 1 repetitions leave no count between them.
static bool multiply_counts(uint32_t m, uint32_t n, uint32_t min, uint32_t max, uint32_t *of_min, uint32_t *of_max) {
  bool unbounded = n == ST_UNBOUNDED || max == ST_UNBOUNDED;
  uint64_t least = (uint64_t)m * min, most = unbounded ? ST_UNBOUNDED : (uint64_t)n * max;
  uint64_t end = n == ST_UNBOUNDED && min ? UINT64_MAX - 1 : (uint64_t)n * min; // of the fewest repetitions
  if (least >= ST_UNBOUNDED || (!unbounded && most >= ST_UNBOUNDED)) return false;
  if (min != max && end + 1 < (uint64_t)m * (min + (uint64_t)1)) return false;
  *of_min = (uint32_t)least;
  *of_max = (uint32_t)most;
  return true;
}

st_term st_term_repeat(st_terms *t, st_term a, uint32_t min, uint32_t max) {
  if (min > max) return ST_TERM_EMPTY;
  if (!max || a == ST_TERM_EPSILON) return ST_TERM_EPSILON;
  if (a == ST_TERM_EMPTY) return min ? ST_TERM_EMPTY : ST_TERM_EPSILON;
  if (t->flags[a] & ST_TERM_NULLABLE) min = 0;
  if (min == 1 && max == 1) return a;
  const st_term_entry *e = &t->entries[a];
  bool star = e->kind == ST_KIND_REPEAT && !e->b && e->c == ST_UNBOUNDED;
  if (star) return a; // (a*){m,n} is a*, since a* matches the empty text
  uint32_t of_min, of_max;
  if (e->kind == ST_KIND_REPEAT && multiply_counts(e->b, e->c, min, max, &of_min, &of_max))
    return st_term_repeat(t, e->a, of_min, of_max);
  return intern(t, (st_term_entry){.kind = ST_KIND_REPEAT, .a = a, .b = min, .c = max}, NULL);
}

st_term st_term_automaton(st_terms *t, const st_automaton *a) {
  if (t->failure.code) return ST_TERM_EMPTY;
  if (!a->n_states || !a->n_classes || a->n_classes > 256 || a->start >= a->n_states) {
    return st_terms_fail(t, SETUN_ERROR_ARGUMENT, "an automaton without states");
  }
  if (!st_terms_reserve(t, &t->automata, &t->automata_capacity, t->n_automata + 1, sizeof *t->automata)) {
    return ST_TERM_EMPTY;
  }
  size_t cells;
  if (!st_mul_size(a->n_states, a->n_classes, &cells))
    return st_terms_fail(t, SETUN_ERROR_LIMIT, "an automaton is too large");
  st_term_automaton_entry e = {.n_states = a->n_states, .n_classes = a->n_classes};
  e.sets = st_calloc(a->n_classes, sizeof *e.sets);
  e.next = st_malloc(cells, sizeof *e.next);
  e.accepts = st_malloc(a->n_states, 1);
  t->automata[t->n_automata++] = e; // frees the arrays in either case
  if (!e.sets || !e.next || !e.accepts) return st_terms_fail(t, SETUN_ERROR_MEMORY, "out of memory for an automaton");
  if (!st_terms_charge(t, cells * sizeof *e.next + a->n_states + a->n_classes * sizeof *e.sets)) return ST_TERM_EMPTY;
  memcpy(e.next, a->next, cells * sizeof *e.next);
  memcpy(e.accepts, a->accepts, a->n_states);
  for (int byte = 0; byte < 256; byte++) {
    if (a->class_of[byte] >= a->n_classes)
      return st_terms_fail(t, SETUN_ERROR_ARGUMENT, "an automaton's class of bytes");
    t->automata[t->n_automata - 1].class_of[byte] = a->class_of[byte];
    st_byte_set_add(&e.sets[a->class_of[byte]], (uint8_t)byte);
  }
  for (size_t i = 0; i < cells; i++) {
    if (e.next[i] != UINT32_MAX && e.next[i] >= a->n_states) {
      return st_terms_fail(t, SETUN_ERROR_ARGUMENT, "an automaton's next state");
    }
  }
  return intern(t, (st_term_entry){.kind = ST_KIND_AUTOMATON, .a = (uint32_t)t->n_automata - 1, .b = a->start}, NULL);
}
