// The text of values: str(), repr(), json.dumps() and HTML escapes.
#include "base/utf8.h"
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTED = 200 }; // containers within containers

// ---- numbers ----

double st_jinja_decimal(const char *digits, size_t n, long exponent, bool *inexact) {
  char text[440];
  *inexact = n > 400;
  if (n > 400) {
    exponent += (long)(n - 400);
    n = 400;
  }
  // Without a decimal point, which depends on the locale.
  int length = snprintf(text, sizeof text, "%.*se%ld", (int)n, n ? digits : "", exponent);
  return length > 0 && n ? strtod(text, NULL) : 0.0;
}

// The fewest digits that read back as x (> 0 and finite), and the exponent of the first.
static int shortest(double x, char digits[20], int *exponent) {
  for (int precision = 0; precision < 17; precision++) {
    char text[40];
    snprintf(text, sizeof text, "%.*e", precision, x);
    int n = 0;
    char *e = strchr(text, 'e');
    for (char *p = text; p < e; p++) {
      if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    *exponent = (int)strtol(e + 1, NULL, 10);
    bool inexact;
    if (st_jinja_decimal(digits, (size_t)n, *exponent - (n - 1), &inexact) == x || precision == 16) {
      while (n > 1 && digits[n - 1] == '0') n--;
      return n;
    }
  }
  return 0;
}

bool st_jinja_float_text(double x, char out[32]) {
  if (isnan(x)) return strcpy(out, "nan");
  if (isinf(x)) return strcpy(out, x < 0 ? "-inf" : "inf");
  char *p = out, digits[20];
  if (signbit(x)) *p++ = '-';
  if (x == 0) return strcpy(p, "0.0");
  int e, n = shortest(fabs(x), digits, &e);
  if (e < -4 || e >= 16) {
    *p++ = digits[0];
    if (n > 1) *p++ = '.';
    memcpy(p, digits + 1, (size_t)n - 1);
    p += n - 1;
    snprintf(p, 8, "e%c%02u", e < 0 ? '-' : '+', (unsigned)abs(e) % 1000);
    return true;
  }
  if (e < 0) {
    *p++ = '0', *p++ = '.';
    for (int i = -1; i > e; i--) *p++ = '0';
    memcpy(p, digits, (size_t)n);
    p += n;
  } else {
    for (int i = 0; i <= e || i < n; i++) {
      if (i == e + 1) *p++ = '.';
      *p++ = i < n ? digits[i] : '0';
    }
    if (n <= e + 1) *p++ = '.', *p++ = '0';
  }
  *p = '\0';
  return true;
}

static bool put_number(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v, bool json) {
  char text[32];
  if (v.kind == JINJA_BOOLEAN)
    return st_jinja_put_text(run, b, json ? (v.b ? "true" : "false") : v.b ? "True" : "False");
  if (v.kind == JINJA_INTEGER)
    snprintf(text, sizeof text, "%lld", (long long)v.i);
  else if (json && isnan(v.f))
    strcpy(text, "NaN");
  else if (json && isinf(v.f))
    strcpy(text, v.f < 0 ? "-Infinity" : "Infinity");
  else
    st_jinja_float_text(v.f, text);
  return st_jinja_put_text(run, b, text);
}

// ---- repr ----

static bool put_repr_string(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s) {
  bool single = memchr(s->data, '\'', s->length), twofold = memchr(s->data, '"', s->length);
  char quote = single && !twofold ? '"' : '\'';
  char text[16];
  if (s->safe && !st_jinja_put_text(run, b, "Markup(")) return false;
  if (!st_jinja_put(run, b, &quote, 1, false)) return false;
  size_t plain = 0; // from here on nothing needs an escape
  for (size_t at = 0; at < s->length;) {
    uint32_t c;
    int n = st_utf8_decode(s->data + at, s->length - at, &c);
    if (n <= 0) return false;
    bool escape = c == '\\' || c == (uint32_t)quote || c < 32 || c == 127 || (c > 127 && !st_jinja_is_printable(c));
    if (escape) {
      const char *const format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      if (c == '\n')
        strcpy(text, "\\n");
      else if (c == '\r')
        strcpy(text, "\\r");
      else if (c == '\t')
        strcpy(text, "\\t");
      else if (c == '\\' || c == (uint32_t)quote)
        snprintf(text, sizeof text, "\\%c", (char)c);
      else
        snprintf(text, sizeof text, format, (unsigned)c);
      if (!st_jinja_put_part(run, b, s, plain, at)) return false;
      if (!st_jinja_put(run, b, text, strlen(text), st_jinja_is_tainted(s, at))) return false;
      plain = at + (size_t)n;
    }
    at += (size_t)n;
  }
  return st_jinja_put_part(run, b, s, plain, s->length) && st_jinja_put(run, b, &quote, 1, false) &&
         (!s->safe || st_jinja_put_text(run, b, ")"));
}

static bool put_repr_dict(st_jinja_run *run, st_jinja_builder *b, const st_jinja_dict *d, int depth) {
  if (!st_jinja_put_text(run, b, "{")) return false;
  for (size_t i = 0; i < d->n; i++) {
    if (i && !st_jinja_put_text(run, b, ", ")) return false;
    if (!st_jinja_put_repr(run, b, d->pairs[i].key, depth + 1) || !st_jinja_put_text(run, b, ": ") ||
        !st_jinja_put_repr(run, b, d->pairs[i].value, depth + 1))
      return false;
  }
  return st_jinja_put_text(run, b, "}");
}

static bool put_repr_view(st_jinja_run *run, st_jinja_builder *b, const st_jinja_object *view, int depth) {
  static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
  const st_jinja_dict *d = view->self.d;
  if (!st_jinja_put_text(run, b, names[view->id])) return false;
  for (size_t i = 0; i < d->n; i++) {
    st_jinja_value item = view->id == JINJA_VIEW_KEYS ? d->pairs[i].key : d->pairs[i].value;
    if (view->id == JINJA_VIEW_ITEMS && !st_jinja_new_pair(run, d->pairs[i].key, d->pairs[i].value, &item))
      return false;
    if ((i && !st_jinja_put_text(run, b, ", ")) || !st_jinja_put_repr(run, b, item, depth + 1)) return false;
  }
  return st_jinja_put_text(run, b, "])");
}

static bool put_repr_range(st_jinja_run *run, st_jinja_builder *b, const st_jinja_object *r) {
  char text[96];
  if (r->step == 1)
    snprintf(text, sizeof text, "range(%lld, %lld)", (long long)r->start, (long long)r->stop);
  else {
    snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)r->start, (long long)r->stop, (long long)r->step);
  }
  return st_jinja_put_text(run, b, text);
}

