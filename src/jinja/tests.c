// Tests: what stands after `is`.
#include "jinja/run.h"

#include <string.h>

static const char *const TESTS[] = {
    "odd",     "even",   "divisibleby", "defined",  "undefined", "filter", "test",    "none",
    "boolean", "false",  "true",        "integer",  "float",     "lower",  "upper",   "string",
    "mapping", "number", "sequence",    "iterable", "callable",  "sameas", "escaped", "in",
    "==",      "eq",     "equalto",     "!=",       "ne",        ">",      "gt",      "greaterthan",
    "ge",      ">=",     "<",           "lt",       "lessthan",  "<=",     "le",      NULL};

static const char *find(const st_jinja_string *name) {
  for (int i = 0; TESTS[i]; i++) {
    if (st_jinja_string_is(name, TESTS[i])) return TESTS[i];
  }
  return NULL;
}

bool st_jinja_is_test(const st_jinja_string *name) {
  return find(name) != NULL;
}

static bool same_object(st_jinja_value a, st_jinja_value b, bool *out) {
  *out = false;
  if (a.kind != b.kind) return true;
  if (a.kind == JINJA_NONE)
    *out = true;
  else if (a.kind == JINJA_BOOLEAN)
    *out = a.b == b.b;
  else if (a.kind == JINJA_INTEGER && a.i == b.i && a.i >= -5 && a.i <= 256)
    *out = true; // Python shares small integers
  else if (a.kind == JINJA_INTEGER || a.kind == JINJA_FLOAT || a.kind == JINJA_UNDEFINED)
    return false;
  else if (a.kind == JINJA_STRING)
    *out = a.s == b.s || (a.s->data == b.s->data && a.s->length == b.s->length);
  else
    *out = a.o == b.o;
  return true;
}

static bool kind_test(const char *name, st_jinja_value v, bool *known) {
  st_jinja_kind k = (st_jinja_kind)v.kind;
  *known = true;
  if (!strcmp(name, "defined")) return k != JINJA_UNDEFINED;
  if (!strcmp(name, "undefined")) return k == JINJA_UNDEFINED;
  if (!strcmp(name, "none")) return k == JINJA_NONE;
  if (!strcmp(name, "boolean")) return k == JINJA_BOOLEAN;
  if (!strcmp(name, "true")) return k == JINJA_BOOLEAN && v.b;
  if (!strcmp(name, "false")) return k == JINJA_BOOLEAN && !v.b;
  if (!strcmp(name, "integer")) return k == JINJA_INTEGER;
  if (!strcmp(name, "float")) return k == JINJA_FLOAT;
  if (!strcmp(name, "number")) return k == JINJA_INTEGER || k == JINJA_FLOAT || k == JINJA_BOOLEAN;
  if (!strcmp(name, "string")) return k == JINJA_STRING;
  if (!strcmp(name, "mapping")) return k == JINJA_DICT;
  if (!strcmp(name, "iterable")) return st_jinja_is_iterable(v);
  if (!strcmp(name, "sequence")) {
    return k == JINJA_STRING || k == JINJA_LIST || k == JINJA_TUPLE || k == JINJA_DICT || k == JINJA_RANGE ||
           k == JINJA_UNDEFINED;
  }
  if (!strcmp(name, "callable")) {
    return k == JINJA_MACRO || k == JINJA_BUILTIN || k == JINJA_METHOD || k == JINJA_LOOP || k == JINJA_JOINER ||
           k == JINJA_UNDEFINED;
  }
  if (!strcmp(name, "escaped")) return k == JINJA_STRING && v.s->safe;
  *known = false;
  return false;
}

static bool compare_test(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                         bool *out) {
  static const struct {
    const char *name;
    st_jinja_operator op;
  } table[] = {{"==", JINJA_EQ},       {"eq", JINJA_EQ}, {"equalto", JINJA_EQ}, {"!=", JINJA_NE},
               {"ne", JINJA_NE},       {">", JINJA_GT},  {"gt", JINJA_GT},      {"greaterthan", JINJA_GT},
               {">=", JINJA_GE},       {"ge", JINJA_GE}, {"<", JINJA_LT},       {"lt", JINJA_LT},
               {"lessthan", JINJA_LT}, {"<=", JINJA_LE}, {"le", JINJA_LE},      {"in", JINJA_IN}};
  if (args->n_keywords && strcmp(name, "in")) return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
  st_jinja_value a[1];
  if (!st_jinja_bind_arguments(run, name, args, "seq", 1, a)) return false;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(name, table[i].name)) return st_jinja_compare(run, table[i].op, v, a[0], out);
  }
  return false;
}

static bool remainder_test(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                           bool *out) {
  st_jinja_value a[1] = {st_jinja_from_int(2)}, rest;
  bool divisible = !strcmp(name, "divisibleby");
  if (!st_jinja_bind_arguments(run, name, args, divisible ? "num" : "", divisible, a)) return false;
  if (!st_jinja_apply_binary(run, JINJA_MOD, v, a[0], &rest)) return false;
  return st_jinja_equal(run, rest, st_jinja_from_int(!strcmp(name, "odd")), out);
}

bool st_jinja_apply_test(st_jinja_run *run, const st_jinja_string *text, st_jinja_value v,
                         const st_jinja_arguments *args, bool *out) {
  char shown[64];
  bool known;
  st_jinja_value a[1];
  const char *name = find(text);
  if (!name) return st_jinja_fail_format(run, "there is no test '%s'", st_jinja_shorten(text, shown));
  *out = kind_test(name, v, &known);
  if (known) return st_jinja_bind_arguments(run, name, args, "", 0, NULL);
  if (!strcmp(name, "odd") || !strcmp(name, "even") || !strcmp(name, "divisibleby")) {
    return remainder_test(run, name, v, args, out);
  }
  if (!strcmp(name, "lower") || !strcmp(name, "upper")) {
    st_jinja_value s;
    if (!st_jinja_bind_arguments(run, name, args, "", 0, NULL) || !st_jinja_to_string(run, v, &s)) return false;
    *out = st_jinja_is_class(s.s, name[0] == 'l' ? "islower" : "isupper");
    return true;
  }
  if (!strcmp(name, "filter") || !strcmp(name, "test")) {
    if (!st_jinja_bind_arguments(run, name, args, "", 0, NULL)) return false;
    if (v.kind == JINJA_LIST || v.kind == JINJA_DICT)
      return st_jinja_fail_format(run, "a value of type %s names no %s", st_jinja_type_name(v), name);
    *out = v.kind == JINJA_STRING && (name[0] == 'f' ? st_jinja_is_filter(v.s) : st_jinja_is_test(v.s));
    return true;
  }
  if (!strcmp(name, "sameas")) {
    if (!st_jinja_bind_arguments(run, name, args, "other", 1, a)) return false;
    return same_object(v, a[0], out) || st_jinja_fail_unsupported(run, "whether two values are one object");
  }
  return compare_test(run, name, v, args, out);
}
