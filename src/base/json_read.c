// Reads JSON text (RFC 8259) into a document, without recursion: open containers are frames, and their values so far
// are on one stack until the container closes and takes them.
#include "base/json_document.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t first; // first of its members on the stack
  bool object;
} frame;

typedef struct {
  const char *text, *p, *end;
  st_json_document *d;
  bool refuse_duplicates, integers_as_reals;
  const char *name;
  setun_error *err;
  setun_status status;
  st_json_member *stack;
  size_t n, capacity;
  uint32_t depth;
  frame frames[ST_JSON_DEPTH_MOST];
} reader;

// ---- failures ----

static bool fail_memory(reader *r) {
  r->status = st_fail_memory(r->err, r->name);
  return false;
}

// Lines and columns count from 1, columns in characters.
static bool fail_at(reader *r, const char *at, const char *what) {
  size_t line = 1, column = 1;
  for (const char *p = r->text; p < at; p++) {
    if (*p == '\n') {
      line++;
      column = 1;
    } else if (((unsigned char)*p & 0xC0) != 0x80) {
      column++;
    }
  }
  r->status = st_fail(r->err, SETUN_ERROR_FORMAT, "%s: line %zu, column %zu: %s", r->name, line, column, what);
  return false;
}

static bool fail_found(reader *r, const char *expected) {
  char what[96];
  if (r->p == r->end) {
    snprintf(what, sizeof what, "expected %s, found the end of the text", expected);
  } else if (*r->p > ' ' && *r->p < 127) {
    snprintf(what, sizeof what, "expected %s, found '%c'", expected, *r->p);
  } else {
    snprintf(what, sizeof what, "expected %s, found byte 0x%02x", expected, (unsigned char)*r->p);
  }
  return fail_at(r, r->p, what);
}

static bool fail_byte(reader *r, const char *at) {
  char what[64];
  snprintf(what, sizeof what, "expected UTF-8, found byte 0x%02x", (unsigned char)*at);
  return fail_at(r, at, what);
}

// ---- strings ----

static bool is_plain(unsigned char c) {
  return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

// Skips a string's bytes, from r->p after its quotation mark to the closing mark, without decoding escapes.
static bool pass_string(reader *r, bool *escaped) {
  const char *p = r->p;
  for (;;) {
    while (p < r->end && is_plain((unsigned char)*p)) p++;
    if (p == r->end) return fail_at(r, p, "the text ends within a string");
    unsigned char c = (unsigned char)*p;
    if (c == '"') break;
    if (c == '\\') {
      *escaped = true;
      if (r->end - p < 2) return fail_at(r, r->end, "the text ends within a string");
      p++;
      if (is_plain((unsigned char)*p) || *p == '"' || *p == '\\') p++;
    } else if (c < 0x20) {
      return fail_at(r, p, c == '\n' ? "a line break within a string" : "a control character within a string");
    } else if (c >= 0xC2 && c < 0xE0 && r->end - p > 1 && ((unsigned char)p[1] & 0xC0) == 0x80) {
      p += 2;
    } else {
      uint32_t code;
      int n = st_utf8_decode(p, (size_t)(r->end - p), &code);
      if (n <= 0) return fail_byte(r, p);
      p += n;
    }
  }
  r->p = p;
  return true;
}

// The four digits of \uHHHH at p; -1: they are something else.
static int32_t hex4(const char *p, const char *end) {
  int32_t code = 0;
  if (end - p < 4) return -1;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code;
}

// The character of \uHHHH, whose backslash is at p, or of two that are a surrogate pair; returns the position after it,
// NULL on failure.
static const char *decode_unicode(reader *r, const char *p, const char *end, uint32_t *code) {
  int32_t high = hex4(p + 2, end);
  if (high < 0) return fail_at(r, p, "\\u without four hexadecimal digits"), NULL;
  *code = (uint32_t)high;
  if (high < 0xD800 || high > 0xDFFF) return p + 6;
  int32_t low = high < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end) : -1;
  if (low < 0xDC00 || low > 0xDFFF) return fail_at(r, p, "an unpaired surrogate"), NULL;
  *code = 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
  return p + 12;
}