static bool put_repr_loop(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  char text[64];
  st_jinja_value index;
  int64_t length;
  static const st_jinja_string name = {.data = "index", .length = 5};
  if (!st_jinja_loop_attribute(run, v.o->loop, &name, &index) || !st_jinja_length_of(run, v, &length)) return false;
  snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)index.i, (long long)length);
  return st_jinja_put_text(run, b, text);
}

bool st_jinja_put_repr(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v, int depth) {
  if (!st_jinja_charge(run, 1)) return false;
  if (depth > MAX_NESTED) return st_jinja_fail(run, SETUN_ERROR_LIMIT, "a value nested deeper than %d", MAX_NESTED);
  switch ((st_jinja_kind)v.kind) {
  case JINJA_MISSING:
  case JINJA_UNDEFINED: return st_jinja_put_text(run, b, "Undefined");
  case JINJA_NONE: return st_jinja_put_text(run, b, "None");
  case JINJA_BOOLEAN:
  case JINJA_INTEGER:
  case JINJA_FLOAT: return put_number(run, b, v, false);
  case JINJA_STRING: return put_repr_string(run, b, v.s);
  case JINJA_LIST:
  case JINJA_TUPLE:
    if (!st_jinja_put_text(run, b, v.kind == JINJA_LIST ? "[" : "(")) return false;
    for (size_t i = 0; i < v.l->n; i++) {
      if ((i && !st_jinja_put_text(run, b, ", ")) || !st_jinja_put_repr(run, b, v.l->items[i], depth + 1)) return false;
    }
    return st_jinja_put_text(run, b, v.kind == JINJA_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
  case JINJA_DICT: return put_repr_dict(run, b, v.d, depth);
  case JINJA_NAMESPACE:
    return st_jinja_put_text(run, b, "<Namespace ") && put_repr_dict(run, b, v.d, depth) &&
           st_jinja_put_text(run, b, ">");
  case JINJA_VIEW: return put_repr_view(run, b, v.o, depth);
  case JINJA_RANGE: return put_repr_range(run, b, v.o);
  case JINJA_MACRO:
    if (!v.o->node->value.s) return st_jinja_put_text(run, b, "<Macro anonymous>");
    return st_jinja_put_text(run, b, "<Macro ") && put_repr_string(run, b, v.o->node->value.s) &&
           st_jinja_put_text(run, b, ">");
  case JINJA_LOOP: return put_repr_loop(run, b, v);
  default:
    // Python prints an address.
    return st_jinja_fail_unsupported(run, "a value of type %s printed", st_jinja_type_name(v));
  }
}

bool st_jinja_put_value(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  if (v.kind == JINJA_STRING) return st_jinja_put_all(run, b, v.s);
  if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_MISSING) return true;
  return st_jinja_put_repr(run, b, v, 0);
}

