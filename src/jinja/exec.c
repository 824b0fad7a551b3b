// Statements, and the `loop` of a for. Nested blocks take no stack: each block being executed has a record in a list,
// innermost first.
#include "jinja/run.h"

typedef struct st_jinja_loop {
  st_jinja_object object; // what the variable `loop` refers to
  st_jinja_value source;  // what is iterated over
  st_jinja_iterator *it;
  int64_t index0, length; // length -1: not known yet
  st_jinja_value after;   // the next item if it was read ahead, or JINJA_MISSING
  bool ended, completed;
  st_jinja_value before, current;
} loop_state;

struct st_jinja_block {
  st_jinja_block *outer;
  const st_jinja_node *node; // its parent; NULL: the block that st_jinja_execute was called for
  const st_jinja_nodes *body;
  size_t at; // the next statement of body
  st_jinja_variables *env;
  loop_state *loop;            // of a for's body, but not of its else part
  st_jinja_builder text, *out; // of a set or filter block: what it captures, and where text went before
};

st_jinja_variables *st_jinja_new_variables(st_jinja_run *run, st_jinja_variables *parent, size_t slots) {
  st_jinja_variables *env = st_jinja_allocate(run, sizeof *env + slots * sizeof(st_jinja_value), 1);
  if (env) env->parent = parent;
  return env; // zeroed slots are JINJA_MISSING
}

