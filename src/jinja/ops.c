// Operators, by Python's rules. Integers are 64 bits wide; what would need more is refused, not wrapped.
#include "jinja/run.h"

#include <math.h>
#include <string.h>

bool st_j_as_int(st_jval v, int64_t *out) {
  if (v.kind == J_INT)
    *out = v.i;
  else if (v.kind == J_BOOL)
    *out = v.b;
  else
    return false;
  return true;
}

bool st_j_as_double(st_jval v, double *out) {
  if (v.kind == J_FLOAT)
    *out = v.f;
  else if (v.kind == J_INT)
    *out = (double)v.i;
  else if (v.kind == J_BOOL)
    *out = v.b;
  else
    return false;
  return true;
}

static bool undefined(st_jrun *run, st_jval v) {
  if (v.unsafe) return st_j_wrong(run, "the attribute '%s' is not safe to use", v.name ? v.name : "");
  return st_j_wrong(run, "'%s' is undefined", v.name ? v.name : "a value");
}

bool st_j_length(st_jrun *run, st_jval v, int64_t *out) {
  switch ((st_jkind)v.kind) {
  case J_UNDEFINED: *out = 0; return true;
  case J_STRING:
    if (v.s->chars == SIZE_MAX && !st_j_charge(run, v.s->length / 64)) return false;
    *out = (int64_t)st_j_chars(v.s);
    return true;
  case J_LIST:
  case J_TUPLE: *out = (int64_t)v.l->n; return true;
  case J_DICT: *out = (int64_t)v.d->n; return true;
  case J_VIEW: *out = (int64_t)v.o->self.d->n; return true;
  case J_RANGE: *out = v.o->count; return true;
  case J_LOOP: {
    st_jstr name = {.data = "length", .length = 6};
    st_jval length;
    if (!st_j_loop_attribute(run, v.o->loop, &name, &length)) return false;
    *out = length.i;
    return true;
  }
  default: return st_j_wrong(run, "a value of type %s has no length", st_j_type(v));
  }
}

bool st_j_truth(st_jrun *run, st_jval v, bool *out) {
  int64_t n = 0;
  switch ((st_jkind)v.kind) {
  case J_MISSING:
  case J_UNDEFINED:
  case J_NONE: *out = false; return true;
  case J_BOOL: *out = v.b; return true;
  case J_INT: *out = v.i != 0; return true;
  case J_FLOAT: *out = v.f != 0; return true;
  case J_STRING: *out = v.s->length != 0; return true;
  case J_LIST:
  case J_TUPLE:
  case J_DICT:
  case J_VIEW:
  case J_LOOP:
  case J_RANGE:
    if (!st_j_length(run, v, &n)) return false;
    *out = n != 0;
    return true;
  default: *out = true; return true;
  }
}

// ---- comparing ----

