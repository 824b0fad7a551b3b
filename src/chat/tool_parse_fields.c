// Calls with each argument between marks, similar to XML.
#include "chat/tool_parse.h"

#include <string.h>

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Skips white space and a mark. MORE: it may still follow; WRONG: it is not there, and nothing was skipped.
static st_tool_result pass(st_tool_reader *r, const char *mark) {
  bool more = false;
  size_t before = r->at;
  if (!mark) return ST_TOOL_DONE;
  st_tool_space(r);
  if (st_tool_mark(r, mark, &more)) return ST_TOOL_DONE;
  if (more || (r->at == r->length && !r->final)) return ST_TOOL_MORE;
  r->at = before;
  return ST_TOOL_WRONG;
}

// Reads the text up to a mark, and the mark; without a mark, up to white space or the next '<'.
static st_tool_result read_name(st_tool_reader *r, const char *mark, st_text *name) {
  enum { NAME_MOST = 512, MARK_MOST = 64 };
  size_t end = r->at;
  if (mark) {
    end = st_tool_find(r, mark);
  } else {
    st_tool_space(r);
    end = r->at;
    while (end < r->length && !is_space(r->text[end]) && r->text[end] != '<') end++;
    if (end == r->length && !r->final) end = SIZE_MAX;
  }
  if (end == SIZE_MAX) return r->length - r->at > NAME_MOST + MARK_MOST ? ST_TOOL_WRONG : st_tool_wait(r);
  *name = (st_text){r->text + r->at, end - r->at};
  r->at = end + (mark ? strlen(mark) : 0);
  return name->length && name->length <= NAME_MOST && !memchr(name->data, '<', name->length) ? ST_TOOL_DONE
                                                                                             : ST_TOOL_WRONG;
}

// The end of the value's text without the newline that belongs to the mark after it.
static st_text value_of(const st_tool_reader *r, size_t begin, size_t end) {
  bool wraps = r->format->wraps_values;
  if (wraps && begin < end && r->text[begin] == '\n') begin++;
  if (wraps && begin < end && r->text[end - 1] == '\n') end--;
  return (st_text){r->text + begin, end - begin};
}

// Emits the part of an incomplete string that further text cannot change.
static st_tool_result emit_part(st_tool_reader *r, st_text name, unsigned types) {
  size_t end = r->length - st_tool_partial(r, r->format->value_close);
  st_text text = value_of(r, r->at, end);
  if (types == ST_TYPE_STRING && (!st_buffer_text(&r->arguments, "\"") || !st_tool_append_escaped(&r->arguments, text)))
    return ST_TOOL_MEMORY;
  st_tool_result s = st_tool_emit(r, name, (st_text){r->arguments.data, r->arguments.length}, false);
  return s == ST_TOOL_DONE ? st_tool_wait(r) : s;
}

// Looks for the end of a JSON list or object, whose strings may have the mark in them. DONE: it ends with the mark at
// *end. WRONG: this is not such a value, so that it ends at the first mark.
static st_tool_result find_json_end(const st_tool_reader *r, unsigned types, size_t *end) {
  st_tool_reader probe = *r;
  size_t begin;
  bool more = false;
  st_tool_space(&probe);
  if (probe.at == probe.length) return st_tool_wait(r);
  if (!(types & (probe.text[probe.at] == '{' ? ST_TYPE_OBJECT : probe.text[probe.at] == '[' ? ST_TYPE_ARRAY : 0)))
    return ST_TOOL_WRONG;
  st_tool_result s = st_tool_json(&probe, &begin);
  if (s != ST_TOOL_DONE) return s;
  st_tool_space(&probe);
  *end = probe.at;
  if (st_tool_mark(&probe, r->format->value_close, &more)) return ST_TOOL_DONE;
  return more || (probe.at == probe.length && !r->final) ? ST_TOOL_MORE : ST_TOOL_WRONG;
}

