// The grammar of statements.
#include "jinja/ast.h"

#include <string.h>

typedef const char *const *names; // ended by NULL

static bool at_any(const st_jinja_parser *p, names ends) {
  for (; *ends; ends++) {
    if (st_jinja_at_name(p->t, *ends)) return true;
  }
  return false;
}

static bool parse_body(st_jinja_parser *p, names ends, st_jinja_nodes *body);

// From a tag's last token to its end tag, whose name is then the current token; `drop`: it is skipped.
static bool parse_until(st_jinja_parser *p, names ends, bool drop, st_jinja_nodes *body) {
  st_jinja_place place = p->t->place;
  st_jinja_accept_token(p, TOKEN_COLON);
  if (!st_jinja_expect_token(p, TOKEN_BLOCK_END, "'%}'") || !parse_body(p, ends, body)) return false;
  if (p->t->type == TOKEN_END) {
    return st_jinja_syntax_error(p->c, place, "expected the tag '%s' for this one, found the end of the template",
                                 ends[0]);
  }
  if (drop) p->t++;
  return true;
}

static bool sink_all(st_jinja_parser *p, st_jinja_node *node, const st_jinja_nodes *list) {
  for (size_t i = 0; i < list->n; i++) {
    if (!st_jinja_deepen(p, node, list->items[i])) return false;
  }
  return true;
}

// ---- targets ----

static bool can_assign(st_jinja_parser *p, const st_jinja_node *target) {
  if (target->kind == NODE_NAME) {
    if (p->n_for && st_jinja_at_name(&(st_jinja_token){.type = TOKEN_NAME, .text = target->value.s}, "loop")) {
      return st_jinja_syntax_error(p->c, target->place, "the variable 'loop' cannot be set inside a for");
    }
    return true;
  }
  if (target->kind == NODE_ATTRIBUTE_TARGET) return true;
  if (target->kind != NODE_TUPLE)
    return st_jinja_syntax_error(p->c, target->place, "expected a variable to set, found a value");
  for (size_t i = 0; i < target->list.n; i++) {
    if (!can_assign(p, target->list.items[i])) return false;
  }
  return true;
}

static st_jinja_node *parse_target(st_jinja_parser *p, st_jinja_tuple_kind how, const char *end) {
  st_jinja_node *target = st_jinja_parse_tuple(p, how, end);
  return target && can_assign(p, target) ? target : NULL;
}

// A plain variable's name.
static st_jinja_node *parse_variable(st_jinja_parser *p) {
  static const char *const reserved[] = {"true", "false", "none", "True", "False", "None", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_NAME, p->t->place);
  if (!node) return NULL;
  if (at_any(p, reserved) || p->t->type != TOKEN_NAME) {
    st_jinja_unexpected(p, "a name");
    return NULL;
  }
  node->value = st_jinja_from_string(p->t->text);
  p->t++;
  return node;
}

// ---- for, if ----

static st_jinja_node *parse_for(st_jinja_parser *p, st_jinja_place place) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_FOR, place);
  if (!node) return NULL;
  p->n_for++;
  node->a = parse_target(p, JINJA_TUPLE_TARGET, "in");
  if (!node->a) return NULL;
  if (!st_jinja_accept_name(p, "in")) {
    st_jinja_unexpected(p, "'in'");
    return NULL;
  }
  node->b = st_jinja_parse_tuple(p, JINJA_TUPLE_NO_CONDITION, "recursive");
  if (!node->b) return NULL;
  if (st_jinja_accept_name(p, "if") && !(node->c = st_jinja_parse_expression(p, true))) return NULL;
  if (st_jinja_at_name(p->t, "recursive")) {
    st_jinja_unsupported_syntax(p->c, p->t->place, "a recursive for is not supported");
    return NULL;
  }
  int loops = p->n_loops++;
  if (!parse_until(p, ends, false, &node->list)) return NULL;
  p->n_loops = loops;
  bool has_else = st_jinja_at_name(p->t, "else");
  p->t++;
  if (has_else && !parse_until(p, end, true, &node->other)) return NULL;
  p->n_for--;
  bool ok = st_jinja_deepen(p, node, node->a) && st_jinja_deepen(p, node, node->b) &&
            st_jinja_deepen(p, node, node->c) && sink_all(p, node, &node->list) && sink_all(p, node, &node->other);
  return ok ? node : NULL;
}

