// The grammar of expressions, with Jinja's precedence, loosest first: if else, or, and, not, comparisons and in, + -,
// ~, * / // %, **, unary, filters and tests, then . [] ().
#include "jinja/ast.h"

#include <string.h>

enum { MAX_NESTING = 150, MAX_DEPTH = 500 };

st_jinja_node *st_jinja_new_node(st_jinja_parser *p, st_jinja_node_kind kind, int line) {
  st_jinja_node *node = st_jinja_compile_allocate(p->c, 1, sizeof *node);
  if (!node) return NULL;
  node->kind = (uint8_t)kind;
  node->line = line;
  node->depth = 1;
  return node;
}

bool st_jinja_deepen(st_jinja_parser *p, st_jinja_node *node, const st_jinja_node *child) {
  if (!child) return p->c->status == SETUN_OK;
  if (child->depth >= node->depth) node->depth = (uint16_t)(child->depth + 1);
  if (node->depth <= MAX_DEPTH) return true;
  return st_jinja_unsupported_syntax(p->c, node->line, "an expression or block nested deeper than %d", MAX_DEPTH);
}

bool st_jinja_unexpected(st_jinja_parser *p, const char *expected) {
  char buffer[64];
  return st_jinja_syntax_error(p->c, p->t->line, "expected %s, found %s", expected, st_jinja_token_name(p->t, buffer));
}

static void next(st_jinja_parser *p) {
  if (p->t->type != TOKEN_END) p->t++;
}

bool st_jinja_accept_token(st_jinja_parser *p, st_jinja_token_type type) {
  if (p->t->type != type) return false;
  next(p);
  return true;
}

bool st_jinja_expect_token(st_jinja_parser *p, st_jinja_token_type type, const char *what) {
  return st_jinja_accept_token(p, type) || st_jinja_unexpected(p, what);
}

bool st_jinja_at_name(const st_jinja_token *t, const char *name) {
  size_t n = strlen(name);
  return t->type == TOKEN_NAME && t->text->length == n && !memcmp(t->text->data, name, n);
}

bool st_jinja_accept_name(st_jinja_parser *p, const char *name) {
  if (!st_jinja_at_name(p->t, name)) return false;
  next(p);
  return true;
}

// A node of two operands.
static st_jinja_node *binary(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_operator op, st_jinja_node *a,
                             st_jinja_node *b, int line) {
  if (!a || !b) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, kind, line);
  if (!node || !st_jinja_deepen(p, node, a) || !st_jinja_deepen(p, node, b)) return NULL;
  node->op = (uint8_t)op;
  node->a = a;
  node->b = b;
  return node;
}

static st_jinja_node *unary(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_operator op, st_jinja_node *a,
                            int line) {
  if (!a) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, kind, line);
  if (!node || !st_jinja_deepen(p, node, a)) return NULL;
  node->op = (uint8_t)op;
  node->a = a;
  return node;
}

static bool add(st_jinja_parser *p, st_jinja_node *node, st_jinja_nodes *list, st_jinja_node *child) {
  return child && st_jinja_deepen(p, node, child) && st_jinja_add_node(p->c, list, child);
}

static st_jinja_node *parse_unary(st_jinja_parser *p, bool with_filter);

static st_jinja_node *parse_power(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *left = parse_unary(p, true);
  while (left && st_jinja_accept_token(p, TOKEN_POW)) {
    left = binary(p, NODE_BINARY, JINJA_POW, left, parse_unary(p, true), line);
    line = p->t->line;
  }
  return left;
}

static st_jinja_node *parse_product(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *left = parse_power(p);
  while (left) {
    st_jinja_token_type t = p->t->type;
    if (t != TOKEN_MUL && t != TOKEN_DIV && t != TOKEN_FLOORDIV && t != TOKEN_MOD) break;
    next(p);
    st_jinja_operator op = t == TOKEN_MUL   ? JINJA_MUL
                           : t == TOKEN_DIV ? JINJA_DIV
                           : t == TOKEN_MOD ? JINJA_MOD
                                            : JINJA_FLOORDIV;
    left = binary(p, NODE_BINARY, op, left, parse_power(p), line);
    line = p->t->line;
  }
  return left;
}

