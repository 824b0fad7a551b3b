// Runs: which terms match any text of some classes of characters, up to a length. For these, whole branches of a
// vocabulary's trie, or a ready mask, are used without a walk.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include <string.h>

// Terms between characters; the number of characters before each, ascending; and the class of the last of them.
enum { MOST_PLACES = 48, MOST_INSIDE = 64, MOST_STARTS = 8, MOST_MEMBERS = 64, MOST_NEW = 1000, LONG = 8 };
typedef struct st_places {
  st_term terms[MOST_PLACES];
  uint8_t characters[MOST_PLACES], classes[MOST_PLACES];
  uint32_t n;
} st_places;

static bool add_place(st_places *p, st_term term, uint8_t characters, int class) {
  for (uint32_t i = p->n; i-- > 0;) {
    if (p->terms[i] == term) return true; // it was reached after as many characters, or fewer
  }
  if (p->n == MOST_PLACES) return false;
  p->terms[p->n] = term, p->characters[p->n] = characters, p->classes[p->n++] = (uint8_t) class;
  return true;
}

// The terms after each character of a class; false: one of its characters may not come, or there are too many.
typedef struct st_after {
  st_term terms[MOST_INSIDE];
  uint32_t n;
} st_after;

static bool add_after(st_after *a, st_term term) {
  for (uint32_t i = a->n; i-- > 0;) {
    if (a->terms[i] == term) return true;
  }
  if (a->n == MOST_INSIDE) return false;
  a->terms[a->n++] = term;
  return true;
}

static bool after_ascii(st_terms *t, st_term term, st_byte_range range, st_after *out) {
  for (unsigned byte = range.first; byte <= range.last; byte++) {
    st_term next = st_terms_next(t, term, (uint8_t)byte);
    if (next == ST_TERM_EMPTY || !add_after(out, next)) return false;
  }
  return true;
}