static st_jinja_node *parse_if(st_jinja_parser *p, st_jinja_place place) {
  static const char *const ends[] = {"endif", "elif", "else", NULL}, *const end[] = {"endif", NULL};
  st_jinja_node *first = st_jinja_new_node(p, NODE_IF, place), *node = first;
  while (node) {
    node->a = st_jinja_parse_tuple(p, JINJA_TUPLE_NO_CONDITION, NULL);
    if (!node->a || !parse_until(p, ends, false, &node->list)) return NULL;
    if (!st_jinja_deepen(p, node, node->a) || !sink_all(p, node, &node->list)) return NULL;
    if (node != first && (!st_jinja_add_node(p->c, &first->more, node) || !st_jinja_deepen(p, first, node)))
      return NULL;
    const st_jinja_token *t = p->t++;
    if (st_jinja_at_name(t, "elif")) {
      node = st_jinja_new_node(p, NODE_IF, t->place);
      continue;
    }
    if (st_jinja_at_name(t, "else") && !parse_until(p, end, true, &first->other)) return NULL;
    return sink_all(p, first, &first->other) ? first : NULL;
  }
  return NULL;
}

// ---- set, macro, filter, generation ----

static st_jinja_node *parse_set(st_jinja_parser *p, st_jinja_place place) {
  static const char *const end[] = {"endset", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_SET, place);
  if (!node || !(node->a = parse_target(p, JINJA_TUPLE_SET_TARGET, NULL))) return NULL;
  if (st_jinja_accept_token(p, TOKEN_ASSIGN)) {
    node->b = st_jinja_parse_tuple(p, JINJA_TUPLE_PLAIN, NULL);
    return node->b && st_jinja_deepen(p, node, node->b) ? node : NULL;
  }
  node->kind = NODE_SET_BLOCK;
  if (p->t->type == TOKEN_PIPE && !(node->b = st_jinja_parse_filters(p, NULL, false))) return NULL;
  if (!parse_until(p, end, true, &node->list)) return NULL;
  return st_jinja_deepen(p, node, node->b) && sink_all(p, node, &node->list) ? node : NULL;
}

static bool parse_signature(st_jinja_parser *p, st_jinja_node *node) {
  if (!st_jinja_expect_token(p, TOKEN_LPAREN, "'('")) return false;
  while (p->t->type != TOKEN_RPAREN) {
    if (node->params.n && !st_jinja_expect_token(p, TOKEN_COMMA, "',' or ')'")) return false;
    st_jinja_node *parameter = parse_variable(p);
    if (!parameter) return false;
    for (size_t i = 0; i < node->params.n; i++) {
      const st_jinja_string *old = node->params.items[i]->value.s, *name = parameter->value.s;
      if (old->length == name->length && !memcmp(old->data, name->data, name->length)) {
        return st_jinja_syntax_error(p->c, parameter->place, "two parameters have the same name");
      }
    }
    if (st_jinja_accept_token(p, TOKEN_ASSIGN)) {
      st_jinja_node *value = st_jinja_parse_expression(p, true);
      if (!value || !st_jinja_deepen(p, node, value) || !st_jinja_add_node(p->c, &node->defaults, value)) return false;
    } else if (node->defaults.n) {
      return st_jinja_syntax_error(p->c, p->t->place, "a parameter without a default follows one with a default");
    }
    if (!st_jinja_add_node(p->c, &node->params, parameter)) return false;
  }
  p->t++;
  return true;
}

// The body of a separate function: break does not leave it.
static bool parse_function(st_jinja_parser *p, names end, st_jinja_node *node) {
  int loops = p->n_loops;
  p->n_loops = 0;
  bool ok = parse_until(p, end, true, &node->list) && sink_all(p, node, &node->list);
  p->n_loops = loops;
  return ok;
}

static st_jinja_node *parse_macro(st_jinja_parser *p, st_jinja_place place) {
  static const char *const end[] = {"endmacro", NULL};
  st_jinja_node *name = parse_variable(p);
  if (!name) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, NODE_MACRO, place);
  if (!node) return NULL;
  node->value = name->value;
  return parse_signature(p, node) && parse_function(p, end, node) ? node : NULL;
}