static st_jinja_node *parse_concat(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *first = parse_product(p);
  if (!first || p->t->type != TOKEN_TILDE) return first;
  st_jinja_node *node = st_jinja_new_node(p, NODE_CONCAT, line);
  if (!node || !add(p, node, &node->list, first)) return NULL;
  while (st_jinja_accept_token(p, TOKEN_TILDE)) {
    if (!add(p, node, &node->list, parse_product(p))) return NULL;
  }
  return node;
}

static st_jinja_node *parse_sum(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *left = parse_concat(p);
  while (left && (p->t->type == TOKEN_ADD || p->t->type == TOKEN_SUB)) {
    st_jinja_operator op = p->t->type == TOKEN_ADD ? JINJA_ADD : JINJA_SUB;
    next(p);
    left = binary(p, NODE_BINARY, op, left, parse_concat(p), line);
    line = p->t->line;
  }
  return left;
}

static bool comparison(st_jinja_parser *p, st_jinja_operator *op) {
  switch (p->t->type) {
  case TOKEN_EQ: *op = JINJA_EQ; break;
  case TOKEN_NE: *op = JINJA_NE; break;
  case TOKEN_LT: *op = JINJA_LT; break;
  case TOKEN_LE: *op = JINJA_LE; break;
  case TOKEN_GT: *op = JINJA_GT; break;
  case TOKEN_GE: *op = JINJA_GE; break;
  default:
    if (st_jinja_at_name(p->t, "in"))
      *op = JINJA_IN;
    else if (st_jinja_at_name(p->t, "not") && st_jinja_at_name(p->t + 1, "in")) {
      *op = JINJA_NOT_IN;
      next(p);
    } else
      return false;
  }
  next(p);
  return true;
}

static st_jinja_node *parse_compare(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *first = parse_sum(p), *node = NULL;
  st_jinja_operator op;
  while (first && comparison(p, &op)) {
    if (!node && !(node = unary(p, NODE_COMPARE, JINJA_ADD, first, line))) return NULL;
    if (!add(p, node, &node->list, unary(p, NODE_OPERAND, op, parse_sum(p), line))) return NULL;
  }
  return node ? node : first;
}

static st_jinja_node *parse_not(st_jinja_parser *p) {
  int line = p->t->line, count = 0;
  for (; st_jinja_accept_name(p, "not"); count++) {}
  st_jinja_node *node = parse_compare(p);
  for (; node && count; count--) node = unary(p, NODE_NOT, JINJA_ADD, node, line);
  return node;
}

static st_jinja_node *parse_and(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *left = parse_not(p);
  while (left && st_jinja_accept_name(p, "and")) left = binary(p, NODE_AND, JINJA_ADD, left, parse_not(p), line);
  return left;
}

static st_jinja_node *parse_or(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *left = parse_and(p);
  while (left && st_jinja_accept_name(p, "or")) left = binary(p, NODE_OR, JINJA_ADD, left, parse_and(p), line);
  return left;
}

static st_jinja_node *parse_condition(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *value = parse_or(p);
  while (value && st_jinja_accept_name(p, "if")) {
    st_jinja_node *test = parse_or(p);
    st_jinja_node *node = binary(p, NODE_CONDITION, JINJA_ADD, value, test, line);
    if (!node) return NULL;
    if (st_jinja_accept_name(p, "else")) {
      node->c = st_jinja_parse_expression(p, true);
      if (!node->c || !st_jinja_deepen(p, node, node->c)) return NULL;
    }
    value = node;
    line = p->t->line;
  }
  return value;
}

st_jinja_node *st_jinja_parse_expression(st_jinja_parser *p, bool with_condition) {
  if (++p->depth > MAX_NESTING) {
    st_jinja_unsupported_syntax(p->c, p->t->line, "an expression nested deeper than %d", MAX_NESTING);
    return NULL;
  }
  st_jinja_node *node = with_condition ? parse_condition(p) : parse_or(p);
  p->depth--;
  return node;
}

