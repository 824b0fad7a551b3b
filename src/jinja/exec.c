// Statements, and the `loop` of a for.
#include "jinja/run.h"

#include <string.h>

typedef struct st_jinja_loop {
  st_jinja_value source; // what is iterated over
  st_jinja_iterator *it;
  int64_t index0, length, depth0; // length -1: not known yet
  st_jinja_value after;           // the next item when it was looked at, or JINJA_MISSING
  bool ended;
  st_jinja_value before, current, changed;
  const st_jinja_node *node;
  st_jinja_variables *env; // around a recursive loop
} loop_state;

st_jinja_variables *st_jinja_new_variables(st_jinja_run *run, st_jinja_variables *parent, size_t slots) {
  st_jinja_variables *env = st_jinja_allocate(run, sizeof *env + slots * sizeof(st_jinja_value), 1);
  if (env) env->parent = parent;
  return env; // zeroed slots are JINJA_MISSING
}

void st_jinja_enter_scope(st_jinja_run *run, st_jinja_variables *env, const st_jinja_scope *frame) {
  for (size_t i = 0; i < frame->n; i++) {
    const st_jinja_load *load = &frame->loads[i];
    st_jinja_value *slot = &env->slots[load->slot];
    if (load->action == JINJA_LOAD_UNDEFINED)
      *slot = (st_jinja_value){.kind = JINJA_MISSING};
    else if (load->action == JINJA_LOAD_ALIAS) {
      const st_jinja_variables *from = env;
      for (uint32_t up = load->up; up; up--) from = from->parent;
      *slot = from->slots[load->from];
    } else if (load->action == JINJA_LOAD_RESOLVE) {
      const st_jinja_value *found = st_jinja_dict_find(run->context, load->name);
      int builtin = found ? -1 : st_jinja_find_builtin(load->name);
      *slot = found ? *found : (st_jinja_value){.kind = JINJA_MISSING};
      st_jinja_object *o = builtin >= 0 ? st_jinja_allocate(run, 1, sizeof *o) : NULL;
      if (!o) continue; // a failed allocation ends the rendering soon
      o->id = builtin;
      *slot = (st_jinja_value){.kind = JINJA_BUILTIN, .o = o};
    }
  }
}

static void leave(st_jinja_variables *env, const st_jinja_scope *frame) {
  for (size_t i = 0; i < frame->n; i++) env->slots[frame->loads[i].slot] = (st_jinja_value){.kind = JINJA_MISSING};
}

bool st_jinja_assign(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *target, st_jinja_value v) {
  if (target->kind == NODE_NAME) {
    env->slots[target->slot] = v;
    return true;
  }
  if (target->kind == NODE_ATTRIBUTE_TARGET) {
    for (uint32_t up = target->up; up; up--) env = env->parent;
    st_jinja_value ns = env->slots[target->slot];
    if (ns.kind != JINJA_NAMESPACE)
      return st_jinja_fail_format(run, "an attribute is set on something that is no namespace");
    return st_jinja_dict_set(run, ns.d, st_jinja_from_string(target->text), v);
  }
  st_jinja_value list;
  if (!st_jinja_to_list(run, v, JINJA_LIST, &list)) return false;
  if (list.l->n != target->list.n) {
    return st_jinja_fail_format(run, "expected %zu values to unpack, found %zu", target->list.n, list.l->n);
  }
  for (size_t i = 0; i < list.l->n; i++) {
    if (!st_jinja_assign(run, env, target->list.items[i], list.l->items[i])) return false;
  }
  return true;
}

// ---- the loop variable ----

static bool peek(st_jinja_run *run, loop_state *loop, st_jinja_value *out) {
  if (loop->after.kind == JINJA_MISSING && !loop->ended) {
    st_jinja_step next = st_jinja_next(run, loop->it, &loop->after);
    if (next == JINJA_FAILED) return false;
    loop->ended = next == JINJA_END;
    if (loop->ended) loop->after = (st_jinja_value){.kind = JINJA_MISSING};
  }
  *out = loop->after;
  return true;
}

static bool loop_length(st_jinja_run *run, loop_state *loop) {
  if (loop->length >= 0) return true;
  if (loop->source.kind != JINJA_ITERATOR) return st_jinja_length_of(run, loop->source, &loop->length);
  st_jinja_value rest;
  if (!st_jinja_to_list(run, loop->source, JINJA_LIST, &rest) || !st_jinja_iterate(run, rest, &loop->it)) return false;
  loop->length = (int64_t)rest.l->n + loop->index0 + 1 + (loop->after.kind != JINJA_MISSING);
  return true;
}

