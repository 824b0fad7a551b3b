// str.format and the % operator on strings, for the conversions that templates use; others are refused.
#include "base/utf8.h"
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// '<', '>', '^' as format pads, 'c' as str.center does. The fill is the template's.
bool st_jinja_put_padded(st_jinja_run *run, st_jinja_builder *b, st_jinja_string *s, int64_t width, uint32_t fill,
                         char align) {
  int64_t n = (int64_t)st_jinja_count_characters(s), pad = width > n ? width - n : 0;
  int64_t left = align == '<' ? 0 : align == '>' ? pad : align == '^' ? pad / 2 : pad / 2 + (pad & width & 1);
  for (int64_t i = 0; i < pad + 1; i++) {
    if (i == left && !st_jinja_put_all(run, b, s)) return false;
    if (i < pad && (!st_jinja_charge(run, 1) || !st_jinja_put_char(run, b, fill, false))) return false;
  }
  return true;
}

typedef struct {
  uint32_t fill;
  char align, sign, type;
  bool alternate, zero, comma;
  int64_t width, precision; // -1: none
} spec;

static bool parse_number(const st_jinja_string *s, size_t *at, int64_t *out) {
  bool any = false;
  for (; *at < s->length && s->data[*at] >= '0' && s->data[*at] <= '9'; ++*at, any = true) {
    *out = (any ? *out : 0) * 10 + (s->data[*at] - '0');
    if (*out > 1000000) *out = 1000000;
  }
  return any;
}

static bool parse_spec(st_jinja_run *run, const st_jinja_string *s, spec *p) {
  *p = (spec){.fill = ' ', .width = -1, .precision = -1};
  size_t at = 0;
  uint32_t code;
  int n = s->length ? st_utf8_decode(s->data, s->length, &code) : 0;
  if (n > 0 && (size_t)n < s->length && strchr("<>=^", s->data[n])) {
    p->fill = code;
    p->align = s->data[n];
    at = (size_t)n + 1;
  } else if (s->length && s->data[0] && strchr("<>=^", s->data[0]))
    p->align = s->data[at++];
  if (at < s->length && s->data[at] && strchr("+- ", s->data[at])) p->sign = s->data[at++];
  if (at < s->length && s->data[at] == '#') p->alternate = true, at++;
  if (at < s->length && s->data[at] == '0') {
    p->zero = true, at++;
    if (!p->align) p->fill = '0', p->align = '=';
  }
  parse_number(s, &at, &p->width);
  if (at < s->length && (s->data[at] == ',' || s->data[at] == '_')) {
    if (s->data[at] == '_') return st_jinja_fail_unsupported(run, "'_' in a format");
    p->comma = true, at++;
  }
  if (at < s->length && s->data[at] == '.') {
    at++;
    if (!parse_number(s, &at, &p->precision))
      return st_jinja_fail_format(run, "a format has no precision after its '.'");
  }
  if (at < s->length) p->type = s->data[at++];
  return at == s->length || st_jinja_fail_format(run, "a format that cannot be understood");
}

// Digits with a comma between thousands.
static void add_commas(char *text, size_t size) {
  size_t n = strspn(text, "0123456789"), length = strlen(text);
  for (size_t at = n; at > 3 && length + 1 < size; length++) {
    at -= 3;
    memmove(text + at + 1, text + at, length - at + 1);
    text[at] = ',';
  }
}

static bool radix(uint64_t u, unsigned base, const char *digits, char *text) {
  char reversed[72];
  size_t n = 0;
  do reversed[n++] = digits[u % base];
  while (u /= base);
  for (size_t i = 0; i < n; i++) text[i] = reversed[n - 1 - i];
  text[n] = '\0';
  return true;
}