// ---- primaries ----

static st_jinja_node *constant(st_jinja_parser *p, st_jinja_value value, int line) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_CONSTANT, line);
  if (node) node->value = value;
  return node;
}

static st_jinja_node *parse_name(st_jinja_parser *p, bool allow_attribute) {
  const st_jinja_token *t = p->t;
  next(p);
  if (st_jinja_at_name(t, "true") || st_jinja_at_name(t, "True")) return constant(p, st_jinja_from_bool(true), t->line);
  if (st_jinja_at_name(t, "false") || st_jinja_at_name(t, "False"))
    return constant(p, st_jinja_from_bool(false), t->line);
  if (st_jinja_at_name(t, "none") || st_jinja_at_name(t, "None")) return constant(p, st_jinja_none(), t->line);
  st_jinja_node *node = st_jinja_new_node(p, NODE_NAME, t->line);
  if (!node) return NULL;
  node->value = st_jinja_from_string(t->text);
  if (!allow_attribute || p->t->type != TOKEN_DOT) return node;
  next(p);
  node->kind = NODE_ATTRIBUTE_TARGET;
  node->text = p->t->text;
  return st_jinja_expect_token(p, TOKEN_NAME, "a name") ? node : NULL;
}

static st_jinja_node *parse_strings(st_jinja_parser *p) {
  const st_jinja_token *first = p->t;
  next(p);
  if (p->t->type != TOKEN_STRING) return constant(p, st_jinja_from_string(first->text), first->line);
  // Adjacent literals are one.
  size_t length = 0;
  const st_jinja_token *end = first;
  for (; end->type == TOKEN_STRING; end++) length += end->text->length;
  char *joined = st_jinja_compile_allocate(p->c, length + 1, 1);
  if (!joined) return NULL;
  length = 0;
  for (const st_jinja_token *t = first; t < end; t++) {
    memcpy(joined + length, t->text->data, t->text->length);
    length += t->text->length;
  }
  p->t = end;
  st_jinja_string *s;
  return st_jinja_new_literal(p->c, joined, length, &s) ? constant(p, st_jinja_from_string(s), first->line) : NULL;
}

static st_jinja_node *parse_list(st_jinja_parser *p) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_LIST, p->t->line);
  next(p);
  while (node && p->t->type != TOKEN_RBRACKET) {
    if (node->list.n && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ']'")) return NULL;
    if (p->t->type == TOKEN_RBRACKET) break;
    if (!add(p, node, &node->list, st_jinja_parse_expression(p, true))) return NULL;
  }
  next(p);
  return node;
}

static st_jinja_node *parse_dict(st_jinja_parser *p) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_DICT, p->t->line);
  next(p);
  while (node && p->t->type != TOKEN_RBRACE) {
    if (node->list.n && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or '}'")) return NULL;
    if (p->t->type == TOKEN_RBRACE) break;
    if (!add(p, node, &node->list, st_jinja_parse_expression(p, true)) ||
        !st_jinja_expect_token(p, TOKEN_COLON, "':'") || !add(p, node, &node->list, st_jinja_parse_expression(p, true)))
      return NULL;
  }
  next(p);
  return node;
}

static st_jinja_node *parse_primary(st_jinja_parser *p, bool allow_attribute) {
  const st_jinja_token *t = p->t;
  switch (t->type) {
  case TOKEN_NAME: return parse_name(p, allow_attribute);
  case TOKEN_STRING: return parse_strings(p);
  case TOKEN_INTEGER: next(p); return constant(p, st_jinja_from_int(t->i), t->line);
  case TOKEN_FLOAT: next(p); return constant(p, st_jinja_from_float(t->f), t->line);
  case TOKEN_LPAREN: {
    next(p);
    st_jinja_node *node = st_jinja_parse_tuple(p, JINJA_TUPLE_PARENTHESES, NULL);
    return node && st_jinja_expect_token(p, TOKEN_RPAREN, "')'") ? node : NULL;
  }
  case TOKEN_LBRACKET: return parse_list(p);
  case TOKEN_LBRACE: return parse_dict(p);
  default: st_jinja_unexpected(p, "an expression"); return NULL;
  }
}

