// GBNF, the grammars of llama.cpp: rules of literals, classes of characters, tokens, groups and repeats.
#include "constraint/frontends.h"
#include "constraint/reader.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { MOST_NESTED = 200 };

typedef struct st_gbnf {
  st_grammar *g;
  st_reader r;
  const st_tokenizer *tokenizer;
  st_map *names;
  setun_status status;
  int depth;
  st_node_stack pending;
} st_gbnf;

static st_node fail(st_gbnf *x, setun_status code, const char *message) {
  if (!x->status) x->status = st_reader_fail(&x->r, code, message);
  return ST_NODE_EMPTY;
}
static bool skip(st_gbnf *x, char c) {
  if (x->r.at == x->r.end || *x->r.at != c) return false;
  x->r.at++;
  return true;
}

// Skips white space and comments; with `lines`, newlines too.
static void skip_space(st_gbnf *x, bool lines) {
  for (; x->r.at < x->r.end; x->r.at++) {
    if (*x->r.at == '#') {
      while (x->r.at < x->r.end && *x->r.at != '\n') x->r.at++;
      if (x->r.at == x->r.end) return;
    }
    if (*x->r.at == '\n' || *x->r.at == '\r') {
      if (!lines) return;
    } else if (*x->r.at != ' ' && *x->r.at != '\t') {
      return;
    }
  }
}

static void push(st_gbnf *x, st_node node) {
  if (!st_node_stack_push(&x->pending, node) && !x->status) x->status = st_fail_memory(x->r.err, "a grammar");
}

// ---- names ----

