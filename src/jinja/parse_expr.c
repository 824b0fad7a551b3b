// The grammar of expressions, with Jinja's precedence, loosest first: if else, or, and, not, comparisons and in, + -,
// ~, * / // %, **, unary, filters and tests, then . [] ().
#include "jinja/ast.h"

#include <string.h>

enum { MAX_NESTING = 150, MAX_DEPTH = 500 };

st_jnode *st_j_node(st_jparser *p, st_jnode_kind kind, int line) {
  st_jnode *node = st_j_make(p->c, 1, sizeof *node);
  if (!node) return NULL;
  node->kind = (uint8_t)kind;
  node->line = line;
  node->depth = 1;
  return node;
}

bool st_j_sink(st_jparser *p, st_jnode *node, const st_jnode *child) {
  if (!child) return p->c->status == SETUN_OK;
  if (child->depth >= node->depth) node->depth = (uint16_t)(child->depth + 1);
  if (node->depth <= MAX_DEPTH) return true;
  return st_j_unsupported(p->c, node->line, "an expression or block nested deeper than %d", MAX_DEPTH);
}

bool st_j_unexpected(st_jparser *p, const char *expected) {
  char buffer[64];
  return st_j_syntax(p->c, p->t->line, "expected %s, found %s", expected, st_j_token_name(p->t, buffer));
}

static void next(st_jparser *p) {
  if (p->t->type != T_EOF) p->t++;
}

bool st_j_accept(st_jparser *p, st_jtoken_type type) {
  if (p->t->type != type) return false;
  next(p);
  return true;
}

bool st_j_expect(st_jparser *p, st_jtoken_type type, const char *what) {
  return st_j_accept(p, type) || st_j_unexpected(p, what);
}

bool st_j_at_name(const st_jtoken *t, const char *name) {
  size_t n = strlen(name);
  return t->type == T_NAME && t->text->length == n && !memcmp(t->text->data, name, n);
}

bool st_j_accept_name(st_jparser *p, const char *name) {
  if (!st_j_at_name(p->t, name)) return false;
  next(p);
  return true;
}

// A node of two operands.
static st_jnode *binary(st_jparser *p, st_jnode_kind kind, st_jop op, st_jnode *a, st_jnode *b, int line) {
  if (!a || !b) return NULL;
  st_jnode *node = st_j_node(p, kind, line);
  if (!node || !st_j_sink(p, node, a) || !st_j_sink(p, node, b)) return NULL;
  node->op = (uint8_t)op;
  node->a = a;
  node->b = b;
  return node;
}

static st_jnode *unary(st_jparser *p, st_jnode_kind kind, st_jop op, st_jnode *a, int line) {
  if (!a) return NULL;
  st_jnode *node = st_j_node(p, kind, line);
  if (!node || !st_j_sink(p, node, a)) return NULL;
  node->op = (uint8_t)op;
  node->a = a;
  return node;
}

static bool add(st_jparser *p, st_jnode *node, st_jnodes *list, st_jnode *child) {
  return child && st_j_sink(p, node, child) && st_j_push(p->c, list, child);
}

static st_jnode *parse_unary(st_jparser *p, bool with_filter);

static st_jnode *parse_power(st_jparser *p) {
  int line = p->t->line;
  st_jnode *left = parse_unary(p, true);
  while (left && st_j_accept(p, T_POW)) {
    left = binary(p, N_BINARY, J_POW, left, parse_unary(p, true), line);
    line = p->t->line;
  }
  return left;
}

static st_jnode *parse_product(st_jparser *p) {
  int line = p->t->line;
  st_jnode *left = parse_power(p);
  while (left) {
    st_jtoken_type t = p->t->type;
    if (t != T_MUL && t != T_DIV && t != T_FLOORDIV && t != T_MOD) break;
    next(p);
    st_jop op = t == T_MUL ? J_MUL : t == T_DIV ? J_DIV : t == T_MOD ? J_MOD : J_FLOORDIV;
    left = binary(p, N_BINARY, op, left, parse_power(p), line);
    line = p->t->line;
  }
  return left;
}

static st_jnode *parse_concat(st_jparser *p) {
  int line = p->t->line;
  st_jnode *first = parse_product(p);
  if (!first || p->t->type != T_TILDE) return first;
  st_jnode *node = st_j_node(p, N_CONCAT, line);
  if (!node || !add(p, node, &node->list, first)) return NULL;
  while (st_j_accept(p, T_TILDE)) {
    if (!add(p, node, &node->list, parse_product(p))) return NULL;
  }
  return node;
}

