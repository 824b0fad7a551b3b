// Calls: global functions, macros and methods.
#include "jinja/run.h"

#include <string.h>

enum {
  BUILTIN_RANGE,
  BUILTIN_DICT,
  BUILTIN_LIPSUM,
  BUILTIN_CYCLER,
  BUILTIN_JOINER,
  BUILTIN_NAMESPACE,
  BUILTIN_RAISE,
  BUILTIN_STRFTIME
};

int st_jinja_find_builtin(const st_jinja_string *name) {
  static const char *const names[] = {"range",  "dict",      "lipsum",          "cycler",
                                      "joiner", "namespace", "raise_exception", "strftime_now"};
  for (int i = 0; i < 8; i++) {
    if (st_jinja_string_is(name, names[i])) return i;
  }
  return -1;
}

static bool call_range(st_jinja_run *run, const st_jinja_arguments *args, st_jinja_value *out) {
  enum { MOST = 100000 };
  st_jinja_value a[3];
  int64_t n[3] = {0, 0, 1};
  if (args->n_keywords) return st_jinja_fail_format(run, "range takes no keyword arguments");
  if (!st_jinja_bind_arguments(run, "range", args, "start,stop,step", 1, a)) return false;
  for (size_t i = 0; i < args->n; i++) {
    if (!st_jinja_as_int(a[i], &n[i]))
      return st_jinja_fail_format(run, "range expects integers, found %s", st_jinja_type_name(a[i]));
  }
  if (args->n == 1) n[1] = n[0], n[0] = 0;
  if (n[2] == 0) return st_jinja_fail_format(run, "range with step 0");
  st_jinja_object *r = st_jinja_allocate(run, 1, sizeof *r);
  if (!r) return false;
  uint64_t distance = n[2] > 0 ? (uint64_t)n[1] - (uint64_t)n[0] : (uint64_t)n[0] - (uint64_t)n[1];
  uint64_t step = n[2] > 0 ? (uint64_t)n[2] : -(uint64_t)n[2];
  bool empty = n[2] > 0 ? n[0] >= n[1] : n[0] <= n[1];
  uint64_t count = empty ? 0 : (distance - 1) / step + 1;
  if (count > MOST) return st_jinja_fail_format(run, "a range of more than %d elements", MOST);
  *r = (st_jinja_object){.start = n[0], .stop = n[1], .step = n[2], .count = (int64_t)count};
  *out = (st_jinja_value){.kind = JINJA_RANGE, .o = r};
  return true;
}

static bool set_pairs(st_jinja_run *run, st_jinja_dict *dict, st_jinja_value from) {
  st_jinja_iterator *it;
  st_jinja_value item, pair;
  st_jinja_step next;
  if (from.kind == JINJA_DICT) {
    for (size_t i = 0; i < from.d->n; i++) {
      if (!st_jinja_charge(run, 1) || !st_jinja_dict_set(run, dict, from.d->pairs[i].key, from.d->pairs[i].value))
        return false;
    }
    return true;
  }
  if (!st_jinja_iterate(run, from, &it)) return false;
  while ((next = st_jinja_next(run, it, &item)) == JINJA_ITEM) {
    if (!st_jinja_to_list(run, item, JINJA_LIST, &pair)) return false;
    if (pair.l->n != 2) return st_jinja_fail_format(run, "dict expects pairs, found %zu elements", pair.l->n);
    if (!st_jinja_dict_set(run, dict, pair.l->items[0], pair.l->items[1])) return false;
  }
  return next == JINJA_END;
}

bool st_jinja_make_dict(st_jinja_run *run, const char *what, st_jinja_kind kind, const st_jinja_arguments *args,
                        st_jinja_value *out) {
  if (args->n > 1)
    return st_jinja_fail_format(run, "%s takes at most one positional argument, found %zu", what, args->n);
  if (!st_jinja_new_dict(run, kind, out) || (args->n && !set_pairs(run, out->d, args->items[0]))) return false;
  for (size_t i = 0; i < args->n_keywords; i++) {
    st_jinja_value key;
    const st_jinja_string *name = args->keywords[i].name;
    if (!st_jinja_substring(run, name, 0, name->length, &key)) return false;
    if (!st_jinja_dict_set(run, out->d, key, args->keywords[i].value)) return false;
  }
  return true;
}