static bool is_name(char c) {
  return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
static st_text read_name(st_gbnf *x) {
  const char *from = x->r.at;
  while (x->r.at < x->r.end && is_name(*x->r.at)) x->r.at++;
  return (st_text){from, (size_t)(x->r.at - from)};
}

static st_rule rule_of(st_gbnf *x, st_text name) {
  int64_t known = st_map_get(x->names, name.data, name.length);
  if (known >= 0) return (st_rule)known;
  st_rule rule = st_grammar_rule(x->g, name.data, name.length);
  if (!st_map_add(x->names, name.data, name.length, rule, NULL) && !x->status) {
    x->status = st_fail_memory(x->r.err, "a grammar");
  }
  return rule;
}

// ---- characters ----

// One character of a literal or class, with its escapes.
static uint32_t read_character(st_gbnf *x) {
  static const char letters[] = "nrt\\\"[]-^", meanings[] = "\n\r\t\\\"[]-^";
  if (!skip(x, '\\')) {
    uint32_t code = st_reader_next(&x->r);
    if (code == UINT32_MAX) fail(x, SETUN_ERROR_FORMAT, "a character");
    return code;
  }
  char c = x->r.at < x->r.end ? *x->r.at : '\0';
  const char *letter = c ? strchr(letters, c) : NULL;
  uint32_t code = 0;
  if (letter) return x->r.at++, (uint8_t)meanings[letter - letters];
  int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (!digits) return fail(x, SETUN_ERROR_FORMAT, "an escape: \\n, \\r, \\t, \\\\, \\\", \\[, \\], \\x, \\u or \\U");
  x->r.at++;
  if (!st_reader_hex(&x->r, digits, &code) || code > 0x10FFFF)
    fail(x, SETUN_ERROR_FORMAT, "the digits of a code point");
  return code;
}

static st_term character(st_gbnf *x, uint32_t code) {
  return st_term_ranges(st_grammar_terms(x->g), &(st_range){code, code}, 1, ST_PLAIN);
}

static st_node read_literal(st_gbnf *x) {
  size_t base = x->pending.n;
  while (!x->status && !skip(x, '"')) {
    if (x->r.at == x->r.end)
      fail(x, SETUN_ERROR_FORMAT, "\"");
    else
      push(x, character(x, read_character(x)));
  }
  st_term term = ST_TERM_EPSILON;
  while (x->pending.n > base) term = st_term_seq(st_grammar_terms(x->g), x->pending.items[--x->pending.n], term);
  return st_node_term(x->g, term);
}

static st_node read_class(st_gbnf *x) {
  st_ranges r = {0};
  bool negated = skip(x, '^');
  while (!x->status && !skip(x, ']')) {
    uint32_t first = read_character(x), last = first;
    if (x->r.end - x->r.at >= 2 && x->r.at[0] == '-' && x->r.at[1] != ']') {
      x->r.at++;
      last = read_character(x);
      if (last < first) fail(x, SETUN_ERROR_FORMAT, "a range in ascending order");
    }
    st_ranges_add(&r, first, last);
  }
  if (negated) st_ranges_complement(&r);
  st_ranges_normalize(&r);
  if (r.failed && !x->status) x->status = st_fail_memory(x->r.err, "a grammar");
  st_term term = st_term_ranges(st_grammar_terms(x->g), r.items, r.n, ST_PLAIN);
  st_free(r.items);
  return st_node_term(x->g, term);
}

// ---- rules ----

static st_node token(st_gbnf *x, bool negated) {
  st_node node = ST_NODE_EMPTY;
  if (!x->status) x->status = st_reader_token(&x->r, x->g, x->tokenizer, negated, &node);
  return node;
}

static st_node read_alternatives(st_gbnf *x, bool nested);

static st_node read_symbol(st_gbnf *x) {
  if (skip(x, '"')) return read_literal(x);
  if (skip(x, '[')) return read_class(x);
  if (skip(x, '.')) return st_node_term(x->g, st_term_any_character(st_grammar_terms(x->g), ST_PLAIN));
  if (x->r.at < x->r.end && *x->r.at == '<') return token(x, false);
  if (skip(x, '!')) {
    if (x->r.at < x->r.end && *x->r.at == '<') return token(x, true);
    return fail(x, SETUN_ERROR_FORMAT, "a token, as in !<[3]>");
  }
  if (skip(x, '(')) {
    if (++x->depth > MOST_NESTED) return fail(x, SETUN_ERROR_LIMIT, "groups are nested too deeply");
    st_node inside = read_alternatives(x, true);
    x->depth--;
    if (!x->status && !skip(x, ')')) fail(x, SETUN_ERROR_FORMAT, ")");
    return inside;
  }
  st_text name = read_name(x);
  if (!name.length) return fail(x, SETUN_ERROR_FORMAT, "a rule's name, a literal, a class, a token or a group");
  return st_node_rule(x->g, rule_of(x, name));
}

static st_node read_repeat(st_gbnf *x, st_node symbol) {
  uint32_t min = 0, max = ST_UNBOUNDED;
  if (skip(x, '*')) return st_node_repeat(x->g, symbol, 0, max);
  if (skip(x, '+')) return st_node_repeat(x->g, symbol, 1, max);
  if (skip(x, '?')) return st_node_repeat(x->g, symbol, 0, 1);
  if (!skip(x, '{')) return symbol;
  skip_space(x, true);
  bool any = st_reader_number(&x->r, &min);
  skip_space(x, true);
  if (skip(x, ',')) {
    skip_space(x, true);
    any |= st_reader_number(&x->r, &max);
    skip_space(x, true);
  } else {
    max = min;
  }
  if (!any || !skip(x, '}')) return fail(x, SETUN_ERROR_FORMAT, "counts, as in {2}, {2,} or {2,5}");
  if (max < min) return fail(x, SETUN_ERROR_FORMAT, "counts in ascending order");
  return st_node_repeat(x->g, symbol, min, max);
}

static st_node read_sequence(st_gbnf *x, bool nested) {
  size_t base = x->pending.n;
  skip_space(x, nested);
  while (!x->status && x->r.at < x->r.end && !strchr("|)\n\r", *x->r.at)) {
    st_node symbol = read_symbol(x);
    for (const char *before = NULL; !x->status && x->r.at != before;) { // repeated operators, as in "a"*?
      skip_space(x, nested);
      before = x->r.at;
      symbol = read_repeat(x, symbol);
    }
    push(x, symbol);
  }
  return x->status ? ST_NODE_EMPTY : st_node_stack_join(&x->pending, base, x->g, st_node_seq);
}

static st_node read_alternatives(st_gbnf *x, bool nested) {
  size_t base = x->pending.n;
  for (bool more = true; more && !x->status;) {
    push(x, read_sequence(x, nested));
    more = skip(x, '|');
    if (more) skip_space(x, true);
  }
  return x->status ? ST_NODE_EMPTY : st_node_stack_join(&x->pending, base, x->g, st_node_alt);
}

static void read_rule(st_gbnf *x) {
  const char *from = x->r.at;
  st_text name = read_name(x);
  skip_space(x, false);
  if (!name.length || x->r.end - x->r.at < 3 || memcmp(x->r.at, "::=", 3)) {
    fail(x, SETUN_ERROR_FORMAT, name.length ? "::=" : "a rule's name");
    return;
  }
  st_rule rule = rule_of(x, name);
  if (st_grammar_is_defined(x->g, rule)) {
    x->r.at = from;
    fail(x, SETUN_ERROR_FORMAT, "a rule that is not defined already");
    return;
  }
  x->r.at += 3;
  skip_space(x, true);
  st_node body = read_alternatives(x, false);
  if (!x->status && x->r.at < x->r.end && *x->r.at != '\n' && *x->r.at != '\r')
    fail(x, SETUN_ERROR_FORMAT, "a new line");
  st_grammar_define(x->g, rule, body);
  skip_space(x, true);
}

static setun_status read_rules(st_gbnf *x) {
  if (!st_utf8_valid(x->r.at, (size_t)(x->r.end - x->r.at))) {
    return st_fail(x->r.err, SETUN_ERROR_FORMAT, "%s is not UTF-8", x->r.name);
  }
  for (skip_space(x, true); !x->status && x->r.at < x->r.end;) read_rule(x);
  if (x->status) return x->status;
  int64_t root = st_map_get(x->names, "root", 4);
  if (root < 0) return st_fail(x->r.err, SETUN_ERROR_FORMAT, "%s: the rule \"root\" is missing", x->r.name);
  st_grammar_set_root(x->g, st_node_rule(x->g, (st_rule)root));
  return st_grammar_status(x->g, x->r.err);
}

setun_status st_grammar_from_gbnf(const char *text, size_t length, const char *name, const st_tokenizer *tokenizer,
                                  const st_constraint_limits *limits, st_grammar **out, setun_error *err) {
  st_gbnf x = {.r = {.begin = text, .at = text, .end = text + length, .name = name, .err = err},
               .tokenizer = tokenizer};
  setun_status status = st_grammar_new(limits, &x.g, err);
  if (status) return status;
  x.names = st_map_new(64);
  status = x.names ? read_rules(&x) : st_fail_memory(err, "a grammar");
  st_map_free(x.names);
  st_free(x.pending.items);
  if (status)
    st_grammar_free(x.g);
  else
    *out = x.g;
  return status;
}