// -1, 0 or 1; 2 when one is not a number.
static int order_numbers(st_jval a, st_jval b) {
  int64_t i = 0, j = 0;
  if (st_j_as_int(a, &i) && st_j_as_int(b, &j)) return (i > j) - (i < j);
  // A long double holds every 64-bit integer where it has 64 bits or more of mantissa.
  long double x = a.kind == J_FLOAT ? (long double)a.f : (st_j_as_int(a, &i), (long double)i);
  long double y = b.kind == J_FLOAT ? (long double)b.f : (st_j_as_int(b, &j), (long double)j);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static bool is_number(st_jval v) {
  return v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BOOL;
}

static bool equal_dicts(st_jrun *run, const st_jdict *a, const st_jdict *b, bool *out) {
  *out = a->n == b->n;
  for (size_t i = 0; *out && i < a->n; i++) {
    st_jval *other;
    if (!st_j_get(run, b, a->pairs[i].key, &other)) return false;
    if (!other)
      *out = false;
    else if (!st_j_equal(run, a->pairs[i].value, *other, out))
      return false;
  }
  return true;
}

static bool equal_containers(st_jrun *run, st_jval a, st_jval b, bool *out) {
  if (a.kind == J_DICT) return equal_dicts(run, a.d, b.d, out);
  *out = a.l->n == b.l->n;
  for (size_t i = 0; *out && i < a.l->n; i++) {
    if (!st_j_equal(run, a.l->items[i], b.l->items[i], out)) return false;
  }
  return true;
}

bool st_j_equal(st_jrun *run, st_jval a, st_jval b, bool *out) {
  if (is_number(a) && is_number(b)) {
    *out = order_numbers(a, b) == 0;
    return true;
  }
  *out = false;
  if (a.kind != b.kind) return true;
  switch ((st_jkind)a.kind) {
  case J_MISSING:
  case J_UNDEFINED:
  case J_NONE: *out = true; return true;
  case J_STRING: *out = st_j_same_text(a.s, b.s); return st_j_charge(run, *out ? a.s->length / 64 : 0);
  case J_LIST:
  case J_TUPLE:
  case J_DICT: {
    if (a.l == b.l) {
      *out = true;
      return true;
    }
    bool ok = st_j_deeper(run) && st_j_charge(run, 1) && equal_containers(run, a, b, out);
    run->depth--;
    return ok;
  }
  case J_RANGE:
    *out = a.o->count == b.o->count &&
           (!a.o->count || (a.o->start == b.o->start && (a.o->count == 1 || a.o->step == b.o->step)));
    return true;
  case J_BUILTIN: *out = a.o->id == b.o->id; return true;
  case J_VIEW:
  case J_METHOD: return st_j_refuse(run, "comparing a %s", st_j_type(a));
  default: *out = a.o == b.o; return true;
  }
}

static bool order_lists(st_jrun *run, st_jop op, st_jval a, st_jval b, bool *out) {
  size_t n = a.l->n < b.l->n ? a.l->n : b.l->n;
  for (size_t i = 0; i < n; i++) {
    bool same;
    if (!st_j_charge(run, 1) || !st_j_equal(run, a.l->items[i], b.l->items[i], &same)) return false;
    if (same) continue;
    if (!st_j_deeper(run)) return false;
    bool ok = st_j_compare(run, op, a.l->items[i], b.l->items[i], out);
    run->depth--;
    return ok;
  }
  return st_j_compare(run, op, st_j_int((int64_t)a.l->n), st_j_int((int64_t)b.l->n), out);
}

static const char *symbol(st_jop op) {
  static const char *const symbols[] = {"+", "-",  "*",  "/", "//", "%", "**", "-",
                                        "+", "==", "!=", "<", "<=", ">", ">="};
  return op <= J_GE ? symbols[op] : "in";
}

bool st_j_compare(st_jrun *run, st_jop op, st_jval a, st_jval b, bool *out) {
  if (op == J_EQ || op == J_NE) {
    if (!st_j_equal(run, a, b, out)) return false;
    if (op == J_NE) *out = !*out;
    return true;
  }
  if (op == J_IN || op == J_NOTIN) {
    if (!st_j_contains(run, a, b, out)) return false;
    if (op == J_NOTIN) *out = !*out;
    return true;
  }
  if (a.kind == J_UNDEFINED) return undefined(run, a);
  if (b.kind == J_UNDEFINED) return undefined(run, b);
  int order;
  if (is_number(a) && is_number(b))
    order = order_numbers(a, b);
  else if (a.kind == J_STRING && b.kind == J_STRING) {
    order = st_j_order(a.s, b.s);
    if (!st_j_charge(run, 1)) return false;
  } else if (a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE))
    return order_lists(run, op, a, b, out);
  else
    return st_j_wrong(run, "'%s' between %s and %s", symbol(op), st_j_type(a), st_j_type(b));
  *out = order != 2 && (op == J_LT ? order < 0 : op == J_LE ? order <= 0 : op == J_GT ? order > 0 : order >= 0);
  return true;
}

