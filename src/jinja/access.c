// Attributes, items and slices: what a.b, a['b'] and a[i:j] mean, and what the sandbox hides.
#include "jinja/run.h"

#include <string.h>

static const char *name_of(st_jrun *run, const st_jstr *name) {
  char *copy = st_j_bytes(run, name->length + 1);
  if (!copy) return NULL;
  memcpy(copy, name->data, name->length);
  copy[name->length] = '\0';
  return copy;
}

static bool undefined(st_jrun *run, const st_jstr *name, bool unsafe, st_jval *out) {
  *out = st_j_undefined(name_of(run, name));
  out->unsafe = unsafe;
  return run->status == SETUN_OK;
}

// What every Python object has; the sandbox gives none of it.
static bool is_internal(const st_jstr *name) {
  static const char *const names[] = {
      "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",          "__format__",
      "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",        "__init_subclass__",
      "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",      "__reduce_ex__",
      "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (st_j_is(name, names[i])) return true;
  }
  return false;
}

static bool macro_attribute(st_jrun *run, const st_jobject *macro, const st_jstr *name, st_jval *out) {
  const st_jnode *node = macro->node;
  if (st_j_is(name, "name"))
    *out = node->value.s ? node->value : st_j_none();
  else if (st_j_is(name, "caller"))
    *out = st_j_bool(node->caller_slot != UINT32_MAX);
  else if (st_j_is(name, "catch_kwargs"))
    *out = st_j_bool(node->kwargs_slot != UINT32_MAX);
  else if (st_j_is(name, "catch_varargs"))
    *out = st_j_bool(node->varargs_slot != UINT32_MAX);
  else if (st_j_is(name, "arguments")) {
    if (!st_j_list(run, J_TUPLE, node->params.n, out)) return false;
    for (size_t i = 0; i < node->params.n; i++) {
      if (!st_j_append(run, out->l, node->params.items[i]->value)) return false;
    }
  }
  return true;
}

bool st_j_attribute(st_jrun *run, st_jval v, const st_jstr *name, st_jval *out) {
  *out = (st_jval){.kind = J_MISSING};
  if (v.kind == J_NAMESPACE) {
    const st_jval *found = st_j_get_text(v.d, name);
    if (found && name->data[0] == '_') return undefined(run, name, true, out);
    if (found) *out = *found;
    return true;
  }
  if (name->length > 4 && name->data[0] == '_' && is_internal(name)) return undefined(run, name, true, out);
  if (v.kind == J_LOOP && !st_j_loop_attribute(run, v.o->loop, name, out)) return false;
  if (v.kind == J_MACRO) return macro_attribute(run, v.o, name, out);
  if (v.kind == J_RANGE) {
    if (st_j_is(name, "start")) *out = st_j_int(v.o->start);
    if (st_j_is(name, "stop")) *out = st_j_int(v.o->stop);
    if (st_j_is(name, "step")) *out = st_j_int(v.o->step);
  }
  if (v.kind == J_CYCLER && st_j_is(name, "current")) *out = v.o->items[v.o->start];
  if (out->kind != J_MISSING) return true;
  int id = st_j_method((st_jkind)v.kind, name);
  if (id == -2) return undefined(run, name, true, out);
  if (id < 0) return true;
  st_jobject *method = st_j_alloc(run, 1, sizeof *method);
  if (!method) return false;
  method->id = id;
  method->self = v;
  *out = (st_jval){.kind = J_METHOD, .o = method};
  return true;
}

static bool refuse_undefined(st_jrun *run, st_jval v, const st_jstr *name) {
  char shown[64];
  if (v.unsafe) return st_j_wrong(run, "the attribute '%s' is not safe to use", v.name ? v.name : "");
  return st_j_wrong(run, "'%s' is undefined, so it has no '%s'", v.name ? v.name : "a value", st_j_shown(name, shown));
}

bool st_j_getattr(st_jrun *run, st_jval v, const st_jstr *name, st_jval *out) {
  if (v.kind == J_UNDEFINED && is_internal(name)) return undefined(run, name, true, out);
  if (v.kind == J_UNDEFINED) return refuse_undefined(run, v, name);
  if (!st_j_attribute(run, v, name, out)) return false;
  if (out->kind != J_MISSING) return true;
  if (v.kind == J_DICT) {
    const st_jval *found = st_j_get_text(v.d, name);
    if (found) {
      *out = *found;
      return true;
    }
  }
  return undefined(run, name, false, out);
}

static bool hashable(st_jval v, int depth) {
  if (v.kind == J_TUPLE) {
    for (size_t i = 0; i < v.l->n; i++) {
      if (depth > 50 || !hashable(v.l->items[i], depth + 1)) return false;
    }
  }
  return v.kind != J_LIST && v.kind != J_DICT && v.kind != J_VIEW;
}

static bool one_char(st_jrun *run, st_jstr *s, int64_t at, st_jval *out) {
  size_t begin = st_j_offset(s, (size_t)at), end = begin + 1;
  if (s->chars != s->length && !st_j_charge(run, begin / 64)) return false;
  while (end < s->length && ((unsigned char)s->data[end] & 0xC0) == 0x80) end++;
  return st_j_substring(run, s, begin, end, out);
}

