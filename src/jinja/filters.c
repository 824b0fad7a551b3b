// Filters on single values; those on sequences are in filters_list.c.
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const FILTERS[] = {"abs",    "attr",       "batch",       "capitalize", "center",   "count",
                                      "d",      "default",    "dictsort",    "e",          "escape",   "filesizeformat",
                                      "first",  "float",      "forceescape", "format",     "groupby",  "indent",
                                      "int",    "items",      "join",        "last",       "length",   "list",
                                      "lower",  "map",        "max",         "min",        "pprint",   "random",
                                      "reject", "rejectattr", "replace",     "reverse",    "round",    "safe",
                                      "select", "selectattr", "slice",       "sort",       "string",   "striptags",
                                      "sum",    "title",      "tojson",      "trim",       "truncate", "unique",
                                      "upper",  "urlencode",  "urlize",      "wordcount",  "wordwrap", "xmlattr",
                                      NULL};

bool st_jinja_is_filter(const st_jinja_string *name) {
  for (int i = 0; FILTERS[i]; i++) {
    if (st_jinja_string_is(name, FILTERS[i])) return true;
  }
  return false;
}

// soft_str: a string as it is (safe or not), anything else as its text.
static bool soft_string(st_jinja_run *run, st_jinja_value v, st_jinja_value *out) {
  *out = v;
  return v.kind == JINJA_STRING || st_jinja_to_string(run, v, out);
}

static bool as_flag(st_jinja_run *run, st_jinja_value v, bool *out) {
  return v.kind == JINJA_MISSING || st_jinja_to_boolean(run, v, out);
}

static bool filter_default(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2];
  bool empty_too = false, truth;
  if (!st_jinja_bind_arguments(run, "default", args, "default_value,boolean", 0, a) || !as_flag(run, a[1], &empty_too))
    return false;
  *out = v;
  if (v.kind != JINJA_UNDEFINED) {
    if (!empty_too) return true;
    if (!st_jinja_to_boolean(run, v, &truth)) return false;
    if (truth) return true;
  }
  *out = a[0];
  return a[0].kind != JINJA_MISSING || st_jinja_copy_text(run, "", out);
}

static bool filter_trim(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1], s;
  if (!st_jinja_bind_arguments(run, "trim", args, "chars", 0, a) || !soft_string(run, v, &s)) return false;
  bool given = a[0].kind != JINJA_MISSING && a[0].kind != JINJA_NONE;
  if (given && a[0].kind != JINJA_STRING)
    return st_jinja_fail_format(run, "trim expects a string, found %s", st_jinja_type_name(a[0]));
  return st_jinja_strip_text(run, s.s, given ? a[0].s : NULL, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT, out);
}

static bool filter_replace(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3], s, old, with;
  int64_t count = -1;
  if (!st_jinja_bind_arguments(run, "replace", args, "old,new,count", 2, a)) return false;
  if (a[2].kind != JINJA_MISSING && a[2].kind != JINJA_NONE && !st_jinja_as_int(a[2], &count)) {
    return st_jinja_fail_format(run, "replace expects an integer, found %s", st_jinja_type_name(a[2]));
  }
  return st_jinja_to_string(run, v, &s) && st_jinja_to_string(run, a[0], &old) &&
         st_jinja_to_string(run, a[1], &with) && st_jinja_replace_text(run, s.s, old.s, with.s, count, out);
}

static bool filter_indent(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3], by;
  bool first = false, blank = false;
  int64_t width = 4;
  if (!st_jinja_bind_arguments(run, "indent", args, "width,first,blank", 0, a)) return false;
  if (!as_flag(run, a[1], &first) || !as_flag(run, a[2], &blank)) return false;
  if (v.kind != JINJA_STRING)
    return st_jinja_fail_format(run, "indent expects a string, found %s", st_jinja_type_name(v));
  if (a[0].kind == JINJA_STRING)
    by = a[0];
  else {
    if (a[0].kind != JINJA_MISSING && !st_jinja_as_int(a[0], &width)) {
      return st_jinja_fail_format(run, "indent expects an integer, found %s", st_jinja_type_name(a[0]));
    }
    if (!st_jinja_copy_text(run, " ", &by) || !st_jinja_apply_binary(run, JINJA_MUL, by, st_jinja_from_int(width), &by))
      return false;
  }
  return st_jinja_indent_text(run, v.s, by.s, first, blank, out);
}

