// Filters on sequences and mappings.
#include "jinja/run.h"

#include <string.h>

static bool no_parameter(st_jinja_run *run, const char *filter, const char *name, st_jinja_value v) {
  return v.kind == JINJA_MISSING ||
         st_jinja_fail_unsupported(run, "%s: the parameter '%s' is not supported", filter, name);
}

// What sort, min and unique compare: the attribute of an item, strings without regard to case.
static bool sort_key(st_jinja_run *run, st_jinja_value item, st_jinja_value attribute, st_jinja_value *out) {
  if (!st_jinja_attribute_path(run, item, attribute, out)) return false;
  return out->kind != JINJA_STRING || st_jinja_change_case(run, out->s, JINJA_LOWER, out);
}

typedef struct {
  st_jinja_value key, item;
} keyed;

// Stable, from runs of one element to all of them; `room` is as large as `items`.
static bool merge_sort(st_jinja_run *run, keyed *items, keyed *room, size_t n) {
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t middle = n - begin < width ? n : begin + width, end = n - begin < 2 * width ? n : begin + 2 * width;
      size_t i = begin, j = middle, k = begin;
      while (i < middle || j < end) {
        bool right = i == middle;
        if (!st_jinja_charge(run, 1)) return false;
        if (i < middle && j < end && !st_jinja_less_than(run, items[j].key, items[i].key, &right)) return false;
        room[k++] = right ? items[j++] : items[i++];
      }
    }
    memcpy(items, room, n * sizeof *items);
  }
  return true;
}

static bool sorted(st_jinja_run *run, keyed *items, size_t n, st_jinja_value *out) {
  keyed *room = st_jinja_allocate(run, n + 1, sizeof *room);
  if (!room || !merge_sort(run, items, room, n) || !st_jinja_new_list(run, JINJA_LIST, n, out)) return false;
  for (size_t i = 0; i < n; i++) {
    if (!st_jinja_list_append(run, out->l, items[i].item)) return false;
  }
  return true;
}

bool st_jinja_filter_sort(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3], list;
  if (!st_jinja_bind_arguments(run, "sort", args, "reverse,case_sensitive,attribute", 0, a) ||
      !no_parameter(run, "sort", "reverse", a[0]) || !no_parameter(run, "sort", "case_sensitive", a[1]) ||
      !st_jinja_to_list(run, v, JINJA_LIST, &list))
    return false;
  if (a[2].kind == JINJA_STRING && memchr(a[2].s->data, ',', a[2].s->length)) {
    return st_jinja_fail_unsupported(run, "sort by several attributes is not supported");
  }
  keyed *items = st_jinja_allocate(run, list.l->n + 1, sizeof *items);
  if (!items) return false;
  for (size_t i = 0; i < list.l->n; i++) {
    // The keys are lists of one, as Jinja's are: two undefined ones are equal and need no order.
    st_jinja_value key;
    items[i].item = list.l->items[i];
    if (!sort_key(run, items[i].item, a[2], &key) || !st_jinja_new_list(run, JINJA_LIST, 1, &items[i].key) ||
        !st_jinja_list_append(run, items[i].key.l, key))
      return false;
  }
  return sorted(run, items, list.l->n, out);
}

bool st_jinja_filter_dictsort(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args,
                              st_jinja_value *out) {
  if (args->n || args->n_keywords) return st_jinja_fail_unsupported(run, "dictsort: parameters are not supported");
  if (v.kind != JINJA_DICT) {
    return st_jinja_fail_format(run, "dictsort expects a dict, found %s", st_jinja_type_name(v));
  }
  keyed *items = st_jinja_allocate(run, v.d->n + 1, sizeof *items);
  if (!items) return false;
  for (size_t i = 0; i < v.d->n; i++) {
    st_jinja_pair pair = v.d->pairs[i];
    if (!st_jinja_new_pair(run, pair.key, pair.value, &items[i].item) ||
        !sort_key(run, pair.key, st_jinja_none(), &items[i].key))
      return false;
  }
  return sorted(run, items, v.d->n, out);
}

