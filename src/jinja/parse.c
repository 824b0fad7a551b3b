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

// From a tag's last token to its end tag, whose name is then the current token; `drop`: is passed.
static bool parse_until(st_jinja_parser *p, names ends, bool drop, st_jinja_nodes *body) {
  int line = p->t->line;
  st_jinja_accept_token(p, TOKEN_COLON);
  if (!st_jinja_expect_token(p, TOKEN_BLOCK_END, "'%}'") || !parse_body(p, ends, body)) return false;
  if (p->t->type == TOKEN_END) {
    return st_jinja_syntax_error(p->c, line, "expected the tag '%s' for this one, found the end of the template",
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
      return st_jinja_syntax_error(p->c, target->line, "the variable 'loop' cannot be set inside a for");
    }
    return true;
  }
  if (target->kind == NODE_ATTRIBUTE_TARGET) return true;
  if (target->kind != NODE_TUPLE)
    return st_jinja_syntax_error(p->c, target->line, "expected a variable to set, found a value");
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
  st_jinja_node *node = st_jinja_new_node(p, NODE_NAME, p->t->line);
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

static st_jinja_node *parse_for(st_jinja_parser *p, int line) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_FOR, line);
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
  node->flag = st_jinja_accept_name(p, "recursive");
  int loops = p->n_loops;
  p->n_loops = node->flag ? 1 : loops + 1;
  if (!parse_until(p, ends, false, &node->list)) return NULL;
  p->n_loops = node->flag ? 0 : loops;
  bool has_else = st_jinja_at_name(p->t, "else");
  p->t++;
  if (has_else && !parse_until(p, end, true, &node->other)) return NULL;
  p->n_loops = loops;
  p->n_for--;
  bool ok = st_jinja_deepen(p, node, node->a) && st_jinja_deepen(p, node, node->b) &&
            st_jinja_deepen(p, node, node->c) && sink_all(p, node, &node->list) && sink_all(p, node, &node->other);
  return ok ? node : NULL;
}

static st_jinja_node *parse_if(st_jinja_parser *p, int line) {
  static const char *const ends[] = {"endif", "elif", "else", NULL}, *const end[] = {"endif", NULL};
  st_jinja_node *first = st_jinja_new_node(p, NODE_IF, line), *node = first;
  while (node) {
    node->a = st_jinja_parse_tuple(p, JINJA_TUPLE_NO_CONDITION, NULL);
    if (!node->a || !parse_until(p, ends, false, &node->list)) return NULL;
    if (!st_jinja_deepen(p, node, node->a) || !sink_all(p, node, &node->list)) return NULL;
    if (node != first && (!st_jinja_add_node(p->c, &first->more, node) || !st_jinja_deepen(p, first, node)))
      return NULL;
    const st_jinja_token *t = p->t++;
    if (st_jinja_at_name(t, "elif")) {
      node = st_jinja_new_node(p, NODE_IF, t->line);
      continue;
    }
    if (st_jinja_at_name(t, "else") && !parse_until(p, end, true, &first->other)) return NULL;
    return sink_all(p, first, &first->other) ? first : NULL;
  }
  return NULL;
}

// ---- set, with, macro, call, filter ----

static st_jinja_node *parse_set(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endset", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_SET, line);
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

static st_jinja_node *parse_with(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endwith", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_WITH, line);
  while (node && p->t->type != TOKEN_BLOCK_END) {
    if (node->params.n && !st_jinja_expect_token(p, TOKEN_COMMA, "','")) return NULL;
    int loops = p->n_for;
    p->n_for = 0; // `loop` may be one of its targets
    st_jinja_node *target = parse_target(p, JINJA_TUPLE_TARGET, NULL);
    p->n_for = loops;
    if (!target || !st_jinja_add_node(p->c, &node->params, target) || !st_jinja_expect_token(p, TOKEN_ASSIGN, "'='"))
      return NULL;
    st_jinja_node *value = st_jinja_parse_expression(p, true);
    if (!value || !st_jinja_deepen(p, node, value) || !st_jinja_add_node(p->c, &node->defaults, value)) return NULL;
  }
  return node && parse_until(p, end, true, &node->list) && sink_all(p, node, &node->list) ? node : NULL;
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
        return st_jinja_syntax_error(p->c, parameter->line, "two parameters have the same name");
      }
    }
    if (st_jinja_accept_token(p, TOKEN_ASSIGN)) {
      st_jinja_node *value = st_jinja_parse_expression(p, true);
      if (!value || !st_jinja_deepen(p, node, value) || !st_jinja_add_node(p->c, &node->defaults, value)) return false;
    } else if (node->defaults.n) {
      return st_jinja_syntax_error(p->c, p->t->line, "a parameter without a default follows one with a default");
    }
    if (!st_jinja_add_node(p->c, &node->params, parameter)) return false;
  }
  p->t++;
  return true;
}

// The body of something that is a function of its own: no break reaches out of it.
static bool parse_function(st_jinja_parser *p, names end, st_jinja_node *node) {
  int loops = p->n_loops;
  p->n_loops = 0;
  bool ok = parse_until(p, end, true, &node->list) && sink_all(p, node, &node->list);
  p->n_loops = loops;
  return ok;
}

static st_jinja_node *parse_macro(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endmacro", NULL};
  st_jinja_node *name = parse_variable(p);
  if (!name) return NULL;
  st_jinja_node *node = st_jinja_new_node(p, NODE_MACRO, line);
  if (!node) return NULL;
  node->value = name->value;
  return parse_signature(p, node) && parse_function(p, end, node) ? node : NULL;
}

