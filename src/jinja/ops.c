// Operators, by Python's rules. Integers have 64 bits; larger results are refused, not wrapped.
#include "jinja/run.h"

#include <math.h>
#include <string.h>

bool st_jinja_as_int(st_jinja_value v, int64_t *out) {
  if (v.kind == JINJA_INTEGER)
    *out = v.i;
  else if (v.kind == JINJA_BOOLEAN)
    *out = v.b;
  else
    return false;
  return true;
}

bool st_jinja_as_double(st_jinja_value v, double *out) {
  if (v.kind == JINJA_FLOAT)
    *out = v.f;
  else if (v.kind == JINJA_INTEGER)
    *out = (double)v.i;
  else if (v.kind == JINJA_BOOLEAN)
    *out = v.b;
  else
    return false;
  return true;
}

static bool undefined(st_jinja_run *run, st_jinja_value v) {
  if (v.unsafe) return st_jinja_fail_format(run, "the attribute '%s' is not safe to use", v.name ? v.name : "");
  return st_jinja_fail_format(run, "'%s' is undefined", v.name ? v.name : "a value");
}

bool st_jinja_length_of(st_jinja_run *run, st_jinja_value v, int64_t *out) {
  switch ((st_jinja_kind)v.kind) {
  case JINJA_UNDEFINED: *out = 0; return true;
  case JINJA_STRING:
    if (v.s->chars == SIZE_MAX && !st_jinja_charge(run, v.s->length / 64)) return false;
    *out = (int64_t)st_jinja_count_characters(v.s);
    return true;
  case JINJA_LIST:
  case JINJA_TUPLE: *out = (int64_t)v.l->n; return true;
  case JINJA_DICT: *out = (int64_t)v.d->n; return true;
  case JINJA_VIEW: *out = (int64_t)v.o->self.d->n; return true;
  case JINJA_RANGE: *out = v.o->count; return true;
  case JINJA_LOOP: return st_jinja_loop_length(run, v.o->loop, out);
  default: return st_jinja_fail_format(run, "a value of type %s has no length", st_jinja_type_name(v));
  }
}

bool st_jinja_to_boolean(st_jinja_run *run, st_jinja_value v, bool *out) {
  int64_t n = 0;
  switch ((st_jinja_kind)v.kind) {
  case JINJA_MISSING:
  case JINJA_UNDEFINED:
  case JINJA_NONE: *out = false; return true;
  case JINJA_BOOLEAN: *out = v.b; return true;
  case JINJA_INTEGER: *out = v.i != 0; return true;
  case JINJA_FLOAT: *out = v.f != 0; return true;
  case JINJA_STRING: *out = v.s->length != 0; return true;
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_DICT:
  case JINJA_VIEW:
  case JINJA_LOOP:
  case JINJA_RANGE:
    if (!st_jinja_length_of(run, v, &n)) return false;
    *out = n != 0;
    return true;
  default: *out = true; return true;
  }
}

// ---- comparing ----

