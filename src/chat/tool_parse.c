// Shared by the syntaxes of tool_parse.h: marks, the ends of JSON values, and the choice of the syntax.
#include "chat/tool_parse.h"

#include <string.h>

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void st_tool_space(st_tool_reader *r) {
  while (r->at < r->length && is_space(r->text[r->at])) r->at++;
}

bool st_tool_mark(st_tool_reader *r, const char *mark, bool *more) {
  size_t n = strlen(mark), rest = r->length - r->at, shared = n < rest ? n : rest;
  *more = false;
  if (memcmp(r->text + r->at, mark, shared) != 0) return false;
  *more = shared < n && !r->final;
  if (shared == n) r->at += n;
  return shared == n;
}

size_t st_tool_find(const st_tool_reader *r, const char *mark) {
  size_t n = strlen(mark);
  for (size_t i = r->at; i + n <= r->length; i++) {
    if (r->text[i] == *mark && !memcmp(r->text + i, mark, n)) return i;
  }
  return SIZE_MAX;
}

size_t st_tool_partial(const st_tool_reader *r, const char *mark) {
  size_t n = strlen(mark) - 1, rest = r->length - r->at;
  if (n > rest) n = rest;
  while (n && memcmp(r->text + r->length - n, mark, n) != 0) n--;
  return n;
}

st_tool_result st_tool_wait(const st_tool_reader *r) {
  return r->final ? ST_TOOL_WRONG : ST_TOOL_MORE;
}

// The position after the string that begins at `at`; SIZE_MAX: it does not end.
static size_t string_end(const st_tool_reader *r, size_t at) {
  for (size_t i = at + 1; i < r->length; i++) {
    if (r->text[i] == '\\')
      i++;
    else if (r->text[i] == '"')
      return i + 1;
  }
  return SIZE_MAX;
}

// The position after the bracket that closes the one at `at`; SIZE_MAX: not found.
static size_t bracket_end(const st_tool_reader *r, size_t at) {
  size_t depth = 0;
  for (size_t i = at; i < r->length; i++) {
    char c = r->text[i];
    if (c == '"') {
      i = string_end(r, i);
      if (i == SIZE_MAX) return i;
      i--;
    } else if (c == '{' || c == '[') {
      depth++;
    } else if ((c == '}' || c == ']') && !--depth) {
      return i + 1;
    }
  }
  return SIZE_MAX;
}

static size_t word_end(const st_tool_reader *r, size_t at) {
  size_t i = at;
  while (i < r->length && !is_space(r->text[i]) && !strchr(",]}", r->text[i])) i++;
  return i < r->length || r->final ? i : SIZE_MAX;
}

st_tool_result st_tool_json(st_tool_reader *r, size_t *begin) {
  st_tool_space(r);
  *begin = r->at;
  if (r->at == r->length) return st_tool_wait(r);
  char c = r->text[r->at];
  size_t end = c == '"' ? string_end(r, r->at) : c == '{' || c == '[' ? bracket_end(r, r->at) : word_end(r, r->at);
  if (end == SIZE_MAX) return st_tool_wait(r);
  if (end == r->at) return ST_TOOL_WRONG;
  r->at = end;
  return ST_TOOL_DONE;
}

bool st_tool_is_object(st_text text) {
  st_json *root = NULL;
  bool is = st_json_parse_lenient(text.data, text.length, "arguments", &root, NULL) == SETUN_OK && st_json_is_object(root);
  st_json_free(root);
  return is;
}

st_tool_result st_tool_emit(st_tool_reader *r, st_text name, st_text arguments, bool complete) {
  if (!r->fn(r->user, name, arguments, complete)) return ST_TOOL_MEMORY;
  if (complete) r->good = r->at;
  return ST_TOOL_DONE;
}

// ---- calls whose arguments are JSON between marks ----

// Skips white space and the mark, which may be missing at the end of the text. DONE: it was there.
static st_tool_result pass(st_tool_reader *r, const char *mark, bool needed) {
  bool more = false;
  if (!mark) return ST_TOOL_DONE;
  size_t before = r->at;
  if (!is_space(*mark)) st_tool_space(r);
  if (st_tool_mark(r, mark, &more)) return ST_TOOL_DONE;
  if (more) return ST_TOOL_MORE;
  r->at = before;
  st_tool_space(r);
  bool end = r->at == r->length;
  if (!r->final && end) return ST_TOOL_MORE;
  return end && !needed ? ST_TOOL_DONE : ST_TOOL_WRONG;
}