bool st_jinja_to_string(st_jinja_run *run, st_jinja_value v, st_jinja_value *out) {
  st_jinja_builder b = {0};
  if (v.kind == JINJA_STRING && !v.s->safe) {
    *out = v;
    return true;
  }
  if (v.kind == JINJA_STRING) {
    if (!st_jinja_substring(run, v.s, 0, v.s->length, out)) return false;
    out->s->safe = false;
    return true;
  }
  return st_jinja_put_value(run, &b, v) && st_jinja_finish(run, &b, false, out);
}

// ---- JSON ----

typedef struct {
  st_jinja_run *run;
  st_jinja_builder *b;
  bool ascii, sort, pretty;
  const st_jinja_string *indent; // of one level, when pretty
  const st_jinja_string *comma, *colon;
} json_writer;

static bool put_json_string(json_writer *w, const st_jinja_string *s) {
  char text[16];
  size_t plain = 0;
  if (!st_jinja_put_text(w->run, w->b, "\"")) return false;
  for (size_t at = 0; at < s->length;) {
    unsigned char byte = (unsigned char)s->data[at];
    uint32_t c = byte;
    int n = 1;
    if (byte >= 0x80 && w->ascii) n = st_utf8_decode(s->data + at, s->length - at, &c);
    if (n <= 0) return false;
    if (byte < 0x20 || byte == '"' || byte == '\\' || (byte >= 0x7F && w->ascii)) {
      static const char plain_escapes[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
      const char *found = c && c < 0x80 ? strchr(plain_escapes, (int)c) : NULL;
      if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - plain_escapes]);
      else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
      else {
        unsigned high = 0xD800 + (unsigned)((c - 0x10000) >> 10), low = 0xDC00 + (unsigned)((c - 0x10000) & 0x3FF);
        snprintf(text, sizeof text, "\\u%04x\\u%04x", high, low);
      }
      if (!st_jinja_put_part(w->run, w->b, s, plain, at)) return false;
      if (!st_jinja_put(w->run, w->b, text, strlen(text), st_jinja_is_tainted(s, at))) return false;
      plain = at + (size_t)n;
    }
    at += (size_t)n;
  }
  return st_jinja_put_part(w->run, w->b, s, plain, s->length) && st_jinja_put_text(w->run, w->b, "\"");
}

