// Calls in Gemma's format: call:NAME{key:value,...}, with strings between special marks.
#include "chat/tool_parse.h"

#include <string.h>

enum { DEPTH_MOST = 64 };

// Reads a key up to its colon, bare or quoted; or a string.
static st_tool_result append_string(st_tool_reader *r, st_text text) {
  bool ok = st_buffer_text(&r->arguments, "\"") && st_tool_append_escaped(&r->arguments, text) &&
            st_buffer_text(&r->arguments, "\"");
  return ok ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

// Reads a string, from after its first mark. Of an incomplete one, the part that is certain goes to the arguments.
static st_tool_result read_string(st_tool_reader *r) {
  size_t end = st_tool_find(r, r->format->quote);
  st_text text = {r->text + r->at, (end == SIZE_MAX ? r->length - st_tool_partial(r, r->format->quote) : end) - r->at};
  if (end == SIZE_MAX) {
    bool ok = st_buffer_text(&r->arguments, "\"") && st_tool_append_escaped(&r->arguments, text);
    return ok ? st_tool_wait(r) : ST_TOOL_MEMORY;
  }
  r->at = end + strlen(r->format->quote);
  return append_string(r, text);
}

static st_tool_result read_key(st_tool_reader *r) {
  bool more = false;
  st_tool_space(r);
  st_tool_result s = ST_TOOL_DONE;
  if (st_tool_mark(r, r->format->quote, &more)) {
    if (st_tool_find(r, r->format->quote) == SIZE_MAX) return st_tool_wait(r);
    s = read_string(r);
  } else {
    size_t end = r->at;
    while (end < r->length && !strchr(":{}[],\n", r->text[end])) end++;
    if (more || end == r->length) return st_tool_wait(r);
    if (end == r->at || r->text[end] != ':') return ST_TOOL_WRONG;
    s = append_string(r, (st_text){r->text + r->at, end - r->at});
    r->at = end;
  }
  st_tool_space(r);
  if (s != ST_TOOL_DONE) return s;
  if (r->at == r->length) return st_tool_wait(r);
  if (r->text[r->at++] != ':') return ST_TOOL_WRONG;
  return st_buffer_text(&r->arguments, ": ") ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

// Reads a number or a word.
static st_tool_result read_word(st_tool_reader *r) {
  size_t end = r->at;
  while (end < r->length && !strchr(",}]\n", r->text[end])) end++;
  if (end == r->length) return st_tool_wait(r);
  if (end == r->at) return ST_TOOL_WRONG;
  st_text word = {r->text + r->at, end - r->at};
  r->at = end;
  return st_tool_append_value(&r->arguments, word, ST_TYPE_ANY) ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

static st_tool_result read_value(st_tool_reader *r, int depth);

// Reads a dictionary or a list, from its bracket on.
static st_tool_result read_items(st_tool_reader *r, int depth) {
  bool object = r->text[r->at++] == '{';
  char close = object ? '}' : ']';
  if (!st_buffer_text(&r->arguments, object ? "{" : "[")) return ST_TOOL_MEMORY;
  for (size_t count = 0;; count++) {
    st_tool_space(r);
    if (r->at == r->length) return st_tool_wait(r);
    if (r->text[r->at] == close) break;
    if (count && r->text[r->at++] != ',') return ST_TOOL_WRONG;
    st_tool_space(r);
    if (r->at == r->length) return st_tool_wait(r);
    if (count && !st_buffer_text(&r->arguments, ", ")) return ST_TOOL_MEMORY;
    st_tool_result s = object ? read_key(r) : ST_TOOL_DONE;
    if (s == ST_TOOL_DONE) s = read_value(r, depth);
    if (s != ST_TOOL_DONE) return s;
  }
  r->at++;
  return st_buffer_text(&r->arguments, object ? "}" : "]") ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

static st_tool_result read_value(st_tool_reader *r, int depth) {
  bool more = false;
  st_tool_space(r);
  if (r->at == r->length) return st_tool_wait(r);
  if (r->text[r->at] == '{' || r->text[r->at] == '[')
    return depth < DEPTH_MOST ? read_items(r, depth + 1) : ST_TOOL_WRONG;
  if (st_tool_mark(r, r->format->quote, &more)) return read_string(r);
  return more ? ST_TOOL_MORE : read_word(r);
}

st_tool_result st_tool_read_gemma(st_tool_reader *r) {
  enum { NAME_MOST = 512 };
  const st_tool_format *f = r->format;
  bool more = false;
  if (!st_tool_mark(r, f->opens[0], &more)) return more ? ST_TOOL_MORE : ST_TOOL_WRONG;
  st_tool_space(r);
  if (!st_tool_mark(r, "call:", &more)) return more || r->at == r->length ? st_tool_wait(r) : ST_TOOL_WRONG;
  size_t end = r->at;
  while (end < r->length && !strchr("{}\n <", r->text[end])) end++;
  st_text name = {r->text + r->at, end - r->at};
  if (end == r->length) return name.length > NAME_MOST ? ST_TOOL_WRONG : st_tool_wait(r);
  if (!name.length || name.length > NAME_MOST || r->text[end] != '{') return ST_TOOL_WRONG;
  r->at = end;
  st_tool_result s = read_items(r, 0);
  st_text arguments = {r->arguments.data, r->arguments.length};
  if (s == ST_TOOL_MORE) {
    s = st_tool_emit(r, name, arguments, false);
    return s == ST_TOOL_DONE ? ST_TOOL_MORE : s;
  }
  if (s != ST_TOOL_DONE) return s;
  if (!st_tool_is_object(arguments)) return ST_TOOL_WRONG;
  st_tool_space(r);
  if (r->at == r->length && !r->final) return ST_TOOL_MORE;
  if (r->at < r->length && !st_tool_mark(r, f->close, &more)) return more ? ST_TOOL_MORE : ST_TOOL_WRONG;
  return st_tool_emit(r, name, arguments, true);
}
