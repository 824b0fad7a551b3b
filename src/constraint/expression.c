// Converts regular expressions of ECMA 262 (with its flag u) to terms.
//
// Parts without assertions become terms as they are read. The remainder is a tree of assertions and the parts around
// them, which is converted from its end: begin(x, rest) is the set of texts made of a match of x followed by `rest`, so
// that a look-ahead is an intersection with the remaining text, and $ requires that it is empty.
#include "constraint/expression.h"
#include "constraint/frontends.h"
#include "constraint/terms_table.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { MOST_NESTED = 200, MOST_UNROLLED = 32, LAST_CHARACTER = 0x10FFFF };

typedef enum st_part_kind {
  PART_TERM,
  PART_SEQ,
  PART_ALT,
  PART_REPEAT,
  PART_BEGIN,
  PART_END,
  PART_AHEAD,
  PART_NOT_AHEAD
} st_part_kind;

typedef struct st_expression_part {
  st_part_kind kind;
  bool nullable, begins; // may match the empty text; contains a ^
  st_term term;
  uint32_t a, b;     // members of a list: [a, a + b) of `members`; a part
  uint32_t min, max; // of a repeat
} st_expression_part;

typedef struct st_expression {
  st_terms *t;
  st_reader r;
  st_spelling spelling;
  st_expression_flags flags;
  setun_status status;
  int depth;
  st_expression_part *parts;
  size_t n_parts, parts_capacity;
  uint32_t *members;
  size_t n_members, members_capacity;
  uint32_t *pending; // members of lists that are being read
  size_t n_pending, pending_capacity;
} st_expression;

static bool fail(st_expression *x, setun_status code, const char *message) {
  if (!x->status) x->status = st_reader_fail(&x->r, code, message);
  return false;
}
static bool unsupported(st_expression *x, const char *what) {
  return fail(x, SETUN_ERROR_UNSUPPORTED, what);
}
static bool no_memory(st_expression *x) {
  if (!x->status) x->status = st_fail_memory(x->r.err, "an expression");
  return false;
}

static bool no_terms(st_expression *x) {
  if (!x->status) x->status = st_terms_status(x->t, x->r.err);
  return false;
}

static uint32_t add_part(st_expression *x, st_expression_part p) {
  if (!st_terms_reserve(x->t, &x->parts, &x->parts_capacity, x->n_parts + 1, sizeof p)) return no_terms(x);
  x->parts[x->n_parts++] = p;
  return (uint32_t)x->n_parts - 1;
}
static uint32_t term_part(st_expression *x, st_term term) {
  if (term == ST_TERM_EMPTY && st_terms_status(x->t, NULL)) return no_terms(x);
  return add_part(x,
                  (st_expression_part){.kind = PART_TERM, .nullable = st_term_is_nullable(x->t, term), .term = term});
}
static bool add_pending(st_expression *x, uint32_t part) {
  if (!st_terms_reserve(x->t, &x->pending, &x->pending_capacity, x->n_pending + 1, sizeof part)) return no_terms(x);
  x->pending[x->n_pending++] = part;
  return true;
}

// ---- characters ----

static st_term characters(st_expression *x, st_ranges *r) {
  if (x->flags.ignore_case) st_ranges_ignore_case(r);
  st_ranges_normalize(r);
  if (r->failed) no_memory(x);
  return st_term_ranges(x->t, r->items, r->n, x->spelling);
}

static st_term dot(st_expression *x) {
  st_ranges r = {0};
  st_ranges_add(&r, '\n', '\n');
  if (!x->flags.dot_all) st_ranges_add(&r, '\r', '\r'), st_ranges_add(&r, 0x2028, 0x2029);
  if (x->flags.dot_all) r.n = 0;
  st_ranges_complement(&r);
  st_term term = characters(x, &r);
  st_free(r.items);
  return term;
}

