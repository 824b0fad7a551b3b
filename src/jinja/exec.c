// Statements, and the `loop` of a for.
#include "jinja/run.h"

#include <string.h>

typedef struct st_jloop {
  st_jval source; // what is iterated over
  st_jiter *it;
  int64_t index0, length, depth0; // length -1: not known yet
  st_jval after;                  // the next item when it was looked at, or J_MISSING
  bool ended;
  st_jval before, current, changed;
  const st_jnode *node;
  st_jenv *env; // around a recursive loop
} loop_state;

st_jenv *st_j_new_env(st_jrun *run, st_jenv *parent, size_t slots) {
  st_jenv *env = st_j_alloc(run, sizeof *env + slots * sizeof(st_jval), 1);
  if (env) env->parent = parent;
  return env; // zeroed slots are J_MISSING
}

void st_j_enter(st_jrun *run, st_jenv *env, const st_jframe *frame) {
  for (size_t i = 0; i < frame->n; i++) {
    const st_jload *load = &frame->loads[i];
    st_jval *slot = &env->slots[load->slot];
    if (load->action == J_LOAD_UNDEFINED)
      *slot = (st_jval){.kind = J_MISSING};
    else if (load->action == J_LOAD_ALIAS) {
      const st_jenv *from = env;
      for (uint32_t up = load->up; up; up--) from = from->parent;
      *slot = from->slots[load->from];
    } else if (load->action == J_LOAD_RESOLVE) {
      const st_jval *found = st_j_get_text(run->context, load->name);
      int builtin = found ? -1 : st_j_builtin(load->name);
      *slot = found ? *found : (st_jval){.kind = J_MISSING};
      st_jobject *o = builtin >= 0 ? st_j_alloc(run, 1, sizeof *o) : NULL;
      if (!o) continue; // a failed allocation ends the rendering soon
      o->id = builtin;
      *slot = (st_jval){.kind = J_BUILTIN, .o = o};
    }
  }
}

static void leave(st_jenv *env, const st_jframe *frame) {
  for (size_t i = 0; i < frame->n; i++) env->slots[frame->loads[i].slot] = (st_jval){.kind = J_MISSING};
}

bool st_j_assign(st_jrun *run, st_jenv *env, const st_jnode *target, st_jval v) {
  if (target->kind == N_NAME) {
    env->slots[target->slot] = v;
    return true;
  }
  if (target->kind == N_NSREF) {
    for (uint32_t up = target->up; up; up--) env = env->parent;
    st_jval ns = env->slots[target->slot];
    if (ns.kind != J_NAMESPACE) return st_j_wrong(run, "an attribute is set on something that is no namespace");
    return st_j_set(run, ns.d, st_j_text(target->text), v);
  }
  st_jval list;
  if (!st_j_to_list(run, v, J_LIST, &list)) return false;
  if (list.l->n != target->list.n) {
    return st_j_wrong(run, "expected %zu values to unpack, found %zu", target->list.n, list.l->n);
  }
  for (size_t i = 0; i < list.l->n; i++) {
    if (!st_j_assign(run, env, target->list.items[i], list.l->items[i])) return false;
  }
  return true;
}

// ---- the loop variable ----

static bool peek(st_jrun *run, loop_state *loop, st_jval *out) {
  if (loop->after.kind == J_MISSING && !loop->ended) {
    st_jnext next = st_j_next(run, loop->it, &loop->after);
    if (next == J_FAILED) return false;
    loop->ended = next == J_END;
    if (loop->ended) loop->after = (st_jval){.kind = J_MISSING};
  }
  *out = loop->after;
  return true;
}

static bool loop_length(st_jrun *run, loop_state *loop) {
  if (loop->length >= 0) return true;
  if (loop->source.kind != J_ITER) return st_j_length(run, loop->source, &loop->length);
  st_jval rest;
  if (!st_j_to_list(run, loop->source, J_LIST, &rest) || !st_j_iterate(run, rest, &loop->it)) return false;
  loop->length = (int64_t)rest.l->n + loop->index0 + 1 + (loop->after.kind != J_MISSING);
  return true;
}