// The magnitude of a number, without sign; the sign in *negative.
static bool number_text(st_jinja_run *run, st_jinja_value v, spec *p, char text[512], bool *negative) {
  int64_t i;
  double x;
  char type = p->type;
  if (st_jinja_as_int(v, &i) && (!type || strchr("dxXobc", type))) {
    if (p->precision >= 0) return st_jinja_fail_format(run, "a format with a precision for an integer");
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    *negative = i < 0;
    const char *prefix = !p->alternate ? ""
                         : type == 'x' ? "0x"
                         : type == 'X' ? "0X"
                         : type == 'o' ? "0o"
                         : type == 'b' ? "0b"
                                       : "";
    strcpy(text, prefix);
    char *to = text + strlen(text);
    if (type == 'c') return st_jinja_fail_unsupported(run, "the format 'c'");
    unsigned base = !type || type == 'd' ? 10 : type == 'o' ? 8 : type == 'b' ? 2 : 16;
    return radix(u, base, type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef", to);
  }
  if (!st_jinja_as_double(v, &x)) return false;
  *negative = signbit(x) && !isnan(x);
  x = fabs(x);
  if (!isfinite(x))
    strcpy(text, isnan(x) ? "nan" : "inf");
  else if (!type && p->precision < 0)
    st_jinja_float_text(x, text);
  else if (type && strchr("eEfFgG%", type) && p->precision <= 100 && !p->alternate) {
    int precision = p->precision < 0 ? 6 : (int)p->precision;
    const char format[] = {'%', '.', '*', type == '%' ? 'f' : type, '\0'};
    snprintf(text, 500, format, precision, type == '%' ? x * 100 : x);
    for (char *q = text; *q; q++) { // another locale's decimal point
      if (*q == ',') *q = '.';
    }
    if (type == '%') strcat(text, "%");
  } else
    return st_jinja_fail_unsupported(run, "the format '%c' for a number", type ? type : '.');
  return true;
}

static bool put_number(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v, spec *p) {
  char text[512], sign[2] = {0};
  bool negative = false;
  if (!number_text(run, v, p, text, &negative)) {
    return st_jinja_fail_format(run, "the format '%c' does not suit a %s", p->type, st_jinja_type_name(v));
  }
  if (p->comma) add_commas(text, sizeof text);
  sign[0] = negative ? '-' : p->sign == '+' || p->sign == ' ' ? p->sign : 0;
  size_t n = strlen(text) + strlen(sign);
  if (p->align == '=' || !p->align) {
    bool inside = p->align == '=';
    if (p->comma && inside && p->fill == '0' && p->width > (int64_t)n)
      return st_jinja_fail_unsupported(run, "zeros before thousands");
    if (inside && !st_jinja_put_text(run, b, sign)) return false;
    for (int64_t i = (int64_t)n; i < p->width; i++) {
      if (!st_jinja_charge(run, 1) || !st_jinja_put_char(run, b, p->fill, false)) return false;
    }
    return (inside || st_jinja_put_text(run, b, sign)) && st_jinja_put_text(run, b, text);
  }
  char whole[520];
  snprintf(whole, sizeof whole, "%s%s", sign, text);
  st_jinja_string s = {.data = whole, .length = n, .chars = n};
  return st_jinja_put_padded(run, b, &s, p->width, p->fill, p->align);
}

static bool put_string(st_jinja_run *run, st_jinja_builder *b, st_jinja_string *s, const spec *p) {
  st_jinja_value cut = st_jinja_from_string(s);
  if (p->align == '=' || p->sign || p->alternate || p->comma)
    return st_jinja_fail_format(run, "a number's format for a string");
  if (p->precision >= 0 && !st_jinja_substring(run, s, 0, st_jinja_character_offset(s, (size_t)p->precision), &cut))
    return false;
  return st_jinja_put_padded(run, b, cut.s, p->width, p->fill, p->align ? p->align : '<');
}

static bool put_field(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v, const st_jinja_string *format) {
  spec p;
  if (!format->length) return st_jinja_put_value(run, b, v);
  if (!parse_spec(run, format, &p)) return false;
  bool number =
      v.kind == JINJA_INTEGER || v.kind == JINJA_FLOAT || (v.kind == JINJA_BOOLEAN && p.type && p.type != 's');
  if (number && p.type != 's') return put_number(run, b, v, &p);
  if (v.kind == JINJA_BOOLEAN && !p.type) return put_number(run, b, st_jinja_from_int(v.b), &p);
  if (v.kind != JINJA_STRING || (p.type && p.type != 's')) {
    return st_jinja_fail_format(run, "a format does not suit a %s", st_jinja_type_name(v));
  }
  if (p.zero && p.align == '=') p.align = '<'; // '0' alone pads strings on the right since Python 3.10
  return put_string(run, b, v.s, &p);
}

typedef struct {
  st_jinja_run *run;
  const st_jinja_arguments *args;
  int64_t next; // of {}; -1: fields are numbered by hand
  bool numbered;
  st_jinja_builder out;
  bool safe;
} formatter;

// The value of "0", "name", "" and then .attribute or [key].
static bool field_value(formatter *f, const st_jinja_string *name, st_jinja_value *out) {
  size_t end = 0, begin;
  while (end < name->length && name->data[end] != '.' && name->data[end] != '[') end++;
  st_jinja_value first;
  int64_t index = f->next;
  bool over, digits = end > 0;
  for (size_t i = 0; i < end; i++) digits = digits && name->data[i] >= '0' && name->data[i] <= '9';
  if (!st_jinja_substring(f->run, name, 0, end, &first)) return false;
  if (end && !digits) {
    for (size_t i = 0; i < f->args->n_keywords; i++) {
      if (!st_jinja_same_text(f->args->keywords[i].name, first.s)) continue;
      *out = f->args->keywords[i].value;
      goto path;
    }
    return st_jinja_fail_format(f->run, "format: no argument has the name of a field");
  }
  if (digits ? f->next > 0 : f->numbered) return st_jinja_fail_format(f->run, "format: numbered and unnumbered fields");
  if (digits && (!st_jinja_parse_int(first.s, 10, &index, &over) || over)) index = INT64_MAX;
  if (digits)
    f->numbered = true;
  else
    f->next++;
  if (index >= (int64_t)f->args->n) return st_jinja_fail_format(f->run, "format: too few arguments");
  *out = f->args->items[index];
path:
  while (end < name->length) {
    bool item = name->data[end] == '[';
    st_jinja_value key;
    begin = ++end;
    while (end < name->length && (item ? name->data[end] != ']' : name->data[end] != '.' && name->data[end] != '['))
      end++;
    if (end == begin || (item && end >= name->length))
      return st_jinja_fail_format(f->run, "format: a field's name is broken");
    if (!st_jinja_substring(f->run, name, begin, end, &key)) return false;
    if (item && st_jinja_is_class(key.s, "isdecimal") && st_jinja_parse_int(key.s, 10, &index, &over) && !over) {
      key = st_jinja_from_int(index);
    }
    if (!(item ? st_jinja_get_item(f->run, *out, key, out) : st_jinja_get_attribute(f->run, *out, key.s, out)))
      return false;
    if (item) end++;
  }
  return true;
}

static bool put_replacement(formatter *f, const st_jinja_string *body) {
  size_t bang = 0, colon;
  for (bool in = false; bang < body->length; bang++) {
    if (body->data[bang] == '[') in = true;
    if (body->data[bang] == ']') in = false;
    if (!in && (body->data[bang] == '!' || body->data[bang] == ':')) break;
  }
  colon = bang;
  char conversion = 0;
  if (bang < body->length && body->data[bang] == '!') {
    if (bang + 1 >= body->length) return st_jinja_fail_format(f->run, "format: no conversion after '!'");
    conversion = body->data[bang + 1];
    colon = bang + 2;
    if (colon < body->length && body->data[colon] != ':') return st_jinja_fail_format(f->run, "format: ':' expected");
  }
  st_jinja_value name, format, v;
  if (!st_jinja_substring(f->run, body, 0, bang, &name)) return false;
  if (!st_jinja_substring(f->run, body, colon < body->length ? colon + 1 : body->length, body->length, &format))
    return false;
  if (memchr(format.s->data, '{', format.s->length))
    return st_jinja_fail_unsupported(f->run, "a field inside a field's format");
  name.s->safe = format.s->safe = false;
  if (!field_value(f, name.s, &v)) return false;
  if (conversion == 's' || conversion == 'r') {
    st_jinja_builder text = {0};
    bool ok = conversion == 's' ? st_jinja_put_value(f->run, &text, v) : st_jinja_put_repr(f->run, &text, v, 0);
    if (!ok || !st_jinja_finish(f->run, &text, false, &v)) return false;
  } else if (conversion)
    return st_jinja_fail_unsupported(f->run, "the conversion '!%c'", conversion);
  if (!f->safe) return put_field(f->run, &f->out, v, format.s);
  st_jinja_builder plain = {0};
  if (v.kind == JINJA_STRING && v.s->safe && format.s->length)
    return st_jinja_fail_format(f->run, "a format for safe text");
  if (v.kind == JINJA_STRING && v.s->safe) return st_jinja_put_all(f->run, &f->out, v.s);
  return put_field(f->run, &plain, v, format.s) && st_jinja_finish(f->run, &plain, false, &v) &&
         st_jinja_escape_html(f->run, v, &v) && st_jinja_put_all(f->run, &f->out, v.s);
}

bool st_jinja_format_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_arguments *args, st_jinja_value *out) {
  formatter f = {.run = run, .args = args, .safe = s->safe};
  for (size_t at = 0; at < s->length;) {
    size_t plain = at;
    while (at < s->length && s->data[at] != '{' && s->data[at] != '}') at++;
    if (!st_jinja_charge(run, 1) || !st_jinja_put_part(run, &f.out, s, plain, at)) return false;
    if (at >= s->length) break;
    char c = s->data[at];
    if (at + 1 < s->length && s->data[at + 1] == c) {
      if (!st_jinja_put_part(run, &f.out, s, at, at + 1)) return false;
      at += 2;
      continue;
    }
    if (c == '}') return st_jinja_fail_format(run, "format: a single '}'");
    size_t end = at + 1;
    for (int depth = 1; end < s->length; end++) {
      depth += s->data[end] == '{' ? 1 : s->data[end] == '}' ? -1 : 0;
      if (!depth) break;
    }
    if (end >= s->length) return st_jinja_fail_format(run, "format: a single '{'");
    st_jinja_value body;
    if (!st_jinja_substring(run, s, at + 1, end, &body) || !put_replacement(&f, body.s)) return false;
    at = end + 1;
  }
  return st_jinja_finish(run, &f.out, s->safe, out);
}

