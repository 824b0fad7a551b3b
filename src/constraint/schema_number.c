// The numbers of a shape as a deterministic automaton over JSON's spelling of numbers: digits are compared with the
// bounds as they are read, and the remainder of the number so far is tracked for each multipleOf.
//
// Exponents are allowed only if there is no multipleOf and no bound other than 0: then the digits alone decide.
#include "constraint/schema_shapes.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

enum {
  SYMBOLS = 15, // 0 to 9, '-', '.', 'e' or 'E', '+', anything else
  MINUS = 10,
  POINT,
  EXPONENT,
  PLUS,
  OTHER,
  MULTIPLES_MOST = 4,
  DIGITS_MOST = 60,  // on either side of the point, if there is no other limit
  DIGITS_EXACT = 15, // that every double represents exactly
};

typedef enum {
  AT_START,
  AT_MINUS,
  IN_ZERO,
  IN_INTEGER,
  AT_POINT,
  IN_FRACTION,
  AT_EXPONENT,
  AT_SIGN,
  IN_EXPONENT
} phase;

typedef struct {
  uint8_t phase, negative;
  int8_t order[2]; // the digits so far compared with those of the lower and the upper bound: -1, 0, 1
  uint16_t digits; // within the phase
  uint32_t remainder[MULTIPLES_MOST]; // UINT32_MAX: not a multiple, whatever follows
} state;

// m * 10^-scale
typedef struct {
  uint32_t m, scale;
  bool negated;
} multiple;

typedef struct {
  st_schema *s;
  const st_decimal *bounds[2];
  bool open[2], exponents, endless;
  uint8_t spelled;
  int32_t integer_digits[2], most[2];
  multiple multiples[MULTIPLES_MOST];
  uint32_t n_multiples;
  state *states;
  size_t n, capacity;
  uint32_t *slots, *next;
  size_t n_slots, next_capacity;
} builder;

// ---- values ----

// The order of x and bound i, from the order of their digits.
static int compare_bound(const builder *b, const state *x, int i, int magnitudes) {
  const st_decimal *bound = b->bounds[i];
  if (!bound->n) return magnitudes == 0 ? 0 : x->negative ? -1 : 1;
  if (x->negative != bound->negative) return x->negative ? -1 : 1;
  return x->negative ? -magnitudes : magnitudes;
}

// The order of the digits if no further ones follow.
static int final_order(const builder *b, const state *x, int i) {
  if (x->phase >= AT_EXPONENT) return x->order[i];
  bool fraction = x->phase == IN_FRACTION;
  int32_t n = fraction ? b->integer_digits[i] : x->digits;
  if (n != b->integer_digits[i]) return n < b->integer_digits[i] ? -1 : 1;
  if (x->order[i]) return x->order[i];
  int32_t behind = (int32_t)b->bounds[i]->n - b->bounds[i]->point; // the bound's digits after its point
  return behind > (fraction ? x->digits : 0) ? -1 : 0;
}

static bool divides(const builder *b, const state *x, uint32_t i) {
  const multiple *m = &b->multiples[i];
  if (x->remainder[i] == UINT32_MAX) return false;
  uint64_t r = x->remainder[i];
  for (uint32_t k = x->phase == IN_FRACTION ? x->digits : 0; k < m->scale; k++) r = r * 10 % m->m;
  return r == 0;
}

static bool accepts(const builder *b, const state *x) {
  if (x->phase != IN_ZERO && x->phase != IN_INTEGER && x->phase != IN_FRACTION && x->phase != IN_EXPONENT) return false;
  for (int i = 0; i < 2; i++) {
    if (!b->bounds[i]) continue;
    int order = compare_bound(b, x, i, final_order(b, x, i));
    if (i == 0 ? order < 0 : order > 0) return false;
    if (!order && b->open[i]) return false;
  }
  if (b->spelled == ST_SPELLED_OTHERWISE && x->phase < AT_POINT) return false;
  for (uint32_t i = 0; i < b->n_multiples; i++) {
    if (divides(b, x, i) == b->multiples[i].negated) return false;
  }
  return true;
}

// ---- steps ----

static uint8_t bound_digit(const builder *b, int i, int32_t at) {
  return st_decimal_digit(b->bounds[i], at);
}

