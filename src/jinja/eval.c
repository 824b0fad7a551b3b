// Expressions.
#include "jinja/run.h"

#include <string.h>

static bool eval_name(st_jenv *env, const st_jnode *node, st_jval *out) {
  for (uint32_t up = node->up; up; up--) env = env->parent;
  *out = env->slots[node->slot];
  if (out->kind == J_MISSING) *out = st_j_undefined(node->value.s->data);
  return true;
}

static bool eval_list(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval item;
  if (!st_j_list(run, node->kind == N_LIST ? J_LIST : J_TUPLE, node->list.n, out)) return false;
  for (size_t i = 0; i < node->list.n; i++) {
    if (!st_j_eval(run, env, node->list.items[i], &item) || !st_j_append(run, out->l, item)) return false;
  }
  return true;
}

static bool eval_dict(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval key, value;
  if (!st_j_dict(run, J_DICT, out)) return false;
  for (size_t i = 0; i < node->list.n; i += 2) {
    if (!st_j_eval(run, env, node->list.items[i], &key) || !st_j_eval(run, env, node->list.items[i + 1], &value))
      return false;
    run->line = node->line;
    if (!st_j_set(run, out->d, key, value)) return false;
  }
  return true;
}

static bool eval_binary(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval a, b;
  if (!st_j_eval(run, env, node->a, &a) || !st_j_eval(run, env, node->b, &b)) return false;
  run->line = node->line;
  return st_j_binary(run, (st_jop)node->op, a, b, out);
}

static bool eval_logic(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  bool truth;
  if (!st_j_eval(run, env, node->a, out) || !st_j_truth(run, *out, &truth)) return false;
  return truth == (node->kind == N_OR) || st_j_eval(run, env, node->b, out);
}

static bool eval_compare(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval left, right;
  bool truth = true;
  if (!st_j_eval(run, env, node->a, &left)) return false;
  for (size_t i = 0; truth && i < node->list.n; i++) {
    const st_jnode *operand = node->list.items[i];
    if (!st_j_eval(run, env, operand->a, &right)) return false;
    run->line = node->line;
    if (!st_j_compare(run, (st_jop)operand->op, left, right, &truth)) return false;
    left = right;
  }
  *out = st_j_bool(truth);
  return true;
}

static bool eval_concat(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval item;
  st_jbuild b = {0};
  for (size_t i = 0; i < node->list.n; i++) {
    if (!st_j_eval(run, env, node->list.items[i], &item) || !st_j_put_value(run, &b, item)) return false;
  }
  return st_j_built(run, &b, false, out);
}

static bool eval_condition(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval test;
  bool truth;
  if (!st_j_eval(run, env, node->b, &test) || !st_j_truth(run, test, &truth)) return false;
  if (truth) return st_j_eval(run, env, node->a, out);
  if (node->c) return st_j_eval(run, env, node->c, out);
  *out = st_j_undefined("an if without else");
  return true;
}

static bool is_literal(const st_jnode *node) {
  if (!node || node->kind == N_CONST) return true;
  if (node->kind == N_UNARY) return is_literal(node->a);
  if (node->kind != N_LIST && node->kind != N_TUPLE && node->kind != N_DICT) return false;
  for (size_t i = 0; i < node->list.n; i++) {
    if (!is_literal(node->list.items[i])) return false;
  }
  return true;
}

// Jinja works slices of literals out when it compiles, by another way that forgives wrong types.
static bool is_forgiven(const st_jnode *node, st_jval v, const st_jval bounds[3]) {
  const st_jnode *slice = node->b;
  if (!is_literal(node->a) || !is_literal(slice->a) || !is_literal(slice->b) || !is_literal(slice->c)) return false;
  bool sliceable = v.kind == J_STRING || v.kind == J_LIST || v.kind == J_TUPLE;
  for (int i = 0; i < 3; i++) {
    sliceable = sliceable && (bounds[i].kind == J_NONE || bounds[i].kind == J_INT || bounds[i].kind == J_BOOL);
  }
  return !sliceable;
}

static bool eval_item(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval v, key;
  if (!st_j_eval(run, env, node->a, &v)) return false;
  if (node->b->kind == N_SLICE) {
    st_jval bounds[3] = {st_j_none(), st_j_none(), st_j_none()};
    const st_jnode *const parts[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++) {
      if (parts[i] && !st_j_eval(run, env, parts[i], &bounds[i])) return false;
    }
    run->line = node->line;
    if (is_forgiven(node, v, bounds)) {
      *out = st_j_undefined("a slice");
      return true;
    }
    return st_j_slice(run, v, bounds, out);
  }
  if (!st_j_eval(run, env, node->b, &key)) return false;
  run->line = node->line;
  return st_j_getitem(run, v, key, out);
}