static bool call_raise(st_jinja_run *run, const st_jinja_arguments *args) {
  st_jinja_value message[1], text;
  if (!st_jinja_bind_arguments(run, "raise_exception", args, "message", 1, message) ||
      !st_jinja_to_string(run, message[0], &text))
    return false;
  return st_jinja_fail(run, SETUN_ERROR_ARGUMENT, "the template says: %.*s",
                       (int)(text.s->length > 400 ? 400 : text.s->length), text.s->data);
}

static bool call_builtin(st_jinja_run *run, int id, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  st_jinja_object *o;
  switch (id) {
  case BUILTIN_RANGE: return call_range(run, args, out);
  case BUILTIN_DICT: return st_jinja_make_dict(run, "dict", JINJA_DICT, args, out);
  case BUILTIN_NAMESPACE: return st_jinja_make_dict(run, "namespace", JINJA_NAMESPACE, args, out);
  case BUILTIN_RAISE: return call_raise(run, args);
  case BUILTIN_STRFTIME:
    if (!st_jinja_bind_arguments(run, "strftime_now", args, "format", 1, a)) return false;
    if (a[0].kind != JINJA_STRING)
      return st_jinja_fail_format(run, "strftime_now expects a string, found %s", st_jinja_type_name(a[0]));
    return st_jinja_strftime(run, a[0].s, out);
  case BUILTIN_CYCLER:
    if (!args->n || args->n_keywords)
      return st_jinja_fail_format(run, "cycler takes at least one argument and no keywords");
    if (!(o = st_jinja_allocate(run, 1, sizeof *o))) return false;
    *o = (st_jinja_object){.items = args->items, .count = (int64_t)args->n};
    *out = (st_jinja_value){.kind = JINJA_CYCLER, .o = o};
    return true;
  case BUILTIN_JOINER:
    if (!st_jinja_bind_arguments(run, "joiner", args, "sep", 0, a) || !(o = st_jinja_allocate(run, 1, sizeof *o)))
      return false;
    o->self = a[0];
    if (a[0].kind == JINJA_MISSING && !st_jinja_copy_text(run, ", ", &o->self)) return false;
    *out = (st_jinja_value){.kind = JINJA_JOINER, .o = o};
    return true;
  default: return st_jinja_fail_unsupported(run, "the function 'lipsum'");
  }
}

// ---- macros ----

static bool take_keyword(const st_jinja_arguments *args, bool *used, const st_jinja_string *name, st_jinja_value *out) {
  for (size_t i = 0; i < args->n_keywords; i++) {
    if (used[i] || !st_jinja_same_text(args->keywords[i].name, name)) continue;
    used[i] = true;
    *out = args->keywords[i].value;
    return true;
  }
  return false;
}

// The keyword arguments that no parameter took: kwargs, or an error.
static bool other_keywords(st_jinja_run *run, const st_jinja_node *node, st_jinja_variables *env,
                           const st_jinja_arguments *args, const bool *used) {
  st_jinja_value rest;
  if (!st_jinja_new_dict(run, JINJA_DICT, &rest)) return false;
  for (size_t i = 0; i < args->n_keywords; i++) {
    char shown[64];
    const st_jinja_string *name = args->keywords[i].name;
    st_jinja_value key;
    if (used[i]) continue;
    if (node->kwargs_slot == UINT32_MAX) {
      return st_jinja_fail_format(run, "the macro has no parameter '%s' left", st_jinja_shorten(name, shown));
    }
    if (!st_jinja_substring(run, name, 0, name->length, &key)) return false;
    if (!st_jinja_dict_set(run, rest.d, key, args->keywords[i].value)) return false;
  }
  if (node->kwargs_slot != UINT32_MAX) env->slots[node->kwargs_slot] = rest;
  return true;
}

