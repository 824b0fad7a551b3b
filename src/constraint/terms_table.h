// The table of regular terms, for the files of this directory.
#ifndef SETUN_CONSTRAINT_TERMS_TABLE_H
#define SETUN_CONSTRAINT_TERMS_TABLE_H

#include "constraint/terms.h"

typedef enum st_term_kind {
  ST_KIND_EMPTY,
  ST_KIND_EPSILON,
  ST_KIND_MARK,      // a: the mark
  ST_KIND_BYTES,     // a: index into sets
  ST_KIND_SEQ,       // a, then b; a is not itself a sequence
  ST_KIND_ALT,       // b members from children[a], in ascending order
  ST_KIND_AND,       // the same
  ST_KIND_NOT,       // a
  ST_KIND_REPEAT,    // a, b to c times
  ST_KIND_AUTOMATON, // state b of automata[a]
  ST_KIND_DECODED,   // the texts whose spellings in JSON a matches
} st_term_kind;

enum {
  ST_TERM_NULLABLE = 1, // matches the empty text
  ST_TERM_FINAL = 2,    // matches at most the empty text
  ST_TERM_SEARCHED = 4, // has an intersection or a complement: a search decides whether it is empty
  ST_TERM_KNOWN = 8,    // searched: it is not empty (empty terms are replaced by ST_TERM_EMPTY when they are reached)
  ST_TERM_DEAD = 16,    // searched: it is empty
  ST_TERM_FINITE = 32,  // matches a finite number of texts; INFINITE: infinitely many. Neither: not known
  ST_TERM_INFINITE = 64,
};
enum { ST_TERM_UNKNOWN = UINT32_MAX }; // in a row: not computed yet

typedef struct st_term_entry {
  uint8_t kind;
  uint16_t depth; // of nesting, not counting sequences
  uint32_t a, b, c;
} st_term_entry;

typedef struct st_term_automaton_entry {
  uint32_t n_states, n_classes;
  uint8_t class_of[256];
  st_byte_set *sets; // the bytes of each class
  uint32_t *next;
  uint8_t *accepts;
} st_term_automaton_entry;

struct st_terms {
  setun_error failure; // the first failure; code 0: none
  st_constraint_limits limits;
  size_t bytes;              // of the table, and of what is counted with it
  uint64_t work, work_check; // steps taken, and the number of them at which the limits of time are checked next
  uint64_t deadline;         // nanoseconds of the thread's processor clock; 0: the limit is max_steps

  st_term_entry *entries;
  uint8_t *flags;  // of each entry
  uint32_t **rows; // of each entry: 256 next states, or NULL
  uint32_t n;
  size_t entries_capacity, flags_capacity, rows_capacity;
  uint32_t *slots; // hash table of entries: id + 1
  size_t n_slots;

  uint32_t *children;
  size_t n_children, children_capacity;
  st_byte_set *sets;
  size_t n_sets, sets_capacity;
  st_term_automaton_entry *automata;
  size_t n_automata, automata_capacity;
  uint32_t **blocks; // of rows
  size_t n_blocks, blocks_capacity, rows_left;

  st_term spelled[2][128]; // terms for ASCII in JSON's spellings, filled on first use

  st_term *stack; // lists under construction
  size_t n_stack, stack_capacity;
};

// Grows an array of the table, counted against its memory; false: failed.
bool st_terms_reserve(st_terms *t, void *items, size_t *capacity, size_t need, size_t size);
// Stores the first failure and returns ST_TERM_EMPTY.
st_term st_terms_fail(st_terms *t, setun_status code, const char *message);
// The alternatives or the intersection of the stack's members from `base` on, which are popped.
st_term st_terms_join(st_terms *t, st_term_kind kind, size_t base);
// The entry with the stack's members from `base` on, without normalizing them.
st_term st_terms_intern_list(st_terms *t, st_term_kind kind, size_t base);
st_term st_terms_intern(st_terms *t, st_term_entry e);
bool st_terms_push(st_terms *t, st_term a);
// Counts memory that is not the table's own against its limit; false: failed.
bool st_terms_charge(st_terms *t, size_t bytes);
void st_terms_discharge(st_terms *t, size_t bytes);
// From now on max_steps limits the work, and no longer the time to compile; the steps are counted from 0.
void st_terms_begin_steps(st_terms *t);
bool st_terms_check_work(st_terms *t);
// Calls `mark` for each mark that a match of the empty text ends with.
void st_term_marks(const st_terms *t, st_term a, void (*mark)(void *user, uint32_t mark), void *user);

enum { ST_SPELLED_MOST = 6 };
// How a byte of a text is written in a JSON string: itself or, where it must be escaped, an escape that terms of
// ST_JSON and of ST_JSON_TIGHT matches. Returns the number of bytes.
size_t st_term_spell(uint8_t byte, char spelled[ST_SPELLED_MOST]);

// Counts steps of work; false: failed.
static inline bool st_terms_work(st_terms *t, size_t steps) {
  t->work += steps;
  return t->work < t->work_check || st_terms_check_work(t);
}

static inline bool st_byte_set_has(const st_byte_set *set, uint8_t byte) {
  return set->bits[byte >> 6] >> (byte & 63) & 1;
}
static inline void st_byte_set_add(st_byte_set *set, uint8_t byte) {
  set->bits[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

// Like st_term_step, inlined for walks.
static inline st_term st_terms_next(st_terms *t, st_term a, uint8_t byte) {
  const uint32_t *row = t->rows[a];
  if (row) {
    st_term next = row[byte];
    if (next != ST_TERM_UNKNOWN && (t->flags[next] & (ST_TERM_SEARCHED | ST_TERM_KNOWN)) != ST_TERM_SEARCHED)
      return next;
  }
  return st_term_step(t, a, byte);
}

#endif