static void take_digit(const builder *b, state *x, uint32_t digit, bool fraction) {
  for (int i = 0; i < 2; i++) {
    if (!b->bounds[i] || x->order[i]) continue;
    int32_t at = fraction ? x->digits : x->digits - b->integer_digits[i];
    if (!fraction && at >= 0) continue; // longer than the bound: see final_order
    uint8_t other = bound_digit(b, i, at);
    x->order[i] = (int8_t)((digit > other) - (digit < other));
  }
  for (uint32_t i = 0; i < b->n_multiples; i++) {
    const multiple *m = &b->multiples[i];
    uint32_t *r = &x->remainder[i];
    if (*r == UINT32_MAX) continue;
    if (!fraction || x->digits < m->scale) {
      *r = (uint32_t)(((uint64_t)*r * 10 + digit) % m->m);
    } else if (digit) {
      *r = UINT32_MAX;
    }
  }
}

// The number of digits that are counted: no more are allowed, so that texts end and readers that store numbers as
// doubles see the same remainders. If that would take too many states, further digits change only the remainders.
static uint16_t digits_most(const builder *b, bool fraction) {
  int32_t most = b->endless ? 1 : b->most[fraction];
  for (int i = 0; i < 2; i++) {
    if (!b->bounds[i]) continue;
    int32_t n = fraction ? (int32_t)b->bounds[i]->n - b->bounds[i]->point : b->integer_digits[i] + 1;
    if (n > most) most = n;
  }
  for (uint32_t i = 0; i < b->n_multiples; i++) {
    if (fraction && (int32_t)b->multiples[i].scale > most) most = (int32_t)b->multiples[i].scale;
  }
  return (uint16_t)most;
}

// How many digits are allowed before and after the point if no bound has more.
static void limit_digits(builder *b) {
  uint64_t remainders = 1;
  bool whole = false;
  b->most[0] = b->most[1] = DIGITS_MOST;
  for (uint32_t i = 0; i < b->n_multiples; i++) whole |= !b->multiples[i].negated && !b->multiples[i].scale;
  for (uint32_t i = 0; i < b->n_multiples; i++) {
    const multiple *m = &b->multiples[i];
    int32_t exact = DIGITS_EXACT - (whole ? 0 : (int32_t)m->scale);
    remainders *= m->m;
    if ((m->m > 1 || !whole) && exact < b->most[0]) b->most[0] = exact > 1 ? exact : 1;
    if (m->m > 1) b->most[1] = DIGITS_EXACT / 2;
    if (m->negated && b->most[0] > DIGITS_EXACT / 2) b->most[0] = DIGITS_EXACT / 2;
    if (m->negated) b->most[1] = DIGITS_EXACT / 2;
  }
  b->endless = remainders * (uint64_t)b->most[0] > ST_SCHEMA_STATES_MOST / 4;
}

static bool count_digit(const builder *b, state *x, bool fraction) {
  uint16_t most = digits_most(b, fraction);
  if (x->digits < most) {
    x->digits++;
    return true;
  }
  return b->endless;
}

// After the integer digits: their count decides, unless it is equal to the bound's.
static void end_integer(const builder *b, state *x) {
  for (int i = 0; i < 2; i++) {
    if (b->bounds[i] && x->digits != b->integer_digits[i]) x->order[i] = x->digits < b->integer_digits[i] ? -1 : 1;
  }
}

static bool step_digit(const builder *b, state *x, uint32_t digit) {
  switch (x->phase) {
  case AT_START:
  case AT_MINUS:
  case IN_INTEGER:
    take_digit(b, x, digit, false);
    x->phase = x->digits == 0 && !digit ? IN_ZERO : IN_INTEGER;
    return count_digit(b, x, false);
  case AT_POINT:
  case IN_FRACTION:
    take_digit(b, x, digit, true);
    x->phase = IN_FRACTION;
    return count_digit(b, x, true);
  case AT_EXPONENT:
  case AT_SIGN:
  case IN_EXPONENT: x->phase = IN_EXPONENT; return ++x->digits <= 2;
  default: return false;
  }
}