// ---- the % operator ----

typedef struct {
  st_jinja_value values;
  size_t next, n;
  bool mapped; // a mapping's key was used
} percent;

static bool next_value(st_jinja_run *run, percent *p, st_jinja_value *out) {
  if (p->next >= p->n) return st_jinja_fail_format(run, "'%%': too few values for the format");
  *out = p->values.kind == JINJA_TUPLE ? p->values.l->items[p->next] : p->values;
  p->next++;
  return true;
}

static bool put_percent(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v, spec *p, bool left) {
  char type = p->type;
  if (type == 's' || type == 'r') {
    st_jinja_builder text = {0};
    st_jinja_value s;
    if (!(type == 's' ? st_jinja_put_value(run, &text, v) : st_jinja_put_repr(run, &text, v, 0))) return false;
    if (!st_jinja_finish(run, &text, false, &s)) return false;
    if (p->precision >= 0 && !st_jinja_substring(run, s.s, 0, st_jinja_character_offset(s.s, (size_t)p->precision), &s))
      return false;
    return st_jinja_put_padded(run, b, s.s, p->width, ' ', left ? '<' : '>');
  }
  bool whole = type == 'd' || type == 'i' || type == 'u';
  if (whole) {
    p->type = 'd';
    if (v.kind == JINJA_FLOAT) {
      if (!(fabs(v.f) < 9e18)) return st_jinja_fail_unsupported(run, "an integer beyond 64 bits");
      v = st_jinja_from_int((int64_t)v.f);
    }
    if (p->precision >= 0) return st_jinja_fail_unsupported(run, "a precision for %%d");
  } else if ((type == 'x' || type == 'X' || type == 'o') && v.kind == JINJA_FLOAT) {
    return st_jinja_fail_format(run, "'%%%c' expects an integer, found float", type);
  } else if (!strchr("xXoeEfFgG", type))
    return st_jinja_fail_unsupported(run, "the conversion '%%%c'", type);
  double x;
  if (!st_jinja_as_double(v, &x))
    return st_jinja_fail_format(run, "'%%%c' expects a number, found %s", type, st_jinja_type_name(v));
  p->align = left ? '<' : p->zero ? '=' : '>';
  p->fill = p->zero && !left ? '0' : ' ';
  return put_number(run, b, v, p);
}