// After "\u": four digits, two such escapes that form a surrogate pair, or any number of digits in braces.
static bool read_unicode(st_expression *x, uint32_t *code) {
  uint32_t low;
  if (st_reader_skip(&x->r, "{")) {
    const char *from = x->r.at;
    *code = 0;
    uint32_t digit;
    while (*code <= LAST_CHARACTER && st_reader_hex(&x->r, 1, &digit)) *code = *code << 4 | digit;
    return (x->r.at > from && *code <= LAST_CHARACTER && st_reader_skip(&x->r, "}")) ||
           fail(x, SETUN_ERROR_FORMAT, "a code point and }");
  }
  if (!st_reader_hex(&x->r, 4, code)) return fail(x, SETUN_ERROR_FORMAT, "four hexadecimal digits");
  if (*code >> 10 != 0xD800 >> 10) return true;
  const char *before = x->r.at;
  if (st_reader_skip(&x->r, "\\u") && st_reader_hex(&x->r, 4, &low) && low >> 10 == 0xDC00 >> 10) {
    *code = 0x10000 + ((*code & 1023) << 10) + (low & 1023);
  } else {
    x->r.at = before;
  }
  return true;
}

// After a backslash, when it means a single character.
static bool read_escape(st_expression *x, bool in_class, uint32_t *code) {
  static const char letters[] = "fnrtv", meanings[] = "\f\n\r\t\v";
  const char *from = x->r.at;
  uint32_t c = st_reader_next(&x->r);
  const char *letter = c < 128 && c ? strchr(letters, (int)c) : NULL;
  if (letter && *letter) return *code = (uint8_t)meanings[letter - letters], true;
  if (c == 'u') return read_unicode(x, code);
  if (c == 'x') return st_reader_hex(&x->r, 2, code) || fail(x, SETUN_ERROR_FORMAT, "two hexadecimal digits");
  if (c == 'b' && in_class) return *code = 8, true;
  if (c == '0' && !(x->r.at < x->r.end && *x->r.at >= '0' && *x->r.at <= '9')) return *code = 0, true;
  if (c == 'c' && x->r.at < x->r.end && (*x->r.at | 32) >= 'a' && (*x->r.at | 32) <= 'z') {
    return *code = (uint8_t)*x->r.at++ & 31, true;
  }
  bool word = c < 128 && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'));
  if (!word && c != UINT32_MAX) return *code = c, true;
  x->r.at = from;
  if (c == 'b' || c == 'B') return unsupported(x, "word boundaries (\\b) are not supported");
  if (c == 'k' || (c >= '1' && c <= '9')) return unsupported(x, "back references are not supported");
  if (c == 'p' || c == 'P') return unsupported(x, "Unicode properties (\\p) are not supported");
  return fail(x, SETUN_ERROR_FORMAT, "an escape");
}

// One member of a class: a character, or another class (*single is then false).
static bool class_member(st_expression *x, st_ranges *r, bool *single, uint32_t *code) {
  *single = true;
  if (!st_reader_skip(&x->r, "\\")) {
    *code = st_reader_next(&x->r);
    return *code != UINT32_MAX || fail(x, SETUN_ERROR_FORMAT, "]");
  }
  if (x->r.at < x->r.end && st_ranges_add_class(r, *x->r.at)) {
    *single = false;
    x->r.at++;
    return true;
  }
  return read_escape(x, true, code);
}

static st_term read_class(st_expression *x) {
  st_ranges r = {0};
  bool negated = st_reader_skip(&x->r, "^"), single;
  while (!x->status && !st_reader_skip(&x->r, "]")) {
    uint32_t first, last;
    if (!class_member(x, &r, &single, &first) || !single) continue;
    last = first;
    if (st_reader_peek(&x->r, "-") && !st_reader_peek(&x->r, "-]")) {
      const char *before = x->r.at;
      x->r.at++;
      if (!class_member(x, &r, &single, &last)) break;
      if (!single) { // as in [a-\d]: the hyphen is literal
        st_ranges_add(&r, '-', '-');
        last = first;
      } else if (last < first) {
        x->r.at = before;
        fail(x, SETUN_ERROR_FORMAT, "a range in ascending order");
      }
    }
    st_ranges_add(&r, first, last);
  }
  if (x->flags.ignore_case) st_ranges_ignore_case(&r); // before the complement
  if (negated) st_ranges_complement(&r);
  st_term term = characters(x, &r);
  st_free(r.items);
  return term;
}

