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

bool st_j_has_filter(const st_jstr *name) {
  for (int i = 0; FILTERS[i]; i++) {
    if (st_j_is(name, FILTERS[i])) return true;
  }
  return false;
}

// soft_str: a string as it is (safe or not), anything else as its text.
static bool soft_string(st_jrun *run, st_jval v, st_jval *out) {
  *out = v;
  return v.kind == J_STRING || st_j_str(run, v, out);
}

static bool as_flag(st_jrun *run, st_jval v, bool *out) {
  return v.kind == J_MISSING || st_j_truth(run, v, out);
}

static bool filter_default(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[2];
  bool empty_too = false, truth;
  if (!st_j_bind(run, "default", args, "default_value,boolean", 0, a) || !as_flag(run, a[1], &empty_too)) return false;
  *out = v;
  if (v.kind != J_UNDEFINED) {
    if (!empty_too) return true;
    if (!st_j_truth(run, v, &truth)) return false;
    if (truth) return true;
  }
  *out = a[0];
  return a[0].kind != J_MISSING || st_j_copy(run, "", out);
}

static bool filter_trim(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[1], s;
  if (!st_j_bind(run, "trim", args, "chars", 0, a) || !soft_string(run, v, &s)) return false;
  bool given = a[0].kind != J_MISSING && a[0].kind != J_NONE;
  if (given && a[0].kind != J_STRING) return st_j_wrong(run, "trim expects a string, found %s", st_j_type(a[0]));
  return st_j_strip(run, s.s, given ? a[0].s : NULL, J_STRIP_LEFT | J_STRIP_RIGHT, out);
}

static bool filter_replace(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[3], s, old, with;
  int64_t count = -1;
  if (!st_j_bind(run, "replace", args, "old,new,count", 2, a)) return false;
  if (a[2].kind != J_MISSING && a[2].kind != J_NONE && !st_j_as_int(a[2], &count)) {
    return st_j_wrong(run, "replace expects an integer, found %s", st_j_type(a[2]));
  }
  return st_j_str(run, v, &s) && st_j_str(run, a[0], &old) && st_j_str(run, a[1], &with) &&
         st_j_replace(run, s.s, old.s, with.s, count, out);
}

static bool filter_indent(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[3], by;
  bool first = false, blank = false;
  int64_t width = 4;
  if (!st_j_bind(run, "indent", args, "width,first,blank", 0, a)) return false;
  if (!as_flag(run, a[1], &first) || !as_flag(run, a[2], &blank)) return false;
  if (v.kind != J_STRING) return st_j_wrong(run, "indent expects a string, found %s", st_j_type(v));
  if (a[0].kind == J_STRING)
    by = a[0];
  else {
    if (a[0].kind != J_MISSING && !st_j_as_int(a[0], &width)) {
      return st_j_wrong(run, "indent expects an integer, found %s", st_j_type(a[0]));
    }
    if (!st_j_copy(run, " ", &by) || !st_j_binary(run, J_MUL, by, st_j_int(width), &by)) return false;
  }
  return st_j_indent(run, v.s, by.s, first, blank, out);
}

static bool filter_int(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[2];
  int64_t base = 10, i;
  double x = 0;
  bool over = false, fits = false;
  if (!st_j_bind(run, "int", args, "default,base", 0, a)) return false;
  if (a[1].kind != J_MISSING && (!st_j_as_int(a[1], &base) || base < 0 || base == 1 || base > 36)) {
    return st_j_refuse(run, "int with this base");
  }
  *out = a[0].kind == J_MISSING ? st_j_int(0) : a[0];
  if (v.kind == J_UNDEFINED) return st_j_wrong(run, "'%s' is undefined", v.name ? v.name : "a value");
  if (st_j_as_int(v, &i))
    fits = true;
  else if (v.kind == J_STRING && st_j_parse_int(v.s, (int)base, &i, &over)) {
    if (over) return st_j_refuse(run, "an integer beyond 64 bits");
    fits = true;
  } else if (v.kind == J_FLOAT || (v.kind == J_STRING && st_j_parse_float(v.s, &x))) {
    if (v.kind == J_FLOAT) x = v.f;
    if (v.kind == J_FLOAT && isinf(x)) return st_j_wrong(run, "int of infinity");
    if (!isfinite(x)) return true;
    if (fabs(x) >= 9.2e18) return st_j_refuse(run, "an integer beyond 64 bits");
    i = (int64_t)x;
    fits = true;
  }
  if (fits) *out = st_j_int(i);
  return true;
}