bool st_j_loop_attribute(st_jrun *run, loop_state *loop, const st_jstr *name, st_jval *out) {
  *out = (st_jval){.kind = J_MISSING};
  if (st_j_is(name, "index"))
    *out = st_j_int(loop->index0 + 1);
  else if (st_j_is(name, "index0"))
    *out = st_j_int(loop->index0);
  else if (st_j_is(name, "first"))
    *out = st_j_bool(loop->index0 == 0);
  else if (st_j_is(name, "depth"))
    *out = st_j_int(loop->depth0 + 1);
  else if (st_j_is(name, "depth0"))
    *out = st_j_int(loop->depth0);
  else if (st_j_is(name, "last") || st_j_is(name, "nextitem")) {
    if (!peek(run, loop, out)) return false;
    bool none = out->kind == J_MISSING;
    if (st_j_is(name, "last"))
      *out = st_j_bool(none);
    else if (none)
      *out = st_j_undefined("the item after the last");
  } else if (st_j_is(name, "previtem")) {
    *out = loop->index0 == 0 ? st_j_undefined("the item before the first") : loop->before;
  } else if (st_j_is(name, "length") || st_j_is(name, "revindex") || st_j_is(name, "revindex0")) {
    if (!loop_length(run, loop)) return false;
    *out = st_j_int(st_j_is(name, "length")     ? loop->length
                    : st_j_is(name, "revindex") ? loop->length - loop->index0
                                                : loop->length - loop->index0 - 1);
  }
  return true;
}

bool st_j_loop_method(st_jrun *run, loop_state *loop, const char *name, const st_jargs *args, st_jval *out) {
  if (args->n_keywords) return st_j_wrong(run, "loop.%s takes no keyword arguments", name);
  if (!strcmp(name, "cycle")) {
    if (!args->n) return st_j_wrong(run, "loop.cycle needs an argument");
    *out = args->items[(size_t)loop->index0 % args->n];
    return true;
  }
  st_jval values;
  bool same = false;
  if (!st_j_list(run, J_TUPLE, args->n, &values)) return false;
  for (size_t i = 0; i < args->n; i++) {
    if (!st_j_append(run, values.l, args->items[i])) return false;
  }
  if (loop->changed.kind != J_MISSING && !st_j_equal(run, loop->changed, values, &same)) return false;
  if (!same) loop->changed = values;
  *out = st_j_bool(!same);
  return true;
}

// ---- for ----

static st_jflow run_turns(st_jrun *run, st_jenv *env, const st_jnode *node, loop_state *loop, bool *completed) {
  st_jobject *o = st_j_alloc(run, 1, sizeof *o);
  if (!o) return J_ERROR;
  o->loop = loop;
  for (;;) {
    st_jval item;
    if (!peek(run, loop, &item)) return J_ERROR;
    if (item.kind == J_MISSING) return J_NEXT;
    loop->after = (st_jval){.kind = J_MISSING};
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    run->line = node->line;
    if (!st_j_assign(run, env, node->a, item)) return J_ERROR;
    env->slots[node->loop_slot] = (st_jval){.kind = J_LOOP, .o = o};
    st_j_enter(run, env, node->frame);
    st_jflow flow = st_j_exec(run, env, node->list.items, node->list.n);
    if (flow == J_ERROR) return J_ERROR;
    if (flow == J_BREAK) return J_NEXT;
    if (flow == J_NEXT) *completed = true; // Jinja's else looks at this, not at whether there were items
  }
}

static st_jflow run_loop(st_jrun *run, st_jenv *outer, st_jenv *env, const st_jnode *node, st_jval source,
                         int64_t depth0) {
  bool completed = false;
  loop_state *loop = st_j_alloc(run, 1, sizeof *loop);
  if (!loop || (node->c && !st_j_filtered(run, node, outer, source, &source))) return J_ERROR;
  *loop = (loop_state){.source = source, .index0 = -1, .length = -1, .depth0 = depth0, .node = node, .env = outer};
  if (!st_j_iterate(run, source, &loop->it)) return J_ERROR;
  st_jflow flow = run_turns(run, env, node, loop, &completed);
  leave(env, node->frame);
  if (flow == J_ERROR || completed || !node->other.n) return flow;
  st_j_enter(run, env, node->frame_else);
  flow = st_j_exec(run, env, node->other.items, node->other.n);
  leave(env, node->frame_else);
  return flow;
}