st_jinja_node *st_jinja_parse_tuple(st_jinja_parser *p, st_jinja_tuple_kind how, const char *end) {
  int line = p->t->line;
  st_jinja_node *first = NULL, *tuple = NULL;
  // A parenthesis inside a target counts as nesting like one inside an expression.
  for (;;) {
    if (first && !st_jinja_expect_token(p, TOKEN_COMMA, "','")) return NULL;
    st_jinja_token_type t = p->t->type;
    if (t == TOKEN_VARIABLE_END || t == TOKEN_BLOCK_END || t == TOKEN_RPAREN || (end && st_jinja_at_name(p->t, end)))
      break;
    st_jinja_node *item = how == JINJA_TUPLE_TARGET || how == JINJA_TUPLE_SET_TARGET
                              ? parse_primary(p, how == JINJA_TUPLE_SET_TARGET)
                              : st_jinja_parse_expression(p, how != JINJA_TUPLE_NO_CONDITION);
    if (!item) return NULL;
    if (!first) first = item;
    if (p->t->type == TOKEN_COMMA && !tuple) {
      tuple = st_jinja_new_node(p, NODE_TUPLE, line);
      if (!tuple || !add(p, tuple, &tuple->list, first)) return NULL;
    } else if (tuple && !add(p, tuple, &tuple->list, item))
      return NULL;
    if (p->t->type != TOKEN_COMMA) break;
  }
  if (tuple) return tuple;
  if (first) return first;
  if (how == JINJA_TUPLE_PARENTHESES) return st_jinja_new_node(p, NODE_TUPLE, line);
  st_jinja_unexpected(p, "an expression");
  return NULL;
}

// ---- what follows a primary ----

static bool parse_argument(st_jinja_parser *p, st_jinja_node *call, int line) {
  bool keyword = p->t->type == TOKEN_NAME && p->t[1].type == TOKEN_ASSIGN;
  bool misplaced = keyword                   ? call->dyn_keywords != NULL
                   : p->t->type == TOKEN_POW ? call->dyn_keywords != NULL
                   : p->t->type == TOKEN_MUL ? call->dyn_args || call->dyn_keywords
                                             : call->dyn_args || call->dyn_keywords || call->keywords.n;
  if (misplaced) return st_jinja_syntax_error(p->c, line, "an argument stands after one that must be last");
  if (st_jinja_accept_token(p, TOKEN_MUL)) {
    call->dyn_args = st_jinja_parse_expression(p, true);
    return call->dyn_args && st_jinja_deepen(p, call, call->dyn_args);
  }
  if (st_jinja_accept_token(p, TOKEN_POW)) {
    call->dyn_keywords = st_jinja_parse_expression(p, true);
    return call->dyn_keywords && st_jinja_deepen(p, call, call->dyn_keywords);
  }
  if (!keyword) return add(p, call, &call->args, st_jinja_parse_expression(p, true));
  st_jinja_node *name = st_jinja_new_node(p, NODE_OPERAND, p->t->line);
  if (!name) return false;
  name->text = p->t->text;
  next(p), next(p);
  for (size_t i = 0; i < call->keywords.n; i++) {
    const st_jinja_string *old = call->keywords.items[i]->text;
    if (old->length == name->text->length && !memcmp(old->data, name->text->data, old->length)) {
      char shown[64];
      return st_jinja_syntax_error(
          p->c, name->line, "the argument '%s' is given twice",
          st_jinja_token_name(&(st_jinja_token){.type = TOKEN_NAME, .text = name->text}, shown));
    }
  }
  name->a = st_jinja_parse_expression(p, true);
  return name->a && st_jinja_deepen(p, name, name->a) && add(p, call, &call->keywords, name);
}