static bool other_positions(st_jinja_run *run, const st_jinja_node *node, st_jinja_variables *env,
                            const st_jinja_arguments *args) {
  size_t count = node->params.n;
  if (node->varargs_slot == UINT32_MAX) {
    if (args->n <= count) return true;
    return st_jinja_fail_format(run, "the macro takes at most %zu arguments, found %zu", count, args->n);
  }
  st_jinja_value rest;
  if (!st_jinja_new_list(run, JINJA_TUPLE, 0, &rest)) return false;
  for (size_t i = count; i < args->n; i++) {
    if (!st_jinja_list_append(run, rest.l, args->items[i])) return false;
  }
  env->slots[node->varargs_slot] = rest;
  return true;
}

static bool bind_macro(st_jinja_run *run, const st_jinja_node *node, st_jinja_variables *env,
                       const st_jinja_arguments *args) {
  static const st_jinja_string caller = {.data = "caller", .length = 6};
  bool *used = st_jinja_allocate(run, args->n_keywords + 1, sizeof *used);
  if (!used) return false;
  for (size_t i = 0; i < node->params.n; i++) {
    const st_jinja_node *parameter = node->params.items[i];
    st_jinja_value *slot = &env->slots[parameter->slot];
    if (i < args->n)
      *slot = args->items[i];
    else if (!take_keyword(args, used, parameter->value.s, slot))
      *slot = (st_jinja_value){.kind = JINJA_MISSING};
  }
  if (node->caller_slot != UINT32_MAX) {
    st_jinja_value *slot = &env->slots[node->caller_slot];
    if (!take_keyword(args, used, &caller, slot) || slot->kind == JINJA_NONE) *slot = st_jinja_undefined("caller");
  }
  if (!other_keywords(run, node, env, args, used) || !other_positions(run, node, env, args)) return false;
  st_jinja_enter_scope(run, env, node->frame);
  size_t first_default = node->params.n - node->defaults.n;
  for (size_t i = 0; i < node->params.n; i++) {
    const st_jinja_node *parameter = node->params.items[i];
    st_jinja_value *slot = &env->slots[parameter->slot];
    if (slot->kind != JINJA_MISSING) continue;
    if (i < first_default)
      *slot = st_jinja_undefined(parameter->value.s->data);
    else if (!st_jinja_evaluate(run, env, node->defaults.items[i - first_default], slot))
      return false;
  }
  return true;
}

bool st_jinja_call_macro(st_jinja_run *run, const st_jinja_object *macro, const st_jinja_arguments *args,
                         st_jinja_value *out) {
  const st_jinja_node *node = macro->node;
  if (run->calls >= run->max_calls) {
    return st_jinja_fail(run, SETUN_ERROR_LIMIT, "macros call each other deeper than %d", run->max_calls);
  }
  st_jinja_variables *env = st_jinja_new_variables(run, macro->env, node->n_slots);
  if (!env) return false;
  st_jinja_builder text = {0}, *outer = run->out;
  run->calls++;
  run->out = &text;
  bool ok =
      bind_macro(run, node, env, args) && st_jinja_execute(run, env, node->list.items, node->list.n) == JINJA_NEXT;
  run->out = outer;
  run->calls--;
  return ok && st_jinja_finish(run, &text, false, out);
}

bool st_jinja_call(st_jinja_run *run, st_jinja_value callee, const st_jinja_arguments *args, st_jinja_value *out) {
  switch ((st_jinja_kind)callee.kind) {
  case JINJA_BUILTIN: return call_builtin(run, callee.o->id, args, out);
  case JINJA_METHOD: return st_jinja_call_method(run, callee.o, args, out);
  case JINJA_MACRO: return st_jinja_call_macro(run, callee.o, args, out);
  case JINJA_LOOP: return st_jinja_loop_call(run, callee.o->loop, args, out);
  case JINJA_JOINER:
    if (!st_jinja_bind_arguments(run, "a joiner", args, "", 0, NULL)) return false;
    if (!callee.o->start++) return st_jinja_copy_text(run, "", out);
    *out = callee.o->self;
    return true;
  case JINJA_UNDEFINED:
    if (callee.unsafe) return st_jinja_fail_format(run, "'%s' is not safe to call", callee.name ? callee.name : "");
    return st_jinja_fail_format(run, "'%s' is undefined and cannot be called", callee.name ? callee.name : "a value");
  default: return st_jinja_fail_format(run, "a value of type %s cannot be called", st_jinja_type_name(callee));
  }
}