bool st_jinja_percent_format(st_jinja_run *run, st_jinja_string *s, st_jinja_value values, st_jinja_value *out) {
  percent state = {.values = values, .n = values.kind == JINJA_TUPLE ? values.l->n : 1};
  st_jinja_builder b = {0};
  if (s->safe) return st_jinja_fail_unsupported(run, "the '%%' operator on safe text");
  for (size_t at = 0; at < s->length;) {
    size_t plain = at;
    while (at < s->length && s->data[at] != '%') at++;
    if (!st_jinja_charge(run, 1) || !st_jinja_put_part(run, &b, s, plain, at)) return false;
    if (at++ >= s->length) break;
    spec p = {.fill = ' ', .width = -1, .precision = -1};
    st_jinja_value v = {.kind = JINJA_MISSING};
    bool left = false;
    if (at < s->length && s->data[at] == '(') {
      size_t begin = ++at;
      while (at < s->length && s->data[at] != ')') at++;
      st_jinja_value key, *found;
      if (at >= s->length) return st_jinja_fail_format(run, "'%%': a key without ')'");
      if (values.kind != JINJA_DICT) return st_jinja_fail_format(run, "'%%': the format needs a mapping");
      if (!st_jinja_substring(run, s, begin, at++, &key) || !st_jinja_dict_get(run, values.d, key, &found))
        return false;
      if (!found) return st_jinja_fail_format(run, "'%%': the mapping has no such key");
      v = *found;
      state.mapped = true;
    }
    for (; at < s->length && s->data[at] && strchr("-+ #0", s->data[at]); at++) {
      char c = s->data[at];
      left = left || c == '-', p.zero = p.zero || c == '0', p.alternate = p.alternate || c == '#';
      if (c == '+' || (c == ' ' && !p.sign)) p.sign = c;
    }
    if (at < s->length && s->data[at] == '*') return st_jinja_fail_unsupported(run, "'*' in a format");
    parse_number(s, &at, &p.width);
    if (at < s->length && s->data[at] == '.') {
      at++;
      p.precision = 0;
      parse_number(s, &at, &p.precision);
    }
    if (at >= s->length) return st_jinja_fail_format(run, "'%%': the format ends too early");
    p.type = s->data[at++];
    if (p.type == '%') {
      if (!st_jinja_put_text(run, &b, "%")) return false;
      continue;
    }
    if ((v.kind == JINJA_MISSING && !next_value(run, &state, &v)) || !put_percent(run, &b, v, &p, left)) return false;
  }
  bool mapping = values.kind == JINJA_DICT || values.kind == JINJA_LIST || values.kind == JINJA_UNDEFINED;
  if (state.next < state.n && !mapping) return st_jinja_fail_format(run, "'%%': not all values are used by the format");
  return st_jinja_finish(run, &b, false, out);
}