// ---- the tree ----

static uint32_t read_alternatives(st_expression *x);

// Makes the pending parts from `base` on one part; if all are terms, one term.
static uint32_t list_part(st_expression *x, st_part_kind kind, size_t base) {
  st_expression_part p = {.kind = kind, .nullable = kind == PART_SEQ};
  size_t n = x->n_pending - base, terms = 0;
  const uint32_t *list = x->pending + base;
  for (size_t i = 0; i < n; i++) {
    const st_expression_part *m = &x->parts[list[i]];
    p.begins |= m->begins;
    p.nullable = kind == PART_SEQ ? p.nullable && m->nullable : p.nullable || m->nullable;
    terms += m->kind == PART_TERM;
  }
  x->n_pending = base;
  if (n == 1) return list[0];
  if (terms < n) {
    if (!st_terms_reserve(x->t, &x->members, &x->members_capacity, x->n_members + n, sizeof *list)) return no_terms(x);
    memcpy(x->members + x->n_members, list, n * sizeof *list);
    p.a = (uint32_t)x->n_members, p.b = (uint32_t)n;
    x->n_members += n;
    return add_part(x, p);
  }
  st_term *terms_of = x->pending + base, joined = ST_TERM_EPSILON;
  for (size_t i = 0; i < n; i++) terms_of[i] = x->parts[list[i]].term;
  if (kind == PART_ALT) return term_part(x, st_term_alt(x->t, terms_of, n));
  while (n--) joined = st_term_seq(x->t, terms_of[n], joined);
  return term_part(x, joined);
}

static uint32_t group(st_expression *x, st_part_kind kind) {
  uint32_t inside = 0;
  if (++x->depth > MOST_NESTED)
    fail(x, SETUN_ERROR_LIMIT, "groups are nested too deeply");
  else
    inside = read_alternatives(x);
  x->depth--;
  if (!x->status && !st_reader_skip(&x->r, ")")) fail(x, SETUN_ERROR_FORMAT, ")");
  if (x->status || kind == PART_SEQ) return inside;
  if (x->parts[inside].begins) unsupported(x, "^ inside a look-ahead is not supported");
  return add_part(x, (st_expression_part){.kind = kind, .nullable = true, .a = inside});
}

static uint32_t read_group(st_expression *x) {
  if (st_reader_skip(&x->r, "?:")) return group(x, PART_SEQ);
  if (st_reader_skip(&x->r, "?=")) return group(x, PART_AHEAD);
  if (st_reader_skip(&x->r, "?!")) return group(x, PART_NOT_AHEAD);
  if (st_reader_peek(&x->r, "?<=") || st_reader_peek(&x->r, "?<!"))
    return unsupported(x, "look-behind is not supported");
  if (st_reader_skip(&x->r, "?<")) { // a group's name, which is not used
    while (x->r.at < x->r.end && *x->r.at != '>' && *x->r.at != ')') x->r.at++;
    if (!st_reader_skip(&x->r, ">")) return fail(x, SETUN_ERROR_FORMAT, ">");
  } else if (st_reader_peek(&x->r, "?")) {
    return unsupported(x, "groups with flags are not supported");
  }
  return group(x, PART_SEQ);
}

static uint32_t read_atom(st_expression *x) {
  const char *from = x->r.at;
  if (st_reader_skip(&x->r, "^"))
    return add_part(x, (st_expression_part){.kind = PART_BEGIN, .nullable = true, .begins = true});
  if (st_reader_skip(&x->r, "$")) return add_part(x, (st_expression_part){.kind = PART_END, .nullable = true});
  if (st_reader_skip(&x->r, "(")) return read_group(x);
  if (st_reader_skip(&x->r, "[")) return term_part(x, read_class(x));
  if (st_reader_skip(&x->r, ".")) return term_part(x, dot(x));
  st_ranges r = {0};
  uint32_t code = 0;
  if (st_reader_skip(&x->r, "\\")) {
    if (x->r.at < x->r.end && st_ranges_add_class(&r, *x->r.at))
      x->r.at++;
    else if (read_escape(x, false, &code))
      st_ranges_add(&r, code, code);
  } else {
    code = st_reader_next(&x->r);
    if (code == '*' || code == '+' || code == '?') {
      x->r.at = from;
      fail(x, SETUN_ERROR_FORMAT, "an item to repeat");
    }
    st_ranges_add(&r, code, code);
  }
  st_term term = characters(x, &r);
  st_free(r.items);
  return term_part(x, term);
}