static st_jinja_node *parse_filter_block(st_jinja_parser *p, st_jinja_place place) {
  static const char *const end[] = {"endfilter", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_FILTER_BLOCK, place);
  if (!node || !(node->a = st_jinja_parse_filters(p, NULL, true))) return NULL;
  if (!parse_until(p, end, true, &node->list)) return NULL;
  return st_jinja_deepen(p, node, node->a) && sink_all(p, node, &node->list) ? node : NULL;
}

static st_jinja_node *parse_generation(st_jinja_parser *p, st_jinja_place place) {
  static const char *const end[] = {"endgeneration", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_GENERATION, place);
  return node && parse_function(p, end, node) ? node : NULL;
}

static st_jinja_node *parse_jump(st_jinja_parser *p, st_jinja_place place, bool is_break) {
  if (p->n_loops) return st_jinja_new_node(p, is_break ? NODE_BREAK : NODE_CONTINUE, place);
  st_jinja_syntax_error(p->c, place, "'%s' outside of a for loop", is_break ? "break" : "continue");
  return NULL;
}

static st_jinja_node *parse_statement(st_jinja_parser *p) {
  static const char *const others[] = {"call", "with",    "print", "include",    "import",
                                       "from", "extends", "block", "autoescape", NULL};
  const st_jinja_token *t = p->t;
  if (t->type != TOKEN_NAME) {
    st_jinja_unexpected(p, "the name of a tag");
    return NULL;
  }
  if (at_any(p, others)) {
    char shown[64];
    st_jinja_unsupported_syntax(p->c, t->place, "the tag '%s' is not supported", st_jinja_token_name(t, shown));
    return NULL;
  }
  p->t++;
  if (st_jinja_at_name(t, "for")) return parse_for(p, t->place);
  if (st_jinja_at_name(t, "if")) return parse_if(p, t->place);
  if (st_jinja_at_name(t, "set")) return parse_set(p, t->place);
  if (st_jinja_at_name(t, "macro")) return parse_macro(p, t->place);
  if (st_jinja_at_name(t, "break")) return parse_jump(p, t->place, true);
  if (st_jinja_at_name(t, "continue")) return parse_jump(p, t->place, false);
  if (st_jinja_at_name(t, "generation")) return parse_generation(p, t->place);
  if (st_jinja_at_name(t, "filter")) return parse_filter_block(p, t->place);
  p->t--;
  st_jinja_unexpected(p, "for, if, set, macro, filter, generation, break, continue or raw");
  return NULL;
}

static bool parse_body(st_jinja_parser *p, names ends, st_jinja_nodes *body) {
  if (!st_jinja_nest_parser(p)) return false;
  while (p->t->type != TOKEN_END) {
    const st_jinja_token *t = p->t++;
    st_jinja_node *node;
    if (t->type == TOKEN_DATA) {
      node = st_jinja_new_node(p, NODE_DATA, t->place);
      if (node) node->value = st_jinja_from_string(t->text);
    } else if (t->type == TOKEN_VARIABLE_BEGIN) {
      node = st_jinja_new_node(p, NODE_OUTPUT, t->place);
      st_jinja_node *value = node ? st_jinja_parse_tuple(p, JINJA_TUPLE_PLAIN, NULL) : NULL;
      if (!value || !st_jinja_expect_token(p, TOKEN_VARIABLE_END, "'}}'")) return false;
      if (!st_jinja_deepen(p, node, value) || !st_jinja_add_node(p->c, &node->list, value)) return false;
    } else {
      if (ends && at_any(p, ends)) {
        p->depth--;
        return true;
      }
      node = parse_statement(p);
      if (!node || !st_jinja_expect_token(p, TOKEN_BLOCK_END, "'%}'")) return false;
    }
    if (!node || !st_jinja_add_node(p->c, body, node)) return false;
  }
  p->depth--;
  return true;
}

bool st_jinja_parse(st_jinja_compiler *c, const st_jinja_tokens *tokens, st_jinja_nodes *body) {
  st_jinja_parser p = {.c = c, .t = tokens->items};
  return parse_body(&p, NULL, body);
}