static st_jnode *parse_sum(st_jparser *p) {
  int line = p->t->line;
  st_jnode *left = parse_concat(p);
  while (left && (p->t->type == T_ADD || p->t->type == T_SUB)) {
    st_jop op = p->t->type == T_ADD ? J_ADD : J_SUB;
    next(p);
    left = binary(p, N_BINARY, op, left, parse_concat(p), line);
    line = p->t->line;
  }
  return left;
}

static bool comparison(st_jparser *p, st_jop *op) {
  switch (p->t->type) {
  case T_EQ: *op = J_EQ; break;
  case T_NE: *op = J_NE; break;
  case T_LT: *op = J_LT; break;
  case T_LE: *op = J_LE; break;
  case T_GT: *op = J_GT; break;
  case T_GE: *op = J_GE; break;
  default:
    if (st_j_at_name(p->t, "in"))
      *op = J_IN;
    else if (st_j_at_name(p->t, "not") && st_j_at_name(p->t + 1, "in")) {
      *op = J_NOTIN;
      next(p);
    } else
      return false;
  }
  next(p);
  return true;
}

static st_jnode *parse_compare(st_jparser *p) {
  int line = p->t->line;
  st_jnode *first = parse_sum(p), *node = NULL;
  st_jop op;
  while (first && comparison(p, &op)) {
    if (!node && !(node = unary(p, N_COMPARE, J_ADD, first, line))) return NULL;
    if (!add(p, node, &node->list, unary(p, N_OPERAND, op, parse_sum(p), line))) return NULL;
  }
  return node ? node : first;
}

static st_jnode *parse_not(st_jparser *p) {
  int line = p->t->line, count = 0;
  for (; st_j_accept_name(p, "not"); count++) {}
  st_jnode *node = parse_compare(p);
  for (; node && count; count--) node = unary(p, N_NOT, J_ADD, node, line);
  return node;
}

static st_jnode *parse_and(st_jparser *p) {
  int line = p->t->line;
  st_jnode *left = parse_not(p);
  while (left && st_j_accept_name(p, "and")) left = binary(p, N_AND, J_ADD, left, parse_not(p), line);
  return left;
}

static st_jnode *parse_or(st_jparser *p) {
  int line = p->t->line;
  st_jnode *left = parse_and(p);
  while (left && st_j_accept_name(p, "or")) left = binary(p, N_OR, J_ADD, left, parse_and(p), line);
  return left;
}

static st_jnode *parse_condition(st_jparser *p) {
  int line = p->t->line;
  st_jnode *value = parse_or(p);
  while (value && st_j_accept_name(p, "if")) {
    st_jnode *test = parse_or(p);
    st_jnode *node = binary(p, N_COND, J_ADD, value, test, line);
    if (!node) return NULL;
    if (st_j_accept_name(p, "else")) {
      node->c = st_j_parse_expression(p, true);
      if (!node->c || !st_j_sink(p, node, node->c)) return NULL;
    }
    value = node;
    line = p->t->line;
  }
  return value;
}

st_jnode *st_j_parse_expression(st_jparser *p, bool with_condition) {
  if (++p->depth > MAX_NESTING) {
    st_j_unsupported(p->c, p->t->line, "an expression nested deeper than %d", MAX_NESTING);
    return NULL;
  }
  st_jnode *node = with_condition ? parse_condition(p) : parse_or(p);
  p->depth--;
  return node;
}

// ---- primaries ----

static st_jnode *constant(st_jparser *p, st_jval value, int line) {
  st_jnode *node = st_j_node(p, N_CONST, line);
  if (node) node->value = value;
  return node;
}

static st_jnode *parse_name(st_jparser *p, bool allow_attribute) {
  const st_jtoken *t = p->t;
  next(p);
  if (st_j_at_name(t, "true") || st_j_at_name(t, "True")) return constant(p, st_j_bool(true), t->line);
  if (st_j_at_name(t, "false") || st_j_at_name(t, "False")) return constant(p, st_j_bool(false), t->line);
  if (st_j_at_name(t, "none") || st_j_at_name(t, "None")) return constant(p, st_j_none(), t->line);
  st_jnode *node = st_j_node(p, N_NAME, t->line);
  if (!node) return NULL;
  node->value = st_j_text(t->text);
  if (!allow_attribute || p->t->type != T_DOT) return node;
  next(p);
  node->kind = N_NSREF;
  node->text = p->t->text;
  return st_j_expect(p, T_NAME, "a name") ? node : NULL;
}

