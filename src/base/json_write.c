// JSON text of values.
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  st_buffer *out;
  int digits; // digits of reals; 0: as few as preserve the value
  bool lines;
} writer;

static bool put_string(writer *w, const char *text, size_t length) {
  static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
  size_t plain = 0; // start of the bytes not written yet
  if (!st_buffer_text(w->out, "\"")) return false;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    char escape[8];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
      snprintf(escape, sizeof escape, "\\%c", escapes[letter - letters]);
    } else {
      snprintf(escape, sizeof escape, "\\u%04X", c);
    }
    if (!st_buffer_append(w->out, text + plain, i - plain) || !st_buffer_text(w->out, escape)) return false;
    plain = i + 1;
  }
  return st_buffer_append(w->out, text + plain, length - plain) && st_buffer_text(w->out, "\"");
}

// Reals keep a point or an exponent, without plus sign or redundant zeros; the locale's point becomes JSON's.
static bool put_real(writer *w, double x) {
  char text[64], json[64];
  size_t n = 0;
  bool real = false, exponent = false;
  int digits = w->digits ? w->digits : 15;
  snprintf(text, sizeof text, "%.*g", digits, x);
  while (!w->digits && digits < 17 && strtod(text, NULL) != x) snprintf(text, sizeof text, "%.*g", ++digits, x);
  for (const char *p = text; *p; p++) {
    bool digit = *p >= '0' && *p <= '9';
    bool needless = exponent && (*p == '+' || (*p == '0' && p[1] && (json[n - 1] == 'e' || json[n - 1] == '-')));
    if (digit || *p == '-' || *p == '+' || *p == 'e') {
      if (!needless) json[n++] = *p;
      exponent = exponent || *p == 'e';
      real = real || exponent;
    } else if (!real) {
      json[n++] = '.';
      real = true;
    }
  }
  return st_buffer_append(w->out, json, n) && (real || st_buffer_text(w->out, ".0"));
}

static bool put_line(writer *w, int depth) {
  if (!w->lines) return true;
  if (!st_buffer_text(w->out, "\n")) return false;
  for (int i = 0; i < depth; i++) {
    if (!st_buffer_text(w->out, "  ")) return false;
  }
  return true;
}

static bool put(writer *w, const st_json *v, int depth);

static bool put_items(writer *w, const st_json *v, int depth) {
  bool object = st_json_is_object(v);
  if (!st_buffer_text(w->out, object ? "{" : "[")) return false;
  for (uint32_t i = 0; i < v->count; i++) {
    const st_json *item = object ? &v->as.members[i].value : &v->as.items[i];
    if (i && !st_buffer_text(w->out, ",")) return false;
    if (!put_line(w, depth + 1)) return false;
    if (object && (!put_string(w, v->as.members[i].key, v->as.members[i].length) ||
                   !st_buffer_text(w->out, w->lines ? ": " : ":"))) {
      return false;
    }
    if (!put(w, item, depth + 1)) return false;
  }
  return (!v->count || put_line(w, depth)) && st_buffer_text(w->out, object ? "}" : "]");
}

static bool put(writer *w, const st_json *v, int depth) {
  switch ((st_json_type_id)v->type) {
  case ST_JSON_NULL: return st_buffer_text(w->out, "null");
  case ST_JSON_FALSE: return st_buffer_text(w->out, "false");
  case ST_JSON_TRUE: return st_buffer_text(w->out, "true");
  case ST_JSON_INTEGER: return st_buffer_format(w->out, "%lld", (long long)v->as.integer);
  case ST_JSON_REAL: return put_real(w, v->as.real);
  case ST_JSON_STRING: return put_string(w, v->as.text, v->count);
  case ST_JSON_ARRAY:
  case ST_JSON_OBJECT: break;
  }
  return put_items(w, v, depth);
}

bool st_json_append(const st_json *value, st_buffer *out) {
  writer w = {out, 9, false};
  return put(&w, value, 0);
}

bool st_json_append_exact(const st_json *value, st_buffer *out) {
  writer w = {out, 17, false};
  return put(&w, value, 0);
}

bool st_json_append_shortest(const st_json *value, st_buffer *out) {
  writer w = {out, 0, false};
  return put(&w, value, 0);
}

bool st_json_append_lines(const st_json *value, st_buffer *out) {
  writer w = {out, 17, true};
  return put(&w, value, 0);
}