// v[at] of a sequence; J_MISSING when it is out of range.
static bool at_index(st_jrun *run, st_jval v, int64_t at, st_jval *out) {
  int64_t n;
  if (!st_j_length(run, v, &n)) return false;
  if (at < 0) at += n;
  if (at < 0 || at >= n) return true;
  if (v.kind == J_STRING) return one_char(run, v.s, at, out);
  if (v.kind == J_RANGE)
    *out = st_j_int(v.o->start + at * v.o->step);
  else
    *out = v.l->items[at];
  return true;
}

bool st_j_getitem(st_jrun *run, st_jval v, st_jval key, st_jval *out) {
  int64_t at;
  static const st_jstr something = {.data = "element", .length = 7};
  if (v.kind == J_UNDEFINED) return refuse_undefined(run, v, key.kind == J_STRING ? key.s : &something);
  *out = (st_jval){.kind = J_MISSING};
  if (v.kind == J_DICT && hashable(key, 0)) {
    st_jval *found;
    if (!st_j_get(run, v.d, key, &found)) return false;
    if (found) *out = *found;
  } else if (v.kind == J_STRING || v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_RANGE) {
    if (st_j_as_int(key, &at) && !at_index(run, v, at, out)) return false;
  }
  if (out->kind == J_MISSING && key.kind == J_STRING && !st_j_attribute(run, v, key.s, out)) return false;
  if (out->kind != J_MISSING) return true;
  if (key.kind == J_STRING) return undefined(run, key.s, false, out);
  *out = st_j_undefined("an element");
  return true;
}

// A bound of a slice, as Python clamps it; `absent` when it is none.
static bool bound(st_jrun *run, st_jval v, int64_t n, int64_t low, int64_t high, int64_t absent, int64_t *out) {
  if (v.kind == J_NONE) {
    *out = absent;
    return true;
  }
  if (!st_j_as_int(v, out)) return st_j_wrong(run, "a slice expects integers, found %s", st_j_type(v));
  if (*out < 0) *out = *out < -n ? low : *out + n < low ? low : *out + n;
  if (*out > high) *out = high;
  return true;
}

static bool slice_string(st_jrun *run, st_jstr *s, int64_t start, int64_t step, int64_t count, st_jval *out) {
  if (!st_j_charge(run, s->length / 64)) return false;
  if (step == 1 || !count) {
    size_t begin = st_j_offset(s, (size_t)start);
    st_jstr rest = {.data = s->data + begin, .length = s->length - begin, .chars = SIZE_MAX};
    if (s->chars == s->length) rest.chars = rest.length;
    return st_j_substring(run, s, begin, count ? begin + st_j_offset(&rest, (size_t)count) : begin, out);
  }
  st_jbuild b = {0};
  bool ascii = st_j_chars(s) == s->length;
  // Walk from character to character, not from the beginning each time.
  size_t at = st_j_offset(s, (size_t)start);
  for (; count > 0; count--) {
    size_t end = at + 1;
    if (!st_j_charge(run, ascii ? 1 : 2)) return false;
    while (end < s->length && ((unsigned char)s->data[end] & 0xC0) == 0x80) end++;
    if (!st_j_put_part(run, &b, s, at, end)) return false;
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
  return st_j_built(run, &b, s->safe, out);
}

static bool slice_range(st_jrun *run, const st_jobject *r, int64_t start, int64_t step, int64_t count, st_jval *out) {
  st_jobject *part = st_j_alloc(run, 1, sizeof *part);
  if (!part) return false;
  part->start = r->start + start * r->step;
  if (__builtin_mul_overflow(r->step, step, &part->step)) return st_j_refuse(run, "an integer beyond 64 bits");
  part->count = count;
  if (__builtin_mul_overflow(part->step, count, &part->stop) ||
      __builtin_add_overflow(part->stop, part->start, &part->stop))
    return st_j_refuse(run, "an integer beyond 64 bits");
  *out = (st_jval){.kind = J_RANGE, .o = part};
  return true;
}

bool st_j_slice(st_jrun *run, st_jval v, const st_jval bounds[3], st_jval *out) {
  int64_t n, step = 1, start, stop;
  if (v.kind == J_UNDEFINED) return refuse_undefined(run, v, &(st_jstr){.data = "slice", .length = 5});
  if (v.kind != J_STRING && v.kind != J_LIST && v.kind != J_TUPLE && v.kind != J_RANGE) {
    return st_j_wrong(run, "a value of type %s cannot be sliced", st_j_type(v));
  }
  if (!st_j_length(run, v, &n)) return false;
  if (bounds[2].kind != J_NONE && !st_j_as_int(bounds[2], &step)) {
    return st_j_wrong(run, "a slice expects integers, found %s", st_j_type(bounds[2]));
  }
  if (step == 0) return st_j_wrong(run, "a slice with step 0");
  if (step > n + 1) step = n + 1;
  if (step < -n - 1) step = -n - 1;
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  if (!bound(run, bounds[0], n, low, high, step > 0 ? 0 : n - 1, &start) ||
      !bound(run, bounds[1], n, low, high, step > 0 ? n : -1, &stop))
    return false;
  int64_t count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                           : (stop < start ? (start - stop - 1) / -step + 1 : 0);
  if (v.kind == J_STRING) return slice_string(run, v.s, start < 0 ? 0 : start, step, count, out);
  if (v.kind == J_RANGE) return slice_range(run, v.o, start, step, count, out);
  if (!st_j_charge(run, (uint64_t)count / 4) || !st_j_list(run, v.kind, (size_t)count, out)) return false;
  for (int64_t i = 0; i < count; i++) out->l->items[i] = v.l->items[start + i * step];
  out->l->n = (size_t)count;
  return true;
}