bool st_j_less(st_jrun *run, st_jval a, st_jval b, bool *out) {
  return st_j_compare(run, J_LT, a, b, out);
}

bool st_j_contains(st_jrun *run, st_jval item, st_jval in, bool *out) {
  *out = false;
  if (in.kind == J_STRING) {
    if (item.kind != J_STRING) return st_j_wrong(run, "'in' a string expects a string, found %s", st_j_type(item));
    *out = st_j_find(run, in.s, item.s, 0) != SIZE_MAX;
    return run->status == SETUN_OK;
  }
  if (in.kind == J_DICT || (in.kind == J_VIEW && in.o->id == J_VIEW_KEYS)) {
    st_jval *found;
    if (!st_j_get(run, in.kind == J_DICT ? in.d : in.o->self.d, item, &found)) return false;
    *out = found != NULL;
    return true;
  }
  st_jiter *it;
  st_jval each;
  st_jnext next;
  if (!st_j_iterate(run, in, &it)) return false;
  while ((next = st_j_next(run, it, &each)) == J_ITEM) {
    if (!st_j_equal(run, each, item, out)) return false;
    if (*out) return true;
  }
  return next == J_END;
}

// ---- arithmetic ----

static bool overflow(st_jrun *run) {
  return st_j_refuse(run, "an integer beyond 64 bits");
}

static bool integer_power(st_jrun *run, int64_t a, int64_t b, st_jval *out) {
  int64_t result = 1;
  if (b < 0) {
    if (!a) return st_j_wrong(run, "zero to a negative power");
    *out = st_j_float(pow((double)a, (double)b));
    return true;
  }
  if (a == 1 || a == 0 || a == -1) {
    *out = st_j_int(a == 0 ? b == 0 : a == -1 && b % 2 ? -1 : 1);
    return true;
  }
  for (; b > 0; b--) {
    if (__builtin_mul_overflow(result, a, &result)) return overflow(run);
  }
  *out = st_j_int(result);
  return true;
}

static bool integers(st_jrun *run, st_jop op, int64_t a, int64_t b, st_jval *out) {
  int64_t r = 0;
  bool over = false;
  if ((op == J_DIV || op == J_FLOORDIV || op == J_MOD) && b == 0) return st_j_wrong(run, "division by zero");
  switch (op) {
  case J_ADD: over = __builtin_add_overflow(a, b, &r); break;
  case J_SUB: over = __builtin_sub_overflow(a, b, &r); break;
  case J_MUL: over = __builtin_mul_overflow(a, b, &r); break;
  case J_DIV: *out = st_j_float((double)a / (double)b); return true;
  case J_FLOORDIV:
    over = a == INT64_MIN && b == -1;
    if (!over) r = a / b - (a % b != 0 && (a < 0) != (b < 0));
    break;
  case J_MOD:
    if (b != -1) r = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    break;
  default: return integer_power(run, a, b, out);
  }
  if (over) return overflow(run);
  *out = st_j_int(r);
  return true;
}

static bool floats(st_jrun *run, st_jop op, double a, double b, st_jval *out) {
  double r;
  if ((op == J_DIV || op == J_FLOORDIV || op == J_MOD) && b == 0) return st_j_wrong(run, "division by zero");
  switch (op) {
  case J_ADD: r = a + b; break;
  case J_SUB: r = a - b; break;
  case J_MUL: r = a * b; break;
  case J_DIV: r = a / b; break;
  case J_FLOORDIV:
  case J_MOD: {
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0))
      mod += b, div -= 1;
    else if (mod == 0)
      mod = copysign(0, b);
    double whole = div != 0 ? floor(div) : copysign(0, a / b);
    if (div != 0 && div - whole > 0.5) whole += 1;
    r = op == J_MOD ? mod : whole;
    break;
  }
  default:
    if (a == 0 && b < 0) return st_j_wrong(run, "zero to a negative power");
    if (a < 0 && b != floor(b) && isfinite(b)) return st_j_refuse(run, "a complex number");
    r = pow(a, b);
    if (isinf(r) && isfinite(a) && isfinite(b)) return st_j_wrong(run, "a power that is too large");
  }
  *out = st_j_float(r);
  return true;
}

