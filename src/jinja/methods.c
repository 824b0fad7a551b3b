// Methods of strings and dicts: those that published templates call. Python's others are refused by name when they are
// called, and those that would modify their object are hidden, as in the immutable sandbox.
#include "jinja/run.h"

#include <string.h>

typedef struct {
  const char *name;
  // NULL: not supported.
  bool (*call)(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
               st_jinja_value *out);
} method;

static bool wants_string(st_jinja_run *run, const char *name, st_jinja_value v) {
  return v.kind == JINJA_STRING ||
         st_jinja_fail_format(run, "%s expects a string, found %s", name, st_jinja_type_name(v));
}

static bool optional_int(st_jinja_run *run, const char *name, st_jinja_value v, int64_t *out) {
  if (v.kind == JINJA_MISSING || st_jinja_as_int(v, out)) return true;
  return st_jinja_fail_format(run, "%s expects an integer, found %s", name, st_jinja_type_name(v));
}

// Python's str methods, except split and format, take no keywords.
static bool bind_positions(st_jinja_run *run, const char *name, const st_jinja_arguments *args, const char *names,
                           size_t required, st_jinja_value *out) {
  if (args->n_keywords) return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
  return st_jinja_bind_arguments(run, name, args, names, required, out);
}

// ---- strings ----

static bool has_affix(const st_jinja_string *s, const st_jinja_string *with, bool at_end) {
  if (with->length > s->length) return false;
  return !with->length || !memcmp(s->data + (at_end ? s->length - with->length : 0), with->data, with->length);
}

static bool starts_or_ends(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                           st_jinja_value *out) {
  st_jinja_value a[3];
  bool at_end = name[0] == 'e', holds = false;
  if (!bind_positions(run, name, args, "prefix,start,end", 1, a)) return false;
  if (a[1].kind != JINJA_MISSING) {
    return st_jinja_fail_unsupported(run, "%s: the parameter 'start' is not supported", name);
  }
  if (a[0].kind == JINJA_TUPLE) {
    for (size_t i = 0; i < a[0].l->n; i++) {
      if (!st_jinja_charge(run, 1) || !wants_string(run, name, a[0].l->items[i])) return false;
      holds = holds || has_affix(self.s, a[0].l->items[i].s, at_end);
    }
  } else {
    if (!wants_string(run, name, a[0])) return false;
    holds = has_affix(self.s, a[0].s, at_end);
  }
  *out = st_jinja_from_bool(holds);
  return true;
}

static bool strip(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                  st_jinja_value *out) {
  st_jinja_value a[1];
  int sides = name[0] == 'l'   ? JINJA_STRIP_LEFT
              : name[0] == 'r' ? JINJA_STRIP_RIGHT
                               : JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT;
  if (!bind_positions(run, name, args, "chars", 0, a)) return false;
  bool given = a[0].kind != JINJA_MISSING && a[0].kind != JINJA_NONE;
  if (given && !wants_string(run, name, a[0])) return false;
  return st_jinja_strip_text(run, self.s, given ? a[0].s : NULL, sides, out);
}

static bool split(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                  st_jinja_value *out) {
  st_jinja_value a[2];
  int64_t most = -1;
  if (!st_jinja_bind_arguments(run, name, args, "sep,maxsplit", 0, a) || !optional_int(run, name, a[1], &most))
    return false;
  bool given = a[0].kind != JINJA_MISSING && a[0].kind != JINJA_NONE;
  if (given && !wants_string(run, name, a[0])) return false;
  return st_jinja_split_text(run, self.s, given ? a[0].s : NULL, most < 0 ? -1 : most, out);
}

static bool replace(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                    st_jinja_value *out) {
  st_jinja_value a[3];
  int64_t count = -1;
  if (!bind_positions(run, name, args, "old,new,count", 2, a) || !wants_string(run, name, a[0]) ||
      !wants_string(run, name, a[1]) || !optional_int(run, name, a[2], &count))
    return false;
  if (self.s->safe && !st_jinja_escape_html(run, a[1], &a[1])) return false;
  if (!st_jinja_replace_text(run, self.s, a[0].s, a[1].s, count, out)) return false;
  out->s->safe = self.s->safe;
  return true;
}

static bool change_case(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                        st_jinja_value *out) {
  st_jinja_letter_case to = name[0] == 'l'   ? JINJA_LOWER
                            : name[0] == 'u' ? JINJA_UPPER
                            : name[0] == 't' ? JINJA_TITLE
                                             : JINJA_CAPITALIZE;
  return bind_positions(run, name, args, "", 0, NULL) && st_jinja_change_case(run, self.s, to, out);
}

// {} is the next argument, {{ and }} are braces.
static bool format(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                   st_jinja_value *out) {
  const st_jinja_string *s = self.s;
  st_jinja_builder b = {0};
  size_t next = 0;
  (void)name;
  for (size_t at = 0, plain = 0; plain < s->length; plain = at) {
    while (at < s->length && s->data[at] != '{' && s->data[at] != '}') at++;
    if (!st_jinja_charge(run, 1) || !st_jinja_put_part(run, &b, s, plain, at)) return false;
    if (at == s->length) break;
    char c = s->data[at], after = at + 1 < s->length ? s->data[at + 1] : 0;
    if (after == c) {
      if (!st_jinja_put_part(run, &b, s, at, at + 1)) return false;
    } else if (c == '}' || !after)
      return st_jinja_fail_format(run, "format: a single '%c'", c);
    else if (after != '}')
      return st_jinja_fail_unsupported(run, "format: a field other than {} is not supported");
    else if (s->safe)
      return st_jinja_fail_unsupported(run, "format of safe text is not supported");
    else if (next >= args->n)
      return st_jinja_fail_format(run, "format: more than %zu fields, but %zu arguments", next, args->n);
    else if (!st_jinja_put_value(run, &b, args->items[next++]))
      return false;
    at += 2;
  }
  return st_jinja_finish(run, &b, s->safe, out);
}