// **mapping among the arguments.
static bool spread_keywords(st_jrun *run, st_jval from, st_jargs *out, size_t room) {
  if (from.kind != J_DICT) return st_j_wrong(run, "'**' expects a mapping, found %s", st_j_type(from));
  for (size_t i = 0; i < from.d->n && out->n_keywords < room; i++) {
    st_jpair pair = from.d->pairs[i];
    if (pair.key.kind != J_STRING)
      return st_j_wrong(run, "'**' expects strings as keys, found %s", st_j_type(pair.key));
    for (size_t j = 0; j < out->n_keywords; j++) {
      if (!st_j_charge(run, 1)) return false;
      if (st_j_same_text(out->keywords[j].name, pair.key.s)) return st_j_wrong(run, "an argument is given twice");
    }
    out->keywords[out->n_keywords++] = (st_jkeyword){pair.key.s, pair.value};
  }
  return true;
}

bool st_j_eval_args(st_jrun *run, st_jenv *env, const st_jnode *call, st_jargs *out) {
  st_jval list, more;
  *out = (st_jargs){0};
  if (!st_j_list(run, J_LIST, call->args.n + 1, &list)) return false;
  for (size_t i = 0; i < call->args.n; i++) {
    st_jval item;
    if (!st_j_eval(run, env, call->args.items[i], &item) || !st_j_append(run, list.l, item)) return false;
  }
  if (call->dyn_args) {
    if (!st_j_eval(run, env, call->dyn_args, &more) || !st_j_to_list(run, more, J_LIST, &more)) return false;
    for (size_t i = 0; i < more.l->n; i++) {
      if (!st_j_append(run, list.l, more.l->items[i])) return false;
    }
  }
  out->items = list.l->items;
  out->n = list.l->n;
  if (!call->keywords.n && !call->dyn_keywords) return true;
  st_jval spread = {.kind = J_MISSING};
  size_t room = call->keywords.n + 1; // one more for a call block's caller
  // Python evaluates in the order written; **mapping stands last.
  st_jval *values = st_j_alloc(run, room, sizeof *values);
  if (!values) return false;
  for (size_t i = 0; i < call->keywords.n; i++) {
    if (!st_j_eval(run, env, call->keywords.items[i]->a, &values[i])) return false;
  }
  if (call->dyn_keywords) {
    if (!st_j_eval(run, env, call->dyn_keywords, &spread)) return false;
    if (spread.kind == J_DICT) room += spread.d->n;
  }
  out->keywords = st_j_alloc(run, room, sizeof *out->keywords);
  if (!out->keywords) return false;
  for (size_t i = 0; i < call->keywords.n; i++) {
    out->keywords[out->n_keywords++] = (st_jkeyword){call->keywords.items[i]->text, values[i]};
  }
  return !call->dyn_keywords || spread_keywords(run, spread, out, room);
}

static bool eval_call(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval callee;
  st_jargs args;
  if (!st_j_eval(run, env, node->a, &callee) || !st_j_eval_args(run, env, node, &args)) return false;
  run->line = node->line;
  return st_j_call(run, callee, &args, out);
}

static bool eval_filter(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval v = run->filter_input; // of a filter block's first filter
  st_jargs args;
  if ((node->a && !st_j_eval(run, env, node->a, &v)) || !st_j_eval_args(run, env, node, &args)) return false;
  run->line = node->line;
  return st_j_filter(run, node->text, v, &args, out);
}

static bool eval_test(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval v;
  st_jargs args;
  bool holds;
  if (!st_j_eval(run, env, node->a, &v) || !st_j_eval_args(run, env, node, &args)) return false;
  run->line = node->line;
  if (!st_j_test(run, node->text, v, &args, &holds)) return false;
  *out = st_j_bool(holds);
  return true;
}

static bool eval_one(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jval v;
  bool truth;
  if (!st_j_eval(run, env, node->a, &v)) return false;
  run->line = node->line;
  if (node->kind == N_GETATTR) return st_j_getattr(run, v, node->text, out);
  if (node->kind == N_UNARY) return st_j_unary(run, (st_jop)node->op, v, out);
  if (!st_j_truth(run, v, &truth)) return false;
  *out = st_j_bool(!truth);
  return true;
}

static bool eval_node(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  switch ((st_jnode_kind)node->kind) {
  case N_TUPLE:
  case N_LIST: return eval_list(run, env, node, out);
  case N_DICT: return eval_dict(run, env, node, out);
  case N_BINARY: return eval_binary(run, env, node, out);
  case N_AND:
  case N_OR: return eval_logic(run, env, node, out);
  case N_COMPARE: return eval_compare(run, env, node, out);
  case N_CONCAT: return eval_concat(run, env, node, out);
  case N_COND: return eval_condition(run, env, node, out);
  case N_GETITEM: return eval_item(run, env, node, out);
  case N_CALL: return eval_call(run, env, node, out);
  case N_FILTER: return eval_filter(run, env, node, out);
  case N_TEST: return eval_test(run, env, node, out);
  case N_UNARY:
  case N_NOT:
  case N_GETATTR: return eval_one(run, env, node, out);
  default: return st_j_refuse(run, "an expression of this kind");
  }
}

bool st_j_eval(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  if (!st_j_charge(run, 1)) return false;
  run->line = node->line;
  if (node->kind == N_CONST) {
    *out = node->value;
    return true;
  }
  if (node->kind == N_NAME) return eval_name(env, node, out);
  bool ok = st_j_deeper(run) && eval_node(run, env, node, out);
  run->depth--;
  return ok;
}
