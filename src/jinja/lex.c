// Splitting a template into text and tokens, with Jinja's treatment of white space around tags: "-" strips it all,
// trim_blocks takes the newline after %} and #}, and lstrip_blocks the white space before {% and {# on their line.
#include "base/memory.h"
#include "base/utf8.h"
#include "jinja/run.h"

#include <string.h>
#include <utf8proc.h>

typedef struct {
  st_jinja_compiler *c;
  const char *s; // the template, newlines made one
  size_t n, pos;
  size_t counted; // where `place` is
  st_jinja_place place;
  bool line_starts; // the last tag took the newline after it
  st_jinja_tokens *out;
  char *open; // open brackets, as the closing ones
  size_t n_open, open_capacity;
} lexer;

// The place of x->pos, which only moves forward.
static st_jinja_place here(lexer *x) {
  for (; x->counted < x->pos; x->counted++) {
    char c = x->s[x->counted];
    if (c == '\n')
      x->place = (st_jinja_place){x->place.line + 1, 1};
    else
      x->place.column += ((unsigned char)c & 0xC0) != 0x80;
  }
  return x->place;
}

static bool push(lexer *x, st_jinja_token token) {
  st_jinja_tokens *out = x->out;
  st_jinja_token *items = st_jinja_compile_room(x->c, out->items, out->n, &out->capacity, sizeof *items, 64);
  if (!items) return false;
  out->items = items;
  out->items[out->n++] = token;
  return true;
}

bool st_jinja_new_literal(st_jinja_compiler *c, const char *data, size_t length, st_jinja_string **out) {
  st_jinja_string *s = st_jinja_compile_allocate(c, 1, sizeof *s);
  char *copy = st_jinja_compile_allocate(c, length + 1, 1);
  if (!s || !copy) return false;
  if (length) memcpy(copy, data, length);
  *s = (st_jinja_string){.data = copy, .length = length, .chars = SIZE_MAX};
  st_jinja_count_characters(s); // computed now, so that threads that share the template only read it
  *out = s;
  return true;
}

static bool push_text(lexer *x, st_jinja_token_type type, st_jinja_place place, const char *data, size_t n) {
  st_jinja_token token = {.type = type, .place = place};
  return st_jinja_new_literal(x->c, data, n, &token.text) && push(x, token);
}

// The length of the white space character at `pos`, 0 when there is none.
static size_t space_at(const lexer *x, size_t pos) {
  uint32_t code;
  if (pos >= x->n) return 0;
  int n = st_utf8_decode(x->s + pos, x->n - pos, &code);
  return n > 0 && st_jinja_is_space(code) ? (size_t)n : 0;
}

static size_t skip_space(const lexer *x, size_t pos) {
  for (size_t n; (n = space_at(x, pos));) pos += n;
  return pos;
}

// The start of the white space that ends at `end`, not before `begin`.
static size_t space_before(const lexer *x, size_t begin, size_t end) {
  while (end > begin) {
    size_t p = end - 1;
    while (p > begin && ((unsigned char)x->s[p] & 0xC0) == 0x80) p--;
    if (!space_at(x, p)) break;
    end = p;
  }
  return end;
}

static bool starts(const lexer *x, size_t pos, const char *text) {
  size_t n = strlen(text);
  return x->n - pos >= n && !memcmp(x->s + pos, text, n);
}

// After a tag's end mark: the newline that trim_blocks takes.
static void end_tag(lexer *x, size_t to) {
  x->line_starts = to > 0 && x->s[to - 1] == '\n';
  x->pos = to;
}

// The end of a block at `pos`: +%}, -%} with the white space after it, or %} with one newline. 0: none.
static size_t block_end(const lexer *x, size_t pos) {
  if (starts(x, pos, "+%}")) return pos + 3;
  if (starts(x, pos, "-%}")) return skip_space(x, pos + 3);
  if (starts(x, pos, "%}")) return pos + 2 + (pos + 2 < x->n && x->s[pos + 2] == '\n');
  return 0;
}

// The text from `begin` to the tag at `tag`, whose mark of white space control is `sign`.
static bool push_data(lexer *x, size_t begin, size_t tag, char sign, bool is_variable) {
  size_t end = tag;
  if (sign == '-')
    end = space_before(x, begin, tag);
  else if (sign != '+' && !is_variable) {
    size_t line = tag;
    while (line > begin && x->s[line - 1] != '\n') line--;
    if ((line > begin || x->line_starts) && space_before(x, line, tag) == line) end = line;
  }
  bool ok = end == begin || push_text(x, TOKEN_DATA, here(x), x->s + begin, end - begin);
  x->pos = tag;
  return ok;
}

