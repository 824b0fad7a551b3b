// Calls as JSON objects with the name and the arguments, and calls of Llama's built-in tools, which are written in
// Python.
#include "chat/tool_parse.h"

#include <string.h>

// The members of a call's object.
typedef struct members {
  st_text name;      // a JSON string, quotes included
  st_text arguments; // a JSON value
  bool complete;        // the value is complete
} members;

static bool is_key(st_text key, const char *name) {
  size_t n = strlen(name);
  return key.length == n + 2 && !memcmp(key.data + 1, name, n);
}

static bool is_arguments(st_text key) {
  return is_key(key, "arguments") || is_key(key, "parameters");
}

static st_tool_result read_members(st_tool_reader *r, members *m, int depth);

// Reads a member's value, from after its key.
static st_tool_result read_member(st_tool_reader *r, st_text key, members *m, int depth) {
  size_t begin;
  st_tool_space(r);
  if (r->at == r->length) return st_tool_wait(r);
  if (r->text[r->at++] != ':') return ST_TOOL_WRONG;
  st_tool_space(r);
  if (is_key(key, "function") && !depth && r->at < r->length && r->text[r->at] == '{')
    return read_members(r, m, depth + 1);
  st_tool_result s = st_tool_json(r, &begin);
  st_text value = {r->text + begin, (s == ST_TOOL_DONE ? r->at : r->length) - begin};
  if (is_arguments(key)) m->arguments = value, m->complete = s == ST_TOOL_DONE;
  if (is_key(key, "name") && s == ST_TOOL_DONE) m->name = value;
  return s;
}

// Reads an object, from its brace on.
static st_tool_result read_members(st_tool_reader *r, members *m, int depth) {
  r->at++;
  for (;;) {
    size_t begin;
    st_tool_space(r);
    if (r->at == r->length) return st_tool_wait(r);
    char c = r->text[r->at];
    if (c == '}' || c == ',') r->at++;
    if (c == '}') return ST_TOOL_DONE;
    if (c == ',') continue;
    if (c != '"') return ST_TOOL_WRONG;
    st_tool_result s = st_tool_json(r, &begin);
    if (s == ST_TOOL_DONE) s = read_member(r, (st_text){r->text + begin, r->at - begin}, m, depth);
    if (s != ST_TOOL_DONE) return s;
  }
}

static st_json *read_string(st_text value) {
  st_json *root = NULL;
  if (st_json_parse_lenient(value.data, value.length, "a call", &root, NULL) != SETUN_OK) return NULL;
  if (st_json_is_string(root) && st_json_length(root)) return root;
  st_json_free(root);
  return NULL;
}

// The arguments of a complete call: an object, possibly in a string.
static bool complete_arguments(const members *m, st_text *arguments, st_json **unquoted) {
  *arguments = m->arguments;
  if (!m->arguments.length || (m->arguments.length == 4 && !memcmp(m->arguments.data, "null", 4))) {
    *arguments = (st_text){"{}", 2};
  } else if (*m->arguments.data == '"') {
    *unquoted = read_string(m->arguments);
    *arguments = (st_text){st_json_string(*unquoted), st_json_length(*unquoted)};
  }
  return arguments->length && st_tool_is_object(*arguments);
}

static st_tool_result emit_call(st_tool_reader *r, const members *m, st_text object, bool bare) {
  st_json *name = m->name.length ? read_string(m->name) : NULL, *unquoted = NULL;
  st_text called = {st_json_string(name), st_json_length(name)}, arguments = m->arguments;
  bool complete = object.length > 0, known = name && (!bare || st_tool_function(r->tools, called));
  st_tool_result s = ST_TOOL_WRONG;
  if (!complete)
    s = known && arguments.length && *arguments.data == '{' ? st_tool_emit(r, called, arguments, false) : ST_TOOL_DONE;
  else if (known && st_tool_is_object(object) && complete_arguments(m, &arguments, &unquoted))
    s = st_tool_emit(r, called, arguments, true);
  st_json_free(name);
  st_json_free(unquoted);
  return s;
}

static st_tool_result read_object(st_tool_reader *r, bool bare) {
  members m = {0};
  size_t begin = r->at;
  st_tool_result s = read_members(r, &m, 0);
  if (s == ST_TOOL_DONE) return emit_call(r, &m, (st_text){r->text + begin, r->at - begin}, bare);
  if (s == ST_TOOL_WRONG) return s;
  st_tool_result result = emit_call(r, &m, (st_text){0}, bare);
  return result == ST_TOOL_DONE ? s : result;
}

// ---- Llama's built-in tools ----

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Appends a word of Python or a number as JSON.
static bool append_word(st_buffer *out, st_text word) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strlen(words[i][0]) == word.length && !memcmp(words[i][0], word.data, word.length))
      return st_buffer_text(out, words[i][1]);
  }
  return st_buffer_append(out, word.data, word.length);
}

