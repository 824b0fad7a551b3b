// Calls: global functions, macros and methods.
#include "jinja/run.h"

#include <string.h>

enum { BUILTIN_RANGE, BUILTIN_NAMESPACE, BUILTIN_RAISE, BUILTIN_STRFTIME };

// The last ones are Jinja's too, but no published template calls them.
static const char *const BUILTINS[] = {"range", "namespace", "raise_exception", "strftime_now",
                                       "dict",  "cycler",    "joiner",          "lipsum"};

int st_jinja_find_builtin(const st_jinja_string *name) {
  for (int i = 0; i < (int)(sizeof BUILTINS / sizeof *BUILTINS); i++) {
    if (st_jinja_string_is(name, BUILTINS[i])) return i;
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

static bool call_namespace(st_jinja_run *run, const st_jinja_arguments *args, st_jinja_value *out) {
  if (args->n) return st_jinja_fail_unsupported(run, "namespace: arguments without a name are not supported");
  if (!st_jinja_new_dict(run, JINJA_NAMESPACE, out)) return false;
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

static bool call_strftime(st_jinja_run *run, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  if (!st_jinja_bind_arguments(run, "strftime_now", args, "format", 1, a)) return false;
  if (a[0].kind != JINJA_STRING) {
    return st_jinja_fail_format(run, "strftime_now expects a string, found %s", st_jinja_type_name(a[0]));
  }
  return st_jinja_strftime(run, a[0].s, out);
}

static bool call_builtin(st_jinja_run *run, int id, const st_jinja_arguments *args, st_jinja_value *out) {
  switch (id) {
  case BUILTIN_RANGE: return call_range(run, args, out);
  case BUILTIN_NAMESPACE: return call_namespace(run, args, out);
  case BUILTIN_RAISE: return call_raise(run, args);
  case BUILTIN_STRFTIME: return call_strftime(run, args, out);
  default: return st_jinja_fail_unsupported(run, "the function '%s' is not supported", BUILTINS[id]);
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

static bool bind_macro(st_jinja_run *run, const st_jinja_node *node, st_jinja_variables *env,
                       const st_jinja_arguments *args) {
  size_t count = node->params.n, first_default = count - node->defaults.n;
  bool *used = st_jinja_allocate(run, args->n_keywords + 1, sizeof *used);
  if (!used) return false;
  if (args->n > count) {
    return st_jinja_fail_format(run, "the macro takes at most %zu arguments, found %zu", count, args->n);
  }
  for (size_t i = 0; i < count; i++) {
    const st_jinja_node *parameter = node->params.items[i];
    st_jinja_value *slot = &env->slots[parameter->slot];
    if (i < args->n)
      *slot = args->items[i];
    else if (!take_keyword(args, used, parameter->value.s, slot))
      *slot = (st_jinja_value){.kind = JINJA_MISSING};
  }
  for (size_t i = 0; i < args->n_keywords; i++) {
    char shown[64];
    if (used[i]) continue;
    return st_jinja_fail_format(run, "the macro has no parameter '%s' left",
                                st_jinja_shorten(args->keywords[i].name, shown));
  }
  st_jinja_enter_scope(run, env, node->scope);
  for (size_t i = 0; i < count; i++) {
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

static bool call_macro(st_jinja_run *run, const st_jinja_object *macro, const st_jinja_arguments *args,
                       st_jinja_value *out) {
  const st_jinja_node *node = macro->node;
  st_jinja_variables *env = st_jinja_new_variables(run, macro->env, node->n_slots);
  // A macro's frames are as large as those of three levels of an expression, of which its call is one.
  if (!env || !st_jinja_nest(run) || !st_jinja_nest(run)) return false;
  st_jinja_builder text = {0}, *outer = run->out;
  run->out = &text;
  bool ok = bind_macro(run, node, env, args) && st_jinja_execute(run, env, &node->list);
  run->out = outer;
  run->depth -= 2;
  return ok && st_jinja_finish(run, &text, false, out);
}

bool st_jinja_call(st_jinja_run *run, st_jinja_value callee, const st_jinja_arguments *args, st_jinja_value *out) {
  switch ((st_jinja_kind)callee.kind) {
  case JINJA_BUILTIN: return call_builtin(run, callee.o->id, args, out);
  case JINJA_METHOD: return st_jinja_call_method(run, callee.o, args, out);
  case JINJA_MACRO: return call_macro(run, callee.o, args, out);
  case JINJA_UNDEFINED:
    if (callee.unsafe) return st_jinja_fail_format(run, "'%s' is not safe to call", callee.name ? callee.name : "");
    return st_jinja_fail_format(run, "'%s' is undefined and cannot be called", callee.name ? callee.name : "a value");
  default: return st_jinja_fail_format(run, "a value of type %s cannot be called", st_jinja_type_name(callee));
  }
}