static bool filter_int(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2];
  int64_t base = 10, i;
  double x = 0;
  bool over = false, fits = false;
  if (!st_jinja_bind_arguments(run, "int", args, "default,base", 0, a)) return false;
  if (a[1].kind != JINJA_MISSING && (!st_jinja_as_int(a[1], &base) || base < 0 || base == 1 || base > 36)) {
    return st_jinja_fail_unsupported(run, "int with this base");
  }
  *out = a[0].kind == JINJA_MISSING ? st_jinja_from_int(0) : a[0];
  if (v.kind == JINJA_UNDEFINED) return st_jinja_fail_format(run, "'%s' is undefined", v.name ? v.name : "a value");
  if (st_jinja_as_int(v, &i))
    fits = true;
  else if (v.kind == JINJA_STRING && st_jinja_parse_int(v.s, (int)base, &i, &over)) {
    if (over) return st_jinja_fail_unsupported(run, "an integer beyond 64 bits");
    fits = true;
  } else if (v.kind == JINJA_FLOAT || (v.kind == JINJA_STRING && st_jinja_parse_float(v.s, &x))) {
    if (v.kind == JINJA_FLOAT) x = v.f;
    if (v.kind == JINJA_FLOAT && isinf(x)) return st_jinja_fail_format(run, "int of infinity");
    if (!isfinite(x)) return true;
    if (fabs(x) >= 9.2e18) return st_jinja_fail_unsupported(run, "an integer beyond 64 bits");
    i = (int64_t)x;
    fits = true;
  }
  if (fits) *out = st_jinja_from_int(i);
  return true;
}

static bool filter_float(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  double x;
  if (!st_jinja_bind_arguments(run, "float", args, "default", 0, a)) return false;
  if (v.kind == JINJA_UNDEFINED) return st_jinja_fail_format(run, "'%s' is undefined", v.name ? v.name : "a value");
  *out = a[0].kind == JINJA_MISSING ? st_jinja_from_float(0) : a[0];
  if (st_jinja_as_double(v, &x) || (v.kind == JINJA_STRING && st_jinja_parse_float(v.s, &x)))
    *out = st_jinja_from_float(x);
  return true;
}

static bool filter_abs(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  bool negative;
  if (!st_jinja_bind_arguments(run, "abs", args, "", 0, NULL)) return false;
  if (v.kind == JINJA_FLOAT) {
    *out = st_jinja_from_float(fabs(v.f));
    return true;
  }
  if (v.kind != JINJA_INTEGER && v.kind != JINJA_BOOLEAN)
    return st_jinja_fail_format(run, "abs of a %s", st_jinja_type_name(v));
  negative = v.kind == JINJA_INTEGER && v.i < 0;
  return st_jinja_apply_unary(run, negative ? JINJA_NEG : JINJA_POS, v, out);
}