static st_jinja_node *parse_call_block(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endcall", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_CALL_BLOCK, line);
  if (!node || (p->t->type == TOKEN_LPAREN && !parse_signature(p, node))) return NULL;
  node->a = st_jinja_parse_expression(p, true);
  if (!node->a || !st_jinja_deepen(p, node, node->a)) return NULL;
  if (node->a->kind != NODE_CALL) {
    st_jinja_syntax_error(p->c, line, "expected a call after 'call', found something else");
    return NULL;
  }
  return parse_function(p, end, node) ? node : NULL;
}

static st_jinja_node *parse_filter_block(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endfilter", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_FILTER_BLOCK, line);
  if (!node || !(node->a = st_jinja_parse_filters(p, NULL, true))) return NULL;
  if (!parse_until(p, end, true, &node->list)) return NULL;
  return st_jinja_deepen(p, node, node->a) && sink_all(p, node, &node->list) ? node : NULL;
}

static st_jinja_node *parse_generation(st_jinja_parser *p, int line) {
  static const char *const end[] = {"endgeneration", NULL};
  st_jinja_node *node = st_jinja_new_node(p, NODE_GENERATION, line);
  return node && parse_function(p, end, node) ? node : NULL;
}

static st_jinja_node *parse_print(st_jinja_parser *p, int line) {
  st_jinja_node *node = st_jinja_new_node(p, NODE_OUTPUT, line);
  while (node && p->t->type != TOKEN_BLOCK_END) {
    if (node->list.n && !st_jinja_expect_token(p, TOKEN_COMMA, "','")) return NULL;
    st_jinja_node *value = st_jinja_parse_expression(p, true);
    if (!value || !st_jinja_deepen(p, node, value) || !st_jinja_add_node(p->c, &node->list, value)) return NULL;
  }
  return node;
}

// include, import, from and extends: nothing can be loaded here, which Jinja finds when it gets there.
static st_jinja_node *parse_loading(st_jinja_parser *p, int line) {
  static const char why[] = "no other template can be loaded from this one";
  if (!st_jinja_parse_expression(p, true)) return NULL;
  while (p->t->type == TOKEN_NAME || p->t->type == TOKEN_COMMA) p->t++;
  st_jinja_node *node = st_jinja_new_node(p, NODE_FAIL, line);
  return node && st_jinja_new_literal(p->c, why, sizeof why - 1, &node->text) ? node : NULL;
}

static st_jinja_node *parse_jump(st_jinja_parser *p, int line, bool is_break) {
  if (p->n_loops) return st_jinja_new_node(p, is_break ? NODE_BREAK : NODE_CONTINUE, line);
  st_jinja_syntax_error(p->c, line, "'%s' stands outside of any for", is_break ? "break" : "continue");
  return NULL;
}

static st_jinja_node *parse_statement(st_jinja_parser *p) {
  const st_jinja_token *t = p->t;
  if (t->type != TOKEN_NAME) {
    st_jinja_unexpected(p, "the name of a tag");
    return NULL;
  }
  p->t++;
  if (st_jinja_at_name(t, "for")) return parse_for(p, t->line);
  if (st_jinja_at_name(t, "if")) return parse_if(p, t->line);
  if (st_jinja_at_name(t, "set")) return parse_set(p, t->line);
  if (st_jinja_at_name(t, "macro")) return parse_macro(p, t->line);
  if (st_jinja_at_name(t, "break") || st_jinja_at_name(t, "continue"))
    return parse_jump(p, t->line, st_jinja_at_name(t, "break"));
  if (st_jinja_at_name(t, "generation")) return parse_generation(p, t->line);
  if (st_jinja_at_name(t, "call")) return parse_call_block(p, t->line);
  if (st_jinja_at_name(t, "filter")) return parse_filter_block(p, t->line);
  if (st_jinja_at_name(t, "with")) return parse_with(p, t->line);
  if (st_jinja_at_name(t, "print")) return parse_print(p, t->line);
  static const char *const loading[] = {"include", "import", "from", "extends", NULL};
  p->t--;
  if (at_any(p, loading)) {
    p->t++;
    return parse_loading(p, t->line);
  }
  if (st_jinja_at_name(t, "block") || st_jinja_at_name(t, "autoescape")) {
    char shown[64];
    st_jinja_unsupported_syntax(p->c, t->line, "the tag '%s'", st_jinja_token_name(t, shown));
    return NULL;
  }
  st_jinja_unexpected(p, "a known tag");
  return NULL;
}

static bool parse_body(st_jinja_parser *p, names ends, st_jinja_nodes *body) {
  enum { MAX_BLOCKS = 90 };
  if (++p->depth > MAX_BLOCKS) {
    return st_jinja_unsupported_syntax(p->c, p->t->line, "blocks nested deeper than %d", MAX_BLOCKS);
  }
  while (p->t->type != TOKEN_END) {
    const st_jinja_token *t = p->t++;
    st_jinja_node *node;
    if (t->type == TOKEN_DATA) {
      node = st_jinja_new_node(p, NODE_DATA, t->line);
      if (node) node->value = st_jinja_from_string(t->text);
    } else if (t->type == TOKEN_VARIABLE_BEGIN) {
      node = st_jinja_new_node(p, NODE_OUTPUT, t->line);
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