static st_jnode *parse_strings(st_jparser *p) {
  const st_jtoken *first = p->t;
  next(p);
  if (p->t->type != T_STRING) return constant(p, st_j_text(first->text), first->line);
  // Adjacent literals are one.
  size_t length = 0;
  const st_jtoken *end = first;
  for (; end->type == T_STRING; end++) length += end->text->length;
  char *joined = st_j_make(p->c, length + 1, 1);
  if (!joined) return NULL;
  length = 0;
  for (const st_jtoken *t = first; t < end; t++) {
    memcpy(joined + length, t->text->data, t->text->length);
    length += t->text->length;
  }
  p->t = end;
  st_jstr *s;
  return st_j_literal(p->c, joined, length, &s) ? constant(p, st_j_text(s), first->line) : NULL;
}

static st_jnode *parse_list(st_jparser *p) {
  st_jnode *node = st_j_node(p, N_LIST, p->t->line);
  next(p);
  while (node && p->t->type != T_RBRACKET) {
    if (node->list.n && !st_j_expect(p, T_COMMA, "',' or ']'")) return NULL;
    if (p->t->type == T_RBRACKET) break;
    if (!add(p, node, &node->list, st_j_parse_expression(p, true))) return NULL;
  }
  next(p);
  return node;
}

static st_jnode *parse_dict(st_jparser *p) {
  st_jnode *node = st_j_node(p, N_DICT, p->t->line);
  next(p);
  while (node && p->t->type != T_RBRACE) {
    if (node->list.n && !st_j_expect(p, T_COMMA, "',' or '}'")) return NULL;
    if (p->t->type == T_RBRACE) break;
    if (!add(p, node, &node->list, st_j_parse_expression(p, true)) || !st_j_expect(p, T_COLON, "':'") ||
        !add(p, node, &node->list, st_j_parse_expression(p, true)))
      return NULL;
  }
  next(p);
  return node;
}

static st_jnode *parse_primary(st_jparser *p, bool allow_attribute) {
  const st_jtoken *t = p->t;
  switch (t->type) {
  case T_NAME: return parse_name(p, allow_attribute);
  case T_STRING: return parse_strings(p);
  case T_INTEGER: next(p); return constant(p, st_j_int(t->i), t->line);
  case T_FLOAT: next(p); return constant(p, st_j_float(t->f), t->line);
  case T_LPAREN: {
    next(p);
    st_jnode *node = st_j_parse_tuple(p, J_TUPLE_PARENTHESES, NULL);
    return node && st_j_expect(p, T_RPAREN, "')'") ? node : NULL;
  }
  case T_LBRACKET: return parse_list(p);
  case T_LBRACE: return parse_dict(p);
  default: st_j_unexpected(p, "an expression"); return NULL;
  }
}

st_jnode *st_j_parse_tuple(st_jparser *p, st_jtuple how, const char *end) {
  int line = p->t->line;
  st_jnode *first = NULL, *tuple = NULL;
  // A parenthesis inside a target counts as nesting like one inside an expression.
  for (;;) {
    if (first && !st_j_expect(p, T_COMMA, "','")) return NULL;
    st_jtoken_type t = p->t->type;
    if (t == T_VARIABLE_END || t == T_BLOCK_END || t == T_RPAREN || (end && st_j_at_name(p->t, end))) break;
    st_jnode *item = how == J_TUPLE_TARGET || how == J_TUPLE_SET_TARGET
                         ? parse_primary(p, how == J_TUPLE_SET_TARGET)
                         : st_j_parse_expression(p, how != J_TUPLE_NO_CONDITION);
    if (!item) return NULL;
    if (!first) first = item;
    if (p->t->type == T_COMMA && !tuple) {
      tuple = st_j_node(p, N_TUPLE, line);
      if (!tuple || !add(p, tuple, &tuple->list, first)) return NULL;
    } else if (tuple && !add(p, tuple, &tuple->list, item))
      return NULL;
    if (p->t->type != T_COMMA) break;
  }
  if (tuple) return tuple;
  if (first) return first;
  if (how == J_TUPLE_PARENTHESES) return st_j_node(p, N_TUPLE, line);
  st_j_unexpected(p, "an expression");
  return NULL;
}

// ---- what follows a primary ----