// ---- dicts ----

static bool get(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                st_jinja_value *out) {
  st_jinja_value a[2], *found;
  if (!bind_positions(run, name, args, "key,default", 1, a) || !st_jinja_dict_get(run, self.d, a[0], &found))
    return false;
  *out = found ? *found : a[1].kind == JINJA_MISSING ? st_jinja_none() : a[1];
  return true;
}

static bool view(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                 st_jinja_value *out) {
  if (!bind_positions(run, name, args, "", 0, NULL)) return false;
  st_jinja_object *o = st_jinja_allocate(run, 1, sizeof *o);
  if (!o) return false;
  o->id = name[0] == 'k' ? JINJA_VIEW_KEYS : name[0] == 'v' ? JINJA_VIEW_VALUES : JINJA_VIEW_ITEMS;
  o->self = self;
  *out = (st_jinja_value){.kind = JINJA_VIEW, .o = o};
  return true;
}

// ---- the tables ----

static const method STRING_METHODS[] = {{"capitalize", change_case},
                                        {"endswith", starts_or_ends},
                                        {"format", format},
                                        {"lower", change_case},
                                        {"lstrip", strip},
                                        {"replace", replace},
                                        {"rstrip", strip},
                                        {"split", split},
                                        {"startswith", starts_or_ends},
                                        {"strip", strip},
                                        {"title", change_case},
                                        {"upper", change_case},
                                        {"casefold", NULL},
                                        {"center", NULL},
                                        {"count", NULL},
                                        {"encode", NULL},
                                        {"expandtabs", NULL},
                                        {"find", NULL},
                                        {"format_map", NULL},
                                        {"index", NULL},
                                        {"isalnum", NULL},
                                        {"isalpha", NULL},
                                        {"isascii", NULL},
                                        {"isdecimal", NULL},
                                        {"isdigit", NULL},
                                        {"isidentifier", NULL},
                                        {"islower", NULL},
                                        {"isnumeric", NULL},
                                        {"isprintable", NULL},
                                        {"isspace", NULL},
                                        {"istitle", NULL},
                                        {"isupper", NULL},
                                        {"join", NULL},
                                        {"ljust", NULL},
                                        {"maketrans", NULL},
                                        {"partition", NULL},
                                        {"removeprefix", NULL},
                                        {"removesuffix", NULL},
                                        {"rfind", NULL},
                                        {"rindex", NULL},
                                        {"rjust", NULL},
                                        {"rpartition", NULL},
                                        {"rsplit", NULL},
                                        {"splitlines", NULL},
                                        {"swapcase", NULL},
                                        {"translate", NULL},
                                        {"zfill", NULL},
                                        {NULL, NULL}};
static const method DICT_METHODS[] = {{"get", get},   {"items", view},    {"keys", view}, {"values", view},
                                      {"copy", NULL}, {"fromkeys", NULL}, {NULL, NULL}};
static const method LIST_METHODS[] = {{"copy", NULL}, {"count", NULL}, {"index", NULL}, {NULL, NULL}};
static const method TUPLE_METHODS[] = {{"count", NULL}, {"index", NULL}, {NULL, NULL}};
static const method RANGE_METHODS[] = {{"count", NULL}, {"index", NULL}, {"start", NULL},
                                       {"stop", NULL},  {"step", NULL},  {NULL, NULL}};
static const method NUMBER_METHODS[] = {{"as_integer_ratio", NULL}, {"conjugate", NULL}, {NULL, NULL}};
static const char *const DICT_CHANGES[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const LIST_CHANGES[] = {"append", "clear",  "pop",    "reverse", "insert",
                                           "sort",   "extend", "remove", NULL};

static const method *methods_of(st_jinja_kind kind) {
  switch (kind) {
  case JINJA_STRING: return STRING_METHODS;
  case JINJA_DICT: return DICT_METHODS;
  case JINJA_LIST: return LIST_METHODS;
  case JINJA_TUPLE: return TUPLE_METHODS;
  case JINJA_RANGE: return RANGE_METHODS;
  case JINJA_INTEGER:
  case JINJA_FLOAT: return NUMBER_METHODS;
  default: return NULL;
  }
}

int st_jinja_find_method(st_jinja_kind kind, const st_jinja_string *name) {
  const char *const *changes = kind == JINJA_DICT ? DICT_CHANGES : kind == JINJA_LIST ? LIST_CHANGES : NULL;
  const method *methods = methods_of(kind);
  for (int i = 0; changes && changes[i]; i++) {
    if (st_jinja_string_is(name, changes[i])) return -2;
  }
  for (int i = 0; methods && methods[i].name; i++) {
    if (st_jinja_string_is(name, methods[i].name)) return i;
  }
  return -1;
}

bool st_jinja_call_method(st_jinja_run *run, const st_jinja_object *bound, const st_jinja_arguments *args,
                          st_jinja_value *out) {
  const method *m = &methods_of((st_jinja_kind)bound->self.kind)[bound->id];
  if (m->call) return m->call(run, m->name, bound->self, args, out);
  return st_jinja_fail_unsupported(run, "the method '%s' of a %s is not supported", m->name,
                                   st_jinja_type_name(bound->self));
}