static st_jflow exec_for(st_jrun *run, st_jenv *env, const st_jnode *node) {
  st_jval source;
  if (!st_j_eval(run, env, node->b, &source)) return J_ERROR;
  run->line = node->line;
  if (!node->flag) return run_loop(run, env, env, node, source, 0);
  st_jenv *own = st_j_new_env(run, env, node->n_slots);
  return own ? run_loop(run, env, own, node, source, 0) : J_ERROR;
}

bool st_j_loop_call(st_jrun *run, loop_state *loop, const st_jargs *args, st_jval *out) {
  st_jval source[1];
  if (!st_j_bind(run, "loop", args, "iterable", 1, source)) return false;
  if (!loop->node->flag) return st_j_wrong(run, "loop() needs a for that is marked recursive");
  if (run->calls >= run->max_calls) {
    return st_j_fail(run, SETUN_ERROR_LIMIT, "loops call themselves deeper than %d", run->max_calls);
  }
  st_jenv *env = st_j_new_env(run, loop->env, loop->node->n_slots);
  if (!env) return false;
  st_jbuild text = {0}, *outer = run->out;
  run->calls++;
  run->out = &text;
  bool ok = run_loop(run, loop->env, env, loop->node, source[0], loop->depth0 + 1) != J_ERROR;
  run->out = outer;
  run->calls--;
  return ok && st_j_built(run, &text, false, out);
}

// ---- the others ----

static st_jflow exec_if(st_jrun *run, st_jenv *env, const st_jnode *node) {
  for (size_t i = 0; i <= node->more.n; i++) {
    const st_jnode *branch = i ? node->more.items[i - 1] : node;
    st_jval test;
    bool truth;
    if (!st_j_eval(run, env, branch->a, &test) || !st_j_truth(run, test, &truth)) return J_ERROR;
    if (truth) return st_j_exec(run, env, branch->list.items, branch->list.n);
  }
  return st_j_exec(run, env, node->other.items, node->other.n);
}

// A set or filter block: its text, through its filter.
static st_jflow capture(st_jrun *run, st_jenv *env, const st_jnode *node, const st_jnode *filter, st_jval *out) {
  st_jbuild text = {0}, *outer = run->out;
  st_j_enter(run, env, node->frame);
  run->out = &text;
  st_jflow flow = st_j_exec(run, env, node->list.items, node->list.n);
  run->out = outer;
  if (flow != J_NEXT) return flow;
  if (!st_j_built(run, &text, false, out)) return J_ERROR;
  run->filter_input = *out;
  return filter && !st_j_eval(run, env, filter, out) ? J_ERROR : J_NEXT;
}

// What a filter or call block gives must be text already: Jinja joins it to the rest without str().
static bool put_text(st_jrun *run, st_jval v) {
  if (v.kind != J_STRING) return st_j_wrong(run, "a block's result must be a string, found %s", st_j_type(v));
  return st_j_put_all(run, run->out, v.s);
}

static st_jflow exec_capture(st_jrun *run, st_jenv *env, const st_jnode *node) {
  st_jval text;
  bool is_set = node->kind == N_SET_BLOCK;
  st_jflow flow = capture(run, env, node, is_set ? node->b : node->a, &text);
  if (flow != J_NEXT) return flow;
  bool ok = is_set ? st_j_assign(run, env, node->a, text) : put_text(run, text);
  leave(env, node->frame);
  return ok ? J_NEXT : J_ERROR;
}

static bool make_macro(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out) {
  st_jobject *o = st_j_alloc(run, 1, sizeof *o);
  if (!o) return false;
  o->node = node;
  o->env = env;
  *out = (st_jval){.kind = J_MACRO, .o = o};
  return true;
}

