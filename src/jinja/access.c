// Attributes, items and slices: what a.b, a['b'] and a[i:j] mean, and what the sandbox hides.
#include "jinja/run.h"

#include <string.h>

static const char *name_of(st_jinja_run *run, const st_jinja_string *name) {
  char *copy = st_jinja_allocate_bytes(run, name->length + 1);
  if (!copy) return NULL;
  memcpy(copy, name->data, name->length);
  copy[name->length] = '\0';
  return copy;
}

static bool undefined(st_jinja_run *run, const st_jinja_string *name, bool unsafe, st_jinja_value *out) {
  *out = st_jinja_undefined(name_of(run, name));
  out->unsafe = unsafe;
  return run->status == SETUN_OK;
}

// Attributes of every Python object; the sandbox hides them.
static bool is_internal(const st_jinja_string *name) {
  static const char *const names[] = {
      "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",          "__format__",
      "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",        "__init_subclass__",
      "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",      "__reduce_ex__",
      "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (st_jinja_string_is(name, names[i])) return true;
  }
  return false;
}

// Only the attribute, without looking for a key: JINJA_MISSING if absent.
static bool find_attribute(st_jinja_run *run, st_jinja_value v, const st_jinja_string *name, st_jinja_value *out) {
  *out = (st_jinja_value){.kind = JINJA_MISSING};
  if (v.kind == JINJA_NAMESPACE) {
    const st_jinja_value *found = st_jinja_dict_find(v.d, name);
    if (found && name->data[0] == '_') return undefined(run, name, true, out);
    if (found) *out = *found;
    return true;
  }
  if (name->length > 4 && name->data[0] == '_' && is_internal(name)) return undefined(run, name, true, out);
  if (v.kind == JINJA_LOOP && !st_jinja_loop_attribute(run, v.o->loop, name, out)) return false;
  if (v.kind == JINJA_MACRO) {
    return st_jinja_fail_unsupported(run, "an attribute of a macro is not supported");
  }
  if (out->kind != JINJA_MISSING) return true;
  int id = st_jinja_find_method((st_jinja_kind)v.kind, name);
  if (id == -2) return undefined(run, name, true, out);
  if (id < 0) return true;
  st_jinja_object *method = st_jinja_allocate(run, 1, sizeof *method);
  if (!method) return false;
  method->id = id;
  method->self = v;
  *out = (st_jinja_value){.kind = JINJA_METHOD, .o = method};
  return true;
}

static bool refuse_undefined(st_jinja_run *run, st_jinja_value v, const st_jinja_string *name) {
  char shown[64];
  if (v.unsafe) return st_jinja_fail_format(run, "the attribute '%s' is not safe to use", v.name ? v.name : "");
  return st_jinja_fail_format(run, "'%s' is undefined, so it has no '%s'", v.name ? v.name : "a value",
                              st_jinja_shorten(name, shown));
}

bool st_jinja_get_attribute(st_jinja_run *run, st_jinja_value v, const st_jinja_string *name, st_jinja_value *out) {
  if (v.kind == JINJA_UNDEFINED && is_internal(name)) return undefined(run, name, true, out);
  if (v.kind == JINJA_UNDEFINED) return refuse_undefined(run, v, name);
  if (!find_attribute(run, v, name, out)) return false;
  if (out->kind != JINJA_MISSING) return true;
  if (v.kind == JINJA_DICT) {
    const st_jinja_value *found = st_jinja_dict_find(v.d, name);
    if (found) {
      *out = *found;
      return true;
    }
  }
  return undefined(run, name, false, out);
}

// Whether it can be a key: not if it contains a list or a dict.
static bool hashable(st_jinja_run *run, st_jinja_value v, bool *out) {
  *out = v.kind != JINJA_LIST && v.kind != JINJA_DICT && v.kind != JINJA_VIEW;
  if (v.kind != JINJA_TUPLE) return true;
  if (!st_jinja_nest(run)) return false;
  for (size_t i = 0; *out && i < v.l->n; i++) {
    if (!hashable(run, v.l->items[i], out)) return false;
  }
  run->depth--;
  return true;
}

static bool one_char(st_jinja_run *run, st_jinja_string *s, int64_t at, st_jinja_value *out) {
  size_t begin = st_jinja_character_offset(s, (size_t)at), end = begin + 1;
  if (s->chars != s->length && !st_jinja_charge(run, begin / 64)) return false;
  while (end < s->length && ((unsigned char)s->data[end] & 0xC0) == 0x80) end++;
  return st_jinja_substring(run, s, begin, end, out);
}

// v[at] of a sequence; JINJA_MISSING when it is out of range.
static bool at_index(st_jinja_run *run, st_jinja_value v, int64_t at, st_jinja_value *out) {
  int64_t n;
  if (!st_jinja_length_of(run, v, &n)) return false;
  if (at < 0) at += n;
  if (at < 0 || at >= n) return true;
  if (v.kind == JINJA_STRING) return one_char(run, v.s, at, out);
  if (v.kind == JINJA_RANGE)
    *out = st_jinja_from_int(v.o->start + at * v.o->step);
  else
    *out = v.l->items[at];
  return true;
}