static bool repeat(st_jrun *run, st_jval v, int64_t times, st_jval *out) {
  if (times < 0) times = 0;
  if (v.kind == J_STRING) {
    st_jbuild b = {0};
    if (!v.s->length) times = 0;
    for (; times > 0; times--) {
      if (!st_j_charge(run, 1) || !st_j_put_all(run, &b, v.s)) return false;
    }
    return st_j_built(run, &b, v.s->safe, out);
  }
  if (!v.l->n) times = 0;
  if (!st_j_list(run, v.kind, 0, out)) return false;
  for (; times > 0; times--) {
    for (size_t i = 0; i < v.l->n; i++) {
      if (!st_j_charge(run, 1) || !st_j_append(run, out->l, v.l->items[i])) return false;
    }
  }
  return true;
}

static bool add_strings(st_jrun *run, st_jval a, st_jval b, st_jval *out) {
  bool safe = a.s->safe || b.s->safe;
  if (safe && (!st_j_escape(run, a, &a) || !st_j_escape(run, b, &b))) return false;
  if (!st_j_concat(run, a.s, b.s, out)) return false;
  out->s->safe = safe;
  return true;
}

static bool add_lists(st_jrun *run, st_jval a, st_jval b, st_jval *out) {
  size_t n = a.l->n + b.l->n;
  if (!st_j_charge(run, n / 4) || !st_j_list(run, a.kind, n, out)) return false;
  if (a.l->n) memcpy(out->l->items, a.l->items, a.l->n * sizeof *a.l->items);
  if (b.l->n) memcpy(out->l->items + a.l->n, b.l->items, b.l->n * sizeof *b.l->items);
  out->l->n = n;
  return true;
}

static bool repeatable(st_jval v) {
  return v.kind == J_STRING || v.kind == J_LIST || v.kind == J_TUPLE;
}

bool st_j_binary(st_jrun *run, st_jop op, st_jval a, st_jval b, st_jval *out) {
  int64_t i, j;
  double x, y;
  if (st_j_as_int(a, &i) && st_j_as_int(b, &j)) return integers(run, op, i, j, out);
  if (st_j_as_double(a, &x) && st_j_as_double(b, &y)) return floats(run, op, x, y, out);
  if (op == J_ADD && a.kind == J_STRING && b.kind == J_STRING) return add_strings(run, a, b, out);
  if (op == J_ADD && a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE)) return add_lists(run, a, b, out);
  if (op == J_MUL && repeatable(a) && st_j_as_int(b, &j)) return repeat(run, a, j, out);
  if (op == J_MUL && repeatable(b) && st_j_as_int(a, &i)) return repeat(run, b, i, out);
  if (op == J_MOD && a.kind == J_STRING) return st_j_percent(run, a.s, b, out);
  if (a.kind == J_UNDEFINED) return undefined(run, a);
  if (b.kind == J_UNDEFINED) return undefined(run, b);
  return st_j_wrong(run, "'%s' between %s and %s", symbol(op), st_j_type(a), st_j_type(b));
}

bool st_j_unary(st_jrun *run, st_jop op, st_jval a, st_jval *out) {
  int64_t i;
  if (a.kind == J_FLOAT)
    *out = st_j_float(op == J_NEG ? -a.f : a.f);
  else if (st_j_as_int(a, &i)) {
    if (op == J_NEG && i == INT64_MIN) return overflow(run);
    *out = st_j_int(op == J_NEG ? -i : i);
  } else if (a.kind == J_UNDEFINED)
    return undefined(run, a);
  else
    return st_j_wrong(run, "unary '%s' of a %s", symbol(op), st_j_type(a));
  return true;
}