static st_jflow exec_call_block(st_jrun *run, st_jenv *env, const st_jnode *node) {
  static const st_jstr name = {.data = "caller", .length = 6};
  st_jval caller, callee, text;
  st_jargs args;
  const st_jnode *call = node->a;
  if (!make_macro(run, env, node, &caller) || !st_j_eval(run, env, call->a, &callee) ||
      !st_j_eval_args(run, env, call, &args))
    return J_ERROR;
  st_jkeyword *keywords = st_j_alloc(run, args.n_keywords + 1, sizeof *keywords);
  if (!keywords) return J_ERROR;
  for (size_t i = 0; i < args.n_keywords; i++) {
    keywords[i] = args.keywords[i];
    if (st_j_same_text(keywords[i].name, &name)) {
      st_j_wrong(run, "a call block's call has an argument 'caller' of its own");
      return J_ERROR;
    }
  }
  keywords[args.n_keywords++] = (st_jkeyword){&name, caller};
  args.keywords = keywords;
  run->line = node->line;
  return st_j_call(run, callee, &args, &text) && put_text(run, text) ? J_NEXT : J_ERROR;
}

static st_jflow exec_with(st_jrun *run, st_jenv *env, const st_jnode *node) {
  st_j_enter(run, env, node->frame);
  for (size_t i = 0; i < node->params.n; i++) {
    st_jval v;
    if (!st_j_eval(run, env, node->defaults.items[i], &v) || !st_j_assign(run, env, node->params.items[i], v)) {
      return J_ERROR;
    }
  }
  st_jflow flow = st_j_exec(run, env, node->list.items, node->list.n);
  leave(env, node->frame);
  return flow;
}

static st_jflow exec_generation(st_jrun *run, st_jenv *env, const st_jnode *node) {
  st_jenv *own = st_j_new_env(run, env, node->n_slots);
  if (!own) return J_ERROR;
  st_j_enter(run, own, node->frame);
  return st_j_exec(run, own, node->list.items, node->list.n);
}

static st_jflow exec_output(st_jrun *run, st_jenv *env, const st_jnode *node) {
  for (size_t i = 0; i < node->list.n; i++) {
    st_jval v;
    if (!st_j_eval(run, env, node->list.items[i], &v)) return J_ERROR;
    run->line = node->line;
    if (!st_j_put_value(run, run->out, v)) return J_ERROR;
  }
  return J_NEXT;
}

static st_jflow exec_node(st_jrun *run, st_jenv *env, const st_jnode *node) {
  st_jval v;
  switch ((st_jnode_kind)node->kind) {
  case N_DATA: return st_j_put_all(run, run->out, node->value.s) ? J_NEXT : J_ERROR;
  case N_OUTPUT: return exec_output(run, env, node);
  case N_IF: return exec_if(run, env, node);
  case N_FOR: return exec_for(run, env, node);
  case N_SET: return st_j_eval(run, env, node->b, &v) && st_j_assign(run, env, node->a, v) ? J_NEXT : J_ERROR;
  case N_SET_BLOCK:
  case N_FILTER_BLOCK: return exec_capture(run, env, node);
  case N_MACRO: return make_macro(run, env, node, &env->slots[node->slot]) ? J_NEXT : J_ERROR;
  case N_CALL_BLOCK: return exec_call_block(run, env, node);
  case N_WITH: return exec_with(run, env, node);
  case N_GENERATION: return exec_generation(run, env, node);
  case N_BREAK: return J_BREAK;
  case N_CONTINUE: return J_CONTINUE;
  default: st_j_wrong(run, "%s", node->text ? node->text->data : "unknown"); return J_ERROR;
  }
}

st_jflow st_j_exec(st_jrun *run, st_jenv *env, st_jnode *const *body, size_t n) {
  st_jflow flow = st_j_deeper(run) ? J_NEXT : J_ERROR;
  for (size_t i = 0; i < n && flow == J_NEXT; i++) {
    run->line = body[i]->line;
    flow = st_j_charge(run, 1) ? exec_node(run, env, body[i]) : J_ERROR;
  }
  run->depth--;
  return flow;
}
