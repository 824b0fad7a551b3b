// Filters on sequences and mappings.
#include "jinja/run.h"

#include <string.h>

static bool as_flag(st_jinja_run *run, st_jinja_value v, bool *out) {
  return v.kind == JINJA_MISSING || st_jinja_to_boolean(run, v, out);
}

// sorted() takes nothing but an integer for reverse.
static bool as_reverse(st_jinja_run *run, st_jinja_value v, bool *out) {
  int64_t i = 0;
  if (v.kind != JINJA_MISSING && !st_jinja_as_int(v, &i))
    return st_jinja_fail_format(run, "reverse must be a boolean, found %s", st_jinja_type_name(v));
  *out = i != 0;
  return true;
}

// What sort, min, unique and the like compare: the attribute of an item, strings without regard to case.
static bool sort_key(st_jinja_run *run, st_jinja_value item, st_jinja_value attribute, bool case_sensitive,
                     st_jinja_value *out) {
  if (!st_jinja_attribute_path(run, item, attribute, out)) return false;
  return case_sensitive || out->kind != JINJA_STRING || st_jinja_change_case(run, out->s, JINJA_LOWER, out);
}

typedef struct {
  st_jinja_value key, item;
} keyed;

// Stable; `reverse` keeps equal items in order too, as Python does.
static bool merge_sort(st_jinja_run *run, keyed *items, keyed *room, size_t n, bool reverse) {
  if (n < 2) return true;
  size_t half = n / 2, i = 0, j = half, k = 0;
  if (!merge_sort(run, items, room, half, reverse) || !merge_sort(run, items + half, room, n - half, reverse))
    return false;
  while (i < half || j < n) {
    bool right = i == half;
    if (!st_jinja_charge(run, 1)) return false;
    if (i < half && j < n) {
      bool ok = reverse ? st_jinja_less_than(run, items[i].key, items[j].key, &right)
                        : st_jinja_less_than(run, items[j].key, items[i].key, &right);
      if (!ok) return false;
    }
    room[k++] = right ? items[j++] : items[i++];
  }
  memcpy(items, room, n * sizeof *items);
  return true;
}

static bool sorted(st_jinja_run *run, keyed *items, size_t n, bool reverse, st_jinja_value *out) {
  keyed *room = st_jinja_allocate(run, n + 1, sizeof *room);
  if (!room || !merge_sort(run, items, room, n, reverse) || !st_jinja_new_list(run, JINJA_LIST, n, out)) return false;
  for (size_t i = 0; i < n; i++) {
    if (!st_jinja_list_append(run, out->l, items[i].item)) return false;
  }
  return true;
}

// The keys of several attributes, "a,b", as a list that is compared in order.
static bool multi_key(st_jinja_run *run, st_jinja_value item, st_jinja_value attribute, bool case_sensitive,
                      st_jinja_value *out) {
  st_jinja_value comma, names;
  if (!st_jinja_new_list(run, JINJA_LIST, 1, out)) return false;
  if (attribute.kind != JINJA_STRING) {
    st_jinja_value key;
    return sort_key(run, item, attribute, case_sensitive, &key) && st_jinja_list_append(run, out->l, key);
  }
  if (!st_jinja_copy_text(run, ",", &comma) || !st_jinja_split_text(run, attribute.s, comma.s, -1, false, &names))
    return false;
  for (size_t i = 0; i < names.l->n; i++) {
    st_jinja_value key;
    if (!sort_key(run, item, names.l->items[i], case_sensitive, &key) || !st_jinja_list_append(run, out->l, key))
      return false;
  }
  return true;
}

static bool filter_sort(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3], list;
  bool reverse = false, case_sensitive = false;
  if (!st_jinja_bind_arguments(run, "sort", args, "reverse,case_sensitive,attribute", 0, a) ||
      !as_reverse(run, a[0], &reverse) || !as_flag(run, a[1], &case_sensitive) ||
      !st_jinja_to_list(run, v, JINJA_LIST, &list))
    return false;
  keyed *items = st_jinja_allocate(run, list.l->n + 1, sizeof *items);
  if (!items) return false;
  for (size_t i = 0; i < list.l->n; i++) {
    items[i].item = list.l->items[i];
    if (!multi_key(run, items[i].item, a[2], case_sensitive, &items[i].key)) return false;
  }
  return sorted(run, items, list.l->n, reverse, out);
}

static bool filter_dictsort(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3];
  bool case_sensitive = false, reverse = false;
  if (!st_jinja_bind_arguments(run, "dictsort", args, "case_sensitive,by,reverse", 0, a) ||
      !as_flag(run, a[0], &case_sensitive) || !as_reverse(run, a[2], &reverse))
    return false;
  bool by_value = a[1].kind == JINJA_STRING && st_jinja_string_is(a[1].s, "value");
  if (!by_value && a[1].kind != JINJA_MISSING && !(a[1].kind == JINJA_STRING && st_jinja_string_is(a[1].s, "key"))) {
    return st_jinja_fail_format(run, "dictsort sorts by \"key\" or \"value\" only");
  }
  if (v.kind != JINJA_DICT) return st_jinja_fail_format(run, "dictsort of a %s", st_jinja_type_name(v));
  keyed *items = st_jinja_allocate(run, v.d->n + 1, sizeof *items);
  if (!items) return false;
  for (size_t i = 0; i < v.d->n; i++) {
    st_jinja_pair pair = v.d->pairs[i];
    if (!st_jinja_new_pair(run, pair.key, pair.value, &items[i].item) ||
        !sort_key(run, by_value ? pair.value : pair.key, st_jinja_none(), case_sensitive, &items[i].key))
      return false;
  }
  return sorted(run, items, v.d->n, reverse, out);
}