static st_tool_result read_value(st_tool_reader *r, st_text name, unsigned types) {
  size_t end = SIZE_MAX;
  st_tool_result s = find_json_end(r, types, &end);
  if (s == ST_TOOL_WRONG) end = st_tool_find(r, r->format->value_close);
  if (s == ST_TOOL_MORE || end == SIZE_MAX) return emit_part(r, name, types);
  st_text text = value_of(r, r->at, end);
  r->at = end + strlen(r->format->value_close);
  return st_tool_append_value(&r->arguments, text, types) ? ST_TOOL_DONE : ST_TOOL_MEMORY;
}

// Reads "true" or "false" after the mark that says whether the value is a string.
static st_tool_result read_type(st_tool_reader *r, unsigned *types) {
  bool more = false;
  st_tool_result s = r->format->typed ? pass(r, r->format->typed + 1) : ST_TOOL_DONE;
  if (!r->format->typed || s != ST_TOOL_DONE) return s;
  if (st_tool_mark(r, "true", &more))
    *types = ST_TYPE_STRING;
  else if (!more && st_tool_mark(r, "false", &more))
    *types &= ~(unsigned)ST_TYPE_STRING;
  else
    return more ? ST_TOOL_MORE : ST_TOOL_WRONG;
  return ST_TOOL_DONE;
}

// Reads an argument, from after the mark before its key.
static st_tool_result read_argument(st_tool_reader *r, st_text name, size_t count) {
  const st_tool_format *f = r->format;
  st_text key = {0};
  st_tool_result s = read_name(r, f->key_close, &key);
  if (s != ST_TOOL_DONE) return s;
  unsigned types = st_tool_types(r->tools, name, key);
  s = read_type(r, &types);
  if (s == ST_TOOL_DONE) s = pass(r, f->value_open);
  if (s != ST_TOOL_DONE) return s;
  bool ok = (!count || st_buffer_text(&r->arguments, ", ")) && st_buffer_text(&r->arguments, "\"") &&
            st_tool_append_escaped(&r->arguments, key) && st_buffer_text(&r->arguments, "\": ");
  return ok ? read_value(r, name, types) : ST_TOOL_MEMORY;
}

// Reads a call. DONE: it was complete and was emitted.
static st_tool_result read_call(st_tool_reader *r) {
  const st_tool_format *f = r->format;
  const char *end_mark = f->call_close ? f->call_close : f->close;
  st_text name = {0};
  st_tool_result s = pass(r, f->name_open);
  if (s == ST_TOOL_DONE) s = read_name(r, f->name_close, &name);
  if (s != ST_TOOL_DONE) return s;
  r->arguments.length = 0;
  if (!st_buffer_text(&r->arguments, "{")) return ST_TOOL_MEMORY;
  for (size_t count = 0;; count++) {
    st_tool_result end = pass(r, end_mark);
    if (end == ST_TOOL_DONE) break;
    s = pass(r, f->key_open);
    if (s == ST_TOOL_DONE) s = read_argument(r, name, count);
    // At the end of an answer the mark that closes the call may be missing, but not a part of an argument.
    if (s == ST_TOOL_WRONG && r->final && end == ST_TOOL_WRONG && count) {
      st_tool_space(r);
      if (r->at == r->length) break;
    }
    if (s == ST_TOOL_WRONG && end == ST_TOOL_MORE) s = ST_TOOL_MORE;
    if (s != ST_TOOL_DONE) return s;
  }
  if (!st_buffer_text(&r->arguments, "}")) return ST_TOOL_MEMORY;
  st_text arguments = {r->arguments.data, r->arguments.length};
  return st_tool_is_object(arguments) ? st_tool_emit(r, name, arguments, true) : ST_TOOL_WRONG;
}

st_tool_result st_tool_read_fields(st_tool_reader *r) {
  const st_tool_format *f = r->format;
  st_tool_result s = pass(r, f->opens[0]);
  bool opened = s == ST_TOOL_DONE;
  if (s == ST_TOOL_MORE || (!opened && !f->opens[1])) return s;
  for (;;) {
    s = read_call(r);
    if (s != ST_TOOL_DONE || !f->call_close) return s;
    s = pass(r, f->close);
    if (s != ST_TOOL_WRONG) return s;
    st_tool_space(r);
    if (r->at == r->length || !opened) return ST_TOOL_DONE;
  }
}