static bool lex_comment(lexer *x) {
  size_t begin = x->pos;
  if (begin >= x->n) return true; // Jinja tolerates a comment that begins at the very end
  for (size_t p = begin; p + 1 < x->n; p++) {
    if (x->s[p] != '#' || x->s[p + 1] != '}') continue;
    char sign = p > begin ? x->s[p - 1] : 0;
    size_t end = p + 2;
    if (sign == '-')
      end = skip_space(x, end);
    else if (sign != '+' && end < x->n && x->s[end] == '\n')
      end++;
    end_tag(x, end);
    return true;
  }
  return st_jinja_syntax_error(x->c, here(x), "a comment begins with {# and has no end #}");
}

// Is there a `raw` tag at `tag`? Its end, or 0.
static size_t raw_begin(const lexer *x, size_t tag) {
  size_t p = tag + 2;
  if (p < x->n && (x->s[p] == '-' || x->s[p] == '+')) p++;
  p = skip_space(x, p);
  if (!starts(x, p, "raw")) return 0;
  p = skip_space(x, p + 3);
  if (starts(x, p, "-%}")) return skip_space(x, p + 3);
  return starts(x, p, "%}") ? p + 2 : 0;
}

static bool lex_raw(lexer *x, size_t from) {
  x->line_starts = from > 0 && x->s[from - 1] == '\n';
  x->pos = from;
  if (from >= x->n) return true; // also tolerated
  for (size_t p = from; p + 1 < x->n; p++) {
    if (x->s[p] != '{' || x->s[p + 1] != '%') continue;
    size_t q = p + 2;
    char sign = q < x->n && (x->s[q] == '-' || x->s[q] == '+') ? x->s[q++] : 0;
    q = skip_space(x, q);
    if (!starts(x, q, "endraw")) continue;
    size_t end = block_end(x, skip_space(x, q + 6));
    if (!end) continue;
    if (!push_data(x, from, p, sign, false)) return false;
    end_tag(x, end);
    return true;
  }
  return st_jinja_syntax_error(x->c, here(x), "raw has no endraw");
}

// ---- inside a tag ----

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Digits, with single underscores between them, from `pos`: where they end (`pos` when there are none).
static size_t digits(const lexer *x, size_t pos) {
  if (pos >= x->n || !is_digit(x->s[pos])) return pos;
  while (pos < x->n && (is_digit(x->s[pos]) || (x->s[pos] == '_' && pos + 1 < x->n && is_digit(x->s[pos + 1])))) pos++;
  return pos;
}

// A float at the current place: its end, or 0 when it is not a float.
static size_t float_end(const lexer *x) {
  size_t p = digits(x, x->pos);
  if (p == x->pos || (x->pos > 0 && x->s[x->pos - 1] == '.')) return 0;
  size_t fraction = p < x->n && x->s[p] == '.' ? digits(x, p + 1) : 0;
  size_t end = fraction > p + 1 ? fraction : p;
  if (end < x->n && (x->s[end] | 32) == 'e') {
    size_t q = end + 1;
    if (q < x->n && (x->s[q] == '+' || x->s[q] == '-')) q++;
    size_t e = digits(x, q);
    if (e > q) return e;
  }
  return end > p ? end : 0;
}

static bool lex_float(lexer *x, size_t end) {
  char text[400];
  size_t n = 0;
  long exponent = 0, shift = 0;
  bool in_fraction = false;
  size_t p = x->pos;
  for (; p < end && (x->s[p] | 32) != 'e'; p++) {
    if (x->s[p] == '.') in_fraction = true;
    if (!is_digit(x->s[p])) continue;
    if (n == sizeof text)
      return st_jinja_unsupported_syntax(x->c, here(x), "a number with more than %zu digits", sizeof text);
    text[n++] = x->s[p];
    shift -= in_fraction;
  }
  bool negative = p + 1 < end && x->s[p + 1] == '-';
  for (; p < end; p++) {
    if (is_digit(x->s[p]) && exponent < 100000) exponent = exponent * 10 + (x->s[p] - '0');
  }
  st_jinja_token token = {.type = TOKEN_FLOAT, .place = here(x)};
  token.f = st_jinja_decimal(text, n, shift + (negative ? -exponent : exponent), &(bool){false});
  x->pos = end;
  return push(x, token);
}

static int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  c |= 32;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

