// The grammar of expressions, with Jinja's precedence, loosest first: if else, or, and, not, comparisons and in, + -,
// ~, * %, unary, filters and tests, then . [] (). Division and powers, which no published template uses, are refused.
#include "jinja/ast.h"

#include <string.h>

st_jinja_node *st_jinja_new_node(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_place place) {
  st_jinja_node *node = st_jinja_compile_allocate(p->c, 1, sizeof *node);
  if (!node) return NULL;
  node->kind = (uint8_t)kind;
  node->place = place;
  node->depth = 1;
  return node;
}

static bool too_deep(st_jinja_parser *p, st_jinja_place place) {
  return st_jinja_unsupported_syntax(p->c, place, "expressions and blocks nested deeper than %d levels",
                                     JINJA_MAX_NESTING);
}

bool st_jinja_nest_parser(st_jinja_parser *p) {
  return ++p->depth <= JINJA_MAX_NESTING || too_deep(p, p->t->place);
}

bool st_jinja_deepen(st_jinja_parser *p, st_jinja_node *node, const st_jinja_node *child) {
  if (!child) return p->c->status == SETUN_OK;
  if (child->depth >= node->depth) node->depth = (uint16_t)(child->depth + 1);
  return node->depth <= JINJA_MAX_NESTING || too_deep(p, node->place);
}

bool st_jinja_unexpected(st_jinja_parser *p, const char *expected) {
  char buffer[64];
  return st_jinja_syntax_error(p->c, p->t->place, "expected %s, found %s", expected, st_jinja_token_name(p->t, buffer));
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
static st_jinja_node *binary(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_node *a, st_jinja_node *b,
                             st_jinja_place place) {
  if (!a || !b) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, kind, place);
  if (!node || !st_jinja_deepen(p, node, a) || !st_jinja_deepen(p, node, b)) return NULL;
  node->a = a;
  node->b = b;
  return node;
}

static st_jinja_node *unary(st_jinja_parser *p, st_jinja_node_kind kind, st_jinja_operator op, st_jinja_node *a,
                            st_jinja_place place) {
  if (!a) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, kind, place);
  if (!node || !st_jinja_deepen(p, node, a)) return NULL;
  node->op = (uint8_t)op;
  node->a = a;
  return node;
}

static bool add(st_jinja_parser *p, st_jinja_node *node, st_jinja_nodes *list, st_jinja_node *child) {
  return child && st_jinja_deepen(p, node, child) && st_jinja_add_node(p->c, list, child);
}

// ---- operators ----

static st_jinja_node *parse_unary(st_jinja_parser *p, bool with_filter);

// Precedence levels of binary operators; LEVEL_NOT is the unary one's.
typedef enum {
  LEVEL_NONE,
  LEVEL_OR,
  LEVEL_AND,
  LEVEL_NOT,
  LEVEL_COMPARE,
  LEVEL_SUM,
  LEVEL_CONCAT,
  LEVEL_PRODUCT
} level;

// The binary operator at the current token; *width: how many tokens it is.
static level operator_at(const st_jinja_parser *p, st_jinja_operator *op, int *width) {
  static const struct {
    uint8_t level, op;
  } table[] = {[TOKEN_EQ] = {LEVEL_COMPARE, JINJA_EQ},  [TOKEN_NE] = {LEVEL_COMPARE, JINJA_NE},
               [TOKEN_LT] = {LEVEL_COMPARE, JINJA_LT},  [TOKEN_LE] = {LEVEL_COMPARE, JINJA_LE},
               [TOKEN_GT] = {LEVEL_COMPARE, JINJA_GT},  [TOKEN_GE] = {LEVEL_COMPARE, JINJA_GE},
               [TOKEN_ADD] = {LEVEL_SUM, JINJA_ADD},    [TOKEN_SUB] = {LEVEL_SUM, JINJA_SUB},
               [TOKEN_TILDE] = {LEVEL_CONCAT, 0},       [TOKEN_MUL] = {LEVEL_PRODUCT, JINJA_MUL},
               [TOKEN_MOD] = {LEVEL_PRODUCT, JINJA_MOD}};
  const st_jinja_token *t = p->t;
  *width = 1;
  *op = JINJA_ADD;
  if (t->type < sizeof table / sizeof *table && table[t->type].level) {
    *op = (st_jinja_operator)table[t->type].op;
    return (level)table[t->type].level;
  }
  if (st_jinja_at_name(t, "or")) return LEVEL_OR;
  if (st_jinja_at_name(t, "and")) return LEVEL_AND;
  *op = JINJA_IN;
  if (st_jinja_at_name(t, "in")) return LEVEL_COMPARE;
  if (!st_jinja_at_name(t, "not") || !st_jinja_at_name(t + 1, "in")) return LEVEL_NONE;
  *op = JINJA_NOT_IN;
  *width = 2;
  return LEVEL_COMPARE;
}