bool st_jinja_loop_attribute(st_jinja_run *run, loop_state *loop, const st_jinja_string *name, st_jinja_value *out) {
  *out = (st_jinja_value){.kind = JINJA_MISSING};
  if (st_jinja_string_is(name, "index"))
    *out = st_jinja_from_int(loop->index0 + 1);
  else if (st_jinja_string_is(name, "index0"))
    *out = st_jinja_from_int(loop->index0);
  else if (st_jinja_string_is(name, "first"))
    *out = st_jinja_from_bool(loop->index0 == 0);
  else if (st_jinja_string_is(name, "depth"))
    *out = st_jinja_from_int(loop->depth0 + 1);
  else if (st_jinja_string_is(name, "depth0"))
    *out = st_jinja_from_int(loop->depth0);
  else if (st_jinja_string_is(name, "last") || st_jinja_string_is(name, "nextitem")) {
    if (!peek(run, loop, out)) return false;
    bool none = out->kind == JINJA_MISSING;
    if (st_jinja_string_is(name, "last"))
      *out = st_jinja_from_bool(none);
    else if (none)
      *out = st_jinja_undefined("the item after the last");
  } else if (st_jinja_string_is(name, "previtem")) {
    *out = loop->index0 == 0 ? st_jinja_undefined("the item before the first") : loop->before;
  } else if (st_jinja_string_is(name, "length") || st_jinja_string_is(name, "revindex") ||
             st_jinja_string_is(name, "revindex0")) {
    if (!loop_length(run, loop)) return false;
    *out = st_jinja_from_int(st_jinja_string_is(name, "length")     ? loop->length
                             : st_jinja_string_is(name, "revindex") ? loop->length - loop->index0
                                                                    : loop->length - loop->index0 - 1);
  }
  return true;
}

bool st_jinja_loop_method(st_jinja_run *run, loop_state *loop, const char *name, const st_jinja_arguments *args,
                          st_jinja_value *out) {
  if (args->n_keywords) return st_jinja_fail_format(run, "loop.%s takes no keyword arguments", name);
  if (!strcmp(name, "cycle")) {
    if (!args->n) return st_jinja_fail_format(run, "loop.cycle needs an argument");
    *out = args->items[(size_t)loop->index0 % args->n];
    return true;
  }
  st_jinja_value values;
  bool same = false;
  if (!st_jinja_new_list(run, JINJA_TUPLE, args->n, &values)) return false;
  for (size_t i = 0; i < args->n; i++) {
    if (!st_jinja_list_append(run, values.l, args->items[i])) return false;
  }
  if (loop->changed.kind != JINJA_MISSING && !st_jinja_equal(run, loop->changed, values, &same)) return false;
  if (!same) loop->changed = values;
  *out = st_jinja_from_bool(!same);
  return true;
}

// ---- for ----

static st_jinja_flow run_turns(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, loop_state *loop,
                               bool *completed) {
  st_jinja_object *o = st_jinja_allocate(run, 1, sizeof *o);
  if (!o) return JINJA_ERROR;
  o->loop = loop;
  for (;;) {
    st_jinja_value item;
    if (!peek(run, loop, &item)) return JINJA_ERROR;
    if (item.kind == JINJA_MISSING) return JINJA_NEXT;
    loop->after = (st_jinja_value){.kind = JINJA_MISSING};
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    run->line = node->line;
    if (!st_jinja_assign(run, env, node->a, item)) return JINJA_ERROR;
    env->slots[node->loop_slot] = (st_jinja_value){.kind = JINJA_LOOP, .o = o};
    st_jinja_enter_scope(run, env, node->frame);
    st_jinja_flow flow = st_jinja_execute(run, env, node->list.items, node->list.n);
    if (flow == JINJA_ERROR) return JINJA_ERROR;
    if (flow == JINJA_BREAK) return JINJA_NEXT;
    if (flow == JINJA_NEXT) *completed = true; // Jinja's else looks at this, not at whether there were items
  }
}