static bool lex_integer(lexer *x) {
  size_t p = x->pos;
  int base = 10;
  if (x->s[p] == '0' && p + 1 < x->n) {
    char kind = (char)(x->s[p + 1] | 32);
    int b = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 10;
    size_t q = p + 2 + (p + 2 < x->n && x->s[p + 2] == '_');
    if (b != 10 && q < x->n && digit_value(x->s[q]) < b) base = b, p += 2;
  }
  bool zeros = base == 10 && x->s[p] == '0'; // "007" is 00 and 7 to Jinja, and then refused
  st_jinja_token token = {.type = TOKEN_INTEGER, .place = here(x)};
  for (;;) {
    size_t q = p + (p < x->n && x->s[p] == '_' && p > x->pos);
    if (q >= x->n || digit_value(x->s[q]) >= base || (zeros && x->s[q] != '0')) break;
    if (__builtin_mul_overflow(token.i, base, &token.i) ||
        __builtin_add_overflow(token.i, digit_value(x->s[q]), &token.i))
      return st_jinja_unsupported_syntax(x->c, here(x), "an integer beyond 64 bits");
    p = q + 1;
  }
  x->pos = p;
  return push(x, token);
}

static bool name_char(uint32_t code, bool first) {
  if (code < 0x80) {
    bool letter = (code | 32) >= 'a' && (code | 32) <= 'z';
    return letter || code == '_' || (!first && code >= '0' && code <= '9');
  }
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);
  if ((k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_NL) return true;
  return !first && (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ND ||
                    k == UTF8PROC_CATEGORY_PC);
}

static bool lex_name(lexer *x, bool *found) {
  size_t p = x->pos;
  uint32_t code;
  int n;
  while (p < x->n && (n = st_utf8_decode(x->s + p, x->n - p, &code)) > 0 && name_char(code, p == x->pos))
    p += (size_t)n;
  *found = p > x->pos;
  if (!*found) return true;
  bool ok = push_text(x, TOKEN_NAME, here(x), x->s + x->pos, p - x->pos);
  x->pos = p;
  return ok;
}

// ---- string literals ----

typedef struct {
  char *data;
  size_t n;
} unescaped;

// \xNN, \uNNNN and \UNNNNNNNN: `count` hexadecimal digits.
static bool hex_escape(lexer *x, const char *s, size_t left, int count, unescaped *to) {
  uint32_t code = 0;
  for (int i = 0; i < count; i++) {
    if ((size_t)i >= left || digit_value(s[i]) > 15) {
      return st_jinja_syntax_error(x->c, here(x), "an escape in a string has fewer than %d hexadecimal digits", count);
    }
    code = code << 4 | (uint32_t)digit_value(s[i]);
  }
  if (code > 0x10FFFF) return st_jinja_syntax_error(x->c, here(x), "an escape in a string is beyond U+10FFFF");
  if (code >= 0xD800 && code < 0xE000) {
    return st_jinja_unsupported_syntax(x->c, here(x), "a string holds half a surrogate pair, U+%04X", code);
  }
  to->n += (size_t)st_utf8_encode(code, to->data + to->n);
  return true;
}