// Copies [p, end), which holds escapes, to `to`; returns the end of the copy, NULL on failure.
static char *unescape(reader *r, const char *p, const char *end, char *to) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  while (p < end) {
    if (*p != '\\') {
      *to++ = *p++;
      continue;
    }
    const char *letter = p[1] ? strchr(letters, p[1]) : NULL;
    if (letter) {
      *to++ = meanings[letter - letters];
      p += 2;
    } else if (p[1] == 'u') {
      uint32_t code;
      if (!(p = decode_unicode(r, p, end, &code))) return NULL;
      to += st_utf8_encode(code, to);
    } else {
      return fail_at(r, p, "an escape that JSON does not have"), NULL;
    }
  }
  return to;
}

// Reads the string whose opening quotation mark is at r->p; r->p is then after its closing one.
static bool read_string(reader *r, const char **text, uint32_t *length) {
  bool escaped = false;
  const char *begin = ++r->p;
  if (!pass_string(r, &escaped)) return false;
  size_t n = (size_t)(r->p - begin);
  char *copy = st_json_take(r->d, n + 1, false); // an escape is longer than its character
  if (!copy) return fail_memory(r);
  char *end = copy + n;
  if (escaped) {
    if (!(end = unescape(r, begin, r->p, copy))) return false;
  } else {
    memcpy(copy, begin, n);
  }
  *end = '\0';
  *text = copy;
  *length = (uint32_t)(end - copy);
  r->p++;
  return true;
}

// ---- numbers ----

enum { POINT_MOST = 8 }; // bytes of a locale's decimal point

// strtod uses the locale's decimal point, so the text is converted to it. `number` ends with 0 and has POINT_MOST bytes
// of room after it.
static double to_double(char *number) {
  char shown[POINT_MOST + 3], *end, *point = strchr(number, '.');
  double x = strtod(number, &end);
  if (!*end || !point) return x;
  int n = snprintf(shown, sizeof shown, "%.1f", 1.5); // contains it between its digits
  if (n < 3 || n >= (int)sizeof shown) return x;
  memmove(point + n - 2, point + 1, strlen(point));
  memcpy(point, shown + 1, (size_t)n - 2);
  return strtod(number, NULL);
}

static bool convert_long(reader *r, const char *from, size_t n, double *out) {
  char local[64], *copy = n + POINT_MOST < sizeof local ? local : st_malloc(n + 1 + POINT_MOST, 1);
  if (!copy) return fail_memory(r);
  memcpy(copy, from, n);
  copy[n] = '\0';
  *out = to_double(copy);
  if (copy != local) st_free(copy);
  return isfinite(*out) || fail_at(r, from, "a number that overflows a double");
}

// A number's text: its digits as an integer, as far as they fit, times a power of ten.
typedef struct {
  uint64_t digits;
  int power; // power of ten from the digits after the point
  bool negative, whole, plain,
      exact; // whole: no point, no exponent; plain: no exponent; exact: `digits` has all digits
} spelled;

static bool pass_digits(reader *r, spelled *s) {
  const char *first = r->p;
  for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
    uint64_t digit = (uint64_t)(*r->p - '0');
    if (__builtin_mul_overflow(s->digits, 10u, &s->digits) || __builtin_add_overflow(s->digits, digit, &s->digits)) {
      s->exact = false;
    }
  }
  return r->p > first || fail_found(r, "a digit");
}

static bool pass_number(reader *r, spelled *s) {
  *s = (spelled){.whole = true, .plain = true, .exact = true};
  if (*r->p == '-') {
    s->negative = true;
    r->p++;
  }
  const char *first = r->p;
  if (!pass_digits(r, s)) return false;
  if (*first == '0' && r->p - first > 1) return fail_at(r, first, "a number with a leading 0");
  if (r->p < r->end && *r->p == '.') {
    s->whole = false;
    first = ++r->p;
    if (!pass_digits(r, s)) return false;
    s->power = (int)((first - r->p) > -400 ? first - r->p : -400);
  }
  if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
    spelled exponent = {0};
    s->whole = s->plain = false;
    r->p++;
    if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
    if (!pass_digits(r, &exponent)) return false;
  }
  return true;
}