// {m}, {m,} or {m,n}; false: a literal brace, as without the flag u.
static bool read_counts(st_expression *x, uint32_t *min, uint32_t *max) {
  const char *before = x->r.at;
  if (st_reader_skip(&x->r, "{") && st_reader_number(&x->r, min)) {
    *max = *min;
    if (st_reader_skip(&x->r, ",") && !st_reader_number(&x->r, max)) *max = ST_UNBOUNDED;
    if (st_reader_skip(&x->r, "}")) return true;
  }
  x->r.at = before;
  return false;
}

static uint32_t quantified(st_expression *x, uint32_t atom) {
  uint32_t min, max;
  const char *from = x->r.at;
  if (st_reader_skip(&x->r, "*"))
    min = 0, max = ST_UNBOUNDED;
  else if (st_reader_skip(&x->r, "+"))
    min = 1, max = ST_UNBOUNDED;
  else if (st_reader_skip(&x->r, "?"))
    min = 0, max = 1;
  else if (!read_counts(x, &min, &max))
    return atom;
  st_reader_skip(&x->r, "?"); // lazy or greedy: it does not affect whether there is a match
  if (max < min) {
    x->r.at = from;
    return fail(x, SETUN_ERROR_FORMAT, "counts in ascending order");
  }
  st_expression_part p = x->parts[atom];
  if (p.kind == PART_TERM) return term_part(x, st_term_repeat(x->t, p.term, min, max));
  if (max > MOST_UNROLLED) {
    x->r.at = from;
    return unsupported(x, "unbounded repeats of assertions are not supported");
  }
  return add_part(x, (st_expression_part){PART_REPEAT, p.nullable || !min, p.begins, 0, atom, 0, min, max});
}

static uint32_t read_sequence(st_expression *x) {
  size_t base = x->n_pending;
  while (!x->status && x->r.at < x->r.end && !st_reader_peek(&x->r, "|") && !st_reader_peek(&x->r, ")")) {
    uint32_t atom = read_atom(x);
    if (!x->status) add_pending(x, quantified(x, atom));
  }
  if (x->status) return 0;
  return x->n_pending == base ? term_part(x, ST_TERM_EPSILON) : list_part(x, PART_SEQ, base);
}

static uint32_t read_alternatives(st_expression *x) {
  size_t base = x->n_pending;
  do add_pending(x, read_sequence(x));
  while (!x->status && st_reader_skip(&x->r, "|"));
  return x->status ? 0 : list_part(x, PART_ALT, base);
}

// ---- from the tree to a term ----

static st_term begin(st_expression *x, uint32_t part, st_term rest, bool at_start);

// The members from `i` on, then `rest`. If an earlier member may be empty, a later ^ may still be at the start.
static st_term begin_sequence(st_expression *x, st_expression_part p, uint32_t i, st_term rest, bool at_start) {
  if (i == p.b) return rest;
  uint32_t first = x->members[p.a + i];
  bool later = false;
  for (uint32_t k = i + 1; k < p.b; k++) later |= x->parts[x->members[p.a + k]].begins;
  if (!at_start || !later) return begin(x, first, begin_sequence(x, p, i + 1, rest, false), at_start);
  st_part_kind kind = x->parts[first].kind;
  st_term started = begin_sequence(x, p, i + 1, rest, true);
  if (kind == PART_BEGIN || kind == PART_END || kind == PART_AHEAD || kind == PART_NOT_AHEAD) {
    return begin(x, first, started, true);
  }
  st_term result = begin(x, first, begin_sequence(x, p, i + 1, rest, false), true);
  return x->parts[first].nullable ? st_term_alt2(x->t, result, started) : result;
}

