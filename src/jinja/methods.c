// Methods of dicts, lists, tuples, ranges, loops and cyclers; those of strings are in methods_text.c. The methods that
// change their object are hidden, as the immutable sandbox hides them.
#include "jinja/run.h"

#include <string.h>

typedef const char *const *name_list;

static const char *const STRING_METHODS[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill",        NULL};
static const char *const DICT_METHODS[] = {"copy", "fromkeys", "get", "items", "keys", "values", NULL};
static const char *const DICT_CHANGES[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const LIST_METHODS[] = {"copy", "count", "index", NULL};
static const char *const LIST_CHANGES[] = {"append", "clear",  "pop",    "reverse", "insert",
                                           "sort",   "extend", "remove", NULL};
static const char *const TUPLE_METHODS[] = {"count", "index", NULL};
static const char *const LOOP_METHODS[] = {"cycle", "changed", NULL};
static const char *const CYCLER_METHODS[] = {"next", "reset", NULL};
static const char *const INT_METHODS[] = {"as_integer_ratio", "bit_count", "bit_length", "conjugate",
                                          "from_bytes",       "to_bytes",  NULL};
static const char *const FLOAT_METHODS[] = {"as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer", NULL};
static const char *const NONE[] = {NULL};

static name_list methods_of(st_jinja_kind kind) {
  switch (kind) {
  case JINJA_STRING: return STRING_METHODS;
  case JINJA_DICT: return DICT_METHODS;
  case JINJA_LIST: return LIST_METHODS;
  case JINJA_TUPLE:
  case JINJA_RANGE: return TUPLE_METHODS;
  case JINJA_LOOP: return LOOP_METHODS;
  case JINJA_CYCLER: return CYCLER_METHODS;
  case JINJA_INTEGER:
  case JINJA_BOOLEAN: return INT_METHODS;
  case JINJA_FLOAT: return FLOAT_METHODS;
  default: return NONE;
  }
}

static int find(name_list names, const st_jinja_string *name) {
  for (int i = 0; names[i]; i++) {
    if (st_jinja_string_is(name, names[i])) return i;
  }
  return -1;
}

int st_jinja_find_method(st_jinja_kind kind, const st_jinja_string *name) {
  name_list changes = kind == JINJA_DICT ? DICT_CHANGES : kind == JINJA_LIST ? LIST_CHANGES : NONE;
  return find(changes, name) >= 0 ? -2 : find(methods_of(kind), name);
}

const char *st_jinja_method_name(st_jinja_kind kind, int id) {
  return methods_of(kind)[id];
}

static bool dict_method(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                        st_jinja_value *out) {
  st_jinja_value a[2], *found;
  if (args->n_keywords) return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
  if (!strcmp(name, "get")) {
    if (!st_jinja_bind_arguments(run, name, args, "key,default", 1, a) || !st_jinja_dict_get(run, self.d, a[0], &found))
      return false;
    *out = found ? *found : a[1].kind == JINJA_MISSING ? st_jinja_none() : a[1];
    return true;
  }
  if (!strcmp(name, "fromkeys")) return st_jinja_fail_unsupported(run, "the method 'fromkeys'");
  if (!st_jinja_bind_arguments(run, name, args, "", 0, a)) return false;
  if (!strcmp(name, "copy")) {
    if (!st_jinja_new_dict(run, JINJA_DICT, out)) return false;
    for (size_t i = 0; i < self.d->n; i++) {
      if (!st_jinja_charge(run, 1) || !st_jinja_dict_set(run, out->d, self.d->pairs[i].key, self.d->pairs[i].value))
        return false;
    }
    return true;
  }
  st_jinja_object *view = st_jinja_allocate(run, 1, sizeof *view);
  if (!view) return false;
  view->id = !strcmp(name, "keys") ? JINJA_VIEW_KEYS : !strcmp(name, "values") ? JINJA_VIEW_VALUES : JINJA_VIEW_ITEMS;
  view->self = self;
  *out = (st_jinja_value){.kind = JINJA_VIEW, .o = view};
  return true;
}

// index's bounds: negative ones count from the end.
static bool bound(st_jinja_run *run, st_jinja_value v, int64_t n, int64_t *at) {
  if (v.kind == JINJA_MISSING) return true;
  if (!st_jinja_as_int(v, at))
    return st_jinja_fail_format(run, "index expects integers, found %s", st_jinja_type_name(v));
  if (*at < 0) *at = *at < -n ? 0 : *at + n;
  return true;
}

static bool list_method(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                        st_jinja_value *out) {
  st_jinja_value a[3], list = self;
  if (args->n_keywords) return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
  if (self.kind == JINJA_RANGE && !st_jinja_to_list(run, self, JINJA_LIST, &list)) return false;
  if (!strcmp(name, "copy")) {
    if (!st_jinja_bind_arguments(run, name, args, "", 0, a)) return false;
    return st_jinja_to_list(run, self, JINJA_LIST, out);
  }
  bool counts = !strcmp(name, "count");
  if (!st_jinja_bind_arguments(run, name, args, counts ? "value" : "value,start,stop", 1, a)) return false;
  int64_t n = (int64_t)list.l->n, from = 0, to = n, count = 0;
  if (!counts && (!bound(run, a[1], n, &from) || !bound(run, a[2], n, &to))) return false;
  for (int64_t i = from; i < n && i < to; i++) {
    bool same;
    if (!st_jinja_charge(run, 1) || !st_jinja_equal(run, list.l->items[i], a[0], &same)) return false;
    count += same;
    if (!same || counts) continue;
    *out = st_jinja_from_int(i);
    return true;
  }
  if (!counts) return st_jinja_fail_format(run, "index: the value is not in the %s", st_jinja_type_name(self));
  *out = st_jinja_from_int(count);
  return true;
}

static bool cycler_method(st_jinja_run *run, const char *name, st_jinja_object *cycler, const st_jinja_arguments *args,
                          st_jinja_value *out) {
  if (!st_jinja_bind_arguments(run, name, args, "", 0, NULL)) return false;
  *out = st_jinja_none();
  if (!strcmp(name, "reset")) {
    cycler->start = 0;
    return true;
  }
  *out = cycler->items[cycler->start];
  cycler->start = (cycler->start + 1) % cycler->count;
  return true;
}

static bool number_method(st_jinja_run *run, const char *name, st_jinja_value self, const st_jinja_arguments *args,
                          st_jinja_value *out) {
  if (strcmp(name, "is_integer") || args->n || args->n_keywords)
    return st_jinja_fail_unsupported(run, "the method '%s'", name);
  *out = st_jinja_from_bool(self.f == (double)(int64_t)self.f);
  return true;
}

bool st_jinja_call_method(st_jinja_run *run, const st_jinja_object *method, const st_jinja_arguments *args,
                          st_jinja_value *out) {
  st_jinja_value self = method->self;
  const char *name = st_jinja_method_name((st_jinja_kind)self.kind, method->id);
  switch ((st_jinja_kind)self.kind) {
  case JINJA_STRING: return st_jinja_string_method(run, name, self.s, args, out);
  case JINJA_DICT: return dict_method(run, name, self, args, out);
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_RANGE: return list_method(run, name, self, args, out);
  case JINJA_LOOP: return st_jinja_loop_method(run, self.o->loop, name, args, out);
  case JINJA_CYCLER: return cycler_method(run, name, self.o, args, out);
  default: return number_method(run, name, self, args, out);
  }
}
