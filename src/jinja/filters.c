// Filters on single values, and which filters there are; those on sequences and mappings are in filters_list.c. They
// are those that published templates use; Jinja's others are refused by name when they are reached.
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool as_flag(st_jinja_run *run, st_jinja_value v, bool *out) {
  return v.kind == JINJA_MISSING || st_jinja_to_boolean(run, v, out);
}

// soft_str: a string as it is (safe or not), anything else as its text.
static bool soft_string(st_jinja_run *run, st_jinja_value v, st_jinja_value *out) {
  *out = v;
  return v.kind == JINJA_STRING || st_jinja_to_string(run, v, out);
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
  if (v.kind != JINJA_STRING) {
    return st_jinja_fail_format(run, "indent expects a string, found %s", st_jinja_type_name(v));
  }
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
  int64_t i;
  double x;
  bool over = false;
  if (!st_jinja_bind_arguments(run, "int", args, "default,base", 0, a)) return false;
  if (a[1].kind != JINJA_MISSING) {
    return st_jinja_fail_unsupported(run, "int: the parameter 'base' is not supported");
  }
  if (v.kind == JINJA_UNDEFINED) {
    return st_jinja_fail_format(run, "'%s' is undefined", v.name ? v.name : "a value");
  }
  *out = a[0].kind == JINJA_MISSING ? st_jinja_from_int(0) : a[0];
  if (st_jinja_as_int(v, &i) || (v.kind == JINJA_STRING && st_jinja_parse_int(v.s, &i, &over))) {
    if (over) return st_jinja_fail_unsupported(run, "an integer beyond 64 bits is not supported");
    *out = st_jinja_from_int(i);
  } else if (st_jinja_as_double(v, &x) || (v.kind == JINJA_STRING && st_jinja_parse_float(v.s, &x))) {
    if (v.kind == JINJA_FLOAT && isinf(x)) return st_jinja_fail_format(run, "int of infinity");
    if (!isfinite(x)) return true;
    if (fabs(x) >= 9.2e18) return st_jinja_fail_unsupported(run, "an integer beyond 64 bits is not supported");
    *out = st_jinja_from_int((int64_t)x);
  }
  return true;
}

static bool filter_length(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  int64_t n;
  if (!st_jinja_bind_arguments(run, "length", args, "", 0, NULL) || !st_jinja_length_of(run, v, &n)) return false;
  *out = st_jinja_from_int(n);
  return true;
}

static bool filter_string(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_bind_arguments(run, "string", args, "", 0, NULL) && soft_string(run, v, out);
}

static bool filter_safe(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value s;
  if (!st_jinja_bind_arguments(run, "safe", args, "", 0, NULL) || !st_jinja_to_string(run, v, &s) ||
      !st_jinja_substring(run, s.s, 0, s.s->length, out))
    return false;
  out->s->safe = true;
  return true;
}

static bool filter_case(st_jinja_run *run, const char *name, st_jinja_value v, st_jinja_letter_case to,
                        const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value s;
  return st_jinja_bind_arguments(run, name, args, "", 0, NULL) && soft_string(run, v, &s) &&
         st_jinja_change_case(run, s.s, to, out);
}

static bool filter_upper(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return filter_case(run, "upper", v, JINJA_UPPER, args, out);
}

static bool filter_lower(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return filter_case(run, "lower", v, JINJA_LOWER, args, out);
}

static bool filter_capitalize(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args,
                              st_jinja_value *out) {
  return filter_case(run, "capitalize", v, JINJA_CAPITALIZE, args, out);
}

static bool filter_title(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return filter_case(run, "title", v, JINJA_FILTER_TITLE, args, out);
}

// ---- the table ----

static const struct {
  const char *name;
  st_jinja_filter_fn *apply;
} FILTERS[] = {{"capitalize", filter_capitalize},
               {"default", filter_default},
               {"dictsort", st_jinja_filter_dictsort},
               {"first", st_jinja_filter_first},
               {"indent", filter_indent},
               {"int", filter_int},
               {"items", st_jinja_filter_items},
               {"join", st_jinja_filter_join},
               {"last", st_jinja_filter_last},
               {"length", filter_length},
               {"list", st_jinja_filter_list},
               {"lower", filter_lower},
               {"map", st_jinja_filter_map},
               {"min", st_jinja_filter_min},
               {"reject", st_jinja_filter_reject},
               {"rejectattr", st_jinja_filter_rejectattr},
               {"replace", filter_replace},
               {"safe", filter_safe},
               {"select", st_jinja_filter_select},
               {"selectattr", st_jinja_filter_selectattr},
               {"sort", st_jinja_filter_sort},
               {"string", filter_string},
               {"title", filter_title},
               {"tojson", st_jinja_filter_tojson},
               {"trim", filter_trim},
               {"unique", st_jinja_filter_unique},
               {"upper", filter_upper}};

// Jinja's, which no published template uses.
static const char *const OTHERS[] = {"abs",       "attr",      "batch",  "center",         "count",       "d",
                                     "e",         "escape",    "float",  "filesizeformat", "forceescape", "format",
                                     "groupby",   "max",       "pprint", "random",         "reverse",     "round",
                                     "slice",     "striptags", "sum",    "truncate",       "urlencode",   "urlize",
                                     "wordcount", "wordwrap",  "xmlattr"};

static const st_jinja_names NAMES = {"filter",        FILTERS, sizeof FILTERS / sizeof *FILTERS,
                                     sizeof *FILTERS, OTHERS,  sizeof OTHERS / sizeof *OTHERS};

st_jinja_support st_jinja_find_filter(const st_jinja_string *name) {
  return st_jinja_find_name(&NAMES, name);
}

bool st_jinja_apply_filter(st_jinja_run *run, const st_jinja_string *name, st_jinja_value v,
                           const st_jinja_arguments *args, st_jinja_value *out) {
  for (size_t i = 0; i < sizeof FILTERS / sizeof *FILTERS; i++) {
    if (st_jinja_string_is(name, FILTERS[i].name)) return FILTERS[i].apply(run, v, args, out);
  }
  return st_jinja_fail_name(run, &NAMES, name);
}