static bool step(const builder *b, state *x, uint32_t symbol) {
  bool whole = x->phase == IN_ZERO || x->phase == IN_INTEGER;
  if (symbol < 10) return step_digit(b, x, symbol);
  if (symbol == MINUS && x->phase == AT_START) {
    x->phase = AT_MINUS;
    x->negative = 1;
    return true;
  }
  if (b->spelled == ST_SPELLED_WHOLE && (symbol == POINT || symbol == EXPONENT)) return false;
  if (symbol == POINT && whole) {
    end_integer(b, x);
    x->phase = AT_POINT;
    x->digits = 0;
    return true;
  }
  if (symbol == EXPONENT && b->exponents && (whole || x->phase == IN_FRACTION)) {
    for (int i = 0; i < 2; i++) x->order[i] = b->bounds[i] ? (int8_t)final_order(b, x, i) : 0;
    x->phase = AT_EXPONENT;
    x->digits = 0;
    return true;
  }
  if ((symbol == PLUS || symbol == MINUS) && x->phase == AT_EXPONENT) {
    x->phase = AT_SIGN;
    return true;
  }
  return false;
}

// ---- the automaton ----

static bool grow_slots(builder *b) {
  size_t n = b->n_slots ? 2 * b->n_slots : 128;
  uint32_t *slots = st_calloc(n, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < b->n; i++) {
    size_t at = st_hash(ST_HASH_START, &b->states[i], sizeof *b->states) & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = (uint32_t)i + 1;
  }
  st_free(b->slots);
  b->slots = slots;
  b->n_slots = n;
  return true;
}

// The state's number; a new state is added. UINT32_MAX: a failure.
static uint32_t number_of(builder *b, const state *x) {
  if (2 * b->n >= b->n_slots && !grow_slots(b)) {
    st_schema_fail_memory(b->s);
    return UINT32_MAX;
  }
  size_t at = st_hash(ST_HASH_START, x, sizeof *x) & (b->n_slots - 1);
  for (; b->slots[at]; at = (at + 1) & (b->n_slots - 1)) {
    if (!memcmp(&b->states[b->slots[at] - 1], x, sizeof *x)) return b->slots[at] - 1;
  }
  if (b->n >= ST_SCHEMA_STATES_MOST) {
    st_schema_fail(b->s, SETUN_ERROR_LIMIT, b->s->at, NULL, "the bounds and multipleOf take more than %d states",
                   ST_SCHEMA_STATES_MOST);
    return UINT32_MAX;
  }
  if (!st_reserve(&b->states, &b->capacity, b->n + 1, sizeof *b->states)) {
    st_schema_fail_memory(b->s);
    return UINT32_MAX;
  }
  b->states[b->n++] = *x;
  b->slots[at] = (uint32_t)b->n;
  return (uint32_t)b->n - 1;
}

static void explore(builder *b) {
  state start;
  memset(&start, 0, sizeof start); // its padding is hashed
  number_of(b, &start);
  for (size_t i = 0; i < b->n && !b->s->status; i++) {
    if (!st_reserve(&b->next, &b->next_capacity, (i + 1) * SYMBOLS, sizeof *b->next)) {
      st_schema_fail_memory(b->s);
      return;
    }
    for (uint32_t symbol = 0; symbol < SYMBOLS; symbol++) {
      state x;
      memcpy(&x, &b->states[i], sizeof x);
      b->next[i * SYMBOLS + symbol] = step(b, &x, symbol) ? number_of(b, &x) : UINT32_MAX;
    }
  }
}

// Finds the states that reach an accepting one: alive[i] tells whether state i is kept.
static void find_alive(const builder *b, const uint8_t *accepting, uint8_t *alive) {
  memcpy(alive, accepting, b->n);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = b->n; i-- > 0;) { // successors mostly have higher numbers
      for (uint32_t symbol = 0; symbol < SYMBOLS && !alive[i]; symbol++) {
        uint32_t to = b->next[i * SYMBOLS + symbol];
        if (to != UINT32_MAX && alive[to]) alive[i] = 1, changed = true;
      }
    }
  }
}

static const uint8_t *symbol_classes(uint8_t class_of[256]) {
  memset(class_of, OTHER, 256);
  for (int c = '0'; c <= '9'; c++) class_of[c] = (uint8_t)(c - '0');
  class_of['-'] = MINUS, class_of['.'] = POINT, class_of['e'] = class_of['E'] = EXPONENT, class_of['+'] = PLUS;
  return class_of;
}

