// Tests: the names after `is`. They are those that published templates use; Jinja's others are refused by name when
// they are reached.
#include "jinja/run.h"

#include <stdio.h>
#include <string.h>

// `kinds`: the kinds of value for which the test holds, as bits; or `op`, with one argument.
#define BIT(kind) (1u << JINJA_##kind)
#define NUMBERS (BIT(INTEGER) | BIT(FLOAT) | BIT(BOOLEAN))
#define SEQUENCES (BIT(STRING) | BIT(LIST) | BIT(TUPLE) | BIT(DICT) | BIT(RANGE) | BIT(UNDEFINED))
static const struct {
  const char *name;
  uint32_t kinds;
  st_jinja_operator op;
} TESTS[] = {{"boolean", BIT(BOOLEAN), 0},
             {"defined", ~BIT(UNDEFINED), 0},
             {"false", BIT(BOOLEAN), 0},
             {"float", BIT(FLOAT), 0},
             {"integer", BIT(INTEGER), 0},
             {"iterable", SEQUENCES | BIT(VIEW) | BIT(LOOP) | BIT(ITERATOR), 0},
             {"mapping", BIT(DICT), 0},
             {"none", BIT(NONE), 0},
             {"number", NUMBERS, 0},
             {"sequence", SEQUENCES, 0},
             {"string", BIT(STRING), 0},
             {"true", BIT(BOOLEAN), 0},
             {"undefined", BIT(UNDEFINED), 0},
             {"equalto", 0, JINJA_EQ},
             {"eq", 0, JINJA_EQ},
             {"==", 0, JINJA_EQ},
             {"in", 0, JINJA_IN},
             {"ne", 0, JINJA_NE},
             {"!=", 0, JINJA_NE}};

// Jinja's, which no published template uses.
static const char *const OTHERS[] = {"odd", "even",   "divisibleby", "filter",   "test", "lower",       "upper",
                                     ">",   "sameas", "escaped",     "callable", "gt",   "greaterthan", "ge",
                                     ">=",  "<",      "lt",          "lessthan", "<=",   "le"};

static const st_jinja_names NAMES = {"test",        TESTS,  sizeof TESTS / sizeof *TESTS,
                                     sizeof *TESTS, OTHERS, sizeof OTHERS / sizeof *OTHERS};

st_jinja_support st_jinja_find_test(const st_jinja_string *name) {
  return st_jinja_find_name(&NAMES, name);
}

bool st_jinja_apply_test(st_jinja_run *run, const st_jinja_string *text, st_jinja_value v,
                         const st_jinja_arguments *args, bool *out) {
  size_t i = 0, n = sizeof TESTS / sizeof *TESTS;
  while (i < n && !st_jinja_string_is(text, TESTS[i].name)) i++;
  if (i == n) return st_jinja_fail_name(run, &NAMES, text);
  const char *name = TESTS[i].name;
  if (!TESTS[i].kinds) {
    st_jinja_value a[1];
    if (args->n_keywords && strcmp(name, "in")) {
      return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
    }
    return st_jinja_bind_arguments(run, name, args, "seq", 1, a) && st_jinja_compare(run, TESTS[i].op, v, a[0], out);
  }
  *out = (TESTS[i].kinds >> v.kind & 1) != 0;
  if (*out && !strcmp(name, "true")) *out = v.b;
  if (*out && !strcmp(name, "false")) *out = !v.b;
  return st_jinja_bind_arguments(run, name, args, "", 0, NULL);
}