static st_jinja_node *parse_operators(st_jinja_parser *p, level lowest);

// The operand before the first operator: after `not`, a comparison.
static st_jinja_node *parse_operand(st_jinja_parser *p, level lowest) {
  st_jinja_place place = p->t->place;
  if (lowest > LEVEL_NOT || !st_jinja_at_name(p->t, "not")) return parse_unary(p, true);
  int count = 0;
  for (; st_jinja_accept_name(p, "not"); count++) {}
  st_jinja_node *node = parse_operators(p, LEVEL_COMPARE);
  for (; node && count; count--) node = unary(p, NODE_NOT, JINJA_ADD, node, place);
  return node;
}

// Operators that bind as tightly as `lowest` or tighter. Those of one level are one node with a list, so that long
// sums are not deep.
static st_jinja_node *parse_operators(st_jinja_parser *p, level lowest) {
  static const uint8_t kinds[] = {
      [LEVEL_OR] = NODE_OR,      [LEVEL_AND] = NODE_AND,       [LEVEL_COMPARE] = NODE_COMPARE,
      [LEVEL_SUM] = NODE_BINARY, [LEVEL_CONCAT] = NODE_CONCAT, [LEVEL_PRODUCT] = NODE_BINARY};
  if (!st_jinja_nest_parser(p)) return NULL;
  st_jinja_place place = p->t->place;
  st_jinja_node *left = parse_operand(p, lowest), *open = NULL;
  level open_level = LEVEL_NONE;
  st_jinja_operator op;
  int width;
  for (level at; left && (at = operator_at(p, &op, &width)) >= lowest && at;) {
    st_jinja_place where = p->t->place;
    p->t += width;
    st_jinja_node *right = parse_operators(p, (level)(at + 1));
    bool plain = kinds[at] == NODE_OR || kinds[at] == NODE_AND || kinds[at] == NODE_CONCAT;
    if (!plain) right = unary(p, NODE_OPERAND, op, right, where);
    if (!right) return NULL;
    if (at != open_level) {
      open = st_jinja_new_node(p, (st_jinja_node_kind)kinds[at], place);
      if (!open || (plain ? !add(p, open, &open->list, left) : !st_jinja_deepen(p, open, left))) return NULL;
      if (!plain) open->a = left;
      open_level = at;
    }
    if (!add(p, open, &open->list, right)) return NULL;
    left = open;
  }
  p->depth--;
  return left;
}

static st_jinja_node *parse_condition(st_jinja_parser *p) {
  st_jinja_place place = p->t->place;
  st_jinja_node *value = parse_operators(p, LEVEL_OR);
  while (value && st_jinja_accept_name(p, "if")) {
    st_jinja_node *test = parse_operators(p, LEVEL_OR);
    st_jinja_node *node = binary(p, NODE_CONDITION, value, test, place);
    if (!node) return NULL;
    if (st_jinja_accept_name(p, "else")) {
      if (!st_jinja_nest_parser(p)) return NULL;
      node->c = parse_condition(p);
      if (!node->c || !st_jinja_deepen(p, node, node->c)) return NULL;
      p->depth--;
    }
    value = node;
    place = p->t->place;
  }
  return value;
}

st_jinja_node *st_jinja_parse_expression(st_jinja_parser *p, bool with_condition) {
  return with_condition ? parse_condition(p) : parse_operators(p, LEVEL_OR);
}

// ---- primaries ----

static st_jinja_node *constant(st_jinja_parser *p, st_jinja_value value, st_jinja_place place) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_CONSTANT, place);
  if (node) node->value = value;
  return node;
}