static st_jinja_flow run_loop(st_jinja_run *run, st_jinja_variables *outer, st_jinja_variables *env,
                              const st_jinja_node *node, st_jinja_value source, int64_t depth0) {
  bool completed = false;
  loop_state *loop = st_jinja_allocate(run, 1, sizeof *loop);
  if (!loop || (node->c && !st_jinja_filtered(run, node, outer, source, &source))) return JINJA_ERROR;
  *loop = (loop_state){.source = source, .index0 = -1, .length = -1, .depth0 = depth0, .node = node, .env = outer};
  if (!st_jinja_iterate(run, source, &loop->it)) return JINJA_ERROR;
  st_jinja_flow flow = run_turns(run, env, node, loop, &completed);
  leave(env, node->frame);
  if (flow == JINJA_ERROR || completed || !node->other.n) return flow;
  st_jinja_enter_scope(run, env, node->frame_else);
  flow = st_jinja_execute(run, env, node->other.items, node->other.n);
  leave(env, node->frame_else);
  return flow;
}

static st_jinja_flow exec_for(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_value source;
  if (!st_jinja_evaluate(run, env, node->b, &source)) return JINJA_ERROR;
  run->line = node->line;
  if (!node->flag) return run_loop(run, env, env, node, source, 0);
  st_jinja_variables *own = st_jinja_new_variables(run, env, node->n_slots);
  return own ? run_loop(run, env, own, node, source, 0) : JINJA_ERROR;
}

bool st_jinja_loop_call(st_jinja_run *run, loop_state *loop, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value source[1];
  if (!st_jinja_bind_arguments(run, "loop", args, "iterable", 1, source)) return false;
  if (!loop->node->flag) return st_jinja_fail_format(run, "loop() needs a for that is marked recursive");
  if (run->calls >= run->max_calls) {
    return st_jinja_fail(run, SETUN_ERROR_LIMIT, "loops call themselves deeper than %d", run->max_calls);
  }
  st_jinja_variables *env = st_jinja_new_variables(run, loop->env, loop->node->n_slots);
  if (!env) return false;
  st_jinja_builder text = {0}, *outer = run->out;
  run->calls++;
  run->out = &text;
  bool ok = run_loop(run, loop->env, env, loop->node, source[0], loop->depth0 + 1) != JINJA_ERROR;
  run->out = outer;
  run->calls--;
  return ok && st_jinja_finish(run, &text, false, out);
}

// ---- the others ----

static st_jinja_flow exec_if(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  for (size_t i = 0; i <= node->more.n; i++) {
    const st_jinja_node *branch = i ? node->more.items[i - 1] : node;
    st_jinja_value test;
    bool truth;
    if (!st_jinja_evaluate(run, env, branch->a, &test) || !st_jinja_to_boolean(run, test, &truth)) return JINJA_ERROR;
    if (truth) return st_jinja_execute(run, env, branch->list.items, branch->list.n);
  }
  return st_jinja_execute(run, env, node->other.items, node->other.n);
}

// A set or filter block: its text, through its filter.
static st_jinja_flow capture(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node,
                             const st_jinja_node *filter, st_jinja_value *out) {
  st_jinja_builder text = {0}, *outer = run->out;
  st_jinja_enter_scope(run, env, node->frame);
  run->out = &text;
  st_jinja_flow flow = st_jinja_execute(run, env, node->list.items, node->list.n);
  run->out = outer;
  if (flow != JINJA_NEXT) return flow;
  if (!st_jinja_finish(run, &text, false, out)) return JINJA_ERROR;
  run->filter_input = *out;
  return filter && !st_jinja_evaluate(run, env, filter, out) ? JINJA_ERROR : JINJA_NEXT;
}

// What a filter or call block gives must be text already: Jinja joins it to the rest without str().
static bool put_text(st_jinja_run *run, st_jinja_value v) {
  if (v.kind != JINJA_STRING)
    return st_jinja_fail_format(run, "a block's result must be a string, found %s", st_jinja_type_name(v));
  return st_jinja_put_all(run, run->out, v.s);
}

static st_jinja_flow exec_capture(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_value text;
  bool is_set = node->kind == NODE_SET_BLOCK;
  st_jinja_flow flow = capture(run, env, node, is_set ? node->b : node->a, &text);
  if (flow != JINJA_NEXT) return flow;
  bool ok = is_set ? st_jinja_assign(run, env, node->a, text) : put_text(run, text);
  leave(env, node->frame);
  return ok ? JINJA_NEXT : JINJA_ERROR;
}

static bool make_macro(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out) {
  st_jinja_object *o = st_jinja_allocate(run, 1, sizeof *o);
  if (!o) return false;
  o->node = node;
  o->env = env;
  *out = (st_jinja_value){.kind = JINJA_MACRO, .o = o};
  return true;
}