static bool parse_arguments(st_jinja_parser *p, st_jinja_node *call) {
  int line = p->t->line;
  if (!st_jinja_expect_token(p, TOKEN_LPAREN, "'('")) return false;
  for (bool first = true; p->t->type != TOKEN_RPAREN; first = false) {
    if (!first && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ')'")) return false;
    if (p->t->type == TOKEN_RPAREN) break;
    if (!parse_argument(p, call, line)) return false;
  }
  next(p);
  return true;
}

static st_jinja_node *parse_call(st_jinja_parser *p, st_jinja_node *callee) {
  st_jinja_node *node = unary(p, NODE_CALL, JINJA_ADD, callee, p->t->line);
  return node && parse_arguments(p, node) ? node : NULL;
}

// One part of a subscript: an expression or a slice; NULL after a failure.
static st_jinja_node *parse_subscript_part(st_jinja_parser *p) {
  int line = p->t->line;
  st_jinja_node *start = NULL;
  if (p->t->type != TOKEN_COLON) {
    start = st_jinja_parse_expression(p, true);
    if (!start || p->t->type != TOKEN_COLON) return start;
  }
  next(p);
  st_jinja_node *slice = st_jinja_new_node(p, NODE_SLICE, line);
  if (!slice || (start && !st_jinja_deepen(p, slice, start))) return NULL;
  slice->a = start;
  if (p->t->type != TOKEN_COLON && p->t->type != TOKEN_RBRACKET && p->t->type != TOKEN_COMMA) {
    slice->b = st_jinja_parse_expression(p, true);
    if (!slice->b || !st_jinja_deepen(p, slice, slice->b)) return NULL;
  }
  if (!st_jinja_accept_token(p, TOKEN_COLON) || p->t->type == TOKEN_RBRACKET || p->t->type == TOKEN_COMMA) return slice;
  slice->c = st_jinja_parse_expression(p, true);
  return slice->c && st_jinja_deepen(p, slice, slice->c) ? slice : NULL;
}

static st_jinja_node *parse_subscript(st_jinja_parser *p, st_jinja_node *node) {
  int line = p->t->line;
  next(p);
  st_jinja_node *part = NULL, *tuple = NULL;
  while (p->t->type != TOKEN_RBRACKET) {
    if (part && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ']'")) return NULL;
    st_jinja_node *more = parse_subscript_part(p);
    if (!more) return NULL;
    if (part && !tuple) {
      tuple = st_jinja_new_node(p, NODE_TUPLE, line);
      if (!tuple || !add(p, tuple, &tuple->list, part)) return NULL;
    }
    if (tuple && !add(p, tuple, &tuple->list, more)) return NULL;
    if (more->kind == NODE_SLICE && (tuple || p->t->type == TOKEN_COMMA)) {
      st_jinja_unsupported_syntax(p->c, line, "a slice among several subscripts");
      return NULL;
    }
    part = more;
  }
  next(p);
  if (!part) part = st_jinja_new_node(p, NODE_TUPLE, line); // x[] looks up the empty tuple
  return binary(p, NODE_ITEM, JINJA_ADD, node, tuple ? tuple : part, line);
}

static st_jinja_node *parse_postfix(st_jinja_parser *p, st_jinja_node *node) {
  while (node) {
    int line = p->t->line;
    if (p->t->type == TOKEN_LPAREN)
      node = parse_call(p, node);
    else if (p->t->type == TOKEN_LBRACKET)
      node = parse_subscript(p, node);
    else if (p->t->type == TOKEN_DOT) {
      next(p);
      const st_jinja_token *t = p->t;
      if (t->type == TOKEN_NAME) {
        node = unary(p, NODE_ATTRIBUTE, JINJA_ADD, node, line);
        if (node) node->text = t->text;
      } else if (t->type == TOKEN_INTEGER) {
        node = binary(p, NODE_ITEM, JINJA_ADD, node, constant(p, st_jinja_from_int(t->i), t->line), line);
      } else {
        st_jinja_unexpected(p, "a name or a number");
        return NULL;
      }
      next(p);
    } else
      break;
  }
  return node;
}

// "tojson" or "a.b": a filter's or test's name.
static st_jinja_string *parse_dotted(st_jinja_parser *p) {
  st_jinja_string *name = p->t->text;
  if (!st_jinja_expect_token(p, TOKEN_NAME, "a name")) return NULL;
  while (st_jinja_accept_token(p, TOKEN_DOT)) {
    const st_jinja_string *more = p->t->text;
    if (!st_jinja_expect_token(p, TOKEN_NAME, "a name")) return NULL;
    char *joined = st_jinja_compile_allocate(p->c, name->length + more->length + 1, 1);
    if (!joined) return NULL;
    memcpy(joined, name->data, name->length);
    joined[name->length] = '.';
    memcpy(joined + name->length + 1, more->data, more->length);
    if (!st_jinja_new_literal(p->c, joined, name->length + more->length + 1, &name)) return NULL;
  }
  return name;
}

st_jinja_node *st_jinja_parse_filters(st_jinja_parser *p, st_jinja_node *node, bool inline_start) {
  while (p->t->type == TOKEN_PIPE || inline_start) {
    if (!inline_start) next(p);
    inline_start = false;
    st_jinja_node *filter = st_jinja_new_node(p, NODE_FILTER, p->t->line);
    if (!filter || (node && !st_jinja_deepen(p, filter, node))) return NULL;
    filter->a = node;
    filter->text = parse_dotted(p);
    if (!filter->text || (p->t->type == TOKEN_LPAREN && !parse_arguments(p, filter))) return NULL;
    node = filter;
  }
  return node;
}

static st_jinja_node *parse_test(st_jinja_parser *p, st_jinja_node *subject) {
  int line = p->t->line;
  next(p);
  bool negated = st_jinja_accept_name(p, "not");
  st_jinja_node *node = unary(p, NODE_TEST, JINJA_ADD, subject, line);
  if (!node || !(node->text = parse_dotted(p))) return NULL;
  const st_jinja_token *t = p->t;
  if (t->type == TOKEN_LPAREN) {
    if (!parse_arguments(p, node)) return NULL;
  } else if (t->type == TOKEN_STRING || t->type == TOKEN_INTEGER || t->type == TOKEN_FLOAT ||
             t->type == TOKEN_LBRACKET || t->type == TOKEN_LBRACE ||
             (t->type == TOKEN_NAME && !st_jinja_at_name(t, "else") && !st_jinja_at_name(t, "or") &&
              !st_jinja_at_name(t, "and"))) {
    if (st_jinja_at_name(t, "is")) {
      st_jinja_syntax_error(p->c, t->line, "tests with 'is' cannot be chained");
      return NULL;
    }
    if (!add(p, node, &node->args, parse_postfix(p, parse_primary(p, false)))) return NULL;
  }
  return negated ? unary(p, NODE_NOT, JINJA_ADD, node, line) : node;
}

static st_jinja_node *parse_unary(st_jinja_parser *p, bool with_filter) {
  int line = p->t->line;
  st_jinja_node *node;
  if (p->t->type == TOKEN_SUB || p->t->type == TOKEN_ADD) {
    st_jinja_operator op = p->t->type == TOKEN_SUB ? JINJA_NEG : JINJA_POS;
    next(p);
    if (++p->depth > MAX_NESTING) {
      st_jinja_unsupported_syntax(p->c, line, "an expression nested deeper than %d", MAX_NESTING);
      return NULL;
    }
    node = unary(p, NODE_UNARY, op, parse_unary(p, false), line);
    p->depth--;
  } else {
    node = parse_primary(p, false);
  }
  node = parse_postfix(p, node);
  while (node && with_filter) {
    if (p->t->type == TOKEN_PIPE)
      node = st_jinja_parse_filters(p, node, false);
    else if (st_jinja_at_name(p->t, "is"))
      node = parse_test(p, node);
    else if (p->t->type == TOKEN_LPAREN)
      node = parse_call(p, node);
    else
      break;
  }
  return node;
}