static bool unique_list(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], list, kept, seen;
  bool case_sensitive = false;
  if (!st_jinja_bind_arguments(run, "unique", args, "case_sensitive,attribute", 0, a) ||
      !as_flag(run, a[0], &case_sensitive) || !st_jinja_to_list(run, v, JINJA_LIST, &list) ||
      !st_jinja_new_list(run, JINJA_LIST, 0, &kept) || !st_jinja_new_dict(run, JINJA_DICT, &seen))
    return false;
  *out = kept;
  for (size_t i = 0; i < list.l->n; i++) {
    st_jinja_value key, *old;
    if (!sort_key(run, list.l->items[i], a[1], case_sensitive, &key) || !st_jinja_dict_get(run, seen.d, key, &old))
      return false;
    if (old) continue;
    if (!st_jinja_dict_set(run, seen.d, key, st_jinja_none()) || !st_jinja_list_append(run, kept.l, list.l->items[i]))
      return false;
  }
  return true;
}

static bool filter_extreme(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                           st_jinja_value *out) {
  st_jinja_value a[2], list, best;
  bool case_sensitive = false, largest = !strcmp(name, "max");
  if (!st_jinja_bind_arguments(run, name, args, "case_sensitive,attribute", 0, a) ||
      !as_flag(run, a[0], &case_sensitive) || !st_jinja_to_list(run, v, JINJA_LIST, &list))
    return false;
  *out = st_jinja_undefined("the least or greatest of nothing");
  for (size_t i = 0; i < list.l->n; i++) {
    st_jinja_value key;
    bool better = true;
    if (!sort_key(run, list.l->items[i], a[1], case_sensitive, &key)) return false;
    if (i && !(largest ? st_jinja_less_than(run, best, key, &better) : st_jinja_less_than(run, key, best, &better)))
      return false;
    if (better) best = key, *out = list.l->items[i];
  }
  return true;
}

static bool filter_join(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], by, items = v;
  if (!st_jinja_bind_arguments(run, "join", args, "d,attribute", 0, a)) return false;
  if (a[1].kind != JINJA_MISSING && a[1].kind != JINJA_NONE) {
    st_jinja_value list;
    if (!st_jinja_to_list(run, v, JINJA_LIST, &list) || !st_jinja_new_list(run, JINJA_LIST, list.l->n, &items))
      return false;
    for (size_t i = 0; i < list.l->n; i++) {
      st_jinja_value item;
      if (!st_jinja_attribute_path(run, list.l->items[i], a[1], &item) || !st_jinja_list_append(run, items.l, item))
        return false;
    }
  }
  if (a[0].kind == JINJA_MISSING ? !st_jinja_copy_text(run, "", &by) : !st_jinja_to_string(run, a[0], &by))
    return false;
  return st_jinja_join_items(run, by.s, items, false, out);
}

static bool filter_first(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_iterator *it;
  if (!st_jinja_bind_arguments(run, "first", args, "", 0, NULL) || !st_jinja_iterate(run, v, &it)) return false;
  st_jinja_step next = st_jinja_next(run, it, out);
  if (next == JINJA_END) *out = st_jinja_undefined("the first of nothing");
  return next != JINJA_FAILED;
}

static bool filter_last(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  bool can;
  st_jinja_value reversed;
  if (!st_jinja_bind_arguments(run, "last", args, "", 0, NULL)) return false;
  if (!st_jinja_reversed(run, v, &can, &reversed)) return false;
  if (!can) return st_jinja_fail_format(run, "last of a %s", st_jinja_type_name(v));
  st_jinja_step next = st_jinja_next(run, reversed.it, out);
  if (next == JINJA_END) *out = st_jinja_undefined("the last of nothing");
  return next != JINJA_FAILED;
}

static bool filter_reverse(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  if (!st_jinja_bind_arguments(run, "reverse", args, "", 0, NULL)) return false;
  if (v.kind == JINJA_STRING) {
    return st_jinja_get_slice(run, v, (st_jinja_value[3]){st_jinja_none(), st_jinja_none(), st_jinja_from_int(-1)},
                              out);
  }
  bool can;
  if (!st_jinja_reversed(run, v, &can, out)) return false;
  if (can) return true;
  st_jinja_value list;
  if (!st_jinja_is_iterable(v)) return st_jinja_fail_format(run, "reverse of a %s", st_jinja_type_name(v));
  if (!st_jinja_to_list(run, v, JINJA_LIST, &list)) return false;
  return st_jinja_get_slice(run, list, (st_jinja_value[3]){st_jinja_none(), st_jinja_none(), st_jinja_from_int(-1)},
                            out);
}