static bool put_newline(json_writer *w, int depth) {
  if (!w->pretty) return true;
  if (!st_jinja_put_text(w->run, w->b, "\n")) return false;
  for (int i = 0; i < depth; i++) {
    if (!st_jinja_put_all(w->run, w->b, w->indent)) return false;
  }
  return true;
}

static bool put_json(json_writer *w, st_jinja_value v, int depth);

// A dict's key: strings as they are, None, booleans and numbers as the text that JSON gives them.
static bool put_json_key(json_writer *w, st_jinja_value key) {
  if (key.kind == JINJA_STRING) return put_json_string(w, key.s);
  if (key.kind != JINJA_NONE && key.kind != JINJA_BOOLEAN && key.kind != JINJA_INTEGER && key.kind != JINJA_FLOAT) {
    return st_jinja_fail_format(w->run, "a value of type %s cannot be a key in JSON", st_jinja_type_name(key));
  }
  return st_jinja_put_text(w->run, w->b, "\"") && put_json(w, key, 0) && st_jinja_put_text(w->run, w->b, "\"");
}

// Merge sort of a dict's pairs by key.
static bool sort_pairs(st_jinja_run *run, st_jinja_pair *pairs, st_jinja_pair *room, size_t n) {
  if (n < 2) return true;
  size_t half = n / 2, i = 0, j = half, k = 0;
  if (!sort_pairs(run, pairs, room, half) || !sort_pairs(run, pairs + half, room, n - half)) return false;
  while (i < half || j < n) {
    bool right = false;
    if (i == half)
      right = true;
    else if (j < n && !st_jinja_less_than(run, pairs[j].key, pairs[i].key, &right))
      return false;
    room[k++] = right ? pairs[j++] : pairs[i++];
  }
  memcpy(pairs, room, n * sizeof *pairs);
  return true;
}

static bool put_json_dict(json_writer *w, const st_jinja_dict *d, int depth) {
  if (!d->n) return st_jinja_put_text(w->run, w->b, "{}");
  st_jinja_pair *pairs = d->pairs;
  if (w->sort) {
    st_jinja_pair *copy = st_jinja_allocate(w->run, 2 * d->n, sizeof *copy);
    if (!copy) return false;
    memcpy(copy, pairs, d->n * sizeof *copy);
    if (!sort_pairs(w->run, copy, copy + d->n, d->n)) return false;
    pairs = copy;
  }
  if (!st_jinja_put_text(w->run, w->b, "{")) return false;
  for (size_t i = 0; i < d->n; i++) {
    if ((i && !st_jinja_put_all(w->run, w->b, w->comma)) || !put_newline(w, depth + 1) ||
        !put_json_key(w, pairs[i].key) || !st_jinja_put_all(w->run, w->b, w->colon) ||
        !put_json(w, pairs[i].value, depth + 1))
      return false;
  }
  return put_newline(w, depth) && st_jinja_put_text(w->run, w->b, "}");
}

static bool put_json(json_writer *w, st_jinja_value v, int depth) {
  if (!st_jinja_charge(w->run, 1)) return false;
  if (depth > MAX_NESTED) return st_jinja_fail(w->run, SETUN_ERROR_LIMIT, "a value nested deeper than %d", MAX_NESTED);
  switch ((st_jinja_kind)v.kind) {
  case JINJA_NONE: return st_jinja_put_text(w->run, w->b, "null");
  case JINJA_BOOLEAN:
  case JINJA_INTEGER:
  case JINJA_FLOAT: return put_number(w->run, w->b, v, true);
  case JINJA_STRING: return put_json_string(w, v.s);
  case JINJA_DICT: return put_json_dict(w, v.d, depth);
  case JINJA_LIST:
  case JINJA_TUPLE:
    if (!v.l->n) return st_jinja_put_text(w->run, w->b, "[]");
    if (!st_jinja_put_text(w->run, w->b, "[")) return false;
    for (size_t i = 0; i < v.l->n; i++) {
      if ((i && !st_jinja_put_all(w->run, w->b, w->comma)) || !put_newline(w, depth + 1) ||
          !put_json(w, v.l->items[i], depth + 1))
        return false;
    }
    return put_newline(w, depth) && st_jinja_put_text(w->run, w->b, "]");
  default: return st_jinja_fail_format(w->run, "a value of type %s cannot be written as JSON", st_jinja_type_name(v));
  }
}