bool st_jinja_filter_unique(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2];
  return st_jinja_bind_arguments(run, "unique", args, "case_sensitive,attribute", 0, a) &&
         no_parameter(run, "unique", "case_sensitive", a[0]) && st_jinja_generator(run, "unique", v, args, out);
}

bool st_jinja_unique_list(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], list, kept, seen;
  if (!st_jinja_bind_arguments(run, "unique", args, "case_sensitive,attribute", 0, a) ||
      !st_jinja_to_list(run, v, JINJA_LIST, &list) || !st_jinja_new_list(run, JINJA_LIST, 0, &kept) ||
      !st_jinja_new_dict(run, JINJA_DICT, &seen))
    return false;
  *out = kept;
  for (size_t i = 0; i < list.l->n; i++) {
    st_jinja_value key, *old;
    if (!sort_key(run, list.l->items[i], a[1], &key) || !st_jinja_dict_get(run, seen.d, key, &old)) return false;
    if (old) continue;
    if (!st_jinja_dict_set(run, seen.d, key, st_jinja_none()) || !st_jinja_list_append(run, kept.l, list.l->items[i]))
      return false;
  }
  return true;
}

bool st_jinja_filter_min(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], list, best;
  if (!st_jinja_bind_arguments(run, "min", args, "case_sensitive,attribute", 0, a) ||
      !no_parameter(run, "min", "case_sensitive", a[0]) || !st_jinja_to_list(run, v, JINJA_LIST, &list))
    return false;
  *out = st_jinja_undefined("the minimum of an empty sequence");
  for (size_t i = 0; i < list.l->n; i++) {
    st_jinja_value key;
    bool better = true;
    if (!sort_key(run, list.l->items[i], a[1], &key)) return false;
    if (i && !st_jinja_less_than(run, key, best, &better)) return false;
    if (better) best = key, *out = list.l->items[i];
  }
  return true;
}

bool st_jinja_filter_join(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[2], by;
  if (!st_jinja_bind_arguments(run, "join", args, "d,attribute", 0, a)) return false;
  if (!no_parameter(run, "join", "attribute", a[1])) return false;
  if (a[0].kind == JINJA_MISSING ? !st_jinja_copy_text(run, "", &by) : !st_jinja_to_string(run, a[0], &by))
    return false;
  return st_jinja_join_items(run, by.s, v, out);
}

bool st_jinja_filter_first(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_iterator *it;
  if (!st_jinja_bind_arguments(run, "first", args, "", 0, NULL) || !st_jinja_iterate(run, v, &it)) return false;
  st_jinja_step next = st_jinja_next(run, it, out);
  if (next == JINJA_END) *out = st_jinja_undefined("the first item of an empty sequence");
  return next != JINJA_FAILED;
}

bool st_jinja_filter_last(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value list;
  if (!st_jinja_bind_arguments(run, "last", args, "", 0, NULL)) return false;
  if (v.kind == JINJA_ITERATOR || !st_jinja_is_iterable(v)) { // Python's reversed() takes no generator
    return st_jinja_fail_format(run, "last expects a sequence, found %s", st_jinja_type_name(v));
  }
  if (!st_jinja_to_list(run, v, JINJA_LIST, &list)) return false;
  *out = list.l->n ? list.l->items[list.l->n - 1] : st_jinja_undefined("the last item of an empty sequence");
  return true;
}

bool st_jinja_filter_list(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_bind_arguments(run, "list", args, "", 0, NULL) && st_jinja_to_list(run, v, JINJA_LIST, out);
}

bool st_jinja_filter_items(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_bind_arguments(run, "items", args, "", 0, NULL) && st_jinja_generator(run, "items", v, args, out);
}

bool st_jinja_filter_map(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_generator(run, "map", v, args, out);
}

bool st_jinja_filter_select(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_generator(run, "select", v, args, out);
}

bool st_jinja_filter_reject(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  return st_jinja_generator(run, "reject", v, args, out);
}

bool st_jinja_filter_selectattr(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args,
                                st_jinja_value *out) {
  return st_jinja_generator(run, "selectattr", v, args, out);
}

bool st_jinja_filter_rejectattr(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args,
                                st_jinja_value *out) {
  return st_jinja_generator(run, "rejectattr", v, args, out);
}
