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
    run->place = node->place;
    if (!st_jinja_dict_set(run, out->d, key, value)) return false;
  }
  return true;
}

// Sums and products, from left to right.
static bool eval_binary(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value right;
  if (!st_jinja_evaluate(run, env, node->a, out)) return false;
  for (size_t i = 0; i < node->list.n; i++) {
    const st_jinja_node *operand = node->list.items[i];
    if (!st_jinja_evaluate(run, env, operand->a, &right)) return false;
    run->place = operand->place;
    if (!st_jinja_apply_binary(run, (st_jinja_operator)operand->op, *out, right, out)) return false;
  }
  return true;
}

static bool eval_logic(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  for (size_t i = 0; i < node->list.n; i++) {
    bool truth;
    if (!st_jinja_evaluate(run, env, node->list.items[i], out)) return false;
    if (i + 1 == node->list.n) break; // the last operand is the value, true or not
    if (!st_jinja_to_boolean(run, *out, &truth)) return false;
    if (truth == (node->kind == NODE_OR)) break;
  }
  return true;
}

static bool eval_compare(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value left, right;
  bool truth = true;
  if (!st_jinja_evaluate(run, env, node->a, &left)) return false;
  for (size_t i = 0; truth && i < node->list.n; i++) {
    const st_jinja_node *operand = node->list.items[i];
    if (!st_jinja_evaluate(run, env, operand->a, &right)) return false;
    run->place = operand->place;
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

// Jinja evaluates slices of literals at compile time, in another way that tolerates wrong types.
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
    run->place = node->place;
    if (is_forgiven(node, v, bounds)) {
      *out = st_jinja_undefined("a slice");
      return true;
    }
    return st_jinja_get_slice(run, v, bounds, out);
  }
  if (!st_jinja_evaluate(run, env, node->b, &key)) return false;
  run->place = node->place;
  return st_jinja_get_item(run, v, key, out);
}

static bool evaluate_arguments(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *call,
                               st_jinja_arguments *out) {
  *out = (st_jinja_arguments){.n = call->args.n, .n_keywords = call->keywords.n};
  if (out->n && !(out->items = st_jinja_allocate(run, out->n, sizeof *out->items))) return false;
  for (size_t i = 0; i < out->n; i++) {
    if (!st_jinja_evaluate(run, env, call->args.items[i], &out->items[i])) return false;
  }
  if (!out->n_keywords) return true;
  if (!(out->keywords = st_jinja_allocate(run, out->n_keywords, sizeof *out->keywords))) return false;
  for (size_t i = 0; i < out->n_keywords; i++) {
    const st_jinja_node *keyword = call->keywords.items[i];
    out->keywords[i].name = keyword->text;
    if (!st_jinja_evaluate(run, env, keyword->a, &out->keywords[i].value)) return false;
  }
  return true;
}

static bool eval_call(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value callee;
  st_jinja_arguments args;
  if (!st_jinja_evaluate(run, env, node->a, &callee) || !evaluate_arguments(run, env, node, &args)) return false;
  run->place = node->place;
  return st_jinja_call(run, callee, &args, out);
}

static bool eval_filter(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v = run->filter_input; // of a filter block's first filter
  st_jinja_arguments args;
  if ((node->a && !st_jinja_evaluate(run, env, node->a, &v)) || !evaluate_arguments(run, env, node, &args))
    return false;
  run->place = node->place;
  return st_jinja_apply_filter(run, node->text, v, &args, out);
}

static bool eval_test(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v;
  st_jinja_arguments args;
  bool holds;
  if (!st_jinja_evaluate(run, env, node->a, &v) || !evaluate_arguments(run, env, node, &args)) return false;
  run->place = node->place;
  if (!st_jinja_apply_test(run, node->text, v, &args, &holds)) return false;
  *out = st_jinja_from_bool(holds);
  return true;
}

static bool eval_one(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_value v;
  bool truth;
  if (!st_jinja_evaluate(run, env, node->a, &v)) return false;
  run->place = node->place;
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
  default: return st_jinja_fail_unsupported(run, "an expression of this kind is not supported");
  }
}

bool st_jinja_evaluate(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  if (!st_jinja_charge(run, 1)) return false;
  run->place = node->place;
  if (node->kind == NODE_CONSTANT) {
    *out = node->value;
    return true;
  }
  if (node->kind == NODE_NAME) return eval_name(env, node, out);
  if (!st_jinja_nest(run)) return false;
  bool ok = eval_node(run, env, node, out);
  run->depth--;
  return ok;
}