// -1, 0 or 1; 2 when one is not a number.
static int order_numbers(st_jinja_value a, st_jinja_value b) {
  int64_t i = 0, j = 0;
  if (st_jinja_as_int(a, &i) && st_jinja_as_int(b, &j)) return (i > j) - (i < j);
  // A long double with a mantissa of 64 bits or more holds every 64-bit integer.
  long double x = a.kind == JINJA_FLOAT ? (long double)a.f : (st_jinja_as_int(a, &i), (long double)i);
  long double y = b.kind == JINJA_FLOAT ? (long double)b.f : (st_jinja_as_int(b, &j), (long double)j);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static bool is_number(st_jinja_value v) {
  return v.kind == JINJA_INTEGER || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOLEAN;
}

static bool equal_dicts(st_jinja_run *run, const st_jinja_dict *a, const st_jinja_dict *b, bool *out) {
  *out = a->n == b->n;
  for (size_t i = 0; *out && i < a->n; i++) {
    st_jinja_value *other;
    if (!st_jinja_dict_get(run, b, a->pairs[i].key, &other)) return false;
    if (!other)
      *out = false;
    else if (!st_jinja_equal(run, a->pairs[i].value, *other, out))
      return false;
  }
  return true;
}

static bool equal_containers(st_jinja_run *run, st_jinja_value a, st_jinja_value b, bool *out) {
  if (a.kind == JINJA_DICT) return equal_dicts(run, a.d, b.d, out);
  *out = a.l->n == b.l->n;
  for (size_t i = 0; *out && i < a.l->n; i++) {
    if (!st_jinja_equal(run, a.l->items[i], b.l->items[i], out)) return false;
  }
  return true;
}

bool st_jinja_equal(st_jinja_run *run, st_jinja_value a, st_jinja_value b, bool *out) {
  if (is_number(a) && is_number(b)) {
    *out = order_numbers(a, b) == 0;
    return true;
  }
  *out = false;
  if (a.kind != b.kind) return true;
  switch ((st_jinja_kind)a.kind) {
  case JINJA_MISSING:
  case JINJA_UNDEFINED:
  case JINJA_NONE: *out = true; return true;
  case JINJA_STRING: *out = st_jinja_same_text(a.s, b.s); return st_jinja_charge(run, *out ? a.s->length / 64 : 0);
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_DICT: {
    if (a.l == b.l) {
      *out = true;
      return true;
    }
    if (!st_jinja_nest(run) || !st_jinja_charge(run, 1)) return false;
    bool ok = equal_containers(run, a, b, out);
    run->depth--;
    return ok;
  }
  case JINJA_RANGE:
    *out = a.o->count == b.o->count &&
           (!a.o->count || (a.o->start == b.o->start && (a.o->count == 1 || a.o->step == b.o->step)));
    return true;
  case JINJA_BUILTIN: *out = a.o->id == b.o->id; return true;
  case JINJA_VIEW:
  case JINJA_METHOD:
    return st_jinja_fail_unsupported(run, "comparing values of type %s is not supported", st_jinja_type_name(a));
  default: *out = a.o == b.o; return true;
  }
}

static bool order_lists(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value b, bool *out) {
  size_t n = a.l->n < b.l->n ? a.l->n : b.l->n;
  for (size_t i = 0; i < n; i++) {
    bool same;
    if (!st_jinja_charge(run, 1) || !st_jinja_equal(run, a.l->items[i], b.l->items[i], &same)) return false;
    if (same) continue;
    if (!st_jinja_nest(run)) return false;
    bool ok = st_jinja_compare(run, op, a.l->items[i], b.l->items[i], out);
    run->depth--;
    return ok;
  }
  return st_jinja_compare(run, op, st_jinja_from_int((int64_t)a.l->n), st_jinja_from_int((int64_t)b.l->n), out);
}

static const char *symbol(st_jinja_operator op) {
  static const char *const symbols[] = {"+", "-", "*", "%", "-", "+", "==", "!=", "<", "<=", ">", ">="};
  return op <= JINJA_GE ? symbols[op] : "in";
}

static bool contains(st_jinja_run *run, st_jinja_value item, st_jinja_value in, bool *out) {
  *out = false;
  if (in.kind == JINJA_STRING) {
    if (item.kind != JINJA_STRING)
      return st_jinja_fail_format(run, "'in' a string expects a string, found %s", st_jinja_type_name(item));
    *out = st_jinja_find_text(run, in.s, item.s, 0) != SIZE_MAX;
    return run->status == SETUN_OK;
  }
  if (in.kind == JINJA_DICT || (in.kind == JINJA_VIEW && in.o->id == JINJA_VIEW_KEYS)) {
    st_jinja_value *found;
    if (!st_jinja_dict_get(run, in.kind == JINJA_DICT ? in.d : in.o->self.d, item, &found)) return false;
    *out = found != NULL;
    return true;
  }
  st_jinja_iterator *it;
  st_jinja_value each;
  st_jinja_step next;
  if (!st_jinja_iterate(run, in, &it)) return false;
  while ((next = st_jinja_next(run, it, &each)) == JINJA_ITEM) {
    if (!st_jinja_equal(run, each, item, out)) return false;
    if (*out) return true;
  }
  return next == JINJA_END;
}

bool st_jinja_compare(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value b, bool *out) {
  if (op == JINJA_EQ || op == JINJA_NE) {
    if (!st_jinja_equal(run, a, b, out)) return false;
    if (op == JINJA_NE) *out = !*out;
    return true;
  }
  if (op == JINJA_IN || op == JINJA_NOT_IN) {
    if (!contains(run, a, b, out)) return false;
    if (op == JINJA_NOT_IN) *out = !*out;
    return true;
  }
  if (a.kind == JINJA_UNDEFINED) return undefined(run, a);
  if (b.kind == JINJA_UNDEFINED) return undefined(run, b);
  int order;
  if (is_number(a) && is_number(b))
    order = order_numbers(a, b);
  else if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
    order = st_jinja_order_strings(a.s, b.s);
    if (!st_jinja_charge(run, 1)) return false;
  } else if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
    return order_lists(run, op, a, b, out);
  else
    return st_jinja_fail_format(run, "'%s' between %s and %s", symbol(op), st_jinja_type_name(a),
                                st_jinja_type_name(b));
  *out = order != 2 && (op == JINJA_LT   ? order < 0
                        : op == JINJA_LE ? order <= 0
                        : op == JINJA_GT ? order > 0
                                         : order >= 0);
  return true;
}

bool st_jinja_less_than(st_jinja_run *run, st_jinja_value a, st_jinja_value b, bool *out) {
  return st_jinja_compare(run, JINJA_LT, a, b, out);
}

// ---- arithmetic ----

static bool overflow(st_jinja_run *run) {
  return st_jinja_fail_unsupported(run, "an integer beyond 64 bits is not supported");
}