static bool filter_round(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2];
  int64_t digits = 0;
  double x;
  if (!st_jinja_bind_arguments(run, "round", args, "precision,method", 0, a)) return false;
  if (a[0].kind != JINJA_MISSING && !st_jinja_as_int(a[0], &digits)) {
    return st_jinja_fail_format(run, "round expects an integer, found %s", st_jinja_type_name(a[0]));
  }
  bool common = a[1].kind == JINJA_MISSING || (a[1].kind == JINJA_STRING && st_jinja_string_is(a[1].s, "common"));
  bool up = a[1].kind == JINJA_STRING && st_jinja_string_is(a[1].s, "ceil");
  if (!common && !up && !(a[1].kind == JINJA_STRING && st_jinja_string_is(a[1].s, "floor"))) {
    return st_jinja_fail_format(run, "round: the method must be common, ceil or floor");
  }
  if (!st_jinja_as_double(v, &x)) return st_jinja_fail_format(run, "round of a %s", st_jinja_type_name(v));
  if (v.kind != JINJA_FLOAT && common) {
    if (digits < 0) return st_jinja_fail_unsupported(run, "rounding an integer to tens");
    return st_jinja_apply_unary(run, JINJA_POS, v, out);
  }
  if (digits < -300 || digits > 300 || !isfinite(x))
    return st_jinja_fail_unsupported(run, "rounding to so many digits");
  double scale = pow(10, (double)(digits < 0 ? -digits : digits));
  if (!common) {
    double scaled = digits < 0 ? x / scale : x * scale, whole = up ? ceil(scaled) : floor(scaled);
    *out = st_jinja_from_float(digits < 0 ? whole * scale : whole / scale);
    return true;
  }
  if (digits < 0) return st_jinja_fail_unsupported(run, "rounding to tens");
  // As Python: the decimal text that is nearest, ties to even, and read back.
  char text[700];
  double back = 0;
  snprintf(text, sizeof text, "%.*f", (int)digits, x);
  st_jinja_string s = {.data = text, .length = strlen(text)};
  for (char *p = text; *p; p++) {
    if (*p == ',') *p = '.';
  }
  st_jinja_parse_float(&s, &back);
  *out = st_jinja_from_float(back);
  return true;
}

static bool filter_truncate(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[4], end, cut, parts, space;
  int64_t length = 255, leeway = 5;
  bool kill = false;
  if (!st_jinja_bind_arguments(run, "truncate", args, "length,killwords,end,leeway", 0, a) ||
      !as_flag(run, a[1], &kill))
    return false;
  if (a[0].kind != JINJA_MISSING && !st_jinja_as_int(a[0], &length))
    return st_jinja_fail_format(run, "truncate expects an integer");
  if (a[3].kind != JINJA_MISSING && a[3].kind != JINJA_NONE && !st_jinja_as_int(a[3], &leeway)) {
    return st_jinja_fail_format(run, "truncate expects an integer");
  }
  int64_t n;
  if (!st_jinja_length_of(run, v, &n)) return false;
  if (a[2].kind == JINJA_MISSING ? !st_jinja_copy_text(run, "...", &end) : (end = a[2], end.kind != JINJA_STRING)) {
    return st_jinja_fail_format(run, "truncate: the end must be a string");
  }
  int64_t tail = (int64_t)st_jinja_count_characters(end.s);
  if (length < tail || leeway < 0) return st_jinja_fail_format(run, "truncate: a length or leeway that is too small");
  *out = v;
  if (n <= length + leeway) return true;
  if (v.kind != JINJA_STRING) return st_jinja_fail_unsupported(run, "truncate of a %s", st_jinja_type_name(v));
  if (!st_jinja_substring(run, v.s, 0, st_jinja_character_offset(v.s, (size_t)(length - tail)), &cut)) return false;
  if (!kill) {
    if (!st_jinja_copy_text(run, " ", &space) || !st_jinja_split_text(run, cut.s, space.s, 1, true, &parts))
      return false;
    cut = parts.l->items[0];
  }
  return st_jinja_apply_binary(run, JINJA_ADD, cut, end, out);
}

static bool filter_format(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value s, values;
  if (args->n && args->n_keywords)
    return st_jinja_fail_format(run, "format takes either positional or keyword arguments");
  if (!soft_string(run, v, &s)) return false;
  if (args->n_keywords) {
    if (!st_jinja_new_dict(run, JINJA_DICT, &values)) return false;
    for (size_t i = 0; i < args->n_keywords; i++) {
      st_jinja_value key;
      if (!st_jinja_substring(run, args->keywords[i].name, 0, args->keywords[i].name->length, &key) ||
          !st_jinja_dict_set(run, values.d, key, args->keywords[i].value))
        return false;
    }
  } else {
    if (!st_jinja_new_list(run, JINJA_TUPLE, args->n, &values)) return false;
    for (size_t i = 0; i < args->n; i++) {
      if (!st_jinja_list_append(run, values.l, args->items[i])) return false;
    }
  }
  return st_jinja_percent_format(run, s.s, values, out);
}