static st_jinja_node *parse_name(st_jinja_parser *p, bool allow_attribute) {
  const st_jinja_token *t = p->t;
  next(p);
  if (st_jinja_at_name(t, "true") || st_jinja_at_name(t, "True"))
    return constant(p, st_jinja_from_bool(true), t->place);
  if (st_jinja_at_name(t, "false") || st_jinja_at_name(t, "False"))
    return constant(p, st_jinja_from_bool(false), t->place);
  if (st_jinja_at_name(t, "none") || st_jinja_at_name(t, "None")) return constant(p, st_jinja_none(), t->place);
  st_jinja_node *node = st_jinja_new_node(p, NODE_NAME, t->place);
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
  if (p->t->type != TOKEN_STRING) return constant(p, st_jinja_from_string(first->text), first->place);
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
  return st_jinja_new_literal(p->c, joined, length, &s) ? constant(p, st_jinja_from_string(s), first->place) : NULL;
}

static st_jinja_node *parse_list(st_jinja_parser *p) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_LIST, p->t->place);
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
  st_jinja_node *node = st_jinja_new_node(p, NODE_DICT, p->t->place);
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
  case TOKEN_INTEGER: next(p); return constant(p, st_jinja_from_int(t->i), t->place);
  case TOKEN_FLOAT: next(p); return constant(p, st_jinja_from_float(t->f), t->place);
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
  st_jinja_place place = p->t->place;
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
      tuple = st_jinja_new_node(p, NODE_TUPLE, place);
      if (!tuple || !add(p, tuple, &tuple->list, first)) return NULL;
    } else if (tuple && !add(p, tuple, &tuple->list, item))
      return NULL;
    if (p->t->type != TOKEN_COMMA) break;
  }
  if (tuple) return tuple;
  if (first) return first;
  if (how == JINJA_TUPLE_PARENTHESES) return st_jinja_new_node(p, NODE_TUPLE, place);
  st_jinja_unexpected(p, "an expression");
  return NULL;
}

// ---- what follows a primary ----

static bool parse_argument(st_jinja_parser *p, st_jinja_node *call, st_jinja_place place) {
  bool keyword = p->t->type == TOKEN_NAME && p->t[1].type == TOKEN_ASSIGN;
  if (p->t->type == TOKEN_MUL || p->t->type == TOKEN_POW) {
    return st_jinja_unsupported_syntax(p->c, p->t->place, "'%s' before an argument is not supported",
                                       p->t->type == TOKEN_MUL ? "*" : "**");
  }
  if (!keyword) {
    if (call->keywords.n) {
      return st_jinja_syntax_error(p->c, place, "expected 'name=' before an argument that follows one with a name");
    }
    return add(p, call, &call->args, st_jinja_parse_expression(p, true));
  }
  st_jinja_node *name = st_jinja_new_node(p, NODE_OPERAND, p->t->place);
  if (!name) return false;
  name->text = p->t->text;
  next(p), next(p);
  for (size_t i = 0; i < call->keywords.n; i++) {
    const st_jinja_string *old = call->keywords.items[i]->text;
    if (old->length == name->text->length && !memcmp(old->data, name->text->data, old->length)) {
      char shown[64];
      return st_jinja_syntax_error(
          p->c, name->place, "the argument '%s' is given twice",
          st_jinja_token_name(&(st_jinja_token){.type = TOKEN_NAME, .text = name->text}, shown));
    }
  }
  name->a = st_jinja_parse_expression(p, true);
  return name->a && st_jinja_deepen(p, name, name->a) && add(p, call, &call->keywords, name);
}