static bool parse_argument(st_jparser *p, st_jnode *call, int line) {
  bool keyword = p->t->type == T_NAME && p->t[1].type == T_ASSIGN;
  bool misplaced = keyword               ? call->dyn_keywords != NULL
                   : p->t->type == T_POW ? call->dyn_keywords != NULL
                   : p->t->type == T_MUL ? call->dyn_args || call->dyn_keywords
                                         : call->dyn_args || call->dyn_keywords || call->keywords.n;
  if (misplaced) return st_j_syntax(p->c, line, "an argument stands after one that must be last");
  if (st_j_accept(p, T_MUL)) {
    call->dyn_args = st_j_parse_expression(p, true);
    return call->dyn_args && st_j_sink(p, call, call->dyn_args);
  }
  if (st_j_accept(p, T_POW)) {
    call->dyn_keywords = st_j_parse_expression(p, true);
    return call->dyn_keywords && st_j_sink(p, call, call->dyn_keywords);
  }
  if (!keyword) return add(p, call, &call->args, st_j_parse_expression(p, true));
  st_jnode *name = st_j_node(p, N_OPERAND, p->t->line);
  if (!name) return false;
  name->text = p->t->text;
  next(p), next(p);
  for (size_t i = 0; i < call->keywords.n; i++) {
    const st_jstr *old = call->keywords.items[i]->text;
    if (old->length == name->text->length && !memcmp(old->data, name->text->data, old->length)) {
      char shown[64];
      return st_j_syntax(p->c, name->line, "the argument '%s' is given twice",
                         st_j_token_name(&(st_jtoken){.type = T_NAME, .text = name->text}, shown));
    }
  }
  name->a = st_j_parse_expression(p, true);
  return name->a && st_j_sink(p, name, name->a) && add(p, call, &call->keywords, name);
}

static bool parse_arguments(st_jparser *p, st_jnode *call) {
  int line = p->t->line;
  if (!st_j_expect(p, T_LPAREN, "'('")) return false;
  for (bool first = true; p->t->type != T_RPAREN; first = false) {
    if (!first && !st_j_expect(p, T_COMMA, "',' or ')'")) return false;
    if (p->t->type == T_RPAREN) break;
    if (!parse_argument(p, call, line)) return false;
  }
  next(p);
  return true;
}

static st_jnode *parse_call(st_jparser *p, st_jnode *callee) {
  st_jnode *node = unary(p, N_CALL, J_ADD, callee, p->t->line);
  return node && parse_arguments(p, node) ? node : NULL;
}

// One part of a subscript: an expression or a slice; NULL after a failure.
static st_jnode *parse_subscript_part(st_jparser *p) {
  int line = p->t->line;
  st_jnode *start = NULL;
  if (p->t->type != T_COLON) {
    start = st_j_parse_expression(p, true);
    if (!start || p->t->type != T_COLON) return start;
  }
  next(p);
  st_jnode *slice = st_j_node(p, N_SLICE, line);
  if (!slice || (start && !st_j_sink(p, slice, start))) return NULL;
  slice->a = start;
  if (p->t->type != T_COLON && p->t->type != T_RBRACKET && p->t->type != T_COMMA) {
    slice->b = st_j_parse_expression(p, true);
    if (!slice->b || !st_j_sink(p, slice, slice->b)) return NULL;
  }
  if (!st_j_accept(p, T_COLON) || p->t->type == T_RBRACKET || p->t->type == T_COMMA) return slice;
  slice->c = st_j_parse_expression(p, true);
  return slice->c && st_j_sink(p, slice, slice->c) ? slice : NULL;
}

static st_jnode *parse_subscript(st_jparser *p, st_jnode *node) {
  int line = p->t->line;
  next(p);
  st_jnode *part = NULL, *tuple = NULL;
  while (p->t->type != T_RBRACKET) {
    if (part && !st_j_expect(p, T_COMMA, "',' or ']'")) return NULL;
    st_jnode *more = parse_subscript_part(p);
    if (!more) return NULL;
    if (part && !tuple) {
      tuple = st_j_node(p, N_TUPLE, line);
      if (!tuple || !add(p, tuple, &tuple->list, part)) return NULL;
    }
    if (tuple && !add(p, tuple, &tuple->list, more)) return NULL;
    if (more->kind == N_SLICE && (tuple || p->t->type == T_COMMA)) {
      st_j_unsupported(p->c, line, "a slice among several subscripts");
      return NULL;
    }
    part = more;
  }
  next(p);
  if (!part) part = st_j_node(p, N_TUPLE, line); // x[] looks up the empty tuple
  return binary(p, N_GETITEM, J_ADD, node, tuple ? tuple : part, line);
}