void st_jinja_enter_scope(st_jinja_run *run, st_jinja_variables *env, const st_jinja_scope *scope) {
  for (size_t i = 0; i < scope->n; i++) {
    const st_jinja_load *load = &scope->loads[i];
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

static void leave_scope(st_jinja_variables *env, const st_jinja_scope *scope) {
  for (size_t i = 0; i < scope->n; i++) env->slots[scope->loads[i].slot] = (st_jinja_value){.kind = JINJA_MISSING};
}

bool st_jinja_assign(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *target, st_jinja_value v) {
  if (target->kind == NODE_NAME) {
    env->slots[target->slot] = v;
    return true;
  }
  if (target->kind == NODE_ATTRIBUTE_TARGET) {
    for (uint32_t up = target->up; up; up--) env = env->parent;
    st_jinja_value ns = env->slots[target->slot];
    if (ns.kind != JINJA_NAMESPACE) {
      return st_jinja_fail_format(run, "expected a namespace to set an attribute of, found %s", st_jinja_type_name(ns));
    }
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

bool st_jinja_loop_length(st_jinja_run *run, loop_state *loop, int64_t *out) {
  if (loop->length < 0 && loop->source.kind != JINJA_ITERATOR) {
    if (!st_jinja_length_of(run, loop->source, &loop->length)) return false;
  } else if (loop->length < 0) {
    st_jinja_value rest;
    if (!st_jinja_to_list(run, loop->source, JINJA_LIST, &rest) || !st_jinja_iterate(run, rest, &loop->it))
      return false;
    loop->length = (int64_t)rest.l->n + loop->index0 + 1 + (loop->after.kind != JINJA_MISSING);
  }
  *out = loop->length;
  return true;
}

static bool neighbor(st_jinja_run *run, loop_state *loop, const st_jinja_string *name, st_jinja_value *out) {
  if (st_jinja_string_is(name, "previtem")) {
    *out = loop->index0 == 0 ? st_jinja_undefined("the item before the first") : loop->before;
    return true;
  }
  if (!peek(run, loop, out)) return false;
  bool none = out->kind == JINJA_MISSING;
  if (st_jinja_string_is(name, "last"))
    *out = st_jinja_from_bool(none);
  else if (none)
    *out = st_jinja_undefined("the item after the last");
  return true;
}

bool st_jinja_loop_attribute(st_jinja_run *run, loop_state *loop, const st_jinja_string *name, st_jinja_value *out) {
  static const char *const others[] = {"revindex", "revindex0", "depth", "depth0", "cycle", "changed"};
  int64_t length;
  *out = (st_jinja_value){.kind = JINJA_MISSING};
  if (st_jinja_string_is(name, "index"))
    *out = st_jinja_from_int(loop->index0 + 1);
  else if (st_jinja_string_is(name, "index0"))
    *out = st_jinja_from_int(loop->index0);
  else if (st_jinja_string_is(name, "first"))
    *out = st_jinja_from_bool(loop->index0 == 0);
  else if (st_jinja_string_is(name, "last") || st_jinja_string_is(name, "nextitem") ||
           st_jinja_string_is(name, "previtem"))
    return neighbor(run, loop, name, out);
  else if (st_jinja_string_is(name, "length")) {
    if (!st_jinja_loop_length(run, loop, &length)) return false;
    *out = st_jinja_from_int(length);
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (st_jinja_string_is(name, others[i]))
      return st_jinja_fail_unsupported(run, "'loop.%s' is not supported", others[i]);
  }
  return true;
}

// ---- blocks ----

static st_jinja_block *push(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node,
                            const st_jinja_nodes *body) {
  st_jinja_block *block = run->spare;
  if (block)
    run->spare = block->outer;
  else if (!(block = st_jinja_allocate(run, 1, sizeof *block)))
    return NULL;
  *block = (st_jinja_block){.outer = *top, .node = node, .body = body, .env = *top ? (*top)->env : NULL};
  return *top = block;
}

static void pop(st_jinja_run *run, st_jinja_block **top) {
  st_jinja_block *block = *top;
  *top = block->outer;
  block->outer = run->spare;
  run->spare = block;
}

static bool begin_if(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node) {
  for (size_t i = 0; i <= node->more.n; i++) {
    const st_jinja_node *branch = i ? node->more.items[i - 1] : node;
    st_jinja_value test;
    bool truth;
    if (!st_jinja_evaluate(run, (*top)->env, branch->a, &test) || !st_jinja_to_boolean(run, test, &truth)) return false;
    if (truth) return push(run, top, node, &branch->list);
  }
  return !node->other.n || push(run, top, node, &node->other);
}

static bool end_loop(st_jinja_run *run, st_jinja_block **top) {
  st_jinja_block *block = *top;
  const st_jinja_node *node = block->node;
  bool completed = block->loop->completed; // Jinja's else looks at this, not at whether there were items
  leave_scope(block->env, node->scope);
  pop(run, top);
  if (completed || !node->other.n) return true;
  st_jinja_enter_scope(run, block->env, node->scope_else);
  return push(run, top, node, &node->other);
}

static bool next_turn(st_jinja_run *run, st_jinja_block **top) {
  st_jinja_block *block = *top;
  const st_jinja_node *node = block->node;
  loop_state *loop = block->loop;
  st_jinja_value item;
  if (!peek(run, loop, &item)) return false;
  if (item.kind == JINJA_MISSING) return end_loop(run, top);
  loop->after = (st_jinja_value){.kind = JINJA_MISSING};
  loop->index0++;
  loop->before = loop->current;
  loop->current = item;
  run->place = node->place;
  if (!st_jinja_assign(run, block->env, node->a, item)) return false;
  block->env->slots[node->loop_slot] = (st_jinja_value){.kind = JINJA_LOOP, .o = &loop->object};
  st_jinja_enter_scope(run, block->env, node->scope);
  block->at = 0;
  return true;
}

static bool begin_for(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node) {
  st_jinja_value source;
  if (!st_jinja_evaluate(run, (*top)->env, node->b, &source)) return false;
  run->place = node->place;
  loop_state *loop = st_jinja_allocate(run, 1, sizeof *loop);
  if (!loop || (node->c && !st_jinja_filtered(run, node, (*top)->env, source, &source))) return false;
  *loop = (loop_state){.object.loop = loop, .source = source, .index0 = -1, .length = -1};
  if (!st_jinja_iterate(run, source, &loop->it) || !push(run, top, node, &node->list)) return false;
  (*top)->loop = loop;
  return next_turn(run, top);
}

static bool begin_capture(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node) {
  st_jinja_enter_scope(run, (*top)->env, node->scope);
  st_jinja_block *block = push(run, top, node, &node->list);
  if (!block) return false;
  block->out = run->out;
  run->out = &block->text;
  return true;
}

// The text of a set or filter block, through its filter.
static bool end_capture(st_jinja_run *run, st_jinja_block **top) {
  st_jinja_block *block = *top;
  const st_jinja_node *node = block->node;
  bool is_set = node->kind == NODE_SET_BLOCK;
  const st_jinja_node *filter = is_set ? node->b : node->a;
  st_jinja_value text;
  run->out = block->out;
  if (!st_jinja_finish(run, &block->text, false, &text)) return false;
  run->filter_input = text;
  if (filter && !st_jinja_evaluate(run, block->env, filter, &text)) return false;
  if (is_set) {
    if (!st_jinja_assign(run, block->env, node->a, text)) return false;
  } else if (text.kind != JINJA_STRING) { // Jinja joins it to the rest without str()
    return st_jinja_fail_format(run, "a filter block must produce a string, found %s", st_jinja_type_name(text));
  } else if (!st_jinja_put_all(run, run->out, text.s))
    return false;
  leave_scope(block->env, node->scope);
  pop(run, top);
  return true;
}

static bool begin_generation(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node) {
  st_jinja_variables *own = st_jinja_new_variables(run, (*top)->env, node->n_slots);
  if (!own || !push(run, top, node, &node->list)) return false;
  (*top)->env = own;
  st_jinja_enter_scope(run, own, node->scope);
  return true;
}

// break and continue: leaves the blocks between here and the for.
static bool jump(st_jinja_run *run, st_jinja_block **top, bool is_break) {
  while (!(*top)->loop) {
    if ((*top)->out) run->out = (*top)->out;
    if ((*top)->node->kind == NODE_FOR) leave_scope((*top)->env, (*top)->node->scope_else);
    pop(run, top);
  }
  return is_break ? end_loop(run, top) : next_turn(run, top);
}

static bool end_block(st_jinja_run *run, st_jinja_block **top) {
  st_jinja_block *block = *top;
  const st_jinja_node *node = block->node;
  if (block->loop) {
    block->loop->completed = true;
    return next_turn(run, top);
  }
  if (block->out) return end_capture(run, top);
  if (node && node->kind == NODE_FOR) leave_scope(block->env, node->scope_else);
  pop(run, top);
  return true;
}

// ---- statements ----

static bool put_output(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  for (size_t i = 0; i < node->list.n; i++) {
    st_jinja_value v;
    if (!st_jinja_evaluate(run, env, node->list.items[i], &v)) return false;
    run->place = node->place;
    if (!st_jinja_put_value(run, run->out, v)) return false;
  }
  return true;
}

static bool make_macro(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node) {
  st_jinja_object *o = st_jinja_allocate(run, 1, sizeof *o);
  if (!o) return false;
  o->node = node;
  o->env = env;
  env->slots[node->slot] = (st_jinja_value){.kind = JINJA_MACRO, .o = o};
  return true;
}

static bool execute_statement(st_jinja_run *run, st_jinja_block **top, const st_jinja_node *node) {
  st_jinja_variables *env = (*top)->env;
  st_jinja_value v;
  switch ((st_jinja_node_kind)node->kind) {
  case NODE_DATA: return st_jinja_put_all(run, run->out, node->value.s);
  case NODE_OUTPUT: return put_output(run, env, node);
  case NODE_IF: return begin_if(run, top, node);
  case NODE_FOR: return begin_for(run, top, node);
  case NODE_SET: return st_jinja_evaluate(run, env, node->b, &v) && st_jinja_assign(run, env, node->a, v);
  case NODE_SET_BLOCK:
  case NODE_FILTER_BLOCK: return begin_capture(run, top, node);
  case NODE_MACRO: return make_macro(run, env, node);
  case NODE_GENERATION: return begin_generation(run, top, node);
  case NODE_BREAK: return jump(run, top, true);
  case NODE_CONTINUE: return jump(run, top, false);
  default: return st_jinja_fail_unsupported(run, "a statement of this kind is not supported");
  }
}

bool st_jinja_execute(st_jinja_run *run, st_jinja_variables *env, const st_jinja_nodes *body) {
  st_jinja_block *top = NULL;
  if (!push(run, &top, NULL, body)) return false;
  top->env = env;
  while (top) {
    if (top->at == top->body->n) {
      if (!end_block(run, &top)) return false;
      continue;
    }
    const st_jinja_node *node = top->body->items[top->at++];
    run->place = node->place;
    if (!st_jinja_charge(run, 1) || !execute_statement(run, &top, node)) return false;
  }
  return true;
}
