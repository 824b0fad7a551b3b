// The commonly used subset of Lark's grammars: rules and terminals of strings, expressions, ranges, groups, options and
// repeats; %ignore, and %import of the library "common". In terminals, & and a leading ~ are intersection and
// complement.
//
// There is no separate lexer: a rule matches wherever its characters do, so "int" NAME also matches "intx". The
// terminals named by %ignore may come before every string and terminal of a rule and at the end.
#include "constraint/expression.h"
#include "constraint/frontends.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { MOST_NESTED = 200 };

// Terminals of the library "common", as expressions.
static const struct {
  const char *name, *expression;
} COMMON[] = {
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"CR", "\\r"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"DIGIT", "[0-9]"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"LCASE_LETTER", "[a-z]"},
    {"LETTER", "[A-Za-z]"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"NUMBER", "([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"UCASE_LETTER", "[A-Z]"},
    {"WORD", "[A-Za-z]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"WS_INLINE", "[ \\t]+"},
};
enum { N_COMMON = sizeof COMMON / sizeof *COMMON };

// A rule, or a terminal that becomes one term when it is first used.
typedef struct st_lark_symbol {
  st_text name;
  const char *body, *end; // of its text; NULL: imported
  const char *imported;   // an expression
  st_rule rule;
  st_term term;
  uint8_t state; // for terminals: 0 not read, 1 being read, 2 read
} st_lark_symbol;

typedef struct st_lark {
  st_grammar *g;
  st_reader r;
  const st_tokenizer *tokenizer;
  st_map *names;
  st_lark_symbol *symbols;
  size_t n_symbols, symbols_capacity;
  st_lark_symbol *ignored; // bodies of %ignore
  size_t n_ignored, ignored_capacity;
  st_term ignore; // any number of ignored terminals
  bool in_terminal;
  setun_status status;
  int depth;
  st_node_stack pending;
} st_lark;

static st_node fail(st_lark *x, setun_status code, const char *message) {
  if (!x->status) x->status = st_reader_fail(&x->r, code, message);
  return ST_NODE_EMPTY;
}
static bool no_memory(st_lark *x) {
  if (!x->status) x->status = st_fail_memory(x->r.err, "a grammar");
  return false;
}
static void skip_space(st_lark *x) {
  while (x->r.at < x->r.end) {
    if (st_reader_peek(&x->r, "//") || *x->r.at == '#') {
      while (x->r.at < x->r.end && *x->r.at != '\n') x->r.at++;
    } else if (memchr(" \t\r\n", *x->r.at, 4)) {
      x->r.at++;
    } else {
      return;
    }
  }
}

static bool is_name(char c) {
  return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '_';
}
static st_text read_name(st_lark *x) {
  const char *from = x->r.at;
  while (x->r.at < x->r.end && is_name(*x->r.at)) x->r.at++;
  return (st_text){from, (size_t)(x->r.at - from)};
}
static bool is_terminal(st_text name) {
  for (size_t i = 0; i < name.length; i++) {
    if (name.data[i] >= 'a' && name.data[i] <= 'z') return false;
    if (name.data[i] >= 'A' && name.data[i] <= 'Z') return true;
  }
  return false;
}

// ---- statements: what is defined where ----

static st_lark_symbol *add_symbol(st_lark *x, st_text name) {
  if (st_map_get(x->names, name.data, name.length) >= 0) {
    x->r.at = name.data;
    fail(x, SETUN_ERROR_FORMAT, "a name that is not defined already");
    return NULL;
  }
  if (!st_reserve(&x->symbols, &x->symbols_capacity, x->n_symbols + 1, sizeof *x->symbols) ||
      !st_map_add(x->names, name.data, name.length, (int64_t)x->n_symbols, NULL)) {
    no_memory(x);
    return NULL;
  }
  st_lark_symbol *s = &x->symbols[x->n_symbols++];
  *s = (st_lark_symbol){.name = name};
  if (!is_terminal(name)) s->rule = st_grammar_rule(x->g, name.data, name.length);
  return s;
}

// From after the opening character of a string or an expression to after its closing one.
static void skip_quoted(st_lark *x, char close) {
  while (x->r.at < x->r.end && *x->r.at != close && *x->r.at != '\n') {
    if (*x->r.at == '\\' && x->r.at + 1 < x->r.end) x->r.at++;
    x->r.at++;
  }
  if (x->r.at < x->r.end && *x->r.at == close) x->r.at++;
}

// Skips a body: up to a line end that is outside brackets and not followed by a line that begins with |.
static const char *skip_body(st_lark *x) {
  int brackets = 0;
  while (x->r.at < x->r.end) {
    char c = *x->r.at;
    if (st_reader_peek(&x->r, "//") || c == '#') {
      while (x->r.at < x->r.end && *x->r.at != '\n') x->r.at++;
      continue;
    }
    if (c == '\n' && brackets <= 0) {
      const char *end = x->r.at;
      skip_space(x);
      if (!st_reader_peek(&x->r, "|")) return end;
    }
    x->r.at += x->r.at < x->r.end;
    if (c == '"' || c == '/') skip_quoted(x, c);
    brackets += (c == '(' || c == '[') - (c == ')' || c == ']');
  }
  return x->r.end;
}

static void import_name(st_lark *x, st_text name, st_text as) {
  for (int i = 0; i < N_COMMON; i++) {
    if (strlen(COMMON[i].name) != name.length || memcmp(COMMON[i].name, name.data, name.length)) continue;
    st_lark_symbol *s = add_symbol(x, as);
    if (s) s->imported = COMMON[i].expression;
    return;
  }
  x->r.at = name.data;
  fail(x, SETUN_ERROR_UNSUPPORTED, "this terminal of the library \"common\" is not supported");
}

// %import common.NAME, optionally with -> NAME, or %import common (NAME, NAME)
static void read_import(st_lark *x) {
  skip_space(x);
  if (!st_reader_skip(&x->r, "common")) {
    fail(x, SETUN_ERROR_UNSUPPORTED, "only the library \"common\" can be imported from");
    return;
  }
  skip_space(x);
  if (st_reader_skip(&x->r, ".")) {
    st_text name = read_name(x), as = name;
    while (x->r.at < x->r.end && (*x->r.at == ' ' || *x->r.at == '\t')) x->r.at++;
    if (st_reader_skip(&x->r, "->")) {
      skip_space(x);
      as = read_name(x);
    }
    import_name(x, name, as);
    return;
  }
  if (!st_reader_skip(&x->r, "(")) fail(x, SETUN_ERROR_FORMAT, "a name of the library, or names in parentheses");
  while (!x->status && !st_reader_skip(&x->r, ")")) {
    skip_space(x);
    st_text name = read_name(x);
    if (!name.length)
      fail(x, SETUN_ERROR_FORMAT, "a name");
    else
      import_name(x, name, name);
    skip_space(x);
    st_reader_skip(&x->r, ",");
    skip_space(x);
  }
}

static void read_directive(st_lark *x) {
  if (st_reader_skip(&x->r, "import")) {
    read_import(x);
  } else if (st_reader_skip(&x->r, "ignore")) {
    if (!st_reserve(&x->ignored, &x->ignored_capacity, x->n_ignored + 1, sizeof *x->ignored)) {
      no_memory(x);
      return;
    }
    const char *body = x->r.at;
    x->ignored[x->n_ignored++] = (st_lark_symbol){.body = body, .end = skip_body(x)};
  } else {
    fail(x, SETUN_ERROR_UNSUPPORTED, "the only supported directives are %import and %ignore");
  }
}

static void read_statement(st_lark *x) {
  if (st_reader_skip(&x->r, "%")) {
    read_directive(x);
    return;
  }
  while (st_reader_skip(&x->r, "?") || st_reader_skip(&x->r, "!")) {} // a modifier for building trees
  st_text name = read_name(x);
  skip_space(x);
  if (name.length && st_reader_peek(&x->r, "{")) fail(x, SETUN_ERROR_UNSUPPORTED, "templates are not supported");
  if (name.length && st_reader_peek(&x->r, ".")) fail(x, SETUN_ERROR_UNSUPPORTED, "priorities are not supported");
  if (!name.length || !st_reader_skip(&x->r, ":"))
    fail(x, SETUN_ERROR_FORMAT, name.length ? ":" : "a rule's or a terminal's name");
  st_lark_symbol *s = x->status ? NULL : add_symbol(x, name);
  if (!s) return;
  s->body = x->r.at;
  s->end = skip_body(x);
}

// ---- expansions ----

static void push(st_lark *x, st_node node) {
  if (!st_node_stack_push(&x->pending, node)) no_memory(x);
}

static st_node read_expansions(st_lark *x);

// A string or an expression: in a rule, ignored terminals may come before it.
static st_node terminal_node(st_lark *x, st_term term) {
  if (x->in_terminal) return st_node_term(x->g, term);
  return st_node_term(x->g, st_term_seq(st_grammar_terms(x->g), x->ignore, term));
}

static uint32_t read_character(st_lark *x) {
  static const char letters[] = "nrtfv\\\"'/", meanings[] = "\n\r\t\f\v\\\"'/";
  if (!st_reader_skip(&x->r, "\\")) return st_reader_next(&x->r);
  char c = x->r.at < x->r.end ? *x->r.at : '\0';
  const char *letter = c ? strchr(letters, c) : NULL;
  if (letter) return x->r.at++, (uint8_t)meanings[letter - letters];
  int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  uint32_t code = 0;
  x->r.at += digits > 0;
  if (!digits || !st_reader_hex(&x->r, digits, &code) || code > 0x10FFFF) fail(x, SETUN_ERROR_FORMAT, "an escape");
  return code;
}

// Reads a string, after its opening quote. *only: the single character of the string, for ranges.
static st_term read_string(st_lark *x, uint32_t *only) {
  st_terms *t = st_grammar_terms(x->g);
  const char *from = x->r.at, *end;
  skip_quoted(x, '"');
  end = x->r.at - 1;
  if (end < from || *end != '"') return fail(x, SETUN_ERROR_FORMAT, "a string's end");
  bool ignore_case = st_reader_peek(&x->r, "i") && !(x->r.at + 1 < x->r.end && is_name(x->r.at[1]));
  const char *after = x->r.at + ignore_case;
  size_t base = x->pending.n, n = 0;
  x->r.at = from;
  while (!x->status && x->r.at < end) {
    st_ranges r = {0};
    *only = read_character(x);
    n++;
    st_ranges_add(&r, *only, *only);
    if (ignore_case) st_ranges_ignore_case(&r);
    st_ranges_normalize(&r);
    push(x, r.failed ? no_memory(x) : st_term_ranges(t, r.items, r.n, ST_PLAIN));
    st_free(r.items);
  }
  if (n != 1) *only = UINT32_MAX;
  st_term term = ST_TERM_EPSILON;
  while (x->pending.n > base) term = st_term_seq(t, x->pending.items[--x->pending.n], term);
  if (!x->status) x->r.at = after;
  return term;
}

static st_node read_string_or_range(st_lark *x) {
  uint32_t first, last;
  st_term term = read_string(x, &first);
  if (x->status || !st_reader_skip(&x->r, "..")) return terminal_node(x, term);
  if (!st_reader_skip(&x->r, "\"")) return fail(x, SETUN_ERROR_FORMAT, "the string that ends the range");
  read_string(x, &last);
  if (x->status || first == UINT32_MAX || last == UINT32_MAX || last < first) {
    return fail(x, SETUN_ERROR_FORMAT, "two strings of one character in ascending order");
  }
  return terminal_node(x, st_term_ranges(st_grammar_terms(x->g), &(st_range){first, last}, 1, ST_PLAIN));
}

// Reads an expression, after its opening slash.
static st_node read_expression(st_lark *x) {
  st_reader inside = x->r;
  skip_quoted(x, '/');
  inside.end = x->r.at - 1;
  if (inside.end < inside.at || *inside.end != '/') return fail(x, SETUN_ERROR_FORMAT, "the end of the expression");
  st_expression_flags flags = {false, false};
  for (; x->r.at < x->r.end && is_name(*x->r.at); x->r.at++) {
    if (*x->r.at == 'i')
      flags.ignore_case = true;
    else if (*x->r.at == 's')
      flags.dot_all = true;
    else if (*x->r.at != 'u')
      return fail(x, SETUN_ERROR_UNSUPPORTED, "the only supported flags of an expression are i, s and u");
  }
  st_term term = ST_TERM_EMPTY;
  if (!x->status) x->status = st_expression_whole(st_grammar_terms(x->g), inside, flags, &term);
  return terminal_node(x, term);
}

// Reads a terminal's body, from any position of the reader.
static st_term terminal_of(st_lark *x, st_lark_symbol *body) {
  st_reader before = x->r;
  bool was_terminal = x->in_terminal;
  st_term term = ST_TERM_EMPTY;
  x->in_terminal = true;
  if (body->imported) {
    const char *e = body->imported;
    st_reader r = {.begin = e, .at = e, .end = e + strlen(e), .err = x->r.err};
    x->status = st_expression_whole(st_grammar_terms(x->g), r, (st_expression_flags){false, false}, &term);
  } else {
    x->r.at = body->body;
    x->r.end = body->end;
    st_node node = read_expansions(x);
    if (!x->status && x->r.at < x->r.end) fail(x, SETUN_ERROR_FORMAT, "the end of the terminal");
    if (!x->status && !st_node_as_term(x->g, node, &term))
      fail(x, SETUN_ERROR_FORMAT, "terminals, not rules or tokens");
  }
  if (x->status) return ST_TERM_EMPTY; // keeps the position of the error
  x->r = before;
  x->in_terminal = was_terminal;
  return term;
}

static st_node read_reference(st_lark *x) {
  const char *from = x->r.at;
  st_text name = read_name(x);
  int64_t at = st_map_get(x->names, name.data, name.length);
  if (st_reader_peek(&x->r, "{")) return fail(x, SETUN_ERROR_UNSUPPORTED, "templates are not supported");
  if (at < 0) {
    x->r.at = from;
    return fail(x, SETUN_ERROR_FORMAT, "a name that is defined");
  }
  st_lark_symbol *s = &x->symbols[at];
  if (!is_terminal(s->name)) return st_node_rule(x->g, s->rule);
  if (s->state == 1 || (!s->state && ++x->depth > MOST_NESTED)) {
    x->r.at = from;
    return fail(x, SETUN_ERROR_FORMAT, "a terminal that does not refer to itself");
  }
  if (!s->state) {
    s->state = 1;
    st_term term = terminal_of(x, s);
    s->term = term;
    s->state = 2;
    x->depth--;
  }
  return terminal_node(x, s->term);
}

static st_node read_group(st_lark *x, const char *close) {
  if (++x->depth > MOST_NESTED) return fail(x, SETUN_ERROR_LIMIT, "groups are nested too deeply");
  st_node inside = read_expansions(x);
  x->depth--;
  if (!x->status && !st_reader_skip(&x->r, close)) return fail(x, SETUN_ERROR_FORMAT, close);
  return inside;
}

static st_node read_item(st_lark *x) {
  if (st_reader_skip(&x->r, "\"")) return read_string_or_range(x);
  if (st_reader_skip(&x->r, "/")) return read_expression(x);
  if (st_reader_skip(&x->r, "(")) return read_group(x, ")");
  if (st_reader_skip(&x->r, "[")) return st_node_repeat(x->g, read_group(x, "]"), 0, 1);
  if (st_reader_peek(&x->r, "<")) {
    st_node node = ST_NODE_EMPTY;
    if (!x->status) x->status = st_reader_token(&x->r, x->g, x->tokenizer, false, &node);
    return node;
  }
  if (x->in_terminal && st_reader_skip(&x->r, "~")) {
    st_term term;
    skip_space(x);
    st_node inside = read_item(x);
    if (!st_node_as_term(x->g, inside, &term)) return fail(x, SETUN_ERROR_FORMAT, "a terminal");
    return st_node_term(x->g, st_term_other_text(st_grammar_terms(x->g), term, ST_PLAIN));
  }
  if (x->r.at < x->r.end && is_name(*x->r.at)) return read_reference(x);
  return fail(x, SETUN_ERROR_FORMAT, "a string, an expression, a name or a group");
}

// ?, *, +, ~ 3, ~ 2..5 and {2,5}
static st_node read_repeat(st_lark *x, st_node item) {
  uint32_t min, max;
  if (st_reader_skip(&x->r, "?")) return st_node_repeat(x->g, item, 0, 1);
  if (st_reader_skip(&x->r, "*")) return st_node_repeat(x->g, item, 0, ST_UNBOUNDED);
  if (st_reader_skip(&x->r, "+")) return st_node_repeat(x->g, item, 1, ST_UNBOUNDED);
  const char *from = x->r.at;
  skip_space(x);
  bool braces = st_reader_skip(&x->r, "{");
  if (!braces && !st_reader_skip(&x->r, "~")) return x->r.at = from, item;
  skip_space(x);
  if (!st_reader_number(&x->r, &min)) {
    if (braces) return fail(x, SETUN_ERROR_FORMAT, "a count");
    return x->r.at = from, item; // the complement of the next item
  }
  max = min;
  if (st_reader_skip(&x->r, braces ? "," : "..") && !st_reader_number(&x->r, &max)) max = ST_UNBOUNDED;
  if (max < min || (braces && !st_reader_skip(&x->r, "}")))
    return fail(x, SETUN_ERROR_FORMAT, "counts in ascending order");
  return st_node_repeat(x->g, item, min, max);
}

static st_node read_sequence(st_lark *x) {
  size_t base = x->pending.n;
  skip_space(x);
  while (!x->status && x->r.at < x->r.end && !memchr("|)]&", *x->r.at, 4) && !st_reader_peek(&x->r, "->")) {
    st_node item = read_item(x);
    if (!x->status) push(x, read_repeat(x, item));
    skip_space(x);
  }
  if (!x->status && st_reader_skip(&x->r, "->")) { // an alias for the tree
    skip_space(x);
    read_name(x);
    skip_space(x);
  }
  return x->status ? ST_NODE_EMPTY : st_node_stack_join(&x->pending, base, x->g, st_node_seq);
}

static st_node read_intersection(st_lark *x) {
  st_node node = read_sequence(x);
  while (!x->status && st_reader_peek(&x->r, "&")) {
    st_term a, b;
    if (!x->in_terminal) return fail(x, SETUN_ERROR_UNSUPPORTED, "& is supported in terminals only");
    x->r.at++;
    st_node other = read_sequence(x);
    if (x->status) break;
    if (!st_node_as_term(x->g, node, &a) || !st_node_as_term(x->g, other, &b))
      return fail(x, SETUN_ERROR_FORMAT, "terminals");
    node = st_node_term(x->g, st_term_and2(st_grammar_terms(x->g), a, b));
  }
  return node;
}

static st_node read_expansions(st_lark *x) {
  size_t base = x->pending.n;
  do push(x, read_intersection(x));
  while (!x->status && st_reader_skip(&x->r, "|"));
  return x->status ? ST_NODE_EMPTY : st_node_stack_join(&x->pending, base, x->g, st_node_alt);
}

// ---- the whole ----

static void define_rules(st_lark *x) {
  const st_reader whole = x->r;
  st_terms *t = st_grammar_terms(x->g);
  st_term ignored = ST_TERM_EMPTY;
  for (size_t i = 0; i < x->n_ignored && !x->status; i++) {
    ignored = st_term_alt2(t, ignored, terminal_of(x, &x->ignored[i]));
  }
  x->ignore = st_term_repeat(t, ignored, 0, ST_UNBOUNDED);
  for (size_t i = 0; i < x->n_symbols && !x->status; i++) {
    if (is_terminal(x->symbols[i].name)) continue;
    x->r = whole;
    x->r.at = x->symbols[i].body;
    x->r.end = x->symbols[i].end;
    st_node body = read_expansions(x);
    if (!x->status && x->r.at < x->r.end) fail(x, SETUN_ERROR_FORMAT, "the end of the rule");
    st_grammar_define(x->g, x->symbols[i].rule, body);
  }
}

static setun_status read_grammar(st_lark *x) {
  if (!st_utf8_valid(x->r.at, (size_t)(x->r.end - x->r.at))) {
    return st_fail(x->r.err, SETUN_ERROR_FORMAT, "%s is not UTF-8", x->r.name);
  }
  for (skip_space(x); !x->status && x->r.at < x->r.end; skip_space(x)) read_statement(x);
  if (!x->status) define_rules(x);
  if (x->status) return x->status;
  int64_t start = st_map_get(x->names, "start", 5);
  if (start < 0) return st_fail(x->r.err, SETUN_ERROR_FORMAT, "%s: the rule \"start\" is missing", x->r.name);
  st_node all[] = {st_node_rule(x->g, x->symbols[start].rule), st_node_term(x->g, x->ignore)};
  st_grammar_set_root(x->g, st_node_seq(x->g, all, 2));
  return st_grammar_status(x->g, x->r.err);
}

setun_status st_grammar_from_lark(const char *text, size_t length, const char *name, const st_tokenizer *tokenizer,
                                  const st_constraint_limits *limits, st_grammar **out, setun_error *err) {
  st_lark x = {.r = {.begin = text, .at = text, .end = text + length, .name = name, .err = err},
               .tokenizer = tokenizer};
  setun_status status = st_grammar_new(limits, &x.g, err);
  if (status) return status;
  x.names = st_map_new(64);
  status = x.names ? read_grammar(&x) : st_fail_memory(err, "a grammar");
  st_map_free(x.names);
  st_free(x.symbols), st_free(x.ignored), st_free(x.pending.items);
  if (status)
    st_grammar_free(x.g);
  else
    *out = x.g;
  return status;
}