// Reads a value: a string in quotes, or a word up to a comma or bracket.
static st_tool_result read_value(st_tool_reader *r) {
  st_tool_space(r);
  size_t begin = r->at, end = begin;
  if (begin == r->length) return st_tool_wait(r);
  char quote = r->text[begin];
  if (quote != '"' && quote != '\'') {
    while (end < r->length && !strchr(",)", r->text[end])) end++;
    if (end == r->length) return st_tool_wait(r);
    r->at = end;
    return append_word(&r->arguments, (st_text){r->text + begin, end - begin}) ? ST_TOOL_DONE : ST_TOOL_MEMORY;
  }
  for (end = begin + 1; end < r->length && r->text[end] != quote; end++) end += r->text[end] == '\\';
  if (end >= r->length) return st_tool_wait(r);
  r->at = end + 1;
  bool ok = st_buffer_text(&r->arguments, "\"") &&
               st_tool_append_escaped(&r->arguments, (st_text){r->text + begin + 1, end - begin - 1}) &&
               st_buffer_text(&r->arguments, "\"");
  return ok ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

static st_tool_result read_keyword(st_tool_reader *r, size_t count) {
  size_t begin = r->at;
  while (r->at < r->length && is_word(r->text[r->at])) r->at++;
  size_t n = r->at - begin;
  st_tool_space(r);
  if (r->at == r->length) return st_tool_wait(r);
  if (!n || r->text[r->at++] != '=') return ST_TOOL_WRONG;
  bool ok = (!count || st_buffer_text(&r->arguments, ", ")) && st_buffer_text(&r->arguments, "\"") &&
               st_buffer_append(&r->arguments, r->text + begin, n) && st_buffer_text(&r->arguments, "\": ");
  return ok ? read_value(r) : ST_TOOL_MEMORY;
}

// NAME.call(KEY=VALUE, ...)
static st_tool_result read_python(st_tool_reader *r) {
  bool more;
  size_t begin = r->at;
  while (r->at < r->length && is_word(r->text[r->at])) r->at++;
  st_text name = {r->text + begin, r->at - begin};
  if (!name.length) return ST_TOOL_WRONG;
  if (!st_tool_mark(r, ".call(", &more)) return more || r->at == r->length ? st_tool_wait(r) : ST_TOOL_WRONG;
  if (!st_buffer_text(&r->arguments, "{")) return ST_TOOL_MEMORY;
  for (size_t count = 0;; count++) {
    st_tool_space(r);
    if (r->at == r->length) return st_tool_wait(r);
    if (r->text[r->at] == ')') break;
    if (r->text[r->at] == ',') r->at++;
    st_tool_space(r);
    st_tool_result s = read_keyword(r, count);
    if (s != ST_TOOL_DONE) return s;
    st_tool_space(r);
  }
  r->at++;
  if (!st_buffer_text(&r->arguments, "}")) return ST_TOOL_MEMORY;
  st_text arguments = {r->arguments.data, r->arguments.length};
  return st_tool_is_object(arguments) ? st_tool_emit(r, name, arguments, true) : ST_TOOL_WRONG;
}

// ---- all calls ----

// Reads the calls of a list, or a sequence of calls. DONE: they have ended.
static st_tool_result read_calls(st_tool_reader *r, bool bare) {
  bool list = r->text[r->at] == '[';
  if (list) r->at++;
  for (;;) {
    st_tool_space(r);
    if (r->at == r->length) return st_tool_wait(r);
    char c = r->text[r->at];
    if (c == '{') {
      st_tool_result s = read_object(r, bare);
      if (s != ST_TOOL_DONE || (!list && !r->format->close)) return s;
    } else if (list && c == ',') {
      r->at++;
    } else if (list && c == ']') {
      r->at++;
      r->good = r->at;
      return ST_TOOL_DONE;
    } else {
      return !list && r->good ? ST_TOOL_DONE : ST_TOOL_WRONG;
    }
  }
}

st_tool_result st_tool_read_json(st_tool_reader *r) {
  const st_tool_format *f = r->format;
  bool more = false, opened = false;
  for (size_t i = 0; i < ST_TOOL_OPENS && f->opens[i] && !opened; i++) {
    opened = st_tool_mark(r, f->opens[i], &more);
    if (more) return ST_TOOL_MORE;
  }
  if (!opened && !f->bare) return ST_TOOL_WRONG;
  st_tool_space(r);
  if (r->at == r->length) return st_tool_wait(r);
  char c = r->text[r->at];
  if (f->bare && opened && c != '{' && c != '[') return read_python(r);
  if (c != '{' && c != '[') return ST_TOOL_WRONG;
  st_tool_result s = read_calls(r, !opened);
  if (s != ST_TOOL_DONE && r->final && r->good) { // the closing mark may be missing
    size_t rest = r->good;
    while (rest < r->length && strchr(" \t\r\n", r->text[rest])) rest++;
    if (rest == r->length) s = ST_TOOL_DONE, r->at = rest;
  }
  if (s != ST_TOOL_DONE || !f->close) return s;
  st_tool_space(r);
  if (r->at == r->length && !r->final) return ST_TOOL_MORE;
  if (r->at == r->length || st_tool_mark(r, f->close, &more)) return ST_TOOL_DONE;
  return more ? ST_TOOL_MORE : ST_TOOL_WRONG;
}
