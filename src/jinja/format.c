// The text of values: str(), repr(), json.dumps() and HTML escapes.
#include "base/utf8.h"
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// As Python's repr of a number that is finite and not 0; `x` is above 0.
static void finite_text(double x, char *p) {
  char digits[20];
  int e, n = shortest(x, digits, &e);
  if (e < -4 || e >= 16) {
    *p++ = digits[0];
    if (n > 1) *p++ = '.';
    memcpy(p, digits + 1, (size_t)n - 1);
    p += n - 1;
    snprintf(p, 8, "e%c%02u", e < 0 ? '-' : '+', (unsigned)abs(e) % 1000);
    return;
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
}

static void float_text(double x, char out[32]) {
  if (isnan(x)) {
    strcpy(out, "nan");
    return;
  }
  if (signbit(x)) *out++ = '-';
  if (isinf(x))
    strcpy(out, "inf");
  else if (x == 0)
    strcpy(out, "0.0");
  else
    finite_text(fabs(x), out);
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
    float_text(v.f, text);
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

static bool put_repr(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v);

static bool put_repr_dict(st_jinja_run *run, st_jinja_builder *b, const st_jinja_dict *d) {
  if (!st_jinja_put_text(run, b, "{")) return false;
  for (size_t i = 0; i < d->n; i++) {
    if (i && !st_jinja_put_text(run, b, ", ")) return false;
    if (!put_repr(run, b, d->pairs[i].key) || !st_jinja_put_text(run, b, ": ") || !put_repr(run, b, d->pairs[i].value))
      return false;
  }
  return st_jinja_put_text(run, b, "}");
}

static bool put_repr_view(st_jinja_run *run, st_jinja_builder *b, const st_jinja_object *view) {
  static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
  const st_jinja_dict *d = view->self.d;
  if (!st_jinja_put_text(run, b, names[view->id])) return false;
  for (size_t i = 0; i < d->n; i++) {
    st_jinja_value item = view->id == JINJA_VIEW_KEYS ? d->pairs[i].key : d->pairs[i].value;
    if (view->id == JINJA_VIEW_ITEMS && !st_jinja_new_pair(run, d->pairs[i].key, d->pairs[i].value, &item))
      return false;
    if ((i && !st_jinja_put_text(run, b, ", ")) || !put_repr(run, b, item)) return false;
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

static bool put_repr_list(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  if (!st_jinja_put_text(run, b, v.kind == JINJA_LIST ? "[" : "(")) return false;
  for (size_t i = 0; i < v.l->n; i++) {
    if ((i && !st_jinja_put_text(run, b, ", ")) || !put_repr(run, b, v.l->items[i])) return false;
  }
  return st_jinja_put_text(run, b, v.kind == JINJA_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
}

static bool put_repr_container(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  if (!st_jinja_nest(run)) return false;
  bool ok;
  if (v.kind == JINJA_DICT)
    ok = put_repr_dict(run, b, v.d);
  else if (v.kind == JINJA_VIEW)
    ok = put_repr_view(run, b, v.o);
  else if (v.kind == JINJA_NAMESPACE)
    ok = st_jinja_put_text(run, b, "<Namespace ") && put_repr_dict(run, b, v.d) && st_jinja_put_text(run, b, ">");
  else
    ok = put_repr_list(run, b, v);
  run->depth--;
  return ok;
}

static bool put_repr(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  if (!st_jinja_charge(run, 1)) return false;
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
  case JINJA_DICT:
  case JINJA_NAMESPACE:
  case JINJA_VIEW: return put_repr_container(run, b, v);
  case JINJA_RANGE: return put_repr_range(run, b, v.o);
  default:
    // Python prints an address, or something else that a template should not show.
    return st_jinja_fail_unsupported(run, "printing a value of type %s is not supported", st_jinja_type_name(v));
  }
}

bool st_jinja_put_value(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v) {
  if (v.kind == JINJA_STRING) return st_jinja_put_all(run, b, v.s);
  if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_MISSING) return true;
  return put_repr(run, b, v);
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
  bool ascii, pretty;
  int depth;                     // containers around
  const st_jinja_string *indent; // of one level, when pretty
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

static bool put_newline(json_writer *w) {
  if (!w->pretty) return true;
  if (!st_jinja_put_text(w->run, w->b, "\n")) return false;
  for (int i = 0; i < w->depth; i++) {
    if (!st_jinja_put_all(w->run, w->b, w->indent)) return false;
  }
  return true;
}

static bool put_comma(json_writer *w) {
  return st_jinja_put_text(w->run, w->b, w->pretty ? "," : ", ");
}

static bool put_json(json_writer *w, st_jinja_value v);

// A dict's key: strings as they are, None, booleans and numbers as the text that JSON gives them.
static bool put_json_key(json_writer *w, st_jinja_value key) {
  if (key.kind == JINJA_STRING) return put_json_string(w, key.s);
  if (key.kind != JINJA_NONE && key.kind != JINJA_BOOLEAN && key.kind != JINJA_INTEGER && key.kind != JINJA_FLOAT) {
    return st_jinja_fail_format(w->run, "a value of type %s cannot be a key in JSON", st_jinja_type_name(key));
  }
  return st_jinja_put_text(w->run, w->b, "\"") && put_json(w, key) && st_jinja_put_text(w->run, w->b, "\"");
}

static bool put_json_dict(json_writer *w, const st_jinja_dict *d) {
  for (size_t i = 0; i < d->n; i++) {
    if ((i && !put_comma(w)) || !put_newline(w) || !put_json_key(w, d->pairs[i].key) ||
        !st_jinja_put_text(w->run, w->b, ": ") || !put_json(w, d->pairs[i].value))
      return false;
  }
  return true;
}

static bool put_json_list(json_writer *w, const st_jinja_list *l) {
  for (size_t i = 0; i < l->n; i++) {
    if ((i && !put_comma(w)) || !put_newline(w) || !put_json(w, l->items[i])) return false;
  }
  return true;
}

static bool put_json_container(json_writer *w, st_jinja_value v) {
  bool is_dict = v.kind == JINJA_DICT;
  if (is_dict ? !v.d->n : !v.l->n) return st_jinja_put_text(w->run, w->b, is_dict ? "{}" : "[]");
  if (!st_jinja_nest(w->run) || !st_jinja_put_text(w->run, w->b, is_dict ? "{" : "[")) return false;
  w->depth++;
  if (is_dict ? !put_json_dict(w, v.d) : !put_json_list(w, v.l)) return false;
  w->depth--;
  w->run->depth--;
  return put_newline(w) && st_jinja_put_text(w->run, w->b, is_dict ? "}" : "]");
}

static bool put_json(json_writer *w, st_jinja_value v) {
  if (!st_jinja_charge(w->run, 1)) return false;
  switch ((st_jinja_kind)v.kind) {
  case JINJA_NONE: return st_jinja_put_text(w->run, w->b, "null");
  case JINJA_BOOLEAN:
  case JINJA_INTEGER:
  case JINJA_FLOAT: return put_number(w->run, w->b, v, true);
  case JINJA_STRING: return put_json_string(w, v.s);
  case JINJA_DICT:
  case JINJA_LIST:
  case JINJA_TUPLE: return put_json_container(w, v);
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
  if (n > 10000) return st_jinja_fail(run, SETUN_ERROR_LIMIT, "tojson: an indent of %lld is too large", (long long)n);
  for (; n > 0; n--) {
    if (!st_jinja_put_text(run, &spaces, " ")) return false;
  }
  if (!st_jinja_finish(run, &spaces, false, &text)) return false;
  w->indent = text.s;
  return true;
}

bool st_jinja_filter_tojson(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[4];
  st_jinja_builder b = {0};
  json_writer w = {.run = run, .b = &b};
  if (!st_jinja_bind_arguments(run, "tojson", args, "ensure_ascii,indent,separators,sort_keys", 0, a)) return false;
  for (int i = 2; i < 4; i++) {
    if (a[i].kind == JINJA_MISSING) continue;
    return st_jinja_fail_unsupported(run, "tojson: the parameter '%s' is not supported",
                                     i == 2 ? "separators" : "sort_keys");
  }
  if (a[0].kind != JINJA_MISSING && !st_jinja_to_boolean(run, a[0], &w.ascii)) return false;
  return indentation(run, a[1], &w) && put_json(&w, v) && st_jinja_finish(run, &b, false, out);
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
