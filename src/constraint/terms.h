// Regular terms: regular languages over bytes, hash-consed (equal ids are equal terms), with all operations that keep
// them regular: alternatives, sequences, counted repeats, intersection, complement. A term is also the state of its
// automaton: st_term_step gives the state after one more byte, computed on first use and then stored (Brzozowski's
// derivatives).
//
// Constructors do not report failures themselves: a failure (out of memory, or a limit) is stored in the table, which
// then returns ST_TERM_EMPTY for everything, and the caller checks st_terms_status at the end.
#ifndef SETUN_CONSTRAINT_TERMS_H
#define SETUN_CONSTRAINT_TERMS_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t st_term;
typedef struct st_terms st_terms; // the table; it belongs to one thread at a time

enum { ST_TERM_EMPTY = 0, ST_TERM_EPSILON = 1 }; // matches nothing; matches the empty text
enum { ST_UNBOUNDED = UINT32_MAX };

// Limits of a constraint. A member that is 0 selects its default.
typedef struct st_constraint_limits {
  size_t max_bytes;          // memory while it is compiled, and then of it and what matching adds to it; 256 MiB
  uint32_t max_states;       // states of its automata; 1 million
  uint32_t max_stacks;       // nested places of its parser; 1 million
  uint32_t max_configs;      // readings of one text that are followed at the same time; 2,000
  uint32_t max_steps;        // steps to compute one mask; 2 million
  uint32_t max_milliseconds; // processor time to compile it, from the grammar's beginning; 10,000
} st_constraint_limits;

// `limits` may be NULL.
setun_status st_terms_new(const st_constraint_limits *limits, st_terms **out, setun_error *err);
void st_terms_free(st_terms *t);                                   // NULL is fine
setun_status st_terms_status(const st_terms *t, setun_error *err); // the first failure
size_t st_terms_bytes(const st_terms *t);

// One byte of the set.
typedef struct st_byte_set {
  uint64_t bits[4];
} st_byte_set;
st_term st_term_bytes(st_terms *t, const st_byte_set *set);
st_term st_term_text(st_terms *t, const char *bytes, size_t n); // exactly these bytes
st_term st_term_seq(st_terms *t, st_term a, st_term b);
st_term st_term_alt(st_terms *t, const st_term *list, size_t n);
st_term st_term_and(st_terms *t, const st_term *list, size_t n);
st_term st_term_not(st_terms *t, st_term a);                                // every text of bytes that a does not match
st_term st_term_repeat(st_terms *t, st_term a, uint32_t min, uint32_t max); // max: ST_UNBOUNDED
static inline st_term st_term_alt2(st_terms *t, st_term a, st_term b) {
  return st_term_alt(t, (st_term[]){a, b}, 2);
}
static inline st_term st_term_and2(st_terms *t, st_term a, st_term b) {
  return st_term_and(t, (st_term[]){a, b}, 2);
}
// A mark at the end of a match: matches the empty text, and st_term_marks tells which marks a match ended with.
st_term st_term_mark(st_terms *t, uint32_t mark);

// A deterministic automaton built by the caller: n_states rows of n_classes next states (UINT32_MAX: none), and which
// states accept. It should be trimmed: every state reaches one that accepts. It is copied.
typedef struct st_automaton {
  uint32_t n_states, n_classes, start;
  const uint8_t *class_of; // 256
  const uint32_t *next;    // n_states * n_classes
  const uint8_t *accepts;  // n_states
} st_automaton;
st_term st_term_automaton(st_terms *t, const st_automaton *a);

// Characters (code points) and how they are written:
//   ST_PLAIN       UTF-8
//   ST_JSON        inside a JSON string, in all spellings: unescaped where JSON allows it, the short escapes, \uXXXX in
//                  either case, pairs of surrogates; never half a pair
//   ST_JSON_TIGHT  the same, but without escapes for ASCII characters that need none: for fixed texts (keys,
//                  constants)
// No two texts share a spelling, so that sequences, alternatives, repeats and intersections of spelled terms have the
// same meaning as for the decoded texts; for the complement, see st_term_other_text.
typedef enum st_spelling { ST_PLAIN, ST_JSON, ST_JSON_TIGHT } st_spelling;
typedef struct st_range {
  uint32_t first, last;
} st_range;
// One character of the ranges (sorted and separate; surrogates are excluded).
st_term st_term_ranges(st_terms *t, const st_range *ranges, size_t n, st_spelling spelling);
st_term st_term_any_character(st_terms *t, st_spelling spelling);
st_term st_term_any_text(st_terms *t, st_spelling spelling);             // any number of characters
st_term st_term_string(st_terms *t, st_text text, st_spelling spelling); // UTF-8 text
// Any of the texts, which are sorted in place. Fast for thousands of texts.
st_term st_term_strings(st_terms *t, st_text *texts, size_t n, st_spelling spelling);
// Every text that `a` does not match, in that spelling.
st_term st_term_other_text(st_terms *t, st_term a, st_spelling spelling);
// The texts, in UTF-8, whose spellings in ST_JSON `a` matches: all of them or none.
st_term st_term_decoded(st_terms *t, st_term a);
// The term between quotes, as in a JSON string.
st_term st_term_quoted(st_terms *t, st_term inside);

// Queries. Whether an intersection matches anything may take long to decide; the table's limits bound the cost.
bool st_term_is_nullable(const st_terms *t, st_term a); // does it match the empty text?
bool st_term_is_empty(st_terms *t, st_term a);          // does it match nothing?
bool st_term_matches(st_terms *t, st_term a, const char *bytes, size_t n);
// Does it match the UTF-8 text in that spelling? (ST_JSON: does it match any of the text's spellings? Terms that were
// made with one spelling throughout match all of a text's spellings or none.)
bool st_term_matches_text(st_terms *t, st_term a, st_text text, st_spelling spelling);
// The state after one more byte; ST_TERM_EMPTY: no text that `a` matches continues with it.
st_term st_term_step(st_terms *t, st_term a, uint8_t byte);

#endif