static bool filter_attr(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  if (!st_jinja_bind_arguments(run, "attr", args, "name", 1, a)) return false;
  if (a[0].kind != JINJA_STRING)
    return st_jinja_fail_format(run, "attr expects a string, found %s", st_jinja_type_name(a[0]));
  if (v.kind == JINJA_UNDEFINED) return st_jinja_get_attribute(run, v, a[0].s, out);
  if (!st_jinja_find_attribute(run, v, a[0].s, out)) return false;
  if (out->kind == JINJA_MISSING) *out = st_jinja_undefined("an attribute");
  return true;
}

static bool filter_center(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1], s;
  int64_t width = 80;
  st_jinja_builder b = {0};
  if (!st_jinja_bind_arguments(run, "center", args, "width", 0, a) || !soft_string(run, v, &s)) return false;
  if (a[0].kind != JINJA_MISSING && !st_jinja_as_int(a[0], &width))
    return st_jinja_fail_format(run, "center expects an integer");
  return st_jinja_put_padded(run, &b, s.s, width, ' ', 'c') && st_jinja_finish(run, &b, s.s->safe, out);
}

// Filters without arguments.
static bool plain_filter(st_jinja_run *run, const char *name, st_jinja_value v, bool *known, st_jinja_value *out) {
  st_jinja_value s;
  *known = true;
  if (!strcmp(name, "length") || !strcmp(name, "count")) {
    *out = st_jinja_from_int(0);
    int64_t n;
    if (!st_jinja_length_of(run, v, &n)) return false;
    *out = st_jinja_from_int(n);
    return true;
  }
  if (!strcmp(name, "string")) return soft_string(run, v, out);
  if (!strcmp(name, "upper")) return soft_string(run, v, &s) && st_jinja_change_case(run, s.s, JINJA_UPPER, out);
  if (!strcmp(name, "lower")) return soft_string(run, v, &s) && st_jinja_change_case(run, s.s, JINJA_LOWER, out);
  if (!strcmp(name, "capitalize"))
    return soft_string(run, v, &s) && st_jinja_change_case(run, s.s, JINJA_CAPITALIZE, out);
  if (!strcmp(name, "title")) return soft_string(run, v, &s) && st_jinja_filter_title(run, s.s, out);
  if (!strcmp(name, "e") || !strcmp(name, "escape")) return st_jinja_escape_html(run, v, out);
  if (!strcmp(name, "forceescape")) return st_jinja_to_string(run, v, &s) && st_jinja_escape_html(run, s, out);
  if (!strcmp(name, "safe")) {
    if (!st_jinja_to_string(run, v, &s) || !st_jinja_substring(run, s.s, 0, s.s->length, out)) return false;
    out->s->safe = true;
    return true;
  }
  *known = false;
  return true;
}

bool st_jinja_apply_filter(st_jinja_run *run, const st_jinja_string *name, st_jinja_value v,
                           const st_jinja_arguments *args, st_jinja_value *out) {
  static const struct {
    const char *name;
    bool (*filter)(st_jinja_run *, st_jinja_value, const st_jinja_arguments *, st_jinja_value *);
  } table[] = {{"default", filter_default},   {"d", filter_default},     {"trim", filter_trim},
               {"replace", filter_replace},   {"indent", filter_indent}, {"int", filter_int},
               {"float", filter_float},       {"abs", filter_abs},       {"round", filter_round},
               {"truncate", filter_truncate}, {"format", filter_format}, {"attr", filter_attr},
               {"center", filter_center}};
  char shown[64];
  const char *known_name = NULL;
  for (int i = 0; FILTERS[i]; i++) {
    if (st_jinja_string_is(name, FILTERS[i])) known_name = FILTERS[i];
  }
  if (!known_name) return st_jinja_fail_format(run, "there is no filter '%s'", st_jinja_shorten(name, shown));
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(known_name, table[i].name)) return table[i].filter(run, v, args, out);
  }
  if (!strcmp(known_name, "tojson")) return st_jinja_tojson(run, args, v, out);
  bool known;
  if (!plain_filter(run, known_name, v, &known, out)) return false;
  if (known) return st_jinja_bind_arguments(run, known_name, args, "", 0, NULL);
  return st_jinja_apply_list_filter(run, known_name, v, args, out);
}