// The character after a backslash at s[0]; *used is how many bytes it took. `to` has room: no escape grows by more
// than twelve bytes for a character of two or more.
static bool unescape(lexer *x, const char *s, size_t left, unescaped *to, size_t *used) {
  static const char plain[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
  const char *at = s[0] ? strchr(plain, s[0]) : NULL;
  *used = 1;
  if (at)
    to->data[to->n++] = values[at - plain];
  else if (s[0] == '\n')
    return true;
  else if (s[0] == 'x' || s[0] == 'u' || s[0] == 'U') {
    int count = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8;
    *used = 1 + (size_t)count;
    return hex_escape(x, s + 1, left - 1, count, to);
  } else if (s[0] == 'N')
    return st_jinja_unsupported_syntax(x->c, here(x), "\\N{...} in a string");
  else if (s[0] >= '0' && s[0] <= '7') {
    uint32_t code = 0;
    size_t i = 0;
    for (; i < 3 && i < left && s[i] >= '0' && s[i] <= '7'; i++) code = code * 8 + (uint32_t)(s[i] - '0');
    to->n += (size_t)st_utf8_encode(code, to->data + to->n);
    *used = i;
  } else {
    to->data[to->n++] = '\\';
    *used = 0;
    uint32_t code;
    int n = st_utf8_decode(s, left, &code);
    if (n < 2) return true;
    // Python first writes a non-ASCII character as an escape, whose backslash the one before it then escapes.
    static const char hex[] = "0123456789abcdef";
    int count = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    to->data[to->n++] = count == 2 ? 'x' : count == 4 ? 'u' : 'U';
    for (int i = count - 1; i >= 0; i--) to->data[to->n++] = hex[code >> (4 * i) & 15];
    *used = (size_t)n;
  }
  return true;
}

static bool lex_string(lexer *x) {
  char quote = x->s[x->pos];
  size_t begin = x->pos + 1, end = begin;
  while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
  if (end >= x->n) return st_jinja_syntax_error(x->c, here(x), "a string begins with %c and has no end", quote);
  unescaped to = {.data = st_jinja_compile_allocate(x->c, (end - begin) * 4 + 16, 1)};
  if (!to.data) return false;
  for (size_t p = begin; p < end;) {
    if (x->s[p] != '\\') {
      to.data[to.n++] = x->s[p++];
      continue;
    }
    size_t used;
    if (!unescape(x, x->s + p + 1, end - p - 1, &to, &used)) return false;
    p += 1 + used;
  }
  st_jinja_place place = here(x);
  x->pos = end + 1;
  return push_text(x, TOKEN_STRING, place, to.data, to.n);
}

// ---- operators ----

static bool bracket(lexer *x, char c) {
  static const char opening[] = "([{", closing[] = ")]}";
  const char *at = strchr(opening, c);
  if (at) {
    if (!st_reserve(&x->open, &x->open_capacity, x->n_open + 1, 1)) {
      x->c->status = st_fail_memory(x->c->err, "a template");
      return false;
    }
    x->open[x->n_open++] = closing[at - opening];
  } else if (strchr(closing, c)) {
    if (!x->n_open) return st_jinja_syntax_error(x->c, here(x), "found '%c' without an opening bracket", c);
    char expected = x->open[--x->n_open];
    if (expected != c) return st_jinja_syntax_error(x->c, here(x), "expected '%c', found '%c'", expected, c);
  }
  return true;
}

static bool lex_operator(lexer *x) {
  static const struct {
    char text[3];
    st_jinja_token_type type;
  } table[] = {{"//", TOKEN_FLOORDIV}, {"**", TOKEN_POW},     {"==", TOKEN_EQ},    {"!=", TOKEN_NE},
               {">=", TOKEN_GE},       {"<=", TOKEN_LE},      {"+", TOKEN_ADD},    {"-", TOKEN_SUB},
               {"*", TOKEN_MUL},       {"/", TOKEN_DIV},      {"%", TOKEN_MOD},    {"~", TOKEN_TILDE},
               {"[", TOKEN_LBRACKET},  {"]", TOKEN_RBRACKET}, {"(", TOKEN_LPAREN}, {")", TOKEN_RPAREN},
               {"{", TOKEN_LBRACE},    {"}", TOKEN_RBRACE},   {">", TOKEN_GT},     {"<", TOKEN_LT},
               {"=", TOKEN_ASSIGN},    {".", TOKEN_DOT},      {":", TOKEN_COLON},  {"|", TOKEN_PIPE},
               {",", TOKEN_COMMA},     {";", TOKEN_SEMICOLON}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!starts(x, x->pos, table[i].text)) continue;
    if (!bracket(x, table[i].text[0])) return false;
    if (!push(x, (st_jinja_token){.type = table[i].type, .place = here(x)})) return false;
    x->pos += strlen(table[i].text);
    return true;
  }
  uint32_t code;
  int n = st_utf8_decode(x->s + x->pos, x->n - x->pos, &code);
  return st_jinja_syntax_error(x->c, here(x), "unexpected character '%.*s'", n > 0 ? n : 1, x->s + x->pos);
}

// From after {{ or {% to its end.
static bool lex_tag(lexer *x, bool is_variable) {
  x->n_open = 0;
  while (x->pos < x->n) {
    size_t end = 0;
    if (!x->n_open && is_variable) {
      end = starts(x, x->pos, "-}}") ? skip_space(x, x->pos + 3) : starts(x, x->pos, "}}") ? x->pos + 2 : 0;
    } else if (!x->n_open)
      end = block_end(x, x->pos);
    if (end) {
      bool ok = push(x, (st_jinja_token){.type = is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, .place = here(x)});
      end_tag(x, end);
      return ok;
    }
    size_t space = skip_space(x, x->pos), number;
    char c = x->s[x->pos];
    bool ok, found = false;
    if (space > x->pos) {
      x->pos = space;
      continue;
    }
    if ((number = float_end(x)))
      ok = lex_float(x, number);
    else if (is_digit(c))
      ok = lex_integer(x);
    else if (c == '\'' || c == '"')
      ok = lex_string(x);
    else {
      ok = lex_name(x, &found);
      if (ok && !found) ok = lex_operator(x);
    }
    if (!ok) return false;
  }
  return true;
}

