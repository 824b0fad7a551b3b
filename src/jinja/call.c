// Calls: global functions, macros and methods.
#include "jinja/run.h"

#include <string.h>

enum { B_RANGE, B_DICT, B_LIPSUM, B_CYCLER, B_JOINER, B_NAMESPACE, B_RAISE, B_STRFTIME };

int st_j_builtin(const st_jstr *name) {
  static const char *const names[] = {"range",  "dict",      "lipsum",          "cycler",
                                      "joiner", "namespace", "raise_exception", "strftime_now"};
  for (int i = 0; i < 8; i++) {
    if (st_j_is(name, names[i])) return i;
  }
  return -1;
}

static bool call_range(st_jrun *run, const st_jargs *args, st_jval *out) {
  enum { MOST = 100000 };
  st_jval a[3];
  int64_t n[3] = {0, 0, 1};
  if (args->n_keywords) return st_j_wrong(run, "range takes no keyword arguments");
  if (!st_j_bind(run, "range", args, "start,stop,step", 1, a)) return false;
  for (size_t i = 0; i < args->n; i++) {
    if (!st_j_as_int(a[i], &n[i])) return st_j_wrong(run, "range expects integers, found %s", st_j_type(a[i]));
  }
  if (args->n == 1) n[1] = n[0], n[0] = 0;
  if (n[2] == 0) return st_j_wrong(run, "range with step 0");
  st_jobject *r = st_j_alloc(run, 1, sizeof *r);
  if (!r) return false;
  uint64_t distance = n[2] > 0 ? (uint64_t)n[1] - (uint64_t)n[0] : (uint64_t)n[0] - (uint64_t)n[1];
  uint64_t step = n[2] > 0 ? (uint64_t)n[2] : -(uint64_t)n[2];
  bool empty = n[2] > 0 ? n[0] >= n[1] : n[0] <= n[1];
  uint64_t count = empty ? 0 : (distance - 1) / step + 1;
  if (count > MOST) return st_j_wrong(run, "a range of more than %d elements", MOST);
  *r = (st_jobject){.start = n[0], .stop = n[1], .step = n[2], .count = (int64_t)count};
  *out = (st_jval){.kind = J_RANGE, .o = r};
  return true;
}

static bool set_pairs(st_jrun *run, st_jdict *dict, st_jval from) {
  st_jiter *it;
  st_jval item, pair;
  st_jnext next;
  if (from.kind == J_DICT) {
    for (size_t i = 0; i < from.d->n; i++) {
      if (!st_j_charge(run, 1) || !st_j_set(run, dict, from.d->pairs[i].key, from.d->pairs[i].value)) return false;
    }
    return true;
  }
  if (!st_j_iterate(run, from, &it)) return false;
  while ((next = st_j_next(run, it, &item)) == J_ITEM) {
    if (!st_j_to_list(run, item, J_LIST, &pair)) return false;
    if (pair.l->n != 2) return st_j_wrong(run, "dict expects pairs, found %zu elements", pair.l->n);
    if (!st_j_set(run, dict, pair.l->items[0], pair.l->items[1])) return false;
  }
  return next == J_END;
}

bool st_j_make_dict(st_jrun *run, const char *what, st_jkind kind, const st_jargs *args, st_jval *out) {
  if (args->n > 1) return st_j_wrong(run, "%s takes at most one positional argument, found %zu", what, args->n);
  if (!st_j_dict(run, kind, out) || (args->n && !set_pairs(run, out->d, args->items[0]))) return false;
  for (size_t i = 0; i < args->n_keywords; i++) {
    st_jval key;
    const st_jstr *name = args->keywords[i].name;
    if (!st_j_substring(run, name, 0, name->length, &key)) return false;
    if (!st_j_set(run, out->d, key, args->keywords[i].value)) return false;
  }
  return true;
}

static bool call_raise(st_jrun *run, const st_jargs *args) {
  st_jval message[1], text;
  if (!st_j_bind(run, "raise_exception", args, "message", 1, message) || !st_j_str(run, message[0], &text))
    return false;
  return st_j_fail(run, SETUN_ERROR_ARGUMENT, "the template says: %.*s",
                   (int)(text.s->length > 400 ? 400 : text.s->length), text.s->data);
}

static bool call_builtin(st_jrun *run, int id, const st_jargs *args, st_jval *out) {
  st_jval a[1];
  st_jobject *o;
  switch (id) {
  case B_RANGE: return call_range(run, args, out);
  case B_DICT: return st_j_make_dict(run, "dict", J_DICT, args, out);
  case B_NAMESPACE: return st_j_make_dict(run, "namespace", J_NAMESPACE, args, out);
  case B_RAISE: return call_raise(run, args);
  case B_STRFTIME:
    if (!st_j_bind(run, "strftime_now", args, "format", 1, a)) return false;
    if (a[0].kind != J_STRING) return st_j_wrong(run, "strftime_now expects a string, found %s", st_j_type(a[0]));
    return st_j_strftime(run, a[0].s, out);
  case B_CYCLER:
    if (!args->n || args->n_keywords) return st_j_wrong(run, "cycler takes at least one argument and no keywords");
    if (!(o = st_j_alloc(run, 1, sizeof *o))) return false;
    *o = (st_jobject){.items = args->items, .count = (int64_t)args->n};
    *out = (st_jval){.kind = J_CYCLER, .o = o};
    return true;
  case B_JOINER:
    if (!st_j_bind(run, "joiner", args, "sep", 0, a) || !(o = st_j_alloc(run, 1, sizeof *o))) return false;
    o->self = a[0];
    if (a[0].kind == J_MISSING && !st_j_copy(run, ", ", &o->self)) return false;
    *out = (st_jval){.kind = J_JOINER, .o = o};
    return true;
  default: return st_j_refuse(run, "the function 'lipsum'");
  }
}