static bool read_number(reader *r, st_json *out) {
  // Powers of ten that are exact in double: one multiplication or division by them rounds once, as required.
  static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char *from = r->p;
  spelled s;
  if (!pass_number(r, &s)) return false;
  if (s.whole && !r->integers_as_reals) {
    uint64_t most = (uint64_t)INT64_MAX + s.negative;
    if (!s.exact || s.digits > most) return fail_at(r, from, "an integer beyond 64 bits");
    *out = st_json_make_integer(s.negative ? (int64_t)(0 - s.digits) : (int64_t)s.digits);
    out->count = (uint32_t)(from - r->text);
    return true;
  }
  *out = (st_json){.type = ST_JSON_REAL, .count = (uint32_t)(from - r->text)};
  if (s.exact && s.plain && s.digits <= (uint64_t)1 << 53 && s.power >= -22) {
    double x = (double)s.digits / tens[-s.power];
    out->as.real = s.negative ? -x : x;
    return true;
  }
  return convert_long(r, from, (size_t)(r->p - from), &out->as.real);
}

// ---- values ----

static void pass_space(reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
}

static bool read_word(reader *r, st_json *out) {
  static const struct {
    const char *word;
    st_json_type_id type;
  } words[] = {{"null", ST_JSON_NULL}, {"false", ST_JSON_FALSE}, {"true", ST_JSON_TRUE}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i].word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, words[i].word, n) != 0) continue;
    *out = (st_json){.type = (uint8_t)words[i].type};
    r->p += n;
    return true;
  }
  return fail_found(r, "a value");
}

static bool read_scalar(reader *r, st_json *out) {
  *out = (st_json){.type = ST_JSON_STRING};
  if (r->p == r->end) return fail_found(r, "a value");
  if (*r->p == '"') return read_string(r, &out->as.text, &out->count);
  if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')) return read_number(r, out);
  return read_word(r, out);
}

static bool push(reader *r, st_json_member m) {
  if (!st_reserve(&r->stack, &r->capacity, r->n + 1, sizeof *r->stack)) return fail_memory(r);
  r->stack[r->n++] = m;
  return true;
}

// A member's key and the colon after it; its value follows on the stack.
static bool read_key(reader *r) {
  st_json_member m = {.at = (uint32_t)(r->p - r->text)};
  if (r->p == r->end || *r->p != '"') return fail_found(r, "a key in quotation marks");
  if (!read_string(r, &m.key, &m.length)) return false;
  if (memchr(m.key, 0, m.length)) return fail_at(r, r->text + m.at, "a key that holds \\u0000");
  pass_space(r);
  if (r->p == r->end || *r->p != ':') return fail_found(r, "':'");
  r->p++;
  return push(r, m);
}

static bool close_array(reader *r, const st_json_member *from, uint32_t n, st_json *out) {
  *out = (st_json){.type = ST_JSON_ARRAY, .count = n};
  if (!n) return true;
  out->as.items = st_json_take(r->d, n * sizeof *out->as.items, true);
  if (!out->as.items) return fail_memory(r);
  for (uint32_t i = 0; i < n; i++) out->as.items[i] = from[i].value;
  return true;
}

// Appends " in #/..." for the container that has just been closed: the keys and positions of those that hold it. A
// member is on the stack before its value has been read, an element is not.
static void append_place(const reader *r, char *what, size_t size) {
  size_t n = strlen(what);
  if (r->depth && n < size) n += (size_t)snprintf(what + n, size - n, " in #");
  for (uint32_t i = 0; i < r->depth && n < size; i++) {
    uint32_t next = r->frames[i + 1].first;
    if (r->frames[i].object)
      n += (size_t)snprintf(what + n, size - n, "/%.40s", r->stack[next - 1].key);
    else
      n += (size_t)snprintf(what + n, size - n, "/%u", (unsigned)(next - r->frames[i].first));
  }
}

// Closes the innermost container, whose end r->p has passed.
static bool close_container(reader *r, st_json *out) {
  const frame *f = &r->frames[--r->depth];
  uint32_t n = (uint32_t)(r->n - f->first);
  const st_json_member *from = n ? r->stack + f->first : NULL, *duplicate; // without values the stack may be NULL
  r->n = f->first;
  if (!f->object) return close_array(r, from, n, out);
  if (st_json_gather(r->d, from, n, r->refuse_duplicates, out, &duplicate)) return true;
  if (!duplicate) return fail_memory(r);
  char what[400];
  bool long_one = duplicate->length > 40;
  snprintf(what, sizeof what, "duplicate key \"%.40s%s\"", duplicate->key, long_one ? "..." : "");
  append_place(r, what, sizeof what);
  return fail_at(r, r->text + duplicate->at, what);
}