static bool indentation(st_jinja_run *run, st_jinja_value v, json_writer *w) {
  if (v.kind == JINJA_MISSING || v.kind == JINJA_NONE) return true;
  w->pretty = true;
  if (v.kind == JINJA_STRING) {
    w->indent = v.s;
    return true;
  }
  int64_t n;
  if (!st_jinja_as_int(v, &n)) return st_jinja_fail_format(run, "tojson: indent is a %s", st_jinja_type_name(v));
  st_jinja_builder spaces = {0};
  st_jinja_value text;
  if (n > 10000) return st_jinja_fail(run, SETUN_ERROR_LIMIT, "tojson: an indent of %lld", (long long)n);
  for (; n > 0; n--) {
    if (!st_jinja_put_text(run, &spaces, " ")) return false;
  }
  if (!st_jinja_finish(run, &spaces, false, &text)) return false;
  w->indent = text.s;
  return true;
}

static bool separators(st_jinja_run *run, st_jinja_value v, json_writer *w) {
  st_jinja_value comma, colon;
  if (v.kind == JINJA_MISSING || v.kind == JINJA_NONE) {
    if (!st_jinja_copy_text(run, w->pretty ? "," : ", ", &comma) || !st_jinja_copy_text(run, ": ", &colon))
      return false;
  } else {
    st_jinja_value list;
    if (!st_jinja_to_list(run, v, JINJA_LIST, &list)) return false;
    if (list.l->n != 2 || list.l->items[0].kind != JINJA_STRING || list.l->items[1].kind != JINJA_STRING) {
      return st_jinja_fail_format(run, "tojson: separators must be two strings");
    }
    comma = list.l->items[0], colon = list.l->items[1];
  }
  w->comma = comma.s, w->colon = colon.s;
  return true;
}

bool st_jinja_tojson(st_jinja_run *run, const st_jinja_arguments *args, st_jinja_value v, st_jinja_value *out) {
  st_jinja_value a[4];
  st_jinja_builder b = {0};
  json_writer w = {.run = run, .b = &b};
  if (!st_jinja_bind_arguments(run, "tojson", args, "ensure_ascii,indent,separators,sort_keys", 0, a)) return false;
  if (a[0].kind != JINJA_MISSING && !st_jinja_to_boolean(run, a[0], &w.ascii)) return false;
  if (a[3].kind != JINJA_MISSING && !st_jinja_to_boolean(run, a[3], &w.sort)) return false;
  return indentation(run, a[1], &w) && separators(run, a[2], &w) && put_json(&w, v, 0) &&
         st_jinja_finish(run, &b, false, out);
}

// ---- HTML ----

bool st_jinja_escape_html(st_jinja_run *run, st_jinja_value v, st_jinja_value *out) {
  st_jinja_value text;
  st_jinja_builder b = {0};
  if (v.kind == JINJA_STRING && v.s->safe) {
    *out = v;
    return true;
  }
  if (!st_jinja_to_string(run, v, &text)) return false;
  const st_jinja_string *s = text.s;
  size_t plain = 0;
  for (size_t i = 0; i < s->length; i++) {
    const char *with = NULL;
    switch (s->data[i]) {
    case '&': with = "&amp;"; break;
    case '<': with = "&lt;"; break;
    case '>': with = "&gt;"; break;
    case '\'': with = "&#39;"; break;
    case '"': with = "&#34;"; break;
    default: continue;
    }
    if (!st_jinja_put_part(run, &b, s, plain, i) ||
        !st_jinja_put(run, &b, with, strlen(with), st_jinja_is_tainted(s, i)))
      return false;
    plain = i + 1;
  }
  return st_jinja_put_part(run, &b, s, plain, s->length) && st_jinja_finish(run, &b, true, out);
}