static st_jnode *parse_postfix(st_jparser *p, st_jnode *node) {
  while (node) {
    int line = p->t->line;
    if (p->t->type == T_LPAREN)
      node = parse_call(p, node);
    else if (p->t->type == T_LBRACKET)
      node = parse_subscript(p, node);
    else if (p->t->type == T_DOT) {
      next(p);
      const st_jtoken *t = p->t;
      if (t->type == T_NAME) {
        node = unary(p, N_GETATTR, J_ADD, node, line);
        if (node) node->text = t->text;
      } else if (t->type == T_INTEGER) {
        node = binary(p, N_GETITEM, J_ADD, node, constant(p, st_j_int(t->i), t->line), line);
      } else {
        st_j_unexpected(p, "a name or a number");
        return NULL;
      }
      next(p);
    } else
      break;
  }
  return node;
}

// "tojson" or "a.b": a filter's or test's name.
static st_jstr *parse_dotted(st_jparser *p) {
  st_jstr *name = p->t->text;
  if (!st_j_expect(p, T_NAME, "a name")) return NULL;
  while (st_j_accept(p, T_DOT)) {
    const st_jstr *more = p->t->text;
    if (!st_j_expect(p, T_NAME, "a name")) return NULL;
    char *joined = st_j_make(p->c, name->length + more->length + 1, 1);
    if (!joined) return NULL;
    memcpy(joined, name->data, name->length);
    joined[name->length] = '.';
    memcpy(joined + name->length + 1, more->data, more->length);
    if (!st_j_literal(p->c, joined, name->length + more->length + 1, &name)) return NULL;
  }
  return name;
}

st_jnode *st_j_parse_filters(st_jparser *p, st_jnode *node, bool inline_start) {
  while (p->t->type == T_PIPE || inline_start) {
    if (!inline_start) next(p);
    inline_start = false;
    st_jnode *filter = st_j_node(p, N_FILTER, p->t->line);
    if (!filter || (node && !st_j_sink(p, filter, node))) return NULL;
    filter->a = node;
    filter->text = parse_dotted(p);
    if (!filter->text || (p->t->type == T_LPAREN && !parse_arguments(p, filter))) return NULL;
    node = filter;
  }
  return node;
}

static st_jnode *parse_test(st_jparser *p, st_jnode *subject) {
  int line = p->t->line;
  next(p);
  bool negated = st_j_accept_name(p, "not");
  st_jnode *node = unary(p, N_TEST, J_ADD, subject, line);
  if (!node || !(node->text = parse_dotted(p))) return NULL;
  const st_jtoken *t = p->t;
  if (t->type == T_LPAREN) {
    if (!parse_arguments(p, node)) return NULL;
  } else if (t->type == T_STRING || t->type == T_INTEGER || t->type == T_FLOAT || t->type == T_LBRACKET ||
             t->type == T_LBRACE ||
             (t->type == T_NAME && !st_j_at_name(t, "else") && !st_j_at_name(t, "or") && !st_j_at_name(t, "and"))) {
    if (st_j_at_name(t, "is")) {
      st_j_syntax(p->c, t->line, "tests with 'is' cannot be chained");
      return NULL;
    }
    if (!add(p, node, &node->args, parse_postfix(p, parse_primary(p, false)))) return NULL;
  }
  return negated ? unary(p, N_NOT, J_ADD, node, line) : node;
}

static st_jnode *parse_unary(st_jparser *p, bool with_filter) {
  int line = p->t->line;
  st_jnode *node;
  if (p->t->type == T_SUB || p->t->type == T_ADD) {
    st_jop op = p->t->type == T_SUB ? J_NEG : J_POS;
    next(p);
    if (++p->depth > MAX_NESTING) {
      st_j_unsupported(p->c, line, "an expression nested deeper than %d", MAX_NESTING);
      return NULL;
    }
    node = unary(p, N_UNARY, op, parse_unary(p, false), line);
    p->depth--;
  } else {
    node = parse_primary(p, false);
  }
  node = parse_postfix(p, node);
  while (node && with_filter) {
    if (p->t->type == T_PIPE)
      node = st_j_parse_filters(p, node, false);
    else if (st_j_at_name(p->t, "is"))
      node = parse_test(p, node);
    else if (p->t->type == T_LPAREN)
      node = parse_call(p, node);
    else
      break;
  }
  return node;
}
