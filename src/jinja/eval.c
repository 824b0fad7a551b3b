// Expressions.
#include "jinja/run.h"

#include <string.h>

static bool eval_name(st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  for (uint32_t up = node->up; up; up--) env = env->parent;
  *out = env->slots[node->slot];
  if (out->kind == JINJA_MISSING) *out = st_jinja_undefined(node->value.s->data);
  return true;
}

static bool eval_list(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value item;
  if (!st_jinja_new_list(run, node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE, node->list.n, out)) return false;
  for (size_t i = 0; i < node->list.n; i++) {
    if (!st_jinja_evaluate(run, env, node->list.items[i], &item) || !st_jinja_list_append(run, out->l, item))
      return false;
  }
  return true;
}

static bool eval_dict(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value key, value;
  if (!st_jinja_new_dict(run, JINJA_DICT, out)) return false;
  for (size_t i = 0; i < node->list.n; i += 2) {
    if (!st_jinja_evaluate(run, env, node->list.items[i], &key) ||
        !st_jinja_evaluate(run, env, node->list.items[i + 1], &value))
      return false;
    run->line = node->line;
    if (!st_jinja_dict_set(run, out->d, key, value)) return false;
  }
  return true;
}

static bool eval_binary(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value a, b;
  if (!st_jinja_evaluate(run, env, node->a, &a) || !st_jinja_evaluate(run, env, node->b, &b)) return false;
  run->line = node->line;
  return st_jinja_apply_binary(run, (st_jinja_operator)node->op, a, b, out);
}

static bool eval_logic(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  bool truth;
  if (!st_jinja_evaluate(run, env, node->a, out) || !st_jinja_to_boolean(run, *out, &truth)) return false;
  return truth == (node->kind == NODE_OR) || st_jinja_evaluate(run, env, node->b, out);
}

static bool eval_compare(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value left, right;
  bool truth = true;
  if (!st_jinja_evaluate(run, env, node->a, &left)) return false;
  for (size_t i = 0; truth && i < node->list.n; i++) {
    const st_jinja_node *operand = node->list.items[i];
    if (!st_jinja_evaluate(run, env, operand->a, &right)) return false;
    run->line = node->line;
    if (!st_jinja_compare(run, (st_jinja_operator)operand->op, left, right, &truth)) return false;
    left = right;
  }
  *out = st_jinja_from_bool(truth);
  return true;
}

static bool eval_concat(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value item;
  st_jinja_builder b = {0};
  for (size_t i = 0; i < node->list.n; i++) {
    if (!st_jinja_evaluate(run, env, node->list.items[i], &item) || !st_jinja_put_value(run, &b, item)) return false;
  }
  return st_jinja_finish(run, &b, false, out);
}

static bool eval_condition(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value test;
  bool truth;
  if (!st_jinja_evaluate(run, env, node->b, &test) || !st_jinja_to_boolean(run, test, &truth)) return false;
  if (truth) return st_jinja_evaluate(run, env, node->a, out);
  if (node->c) return st_jinja_evaluate(run, env, node->c, out);
  *out = st_jinja_undefined("an if without else");
  return true;
}

static bool is_literal(const st_jinja_node *node) {
  if (!node || node->kind == NODE_CONSTANT) return true;
  if (node->kind == NODE_UNARY) return is_literal(node->a);
  if (node->kind != NODE_LIST && node->kind != NODE_TUPLE && node->kind != NODE_DICT) return false;
  for (size_t i = 0; i < node->list.n; i++) {
    if (!is_literal(node->list.items[i])) return false;
  }
  return true;
}

// Jinja works slices of literals out when it compiles, by another way that forgives wrong types.
static bool is_forgiven(const st_jinja_node *node, st_jinja_value v, const st_jinja_value bounds[3]) {
  const st_jinja_node *slice = node->b;
  if (!is_literal(node->a) || !is_literal(slice->a) || !is_literal(slice->b) || !is_literal(slice->c)) return false;
  bool sliceable = v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
  for (int i = 0; i < 3; i++) {
    sliceable = sliceable &&
                (bounds[i].kind == JINJA_NONE || bounds[i].kind == JINJA_INTEGER || bounds[i].kind == JINJA_BOOLEAN);
  }
  return !sliceable;
}

static bool eval_item(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v, key;
  if (!st_jinja_evaluate(run, env, node->a, &v)) return false;
  if (node->b->kind == NODE_SLICE) {
    st_jinja_value bounds[3] = {st_jinja_none(), st_jinja_none(), st_jinja_none()};
    const st_jinja_node *const parts[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++) {
      if (parts[i] && !st_jinja_evaluate(run, env, parts[i], &bounds[i])) return false;
    }
    run->line = node->line;
    if (is_forgiven(node, v, bounds)) {
      *out = st_jinja_undefined("a slice");
      return true;
    }
    return st_jinja_get_slice(run, v, bounds, out);
  }
  if (!st_jinja_evaluate(run, env, node->b, &key)) return false;
  run->line = node->line;
  return st_jinja_get_item(run, v, key, out);
}

// **mapping among the arguments.
static bool spread_keywords(st_jinja_run *run, st_jinja_value from, st_jinja_arguments *out, size_t room) {
  if (from.kind != JINJA_DICT)
    return st_jinja_fail_format(run, "'**' expects a mapping, found %s", st_jinja_type_name(from));
  for (size_t i = 0; i < from.d->n && out->n_keywords < room; i++) {
    st_jinja_pair pair = from.d->pairs[i];
    if (pair.key.kind != JINJA_STRING)
      return st_jinja_fail_format(run, "'**' expects strings as keys, found %s", st_jinja_type_name(pair.key));
    for (size_t j = 0; j < out->n_keywords; j++) {
      if (!st_jinja_charge(run, 1)) return false;
      if (st_jinja_same_text(out->keywords[j].name, pair.key.s))
        return st_jinja_fail_format(run, "an argument is given twice");
    }
    out->keywords[out->n_keywords++] = (st_jinja_keyword){pair.key.s, pair.value};
  }
  return true;
}