// Builds the repeat from its end: each repetition is followed by another one or, if there were enough, by the rest.
static st_term begin_repeat(st_expression *x, st_expression_part p, st_term rest, bool at_start) {
  st_term result = rest;
  for (uint32_t left = 1; left <= p.max; left++) {
    st_term more = begin(x, p.a, result, at_start && left == p.max);
    result = p.max - left >= p.min ? st_term_alt2(x->t, rest, more) : more;
  }
  return result;
}

static st_term begin(st_expression *x, uint32_t part, st_term rest, bool at_start) {
  st_expression_part p = x->parts[part];
  st_term any = st_term_any_text(x->t, x->spelling), ahead, result = ST_TERM_EMPTY;
  switch (p.kind) {
  case PART_TERM: return st_term_seq(x->t, p.term, rest);
  case PART_SEQ: return begin_sequence(x, p, 0, rest, at_start);
  case PART_ALT:
    for (uint32_t i = 0; i < p.b; i++) {
      result = st_term_alt2(x->t, result, begin(x, x->members[p.a + i], rest, at_start));
    }
    return result;
  case PART_REPEAT: return begin_repeat(x, p, rest, at_start);
  case PART_BEGIN: return at_start ? rest : ST_TERM_EMPTY;
  case PART_END: return st_term_is_nullable(x->t, rest) ? ST_TERM_EPSILON : ST_TERM_EMPTY;
  case PART_AHEAD: return st_term_and2(x->t, begin(x, p.a, any, false), rest);
  case PART_NOT_AHEAD: ahead = begin(x, p.a, any, false); return st_term_and2(x->t, st_term_not(x->t, ahead), rest);
  }
  return result;
}

static void free_parts(st_expression *x) {
  st_terms_discharge(x->t, x->parts_capacity * sizeof *x->parts + x->members_capacity * sizeof *x->members +
                               x->pending_capacity * sizeof *x->pending);
  st_free(x->parts), st_free(x->members), st_free(x->pending);
}

static setun_status compile(st_expression *x, bool search, st_term *out) {
  if (!st_utf8_valid(x->r.at, (size_t)(x->r.end - x->r.at))) {
    return st_fail(x->r.err, SETUN_ERROR_FORMAT, "%s is not UTF-8", x->r.name ? x->r.name : "the expression");
  }
  uint32_t all = read_alternatives(x);
  if (!x->status && x->r.at < x->r.end) fail(x, SETUN_ERROR_FORMAT, "the end");
  if (!x->status) {
    st_term any = st_term_any_text(x->t, x->spelling), rest = search ? any : ST_TERM_EPSILON;
    *out = begin(x, all, rest, true);
    if (search) *out = st_term_alt2(x->t, *out, st_term_seq(x->t, any, begin(x, all, rest, false)));
    x->status = st_terms_status(x->t, x->r.err);
  }
  free_parts(x);
  return x->status;
}

setun_status st_expression_whole(st_terms *t, st_reader r, st_expression_flags flags, st_term *out) {
  st_expression x = {.t = t, .r = r, .spelling = ST_PLAIN, .flags = flags};
  return compile(&x, false, out);
}

setun_status st_expression_term(st_terms *t, const char *text, size_t length, bool search, st_spelling spelling,
                                st_term *out, setun_error *err) {
  st_reader r = {.begin = text, .at = text, .end = text + length, .err = err};
  st_expression x = {.t = t, .r = r, .spelling = spelling};
  return compile(&x, search, out);
}

setun_status st_grammar_from_expression(const char *text, size_t length, const st_constraint_limits *limits,
                                        st_grammar **out, setun_error *err) {
  st_grammar *g;
  st_term term;
  setun_status status = st_grammar_new(limits, &g, err);
  if (status) return status;
  status = st_expression_term(st_grammar_terms(g), text, length, false, ST_PLAIN, &term, err);
  if (!status) {
    st_grammar_set_root(g, st_node_term(g, term));
    status = st_grammar_status(g, err);
  }
  if (status)
    st_grammar_free(g);
  else
    *out = g;
  return status;
}