static bool lex_all(lexer *x) {
  while (x->pos < x->n) {
    size_t tag = x->pos;
    while (tag + 1 < x->n && !(x->s[tag] == '{' && strchr("{%#", x->s[tag + 1]) && x->s[tag + 1])) tag++;
    if (tag + 1 >= x->n) return push_text(x, TOKEN_DATA, here(x), x->s + x->pos, x->n - x->pos);
    char kind = x->s[tag + 1], sign = tag + 2 < x->n ? x->s[tag + 2] : 0;
    size_t raw = kind == '%' ? raw_begin(x, tag) : 0;
    if (sign != '-' && sign != '+') sign = 0;
    if (!push_data(x, x->pos, tag, sign, kind == '{')) return false;
    if (raw) {
      if (!lex_raw(x, raw)) return false;
      continue;
    }
    x->pos = tag + 2 + (sign != 0);
    if (kind == '#') {
      if (!lex_comment(x)) return false;
      continue;
    }
    st_jinja_token begin = {.type = kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, .place = here(x)};
    if (!push(x, begin) || !lex_tag(x, kind == '{')) return false;
  }
  return true;
}

bool st_jinja_tokenize(st_jinja_compiler *c, const char *text, size_t length, st_jinja_tokens *out) {
  char *copy = st_jinja_compile_allocate(c, length + 1, 1);
  if (!copy) return false;
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] == '\r' && i + 1 < length && text[i + 1] == '\n') continue;
    copy[n++] = text[i] == '\r' ? '\n' : text[i];
  }
  if (n && copy[n - 1] == '\n') n--; // keep_trailing_newline is off
  lexer x = {.c = c, .s = copy, .n = n, .place = {1, 1}, .line_starts = true, .out = out};
  bool ok = lex_all(&x) && push(&x, (st_jinja_token){.type = TOKEN_END, .place = here(&x)});
  st_free(x.open);
  return ok;
}

const char *st_jinja_token_name(const st_jinja_token *t, char buffer[64]) {
  static const char *const names[] = {[TOKEN_END] = "the end of the template",
                                      [TOKEN_DATA] = "text",
                                      [TOKEN_VARIABLE_BEGIN] = "'{{'",
                                      [TOKEN_VARIABLE_END] = "'}}'",
                                      [TOKEN_BLOCK_BEGIN] = "'{%'",
                                      [TOKEN_BLOCK_END] = "'%}'",
                                      [TOKEN_STRING] = "a string",
                                      [TOKEN_INTEGER] = "an integer",
                                      [TOKEN_FLOAT] = "a number",
                                      [TOKEN_ADD] = "'+'",
                                      [TOKEN_SUB] = "'-'",
                                      [TOKEN_MUL] = "'*'",
                                      [TOKEN_DIV] = "'/'",
                                      [TOKEN_FLOORDIV] = "'//'",
                                      [TOKEN_MOD] = "'%'",
                                      [TOKEN_POW] = "'**'",
                                      [TOKEN_TILDE] = "'~'",
                                      [TOKEN_LBRACKET] = "'['",
                                      [TOKEN_RBRACKET] = "']'",
                                      [TOKEN_LPAREN] = "'('",
                                      [TOKEN_RPAREN] = "')'",
                                      [TOKEN_LBRACE] = "'{'",
                                      [TOKEN_RBRACE] = "'}'",
                                      [TOKEN_EQ] = "'=='",
                                      [TOKEN_NE] = "'!='",
                                      [TOKEN_GT] = "'>'",
                                      [TOKEN_GE] = "'>='",
                                      [TOKEN_LT] = "'<'",
                                      [TOKEN_LE] = "'<='",
                                      [TOKEN_ASSIGN] = "'='",
                                      [TOKEN_DOT] = "'.'",
                                      [TOKEN_COLON] = "':'",
                                      [TOKEN_PIPE] = "'|'",
                                      [TOKEN_COMMA] = "','",
                                      [TOKEN_SEMICOLON] = "';'"};
  if (t->type == TOKEN_NAME) return st_jinja_shorten(t->text, buffer);
  return names[t->type];
}