static st_jinja_flow exec_call_block(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  static const st_jinja_string name = {.data = "caller", .length = 6};
  st_jinja_value caller, callee, text;
  st_jinja_arguments args;
  const st_jinja_node *call = node->a;
  if (!make_macro(run, env, node, &caller) || !st_jinja_evaluate(run, env, call->a, &callee) ||
      !st_jinja_evaluate_arguments(run, env, call, &args))
    return JINJA_ERROR;
  st_jinja_keyword *keywords = st_jinja_allocate(run, args.n_keywords + 1, sizeof *keywords);
  if (!keywords) return JINJA_ERROR;
  for (size_t i = 0; i < args.n_keywords; i++) {
    keywords[i] = args.keywords[i];
    if (st_jinja_same_text(keywords[i].name, &name)) {
      st_jinja_fail_format(run, "a call block's call has an argument 'caller' of its own");
      return JINJA_ERROR;
    }
  }
  keywords[args.n_keywords++] = (st_jinja_keyword){&name, caller};
  args.keywords = keywords;
  run->line = node->line;
  return st_jinja_call(run, callee, &args, &text) && put_text(run, text) ? JINJA_NEXT : JINJA_ERROR;
}

static st_jinja_flow exec_with(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_enter_scope(run, env, node->frame);
  for (size_t i = 0; i < node->params.n; i++) {
    st_jinja_value v;
    if (!st_jinja_evaluate(run, env, node->defaults.items[i], &v) ||
        !st_jinja_assign(run, env, node->params.items[i], v)) {
      return JINJA_ERROR;
    }
  }
  st_jinja_flow flow = st_jinja_execute(run, env, node->list.items, node->list.n);
  leave(env, node->frame);
  return flow;
}

static st_jinja_flow exec_generation(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_variables *own = st_jinja_new_variables(run, env, node->n_slots);
  if (!own) return JINJA_ERROR;
  st_jinja_enter_scope(run, own, node->frame);
  return st_jinja_execute(run, own, node->list.items, node->list.n);
}

static st_jinja_flow exec_output(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  for (size_t i = 0; i < node->list.n; i++) {
    st_jinja_value v;
    if (!st_jinja_evaluate(run, env, node->list.items[i], &v)) return JINJA_ERROR;
    run->line = node->line;
    if (!st_jinja_put_value(run, run->out, v)) return JINJA_ERROR;
  }
  return JINJA_NEXT;
}

static st_jinja_flow exec_node(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_value v;
  switch ((st_jinja_node_kind)node->kind) {
  case NODE_DATA: return st_jinja_put_all(run, run->out, node->value.s) ? JINJA_NEXT : JINJA_ERROR;
  case NODE_OUTPUT: return exec_output(run, env, node);
  case NODE_IF: return exec_if(run, env, node);
  case NODE_FOR: return exec_for(run, env, node);
  case NODE_SET:
    return st_jinja_evaluate(run, env, node->b, &v) && st_jinja_assign(run, env, node->a, v) ? JINJA_NEXT : JINJA_ERROR;
  case NODE_SET_BLOCK:
  case NODE_FILTER_BLOCK: return exec_capture(run, env, node);
  case NODE_MACRO: return make_macro(run, env, node, &env->slots[node->slot]) ? JINJA_NEXT : JINJA_ERROR;
  case NODE_CALL_BLOCK: return exec_call_block(run, env, node);
  case NODE_WITH: return exec_with(run, env, node);
  case NODE_GENERATION: return exec_generation(run, env, node);
  case NODE_BREAK: return JINJA_BREAK;
  case NODE_CONTINUE: return JINJA_CONTINUE;
  default: st_jinja_fail_format(run, "%s", node->text ? node->text->data : "unknown"); return JINJA_ERROR;
  }
}

st_jinja_flow st_jinja_execute(st_jinja_run *run, st_jinja_variables *env, st_jinja_node *const *body, size_t n) {
  st_jinja_flow flow = st_jinja_nest(run) ? JINJA_NEXT : JINJA_ERROR;
  for (size_t i = 0; i < n && flow == JINJA_NEXT; i++) {
    run->line = body[i]->line;
    flow = st_jinja_charge(run, 1) ? exec_node(run, env, body[i]) : JINJA_ERROR;
  }
  run->depth--;
  return flow;
}