static bool filter_float(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[1];
  double x;
  if (!st_j_bind(run, "float", args, "default", 0, a)) return false;
  if (v.kind == J_UNDEFINED) return st_j_wrong(run, "'%s' is undefined", v.name ? v.name : "a value");
  *out = a[0].kind == J_MISSING ? st_j_float(0) : a[0];
  if (st_j_as_double(v, &x) || (v.kind == J_STRING && st_j_parse_float(v.s, &x))) *out = st_j_float(x);
  return true;
}

static bool filter_abs(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  bool negative;
  if (!st_j_bind(run, "abs", args, "", 0, NULL)) return false;
  if (v.kind == J_FLOAT) {
    *out = st_j_float(fabs(v.f));
    return true;
  }
  if (v.kind != J_INT && v.kind != J_BOOL) return st_j_wrong(run, "abs of a %s", st_j_type(v));
  negative = v.kind == J_INT && v.i < 0;
  return st_j_unary(run, negative ? J_NEG : J_POS, v, out);
}

static bool filter_round(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[2];
  int64_t digits = 0;
  double x;
  if (!st_j_bind(run, "round", args, "precision,method", 0, a)) return false;
  if (a[0].kind != J_MISSING && !st_j_as_int(a[0], &digits)) {
    return st_j_wrong(run, "round expects an integer, found %s", st_j_type(a[0]));
  }
  bool common = a[1].kind == J_MISSING || (a[1].kind == J_STRING && st_j_is(a[1].s, "common"));
  bool up = a[1].kind == J_STRING && st_j_is(a[1].s, "ceil");
  if (!common && !up && !(a[1].kind == J_STRING && st_j_is(a[1].s, "floor"))) {
    return st_j_wrong(run, "round: the method must be common, ceil or floor");
  }
  if (!st_j_as_double(v, &x)) return st_j_wrong(run, "round of a %s", st_j_type(v));
  if (v.kind != J_FLOAT && common) {
    if (digits < 0) return st_j_refuse(run, "rounding an integer to tens");
    return st_j_unary(run, J_POS, v, out);
  }
  if (digits < -300 || digits > 300 || !isfinite(x)) return st_j_refuse(run, "rounding to so many digits");
  double scale = pow(10, (double)(digits < 0 ? -digits : digits));
  if (!common) {
    double scaled = digits < 0 ? x / scale : x * scale, whole = up ? ceil(scaled) : floor(scaled);
    *out = st_j_float(digits < 0 ? whole * scale : whole / scale);
    return true;
  }
  if (digits < 0) return st_j_refuse(run, "rounding to tens");
  // As Python: the decimal text that is nearest, ties to even, and read back.
  char text[700];
  double back = 0;
  snprintf(text, sizeof text, "%.*f", (int)digits, x);
  st_jstr s = {.data = text, .length = strlen(text)};
  for (char *p = text; *p; p++) {
    if (*p == ',') *p = '.';
  }
  st_j_parse_float(&s, &back);
  *out = st_j_float(back);
  return true;
}

static bool filter_truncate(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[4], end, cut, parts, space;
  int64_t length = 255, leeway = 5;
  bool kill = false;
  if (!st_j_bind(run, "truncate", args, "length,killwords,end,leeway", 0, a) || !as_flag(run, a[1], &kill))
    return false;
  if (a[0].kind != J_MISSING && !st_j_as_int(a[0], &length)) return st_j_wrong(run, "truncate expects an integer");
  if (a[3].kind != J_MISSING && a[3].kind != J_NONE && !st_j_as_int(a[3], &leeway)) {
    return st_j_wrong(run, "truncate expects an integer");
  }
  int64_t n;
  if (!st_j_length(run, v, &n)) return false;
  if (a[2].kind == J_MISSING ? !st_j_copy(run, "...", &end) : (end = a[2], end.kind != J_STRING)) {
    return st_j_wrong(run, "truncate: the end must be a string");
  }
  int64_t tail = (int64_t)st_j_chars(end.s);
  if (length < tail || leeway < 0) return st_j_wrong(run, "truncate: a length or leeway that is too small");
  *out = v;
  if (n <= length + leeway) return true;
  if (v.kind != J_STRING) return st_j_refuse(run, "truncate of a %s", st_j_type(v));
  if (!st_j_substring(run, v.s, 0, st_j_offset(v.s, (size_t)(length - tail)), &cut)) return false;
  if (!kill) {
    if (!st_j_copy(run, " ", &space) || !st_j_split(run, cut.s, space.s, 1, true, &parts)) return false;
    cut = parts.l->items[0];
  }
  return st_j_binary(run, J_ADD, cut, end, out);
}