static bool parse_arguments(st_jinja_parser *p, st_jinja_node *call) {
  st_jinja_place place = p->t->place;
  if (!st_jinja_expect_token(p, TOKEN_LPAREN, "'('")) return false;
  for (bool first = true; p->t->type != TOKEN_RPAREN; first = false) {
    if (!first && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ')'")) return false;
    if (p->t->type == TOKEN_RPAREN) break;
    if (!parse_argument(p, call, place)) return false;
  }
  next(p);
  return true;
}

static st_jinja_node *parse_call(st_jinja_parser *p, st_jinja_node *callee) {
  st_jinja_node *node = unary(p, NODE_CALL, JINJA_ADD, callee, p->t->place);
  return node && parse_arguments(p, node) ? node : NULL;
}

// One part of a subscript: an expression or a slice; NULL after a failure.
static st_jinja_node *parse_subscript_part(st_jinja_parser *p) {
  st_jinja_place place = p->t->place;
  st_jinja_node *start = NULL;
  if (p->t->type != TOKEN_COLON) {
    start = st_jinja_parse_expression(p, true);
    if (!start || p->t->type != TOKEN_COLON) return start;
  }
  next(p);
  st_jinja_node *slice = st_jinja_new_node(p, NODE_SLICE, place);
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
  st_jinja_place place = p->t->place;
  next(p);
  st_jinja_node *part = NULL, *tuple = NULL;
  while (p->t->type != TOKEN_RBRACKET) {
    if (part && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ']'")) return NULL;
    st_jinja_node *more = parse_subscript_part(p);
    if (!more) return NULL;
    if (part && !tuple) {
      tuple = st_jinja_new_node(p, NODE_TUPLE, place);
      if (!tuple || !add(p, tuple, &tuple->list, part)) return NULL;
    }
    if (tuple && !add(p, tuple, &tuple->list, more)) return NULL;
    if (more->kind == NODE_SLICE && (tuple || p->t->type == TOKEN_COMMA)) {
      st_jinja_unsupported_syntax(p->c, place, "a slice among several subscripts");
      return NULL;
    }
    part = more;
  }
  next(p);
  if (!part) part = st_jinja_new_node(p, NODE_TUPLE, place); // x[] looks up the empty tuple
  return binary(p, NODE_ITEM, node, tuple ? tuple : part, place);
}

static st_jinja_node *parse_postfix(st_jinja_parser *p, st_jinja_node *node) {
  while (node) {
    st_jinja_place place = p->t->place;
    if (p->t->type == TOKEN_LPAREN)
      node = parse_call(p, node);
    else if (p->t->type == TOKEN_LBRACKET)
      node = parse_subscript(p, node);
    else if (p->t->type == TOKEN_DOT) {
      next(p);
      const st_jinja_token *t = p->t;
      if (t->type == TOKEN_NAME) {
        node = unary(p, NODE_ATTRIBUTE, JINJA_ADD, node, place);
        if (node) node->text = t->text;
      } else if (t->type == TOKEN_INTEGER) {
        node = binary(p, NODE_ITEM, node, constant(p, st_jinja_from_int(t->i), t->place), place);
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
    st_jinja_node *filter = st_jinja_new_node(p, NODE_FILTER, p->t->place);
    if (!filter || (node && !st_jinja_deepen(p, filter, node))) return NULL;
    filter->a = node;
    filter->text = parse_dotted(p);
    if (!filter->text || (p->t->type == TOKEN_LPAREN && !parse_arguments(p, filter))) return NULL;
    node = filter;
  }
  return node;
}

static st_jinja_node *parse_test(st_jinja_parser *p, st_jinja_node *subject) {
  st_jinja_place place = p->t->place;
  next(p);
  bool negated = st_jinja_accept_name(p, "not");
  st_jinja_node *node = unary(p, NODE_TEST, JINJA_ADD, subject, place);
  if (!node || !(node->text = parse_dotted(p))) return NULL;
  const st_jinja_token *t = p->t;
  if (t->type == TOKEN_LPAREN) {
    if (!parse_arguments(p, node)) return NULL;
  } else if (t->type == TOKEN_STRING || t->type == TOKEN_INTEGER || t->type == TOKEN_FLOAT ||
             t->type == TOKEN_LBRACKET || t->type == TOKEN_LBRACE ||
             (t->type == TOKEN_NAME && !st_jinja_at_name(t, "else") && !st_jinja_at_name(t, "or") &&
              !st_jinja_at_name(t, "and"))) {
    if (st_jinja_at_name(t, "is")) {
      st_jinja_syntax_error(p->c, t->place, "tests with 'is' cannot be chained");
      return NULL;
    }
    if (!add(p, node, &node->args, parse_postfix(p, parse_primary(p, false)))) return NULL;
  }
  return negated ? unary(p, NODE_NOT, JINJA_ADD, node, place) : node;
}

static st_jinja_node *parse_unary(st_jinja_parser *p, bool with_filter) {
  st_jinja_place place = p->t->place;
  st_jinja_node *node;
  if (p->t->type == TOKEN_SUB || p->t->type == TOKEN_ADD) {
    st_jinja_operator op = p->t->type == TOKEN_SUB ? JINJA_NEG : JINJA_POS;
    next(p);
    if (!st_jinja_nest_parser(p)) return NULL;
    node = unary(p, NODE_UNARY, op, parse_unary(p, false), place);
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
  st_jinja_token_type t = p->t->type;
  if (!node || (t != TOKEN_DIV && t != TOKEN_FLOORDIV && t != TOKEN_POW)) return node;
  st_jinja_unsupported_syntax(p->c, p->t->place, "the operator %s is not supported", st_jinja_token_name(p->t, NULL));
  return NULL;
}