bool st_jinja_evaluate_arguments(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *call,
                                 st_jinja_arguments *out) {
  st_jinja_value list, more;
  *out = (st_jinja_arguments){0};
  if (!st_jinja_new_list(run, JINJA_LIST, call->args.n + 1, &list)) return false;
  for (size_t i = 0; i < call->args.n; i++) {
    st_jinja_value item;
    if (!st_jinja_evaluate(run, env, call->args.items[i], &item) || !st_jinja_list_append(run, list.l, item))
      return false;
  }
  if (call->dyn_args) {
    if (!st_jinja_evaluate(run, env, call->dyn_args, &more) || !st_jinja_to_list(run, more, JINJA_LIST, &more))
      return false;
    for (size_t i = 0; i < more.l->n; i++) {
      if (!st_jinja_list_append(run, list.l, more.l->items[i])) return false;
    }
  }
  out->items = list.l->items;
  out->n = list.l->n;
  if (!call->keywords.n && !call->dyn_keywords) return true;
  st_jinja_value spread = {.kind = JINJA_MISSING};
  size_t room = call->keywords.n + 1; // one more for a call block's caller
  // Python evaluates in the order written; **mapping stands last.
  st_jinja_value *values = st_jinja_allocate(run, room, sizeof *values);
  if (!values) return false;
  for (size_t i = 0; i < call->keywords.n; i++) {
    if (!st_jinja_evaluate(run, env, call->keywords.items[i]->a, &values[i])) return false;
  }
  if (call->dyn_keywords) {
    if (!st_jinja_evaluate(run, env, call->dyn_keywords, &spread)) return false;
    if (spread.kind == JINJA_DICT) room += spread.d->n;
  }
  out->keywords = st_jinja_allocate(run, room, sizeof *out->keywords);
  if (!out->keywords) return false;
  for (size_t i = 0; i < call->keywords.n; i++) {
    out->keywords[out->n_keywords++] = (st_jinja_keyword){call->keywords.items[i]->text, values[i]};
  }
  return !call->dyn_keywords || spread_keywords(run, spread, out, room);
}

static bool eval_call(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value callee;
  st_jinja_arguments args;
  if (!st_jinja_evaluate(run, env, node->a, &callee) || !st_jinja_evaluate_arguments(run, env, node, &args))
    return false;
  run->line = node->line;
  return st_jinja_call(run, callee, &args, out);
}

static bool eval_filter(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v = run->filter_input; // of a filter block's first filter
  st_jinja_arguments args;
  if ((node->a && !st_jinja_evaluate(run, env, node->a, &v)) || !st_jinja_evaluate_arguments(run, env, node, &args))
    return false;
  run->line = node->line;
  return st_jinja_apply_filter(run, node->text, v, &args, out);
}

static bool eval_test(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v;
  st_jinja_arguments args;
  bool holds;
  if (!st_jinja_evaluate(run, env, node->a, &v) || !st_jinja_evaluate_arguments(run, env, node, &args)) return false;
  run->line = node->line;
  if (!st_jinja_apply_test(run, node->text, v, &args, &holds)) return false;
  *out = st_jinja_from_bool(holds);
  return true;
}

static bool eval_one(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v;
  bool truth;
  if (!st_jinja_evaluate(run, env, node->a, &v)) return false;
  run->line = node->line;
  if (node->kind == NODE_ATTRIBUTE) return st_jinja_get_attribute(run, v, node->text, out);
  if (node->kind == NODE_UNARY) return st_jinja_apply_unary(run, (st_jinja_operator)node->op, v, out);
  if (!st_jinja_to_boolean(run, v, &truth)) return false;
  *out = st_jinja_from_bool(!truth);
  return true;
}

static bool eval_node(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  switch ((st_jinja_node_kind)node->kind) {
  case NODE_TUPLE:
  case NODE_LIST: return eval_list(run, env, node, out);
  case NODE_DICT: return eval_dict(run, env, node, out);
  case NODE_BINARY: return eval_binary(run, env, node, out);
  case NODE_AND:
  case NODE_OR: return eval_logic(run, env, node, out);
  case NODE_COMPARE: return eval_compare(run, env, node, out);
  case NODE_CONCAT: return eval_concat(run, env, node, out);
  case NODE_CONDITION: return eval_condition(run, env, node, out);
  case NODE_ITEM: return eval_item(run, env, node, out);
  case NODE_CALL: return eval_call(run, env, node, out);
  case NODE_FILTER: return eval_filter(run, env, node, out);
  case NODE_TEST: return eval_test(run, env, node, out);
  case NODE_UNARY:
  case NODE_NOT:
  case NODE_ATTRIBUTE: return eval_one(run, env, node, out);
  default: return st_jinja_fail_unsupported(run, "an expression of this kind");
  }
}

bool st_jinja_evaluate(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  if (!st_jinja_charge(run, 1)) return false;
  run->line = node->line;
  if (node->kind == NODE_CONSTANT) {
    *out = node->value;
    return true;
  }
  if (node->kind == NODE_NAME) return eval_name(env, node, out);
  bool ok = st_jinja_nest(run) && eval_node(run, env, node, out);
  run->depth--;
  return ok;
}