static bool after_wide(st_terms *t, st_term term, st_byte_range lead, st_after *out) {
  st_term inside[MOST_INSIDE] = {term};
  uint8_t states[MOST_INSIDE] = {0};
  for (int at = 0, n = 1; at < n; at++) {
    for (int k = 0; k < ST_UTF8_MOVES; k++) {
      const st_utf8_move *m = &ST_UTF8_WIDE[k];
      st_term last = ST_TERM_EMPTY;
      for (unsigned byte = m->first; m->from == states[at] && byte <= m->last; byte++) {
        if (!m->from && (byte < lead.first || byte > lead.last)) continue;
        st_term next = st_terms_next(t, inside[at], (uint8_t)byte);
        if (next == ST_TERM_EMPTY) return false;
        if (next == last) continue;
        last = next;
        if (m->to == 0) {
          if (!add_after(out, next)) return false;
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

static bool after_class(st_terms *t, st_term term, int class, st_after *out) {
  out->n = 0;
  st_byte_range range = ST_CLASS_BYTES[class];
  return class < ST_ASCII_CLASSES ? after_ascii(t, term, range, out) : after_wide(t, term, range, out);
}

// Checks the classes at place i and adds the places after them. Sets the classes that may not come in *missing; false:
// there are too many places.
static bool follow(st_terms *t, st_places *p, uint32_t i, uint64_t classes, uint64_t *missing) {
  st_after after;
  *missing = 0;
  for (int class = 0; class < ST_CLASSES; class ++) {
    if (!(classes & st_class_bit(class))) continue;
    if (!after_class(t, p->terms[i], class, &after)) {
      *missing |= st_class_bit(class);
      continue;
    }
    for (uint32_t k = 0; k < after.n; k++) {
      if (!add_place(p, after.terms[k], (uint8_t)(p->characters[i] + 1), class)) return false;
    }
  }
  return true;
}

static uint32_t count(uint64_t classes) {
  return (uint32_t)__builtin_popcountll(classes);
}
static st_char_run better(st_char_run a, st_char_run b) {
  uint32_t x = count(a.classes) * (a.length < LONG ? a.length : LONG);
  uint32_t y = count(b.classes) * (b.length < LONG ? b.length : LONG);
  return x > y || (x == y && a.length >= b.length) ? a : b;
}

// The run of these classes, as far as they may all come. It ends at a place where some of them are *missing, which was
// reached by class *via.
static st_char_run run_of_classes(st_terms *t, st_term term, uint32_t most, uint64_t *classes, uint64_t *missing,
                                  int *via, uint32_t *tried) {
  st_places p = {.terms = {term}, .n = 1};
  uint32_t before = t->n; // the terms so far: trying should cost less than the walk that it saves
  for (uint32_t i = 0; i < p.n && p.characters[i] < most; i++, ++*tried) {
    bool room = follow(t, &p, i, *classes, missing) && t->n - before < MOST_NEW;
    if (i == 0) {
      *classes &= ~*missing;
      *missing = 0;
    }
    if (*missing) *via = p.classes[i];
    if (*missing || !room) return (st_char_run){p.characters[i] ? *classes : 0, p.characters[i], false};
  }
  return (st_char_run){*classes, ST_ANY_LENGTH, false};
}

// Finds a run by trying: a class after which most others may not come (a quote, a backslash) is left out, or the
// classes that may not come later.
static st_char_run try_run(st_terms *t, st_term term, uint32_t most) {
  uint64_t classes = st_class_bit(ST_CLASSES) - 1;
  st_char_run best = {0};
  uint32_t tried = 0; // places
  for (int start = 0; start < MOST_STARTS && classes && tried < MOST_PLACES; start++) {
    uint64_t missing = 0;
    int via = 0;
    st_char_run run = run_of_classes(t, term, most, &classes, &missing, &via, &tried);
    best = better(best, run);
    if (!missing || (missing == classes && run.length >= LONG)) break;
    classes &= 2 * count(missing) > count(classes) ? ~st_class_bit(via) : ~missing;
  }
  return best.classes ? best : (st_char_run){0};
}

st_term st_term_with_few(st_terms *t, st_term term) {
  st_term_entry e = t->entries[term];
  st_term head = e.kind == ST_KIND_SEQ ? e.a : term, rest = e.kind == ST_KIND_SEQ ? e.b : ST_TERM_EPSILON;
  st_term_entry h = t->entries[head];
  if (h.kind != ST_KIND_AND) return term;
  size_t base = t->n_stack;
  for (uint32_t i = 0; i < h.b; i++) {
    st_term member = t->children[h.a + i];
    const st_term_entry *m = &t->entries[member];
    bool few = m->kind == ST_KIND_NOT && t->flags[m->a] & ST_TERM_FINITE;
    if (!few && !st_terms_push(t, member)) break;
  }
  return st_term_seq(t, st_terms_join(t, ST_KIND_AND, base), rest);
}

// The run of a language that excludes a few texts, if it is that of the whole language. It is where the run has no end:
// every text of it can still become a longer one, which is not excluded.
static st_char_run member_run(st_constraint *c, st_term term) {
  st_term whole = st_term_with_few(c->engine.t, term);
  st_char_run run = whole == term ? (st_char_run){0} : st_constraint_run(c, whole);
  return run.length == ST_ANY_LENGTH ? run : (st_char_run){0};
}

// Is the term neither nullable nor able to begin with a plain character, like the quote after a string's text?
static bool closes(st_constraint *c, st_term term) {
  st_terms *t = c->engine.t;
  bool plain = t->flags[term] & ST_TERM_NULLABLE;
  for (unsigned byte = 0; byte < 256; byte++) {
    uint8_t class = c->trie->classes[byte];
    bool begins = class != ST_CLASS_BROKEN && c->trie->plain & st_class_bit(class);
    if (begins && !plain) plain = st_terms_next(t, term, (uint8_t)byte) != ST_TERM_EMPTY;
  }
  return !plain;
}

// The run of a repeated character: the classes whose characters each match the repeated term as a whole.
static st_char_run repeat_run(st_constraint *c, st_term term) {
  st_terms *t = c->engine.t;
  st_term_entry e = t->entries[term];
  st_term rest = e.kind == ST_KIND_SEQ ? e.b : ST_TERM_EPSILON;
  st_char_run run = {0};
  st_after after;
  if (e.kind == ST_KIND_SEQ) e = t->entries[e.a];
  if (e.kind != ST_KIND_REPEAT) return run;
  for (int class = 0; class < ST_CLASSES; class ++) {
    bool whole = after_class(t, e.a, class, &after) && after.n == 1 && after.terms[0] == ST_TERM_EPSILON;
    if (whole) run.classes |= st_class_bit(class);
  }
  run.exact = !(c->trie->plain & ~run.classes) && e.c != ST_UNBOUNDED && closes(c, rest);
  run.length = e.c < ST_ANY_LENGTH ? (uint8_t)e.c : e.c == ST_UNBOUNDED ? ST_ANY_LENGTH : ST_ANY_LENGTH - 1;
  return run;
}

static st_char_run find_run(st_constraint *c, st_term term) {
  st_terms *t = c->engine.t;
  st_term_entry e = t->entries[term];
  st_char_run best = better(member_run(c, term), repeat_run(c, term));
  for (uint32_t i = 0; e.kind == ST_KIND_ALT && e.b <= MOST_MEMBERS && i < e.b; i++) {
    st_term member = t->children[e.a + i],
            head = t->entries[member].kind == ST_KIND_SEQ ? t->entries[member].a : member;
    st_term_kind kind = t->entries[head].kind;
    st_char_run run = kind == ST_KIND_AND || kind == ST_KIND_REPEAT ? st_constraint_run(c, member) : (st_char_run){0};
    if (run.length == ST_ANY_LENGTH && count(run.classes) > count(best.classes)) best = run;
  }
  return best.length >= LONG || best.exact ? best : better(best, try_run(t, term, c->trie->most_bytes));
}

st_char_run st_constraint_run(st_constraint *c, st_term term) {
  st_inside *item = st_constraint_item(c, term);
  if (!item) return (st_char_run){0};
  if (item->has_run) return item->run;
  st_char_run run = find_run(c, term);
  item = st_constraint_item(c, term);
  item->run = run;
  item->has_run = true;
  return run;
}

int st_run_slice(const st_token_trie *trie, st_char_run run) {
  if (trie->plain & ~run.classes) return -1;
  if (run.length == ST_ANY_LENGTH || run.length >= trie->most_characters) return ST_SLICES - 1;
  return run.length >= ST_SLICE_MIDDLE ? 1 : run.length >= ST_SLICE_SHORT ? 0 : -1;
}