static bool filter_sum(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], item;
  st_jinja_iterator *it;
  st_jinja_step next;
  if (!st_jinja_bind_arguments(run, "sum", args, "attribute,start", 0, a) || !st_jinja_iterate(run, v, &it))
    return false;
  *out = a[1].kind == JINJA_MISSING ? st_jinja_from_int(0) : a[1];
  if (out->kind == JINJA_STRING) return st_jinja_fail_format(run, "sum of strings");
  while ((next = st_jinja_next(run, it, &item)) == JINJA_ITEM) {
    if (!st_jinja_attribute_path(run, item, a[0], &item) || !st_jinja_apply_binary(run, JINJA_ADD, *out, item, out))
      return false;
  }
  return next == JINJA_END;
}

// batch and slice: lists of lists.
static bool batch_list(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                       st_jinja_value *out) {
  st_jinja_value a[2], list, rows, row;
  int64_t n;
  bool slices = !strcmp(name, "slice");
  if (!st_jinja_bind_arguments(run, name, args, slices ? "slices,fill_with" : "linecount,fill_with", 1, a))
    return false;
  bool fill = a[1].kind != JINJA_MISSING && a[1].kind != JINJA_NONE;
  if (!st_jinja_as_int(a[0], &n))
    return st_jinja_fail_format(run, "%s expects an integer, found %s", name, st_jinja_type_name(a[0]));
  if (n <= 0 || n > 100000) return st_jinja_fail_unsupported(run, "%s into %lld", name, (long long)n);
  if (!st_jinja_to_list(run, v, JINJA_LIST, &list) || !st_jinja_new_list(run, JINJA_LIST, 0, &rows)) return false;
  size_t total = list.l->n, count = (size_t)n, at = 0;
  size_t n_rows = slices ? count : (total + count - 1) / count;
  for (size_t i = 0; i < n_rows; i++) {
    size_t length = slices ? total / count + (i < total % count) : total - at < count ? total - at : count;
    if (!st_jinja_charge(run, length + 1) || !st_jinja_new_list(run, JINJA_LIST, length + 1, &row)) return false;
    for (size_t j = 0; j < length; j++) row.l->items[row.l->n++] = list.l->items[at++];
    if (slices && fill && i >= total % count && !st_jinja_list_append(run, row.l, a[1])) return false;
    while (!slices && fill && row.l->n < count) {
      if (!st_jinja_charge(run, 1) || !st_jinja_list_append(run, row.l, a[1])) return false;
    }
    if (!st_jinja_list_append(run, rows.l, row)) return false;
  }
  *out = rows;
  return true;
}

bool st_jinja_generated_list(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                             st_jinja_value *out) {
  return !strcmp(name, "unique") ? unique_list(run, v, args, out) : batch_list(run, name, v, args, out);
}

bool st_jinja_apply_list_filter(st_jinja_run *run, const char *name, st_jinja_value v, const st_jinja_arguments *args,
                                st_jinja_value *out) {
  st_jinja_value a[2];
  static const char *const lazy[] = {"map", "select", "reject", "selectattr", "rejectattr"};
  for (int i = 0; i < 5; i++) {
    if (!strcmp(name, lazy[i])) return st_jinja_generator(run, lazy[i], v, args, out);
  }
  if (!strcmp(name, "items")) {
    return st_jinja_bind_arguments(run, name, args, "", 0, NULL) && st_jinja_generator(run, "items", v, args, out);
  }
  if (!strcmp(name, "list"))
    return st_jinja_bind_arguments(run, name, args, "", 0, NULL) && st_jinja_to_list(run, v, JINJA_LIST, out);
  if (!strcmp(name, "join")) return filter_join(run, v, args, out);
  if (!strcmp(name, "sort")) return filter_sort(run, v, args, out);
  if (!strcmp(name, "dictsort")) return filter_dictsort(run, v, args, out);
  if (!strcmp(name, "unique")) {
    return st_jinja_bind_arguments(run, name, args, "case_sensitive,attribute", 0, a) &&
           st_jinja_generator(run, "unique", v, args, out);
  }
  if (!strcmp(name, "min") || !strcmp(name, "max")) return filter_extreme(run, name, v, args, out);
  if (!strcmp(name, "first")) return filter_first(run, v, args, out);
  if (!strcmp(name, "last")) return filter_last(run, v, args, out);
  if (!strcmp(name, "reverse")) return filter_reverse(run, v, args, out);
  if (!strcmp(name, "sum")) return filter_sum(run, v, args, out);
  if (!strcmp(name, "batch") || !strcmp(name, "slice")) {
    const char *names = name[0] == 's' ? "slices,fill_with" : "linecount,fill_with";
    return st_jinja_bind_arguments(run, name, args, names, 1, a) &&
           st_jinja_generator(run, name[0] == 's' ? "slice" : "batch", v, args, out);
  }
  return st_jinja_fail_unsupported(run, "the filter '%s'", name);
}