static bool filter_format(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval s, values;
  if (args->n && args->n_keywords) return st_j_wrong(run, "format takes either positional or keyword arguments");
  if (!soft_string(run, v, &s)) return false;
  if (args->n_keywords) {
    if (!st_j_dict(run, J_DICT, &values)) return false;
    for (size_t i = 0; i < args->n_keywords; i++) {
      st_jval key;
      if (!st_j_substring(run, args->keywords[i].name, 0, args->keywords[i].name->length, &key) ||
          !st_j_set(run, values.d, key, args->keywords[i].value))
        return false;
    }
  } else {
    if (!st_j_list(run, J_TUPLE, args->n, &values)) return false;
    for (size_t i = 0; i < args->n; i++) {
      if (!st_j_append(run, values.l, args->items[i])) return false;
    }
  }
  return st_j_percent(run, s.s, values, out);
}

static bool filter_attr(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[1];
  if (!st_j_bind(run, "attr", args, "name", 1, a)) return false;
  if (a[0].kind != J_STRING) return st_j_wrong(run, "attr expects a string, found %s", st_j_type(a[0]));
  if (v.kind == J_UNDEFINED) return st_j_getattr(run, v, a[0].s, out);
  if (!st_j_attribute(run, v, a[0].s, out)) return false;
  if (out->kind == J_MISSING) *out = st_j_undefined("an attribute");
  return true;
}

static bool filter_center(st_jrun *run, st_jval v, const st_jargs *args, st_jval *out) {
  st_jval a[1], s;
  int64_t width = 80;
  st_jbuild b = {0};
  if (!st_j_bind(run, "center", args, "width", 0, a) || !soft_string(run, v, &s)) return false;
  if (a[0].kind != J_MISSING && !st_j_as_int(a[0], &width)) return st_j_wrong(run, "center expects an integer");
  return st_j_put_padded(run, &b, s.s, width, ' ', 'c') && st_j_built(run, &b, s.s->safe, out);
}

// Filters without arguments.
static bool plain_filter(st_jrun *run, const char *name, st_jval v, bool *known, st_jval *out) {
  st_jval s;
  *known = true;
  if (!strcmp(name, "length") || !strcmp(name, "count")) {
    *out = st_j_int(0);
    int64_t n;
    if (!st_j_length(run, v, &n)) return false;
    *out = st_j_int(n);
    return true;
  }
  if (!strcmp(name, "string")) return soft_string(run, v, out);
  if (!strcmp(name, "upper")) return soft_string(run, v, &s) && st_j_case(run, s.s, J_UPPER, out);
  if (!strcmp(name, "lower")) return soft_string(run, v, &s) && st_j_case(run, s.s, J_LOWER, out);
  if (!strcmp(name, "capitalize")) return soft_string(run, v, &s) && st_j_case(run, s.s, J_CAPITALIZE, out);
  if (!strcmp(name, "title")) return soft_string(run, v, &s) && st_j_filter_title(run, s.s, out);
  if (!strcmp(name, "e") || !strcmp(name, "escape")) return st_j_escape(run, v, out);
  if (!strcmp(name, "forceescape")) return st_j_str(run, v, &s) && st_j_escape(run, s, out);
  if (!strcmp(name, "safe")) {
    if (!st_j_str(run, v, &s) || !st_j_substring(run, s.s, 0, s.s->length, out)) return false;
    out->s->safe = true;
    return true;
  }
  *known = false;
  return true;
}

bool st_j_filter(st_jrun *run, const st_jstr *name, st_jval v, const st_jargs *args, st_jval *out) {
  static const struct {
    const char *name;
    bool (*filter)(st_jrun *, st_jval, const st_jargs *, st_jval *);
  } table[] = {{"default", filter_default},   {"d", filter_default},     {"trim", filter_trim},
               {"replace", filter_replace},   {"indent", filter_indent}, {"int", filter_int},
               {"float", filter_float},       {"abs", filter_abs},       {"round", filter_round},
               {"truncate", filter_truncate}, {"format", filter_format}, {"attr", filter_attr},
               {"center", filter_center}};
  char shown[64];
  const char *known_name = NULL;
  for (int i = 0; FILTERS[i]; i++) {
    if (st_j_is(name, FILTERS[i])) known_name = FILTERS[i];
  }
  if (!known_name) return st_j_wrong(run, "there is no filter '%s'", st_j_shown(name, shown));
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(known_name, table[i].name)) return table[i].filter(run, v, args, out);
  }
  if (!strcmp(known_name, "tojson")) return st_j_tojson(run, args, v, out);
  bool known;
  if (!plain_filter(run, known_name, v, &known, out)) return false;
  if (known) return st_j_bind(run, known_name, args, "", 0, NULL);
  return st_j_list_filter(run, known_name, v, args, out);
}