// Reads the name, up to the mark that ends it; Mistral's may be followed by an id of the call.
static st_tool_result read_name(st_tool_reader *r, st_text *name) {
  static const char id_mark[] = "[CALL_ID]";
  enum { NAME_MOST = 512, MARK_MOST = 64 };
  size_t end = st_tool_find(r, r->format->name_close);
  if (end == SIZE_MAX) return r->length - r->at > NAME_MOST + MARK_MOST ? ST_TOOL_WRONG : st_tool_wait(r);
  *name = (st_text){r->text + r->at, end - r->at};
  for (size_t i = 0; i + sizeof id_mark - 1 <= name->length; i++) {
    if (!memcmp(name->data + i, id_mark, sizeof id_mark - 1)) name->length = i;
  }
  while (name->length && is_space(name->data[name->length - 1])) name->length--;
  while (name->length && is_space(*name->data)) name->data++, name->length--;
  r->at = end + strlen(r->format->name_close);
  return name->length && name->length <= NAME_MOST && !memchr(name->data, '\n', name->length) ? ST_TOOL_DONE
                                                                                              : ST_TOOL_WRONG;
}

static st_tool_result read_named_call(st_tool_reader *r) {
  const st_tool_format *f = r->format;
  size_t begin;
  st_text name = {0};
  st_tool_result s = pass(r, f->call_open, true);
  if (s == ST_TOOL_DONE) s = pass(r, f->name_open, true);
  if (s == ST_TOOL_DONE) s = read_name(r, &name);
  if (s != ST_TOOL_DONE) return s;
  s = st_tool_json(r, &begin);
  if (s == ST_TOOL_MORE && begin < r->length && r->text[begin] == '{') {
    s = st_tool_emit(r, name, (st_text){r->text + begin, r->length - begin}, false);
    return s == ST_TOOL_DONE ? ST_TOOL_MORE : s;
  }
  if (s != ST_TOOL_DONE) return s;
  st_text arguments = {r->text + begin, r->at - begin};
  if (!st_tool_is_object(arguments)) return ST_TOOL_WRONG;
  s = pass(r, f->after, false);
  if (s == ST_TOOL_DONE) s = pass(r, f->call_close, false);
  return s == ST_TOOL_DONE ? st_tool_emit(r, name, arguments, true) : s;
}

static st_tool_result read_named(st_tool_reader *r) {
  const st_tool_format *f = r->format;
  bool more = false;
  if (!st_tool_mark(r, f->opens[0], &more)) return more ? ST_TOOL_MORE : ST_TOOL_WRONG;
  if (r->at < r->length && strchr("[{", r->text[r->at])) { // older models of the family write a list
    r->at = 0;
    return st_tool_read_json(r);
  }
  for (;;) {
    st_tool_result s = read_named_call(r);
    if (s != ST_TOOL_DONE || !f->call_open) return s;
    st_tool_space(r);
    if (r->at == r->length) return r->final ? ST_TOOL_DONE : ST_TOOL_MORE;
    if (st_tool_mark(r, f->close, &more)) return ST_TOOL_DONE;
    if (more) return ST_TOOL_MORE;
  }
}

// ---- the choice ----

st_tool_result st_tool_read(st_tool_reader *r) {
  st_tool_result result = ST_TOOL_WRONG;
  r->at = r->good = 0;
  switch (r->format->syntax) {
  case ST_TOOLS_JSON: result = st_tool_read_json(r); break;
  case ST_TOOLS_NAMED: result = read_named(r); break;
  case ST_TOOLS_FIELDS: result = st_tool_read_fields(r); break;
  case ST_TOOLS_GEMMA: result = st_tool_read_gemma(r); break;
  case ST_TOOLS_HARMONY: break; // its calls are messages
  }
  st_buffer_free(&r->arguments);
  r->arguments = (st_buffer){0};
  return result;
}