// Opens the container at r->p; `*empty`: it closed at once.
static bool open_container(reader *r, bool *empty) {
  bool object = *r->p == '{';
  r->frames[r->depth++] = (frame){(uint32_t)r->n, object};
  r->p++;
  pass_space(r);
  *empty = r->p < r->end && *r->p == (object ? '}' : ']');
  if (*empty) {
    r->p++;
    return true;
  }
  return !object || read_key(r);
}

// Adds a complete value to its container, and containers that it completes to theirs. `*done`: it was the root.
static bool put_value(reader *r, st_json v, bool *done) {
  while (r->depth) {
    bool object = r->frames[r->depth - 1].object;
    if (object) {
      r->stack[r->n - 1].value = v;
    } else if (!push(r, (st_json_member){.value = v})) {
      return false;
    }
    pass_space(r);
    if (r->p < r->end && *r->p == ',') {
      r->p++;
      pass_space(r);
      return !object || read_key(r);
    }
    if (r->p == r->end || *r->p != (object ? '}' : ']')) return fail_found(r, object ? "',' or '}'" : "',' or ']'");
    r->p++;
    if (!close_container(r, &v)) return false;
  }
  r->d->root = v;
  *done = true;
  return true;
}

static bool read_root(reader *r) {
  for (bool done = false; !done;) {
    st_json v;
    bool whole = true;
    pass_space(r);
    if (r->depth == ST_JSON_DEPTH_MOST) return fail_at(r, r->p, "nesting beyond the depth of 2048");
    if (r->p < r->end && (*r->p == '{' || *r->p == '[')) {
      if (!open_container(r, &whole) || (whole && !close_container(r, &v))) return false;
    } else if (!read_scalar(r, &v)) {
      return false;
    }
    if (whole && !put_value(r, v, &done)) return false;
  }
  pass_space(r);
  return r->p == r->end || fail_found(r, "the end of the text");
}

static setun_status parse(const char *text, size_t length, const char *name, bool refuse_duplicates,
                          bool integers_as_reals, st_json **root, setun_error *err) {
  *root = NULL;
  if (length >= UINT32_MAX) return st_fail(err, SETUN_ERROR_LIMIT, "%s: more than 4 GiB of JSON", name);
  reader *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, name);
  r->text = r->p = text;
  r->end = length ? text + length : text;
  r->refuse_duplicates = refuse_duplicates;
  r->integers_as_reals = integers_as_reals;
  r->name = name;
  r->err = err;
  if (!(r->d = st_json_document_new(length))) {
    fail_memory(r);
  } else if (read_root(r)) {
    *root = &r->d->root;
  } else {
    st_json_free(&r->d->root);
  }
  setun_status s = r->status;
  st_free(r->stack);
  st_free(r);
  return s;
}

static setun_status only_object(const char *name, st_json **root, setun_error *err) {
  if (st_json_is_object(*root)) return SETUN_OK;
  setun_status s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a JSON object, found %s", name, st_json_kind(*root));
  st_json_free(*root);
  *root = NULL;
  return s;
}

setun_status st_json_parse(const char *text, size_t length, const char *name, st_json **root, setun_error *err) {
  setun_status s = parse(text, length, name, true, true, root, err);
  return s == SETUN_OK ? only_object(name, root, err) : s;
}

setun_status st_json_parse_values(const char *text, size_t length, const char *name, st_json **root, setun_error *err) {
  setun_status s = parse(text, length, name, true, false, root, err);
  return s == SETUN_OK ? only_object(name, root, err) : s;
}

setun_status st_json_parse_any(const char *text, size_t length, const char *name, st_json **root, setun_error *err) {
  return parse(text, length, name, true, false, root, err);
}

setun_status st_json_parse_lenient(const char *text, size_t length, const char *name, st_json **root,
                                   setun_error *err) {
  return parse(text, length, name, false, false, root, err);
}

setun_status st_json_parse_decimals(const char *text, size_t length, const char *name, st_json **root,
                                    setun_error *err) {
  return parse(text, length, name, true, true, root, err);
}