static bool integers(st_jinja_run *run, st_jinja_operator op, int64_t a, int64_t b, st_jinja_value *out) {
  int64_t r = 0;
  bool over = false;
  if (op == JINJA_ADD)
    over = __builtin_add_overflow(a, b, &r);
  else if (op == JINJA_SUB)
    over = __builtin_sub_overflow(a, b, &r);
  else if (op == JINJA_MUL)
    over = __builtin_mul_overflow(a, b, &r);
  else if (b == 0)
    return st_jinja_fail_format(run, "division by zero");
  else if (b != -1)
    r = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); // the sign of the divisor
  if (over) return overflow(run);
  *out = st_jinja_from_int(r);
  return true;
}

static bool floats(st_jinja_run *run, st_jinja_operator op, double a, double b, st_jinja_value *out) {
  double r;
  if (op == JINJA_ADD)
    r = a + b;
  else if (op == JINJA_SUB)
    r = a - b;
  else if (op == JINJA_MUL)
    r = a * b;
  else if (b == 0)
    return st_jinja_fail_format(run, "division by zero");
  else {
    r = fmod(a, b);
    if (r == 0)
      r = copysign(0, b);
    else if ((b < 0) != (r < 0))
      r += b;
  }
  *out = st_jinja_from_float(r);
  return true;
}

static bool repeat(st_jinja_run *run, st_jinja_value v, int64_t times, st_jinja_value *out) {
  if (times < 0) times = 0;
  if (v.kind == JINJA_STRING) {
    st_jinja_builder b = {0};
    if (!v.s->length) times = 0;
    for (; times > 0; times--) {
      if (!st_jinja_charge(run, 1) || !st_jinja_put_all(run, &b, v.s)) return false;
    }
    return st_jinja_finish(run, &b, v.s->safe, out);
  }
  if (!v.l->n) times = 0;
  if (!st_jinja_new_list(run, v.kind, 0, out)) return false;
  for (; times > 0; times--) {
    for (size_t i = 0; i < v.l->n; i++) {
      if (!st_jinja_charge(run, 1) || !st_jinja_list_append(run, out->l, v.l->items[i])) return false;
    }
  }
  return true;
}

static bool add_strings(st_jinja_run *run, st_jinja_value a, st_jinja_value b, st_jinja_value *out) {
  bool safe = a.s->safe || b.s->safe;
  if (safe && (!st_jinja_escape_html(run, a, &a) || !st_jinja_escape_html(run, b, &b))) return false;
  if (!st_jinja_concat(run, a.s, b.s, out)) return false;
  out->s->safe = safe;
  return true;
}

static bool add_lists(st_jinja_run *run, st_jinja_value a, st_jinja_value b, st_jinja_value *out) {
  size_t n = a.l->n + b.l->n;
  if (!st_jinja_charge(run, n / 4) || !st_jinja_new_list(run, a.kind, n, out)) return false;
  if (a.l->n) memcpy(out->l->items, a.l->items, a.l->n * sizeof *a.l->items);
  if (b.l->n) memcpy(out->l->items + a.l->n, b.l->items, b.l->n * sizeof *b.l->items);
  out->l->n = n;
  return true;
}

static bool repeatable(st_jinja_value v) {
  return v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

bool st_jinja_apply_binary(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value b,
                           st_jinja_value *out) {
  int64_t i, j;
  double x, y;
  if (st_jinja_as_int(a, &i) && st_jinja_as_int(b, &j)) return integers(run, op, i, j, out);
  if (st_jinja_as_double(a, &x) && st_jinja_as_double(b, &y)) return floats(run, op, x, y, out);
  if (op == JINJA_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING) return add_strings(run, a, b, out);
  if (op == JINJA_ADD && a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
    return add_lists(run, a, b, out);
  if (op == JINJA_MUL && repeatable(a) && st_jinja_as_int(b, &j)) return repeat(run, a, j, out);
  if (op == JINJA_MUL && repeatable(b) && st_jinja_as_int(a, &i)) return repeat(run, b, i, out);
  if (op == JINJA_MOD && a.kind == JINJA_STRING) {
    return st_jinja_fail_unsupported(run, "'%%' that formats a string is not supported");
  }
  if (a.kind == JINJA_UNDEFINED) return undefined(run, a);
  if (b.kind == JINJA_UNDEFINED) return undefined(run, b);
  return st_jinja_fail_format(run, "'%s' between %s and %s", symbol(op), st_jinja_type_name(a), st_jinja_type_name(b));
}

bool st_jinja_apply_unary(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value *out) {
  int64_t i;
  if (a.kind == JINJA_FLOAT)
    *out = st_jinja_from_float(op == JINJA_NEG ? -a.f : a.f);
  else if (st_jinja_as_int(a, &i)) {
    if (op == JINJA_NEG && i == INT64_MIN) return overflow(run);
    *out = st_jinja_from_int(op == JINJA_NEG ? -i : i);
  } else if (a.kind == JINJA_UNDEFINED)
    return undefined(run, a);
  else
    return st_jinja_fail_format(run, "unary '%s' of a %s", symbol(op), st_jinja_type_name(a));
  return true;
}
