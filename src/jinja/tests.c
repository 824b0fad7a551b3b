// Tests: what stands after `is`.
#include "jinja/run.h"

#include <string.h>

static const char *const TESTS[] = {
    "odd",     "even",   "divisibleby", "defined",  "undefined", "filter", "test",    "none",
    "boolean", "false",  "true",        "integer",  "float",     "lower",  "upper",   "string",
    "mapping", "number", "sequence",    "iterable", "callable",  "sameas", "escaped", "in",
    "==",      "eq",     "equalto",     "!=",       "ne",        ">",      "gt",      "greaterthan",
    "ge",      ">=",     "<",           "lt",       "lessthan",  "<=",     "le",      NULL};

static const char *find(const st_jstr *name) {
  for (int i = 0; TESTS[i]; i++) {
    if (st_j_is(name, TESTS[i])) return TESTS[i];
  }
  return NULL;
}

bool st_j_has_test(const st_jstr *name) {
  return find(name) != NULL;
}

static bool same_object(st_jval a, st_jval b, bool *out) {
  *out = false;
  if (a.kind != b.kind) return true;
  if (a.kind == J_NONE)
    *out = true;
  else if (a.kind == J_BOOL)
    *out = a.b == b.b;
  else if (a.kind == J_INT && a.i == b.i && a.i >= -5 && a.i <= 256)
    *out = true; // Python shares small integers
  else if (a.kind == J_INT || a.kind == J_FLOAT || a.kind == J_UNDEFINED)
    return false;
  else if (a.kind == J_STRING)
    *out = a.s == b.s || (a.s->data == b.s->data && a.s->length == b.s->length);
  else
    *out = a.o == b.o;
  return true;
}

static bool kind_test(const char *name, st_jval v, bool *known) {
  st_jkind k = (st_jkind)v.kind;
  *known = true;
  if (!strcmp(name, "defined")) return k != J_UNDEFINED;
  if (!strcmp(name, "undefined")) return k == J_UNDEFINED;
  if (!strcmp(name, "none")) return k == J_NONE;
  if (!strcmp(name, "boolean")) return k == J_BOOL;
  if (!strcmp(name, "true")) return k == J_BOOL && v.b;
  if (!strcmp(name, "false")) return k == J_BOOL && !v.b;
  if (!strcmp(name, "integer")) return k == J_INT;
  if (!strcmp(name, "float")) return k == J_FLOAT;
  if (!strcmp(name, "number")) return k == J_INT || k == J_FLOAT || k == J_BOOL;
  if (!strcmp(name, "string")) return k == J_STRING;
  if (!strcmp(name, "mapping")) return k == J_DICT;
  if (!strcmp(name, "iterable")) return st_j_can_iterate(v);
  if (!strcmp(name, "sequence")) {
    return k == J_STRING || k == J_LIST || k == J_TUPLE || k == J_DICT || k == J_RANGE || k == J_UNDEFINED;
  }
  if (!strcmp(name, "callable")) {
    return k == J_MACRO || k == J_BUILTIN || k == J_METHOD || k == J_LOOP || k == J_JOINER || k == J_UNDEFINED;
  }
  if (!strcmp(name, "escaped")) return k == J_STRING && v.s->safe;
  *known = false;
  return false;
}

static bool compare_test(st_jrun *run, const char *name, st_jval v, const st_jargs *args, bool *out) {
  static const struct {
    const char *name;
    st_jop op;
  } table[] = {{"==", J_EQ},       {"eq", J_EQ},          {"equalto", J_EQ}, {"!=", J_NE}, {"ne", J_NE}, {">", J_GT},
               {"gt", J_GT},       {"greaterthan", J_GT}, {">=", J_GE},      {"ge", J_GE}, {"<", J_LT},  {"lt", J_LT},
               {"lessthan", J_LT}, {"<=", J_LE},          {"le", J_LE},      {"in", J_IN}};
  if (args->n_keywords && strcmp(name, "in")) return st_j_wrong(run, "%s takes no keyword arguments", name);
  st_jval a[1];
  if (!st_j_bind(run, name, args, "seq", 1, a)) return false;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(name, table[i].name)) return st_j_compare(run, table[i].op, v, a[0], out);
  }
  return false;
}

static bool remainder_test(st_jrun *run, const char *name, st_jval v, const st_jargs *args, bool *out) {
  st_jval a[1] = {st_j_int(2)}, rest;
  bool divisible = !strcmp(name, "divisibleby");
  if (!st_j_bind(run, name, args, divisible ? "num" : "", divisible, a)) return false;
  if (!st_j_binary(run, J_MOD, v, a[0], &rest)) return false;
  return st_j_equal(run, rest, st_j_int(!strcmp(name, "odd")), out);
}

bool st_j_test(st_jrun *run, const st_jstr *text, st_jval v, const st_jargs *args, bool *out) {
  char shown[64];
  bool known;
  st_jval a[1];
  const char *name = find(text);
  if (!name) return st_j_wrong(run, "there is no test '%s'", st_j_shown(text, shown));
  *out = kind_test(name, v, &known);
  if (known) return st_j_bind(run, name, args, "", 0, NULL);
  if (!strcmp(name, "odd") || !strcmp(name, "even") || !strcmp(name, "divisibleby")) {
    return remainder_test(run, name, v, args, out);
  }
  if (!strcmp(name, "lower") || !strcmp(name, "upper")) {
    st_jval s;
    if (!st_j_bind(run, name, args, "", 0, NULL) || !st_j_str(run, v, &s)) return false;
    *out = st_j_is_class(s.s, name[0] == 'l' ? "islower" : "isupper");
    return true;
  }
  if (!strcmp(name, "filter") || !strcmp(name, "test")) {
    if (!st_j_bind(run, name, args, "", 0, NULL)) return false;
    if (v.kind == J_LIST || v.kind == J_DICT)
      return st_j_wrong(run, "a value of type %s names no %s", st_j_type(v), name);
    *out = v.kind == J_STRING && (name[0] == 'f' ? st_j_has_filter(v.s) : st_j_has_test(v.s));
    return true;
  }
  if (!strcmp(name, "sameas")) {
    if (!st_j_bind(run, name, args, "other", 1, a)) return false;
    return same_object(v, a[0], out) || st_j_refuse(run, "whether two values are one object");
  }
  return compare_test(run, name, v, args, out);
}