// ---- macros ----

static bool take_keyword(const st_jargs *args, bool *used, const st_jstr *name, st_jval *out) {
  for (size_t i = 0; i < args->n_keywords; i++) {
    if (used[i] || !st_j_same_text(args->keywords[i].name, name)) continue;
    used[i] = true;
    *out = args->keywords[i].value;
    return true;
  }
  return false;
}

// The keyword arguments that no parameter took: kwargs, or an error.
static bool other_keywords(st_jrun *run, const st_jnode *node, st_jenv *env, const st_jargs *args, const bool *used) {
  st_jval rest;
  if (!st_j_dict(run, J_DICT, &rest)) return false;
  for (size_t i = 0; i < args->n_keywords; i++) {
    char shown[64];
    const st_jstr *name = args->keywords[i].name;
    st_jval key;
    if (used[i]) continue;
    if (node->kwargs_slot == UINT32_MAX) {
      return st_j_wrong(run, "the macro has no parameter '%s' left", st_j_shown(name, shown));
    }
    if (!st_j_substring(run, name, 0, name->length, &key)) return false;
    if (!st_j_set(run, rest.d, key, args->keywords[i].value)) return false;
  }
  if (node->kwargs_slot != UINT32_MAX) env->slots[node->kwargs_slot] = rest;
  return true;
}

static bool other_positions(st_jrun *run, const st_jnode *node, st_jenv *env, const st_jargs *args) {
  size_t count = node->params.n;
  if (node->varargs_slot == UINT32_MAX) {
    if (args->n <= count) return true;
    return st_j_wrong(run, "the macro takes at most %zu arguments, found %zu", count, args->n);
  }
  st_jval rest;
  if (!st_j_list(run, J_TUPLE, 0, &rest)) return false;
  for (size_t i = count; i < args->n; i++) {
    if (!st_j_append(run, rest.l, args->items[i])) return false;
  }
  env->slots[node->varargs_slot] = rest;
  return true;
}

static bool bind_macro(st_jrun *run, const st_jnode *node, st_jenv *env, const st_jargs *args) {
  static const st_jstr caller = {.data = "caller", .length = 6};
  bool *used = st_j_alloc(run, args->n_keywords + 1, sizeof *used);
  if (!used) return false;
  for (size_t i = 0; i < node->params.n; i++) {
    const st_jnode *parameter = node->params.items[i];
    st_jval *slot = &env->slots[parameter->slot];
    if (i < args->n)
      *slot = args->items[i];
    else if (!take_keyword(args, used, parameter->value.s, slot))
      *slot = (st_jval){.kind = J_MISSING};
  }
  if (node->caller_slot != UINT32_MAX) {
    st_jval *slot = &env->slots[node->caller_slot];
    if (!take_keyword(args, used, &caller, slot) || slot->kind == J_NONE) *slot = st_j_undefined("caller");
  }
  if (!other_keywords(run, node, env, args, used) || !other_positions(run, node, env, args)) return false;
  st_j_enter(run, env, node->frame);
  size_t first_default = node->params.n - node->defaults.n;
  for (size_t i = 0; i < node->params.n; i++) {
    const st_jnode *parameter = node->params.items[i];
    st_jval *slot = &env->slots[parameter->slot];
    if (slot->kind != J_MISSING) continue;
    if (i < first_default)
      *slot = st_j_undefined(parameter->value.s->data);
    else if (!st_j_eval(run, env, node->defaults.items[i - first_default], slot))
      return false;
  }
  return true;
}

bool st_j_call_macro(st_jrun *run, const st_jobject *macro, const st_jargs *args, st_jval *out) {
  const st_jnode *node = macro->node;
  if (run->calls >= run->max_calls) {
    return st_j_fail(run, SETUN_ERROR_LIMIT, "macros call each other deeper than %d", run->max_calls);
  }
  st_jenv *env = st_j_new_env(run, macro->env, node->n_slots);
  if (!env) return false;
  st_jbuild text = {0}, *outer = run->out;
  run->calls++;
  run->out = &text;
  bool ok = bind_macro(run, node, env, args) && st_j_exec(run, env, node->list.items, node->list.n) == J_NEXT;
  run->out = outer;
  run->calls--;
  return ok && st_j_built(run, &text, false, out);
}

bool st_j_call(st_jrun *run, st_jval callee, const st_jargs *args, st_jval *out) {
  switch ((st_jkind)callee.kind) {
  case J_BUILTIN: return call_builtin(run, callee.o->id, args, out);
  case J_METHOD: return st_j_call_method(run, callee.o, args, out);
  case J_MACRO: return st_j_call_macro(run, callee.o, args, out);
  case J_LOOP: return st_j_loop_call(run, callee.o->loop, args, out);
  case J_JOINER:
    if (!st_j_bind(run, "a joiner", args, "", 0, NULL)) return false;
    if (!callee.o->start++) return st_j_copy(run, "", out);
    *out = callee.o->self;
    return true;
  case J_UNDEFINED:
    if (callee.unsafe) return st_j_wrong(run, "'%s' is not safe to call", callee.name ? callee.name : "");
    return st_j_wrong(run, "'%s' is undefined and cannot be called", callee.name ? callee.name : "a value");
  default: return st_j_wrong(run, "a value of type %s cannot be called", st_j_type(callee));
  }
}