bool st_jinja_get_item(st_jinja_run *run, st_jinja_value v, st_jinja_value key, st_jinja_value *out) {
  int64_t at;
  static const st_jinja_string something = {.data = "element", .length = 7};
  if (v.kind == JINJA_UNDEFINED) return refuse_undefined(run, v, key.kind == JINJA_STRING ? key.s : &something);
  *out = (st_jinja_value){.kind = JINJA_MISSING};
  if (v.kind == JINJA_DICT) {
    st_jinja_value *found = NULL;
    bool can;
    if (!hashable(run, key, &can) || (can && !st_jinja_dict_get(run, v.d, key, &found))) return false;
    if (found) *out = *found;
  } else if (v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_RANGE) {
    if (st_jinja_as_int(key, &at) && !at_index(run, v, at, out)) return false;
  }
  if (out->kind == JINJA_MISSING && key.kind == JINJA_STRING && !find_attribute(run, v, key.s, out)) return false;
  if (out->kind != JINJA_MISSING) return true;
  if (key.kind == JINJA_STRING) return undefined(run, key.s, false, out);
  *out = st_jinja_undefined("an element");
  return true;
}

// A bound of a slice, as Python clamps it; `absent` if there is none.
static bool bound(st_jinja_run *run, st_jinja_value v, int64_t n, int64_t low, int64_t high, int64_t absent,
                  int64_t *out) {
  if (v.kind == JINJA_NONE) {
    *out = absent;
    return true;
  }
  if (!st_jinja_as_int(v, out))
    return st_jinja_fail_format(run, "a slice expects integers, found %s", st_jinja_type_name(v));
  if (*out < 0) *out = *out < -n ? low : *out + n < low ? low : *out + n;
  if (*out > high) *out = high;
  return true;
}

static bool slice_string(st_jinja_run *run, st_jinja_string *s, int64_t start, int64_t step, int64_t count,
                         st_jinja_value *out) {
  if (!st_jinja_charge(run, s->length / 64)) return false;
  if (step == 1 || !count) {
    size_t begin = st_jinja_character_offset(s, (size_t)start);
    st_jinja_string rest = {.data = s->data + begin, .length = s->length - begin, .chars = SIZE_MAX};
    if (s->chars == s->length) rest.chars = rest.length;
    return st_jinja_substring(run, s, begin, count ? begin + st_jinja_character_offset(&rest, (size_t)count) : begin,
                              out);
  }
  st_jinja_builder b = {0};
  bool ascii = st_jinja_count_characters(s) == s->length;
  // Walks from character to character, not from the beginning each time.
  size_t at = st_jinja_character_offset(s, (size_t)start);
  for (; count > 0; count--) {
    size_t end = at + 1;
    if (!st_jinja_charge(run, ascii ? 1 : 2)) return false;
    while (end < s->length && ((unsigned char)s->data[end] & 0xC0) == 0x80) end++;
    if (!st_jinja_put_part(run, &b, s, at, end)) return false;
    if (count == 1) break;
    if (ascii) {
      at = (size_t)((int64_t)at + step);
      continue;
    }
    for (int64_t i = 0; i < step; i++) {
      do at++;
      while (at < s->length && ((unsigned char)s->data[at] & 0xC0) == 0x80);
    }
    for (int64_t i = 0; i > step; i--) {
      do at--;
      while (at > 0 && ((unsigned char)s->data[at] & 0xC0) == 0x80);
    }
  }
  return st_jinja_finish(run, &b, s->safe, out);
}

static bool slice_range(st_jinja_run *run, const st_jinja_object *r, int64_t start, int64_t step, int64_t count,
                        st_jinja_value *out) {
  st_jinja_object *part = st_jinja_allocate(run, 1, sizeof *part);
  if (!part) return false;
  part->start = r->start + start * r->step;
  if (__builtin_mul_overflow(r->step, step, &part->step))
    return st_jinja_fail_unsupported(run, "an integer beyond 64 bits is not supported");
  part->count = count;
  if (__builtin_mul_overflow(part->step, count, &part->stop) ||
      __builtin_add_overflow(part->stop, part->start, &part->stop))
    return st_jinja_fail_unsupported(run, "an integer beyond 64 bits is not supported");
  *out = (st_jinja_value){.kind = JINJA_RANGE, .o = part};
  return true;
}

bool st_jinja_get_slice(st_jinja_run *run, st_jinja_value v, const st_jinja_value bounds[3], st_jinja_value *out) {
  int64_t n, step = 1, start, stop;
  if (v.kind == JINJA_UNDEFINED) return refuse_undefined(run, v, &(st_jinja_string){.data = "slice", .length = 5});
  if (v.kind != JINJA_STRING && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE && v.kind != JINJA_RANGE) {
    return st_jinja_fail_format(run, "a value of type %s cannot be sliced", st_jinja_type_name(v));
  }
  if (!st_jinja_length_of(run, v, &n)) return false;
  if (bounds[2].kind != JINJA_NONE && !st_jinja_as_int(bounds[2], &step)) {
    return st_jinja_fail_format(run, "a slice expects integers, found %s", st_jinja_type_name(bounds[2]));
  }
  if (step == 0) return st_jinja_fail_format(run, "a slice with step 0");
  if (step > n + 1) step = n + 1;
  if (step < -n - 1) step = -n - 1;
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  if (!bound(run, bounds[0], n, low, high, step > 0 ? 0 : n - 1, &start) ||
      !bound(run, bounds[1], n, low, high, step > 0 ? n : -1, &stop))
    return false;
  int64_t count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                           : (stop < start ? (start - stop - 1) / -step + 1 : 0);
  if (v.kind == JINJA_STRING) return slice_string(run, v.s, start < 0 ? 0 : start, step, count, out);
  if (v.kind == JINJA_RANGE) return slice_range(run, v.o, start, step, count, out);
  if (!st_jinja_charge(run, (uint64_t)count / 4) || !st_jinja_new_list(run, v.kind, (size_t)count, out)) return false;
  for (int64_t i = 0; i < count; i++) out->l->items[i] = v.l->items[start + i * step];
  out->l->n = (size_t)count;
  return true;
}