// The states that are alive, renumbered, as a term.
static st_term finish(builder *b) {
  uint8_t *accepting = st_calloc(b->n, 2), *alive = accepting + b->n, class_of[256];
  uint32_t *number = st_calloc(b->n, sizeof *number), n = 0;
  st_term out = ST_TERM_EMPTY;
  if (accepting && number) {
    for (size_t i = 0; i < b->n; i++) accepting[i] = accepts(b, &b->states[i]);
    find_alive(b, accepting, alive);
    for (size_t i = 0; i < b->n; i++) number[i] = alive[i] ? n++ : UINT32_MAX;
    for (size_t i = 0; i < b->n; i++) {
      if (!alive[i]) continue;
      accepting[number[i]] = accepting[i]; // number[i] <= i
      for (uint32_t k = 0; k < SYMBOLS; k++) {
        uint32_t to = b->next[i * SYMBOLS + k];
        b->next[number[i] * SYMBOLS + k] = to == UINT32_MAX ? UINT32_MAX : number[to];
      }
    }
    st_automaton automaton = {n, SYMBOLS, 0, symbol_classes(class_of), b->next, accepting};
    if (n && !number[0]) out = st_term_automaton(st_grammar_terms(b->s->grammar), &automaton);
  } else {
    st_schema_fail_memory(b->s);
  }
  st_free(accepting);
  st_free(number);
  return out;
}

// ---- multipleOf ----

static bool read_multiple(builder *b, const st_multiple *from) {
  const st_decimal *d = from->of;
  int32_t scale = (int32_t)d->n - d->point;
  uint64_t m = 0;
  for (uint32_t i = 0; i < d->n && m <= UINT32_MAX; i++) m = m * 10 + d->digits[i];
  for (; scale < 0 && m <= UINT32_MAX; scale++) m *= 10;
  if (m > ST_SCHEMA_STATES_MOST || scale > 100 || b->n_multiples == MULTIPLES_MOST) {
    st_schema_fail(b->s, SETUN_ERROR_UNSUPPORTED, b->s->at, "multipleOf",
                   "cannot be enforced: its digits as an integer must be at most %d, and %d such bounds hold at once",
                   ST_SCHEMA_STATES_MOST, MULTIPLES_MOST);
    return false;
  }
  b->multiples[b->n_multiples++] = (multiple){(uint32_t)m, (uint32_t)scale, from->negated};
  return true;
}

static st_term build(st_schema *s, const st_number_shape *number) {
  builder b = {.s = s, .bounds = {number->low, number->high}, .open = {number->low_open, number->high_open}};
  b.spelled = number->spelled;
  b.exponents = !number->n_multiples;
  for (int i = 0; i < 2; i++) {
    if (!b.bounds[i]) continue;
    b.integer_digits[i] = b.bounds[i]->point > 0 ? b.bounds[i]->point : 1;
    b.exponents &= !b.bounds[i]->n;
  }
  for (uint32_t i = 0; i < number->n_multiples; i++) {
    if (!read_multiple(&b, &number->multiples[i])) return ST_TERM_EMPTY;
  }
  limit_digits(&b);
  explore(&b);
  st_term out = s->status ? ST_TERM_EMPTY : finish(&b);
  st_free(b.states);
  st_free(b.slots);
  st_free(b.next);
  return out;
}

// ---- automata built before ----

static bool same_bound(const st_decimal *a, const st_decimal *b) {
  return a && b ? !st_decimal_compare(a, b) : a == b;
}

static bool same_numbers(const st_number_shape *a, const st_number_shape *b) {
  if (!same_bound(a->low, b->low) || !same_bound(a->high, b->high) || a->low_open != b->low_open ||
      a->high_open != b->high_open || a->spelled != b->spelled || a->n_multiples != b->n_multiples) {
    return false;
  }
  for (uint32_t i = 0; i < a->n_multiples; i++) {
    if (a->multiples[i].negated != b->multiples[i].negated) return false;
    if (st_decimal_compare(a->multiples[i].of, b->multiples[i].of)) return false;
  }
  return true;
}

st_term st_number_term(st_schema *s, const st_number_shape *number) {
  for (uint32_t i = 0; i < s->n_numbers; i++) {
    if (same_numbers(s->numbers[i].shape, number)) return s->numbers[i].term;
  }
  st_term term = build(s, number);
  if (!s->status && s->n_numbers < ST_SCHEMA_NUMBERS_MOST) {
    s->numbers[s->n_numbers].shape = number;
    s->numbers[s->n_numbers++].term = term;
  }
  return term;
}
