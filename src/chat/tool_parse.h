// Parsing calls of tools in a model's text. The text begins with the mark that opens calls and may end anywhere: the
// functions report the part that further text cannot change. They keep no state: with more of the text, they parse it
// from its beginning again, with the same results for the part parsed before.
#ifndef SETUN_CHAT_TOOL_PARSE_H
#define SETUN_CHAT_TOOL_PARSE_H

#include "base/json.h"
#include "chat/tool_formats.h"

typedef enum st_tool_result {
  ST_TOOL_MORE,  // more text is needed
  ST_TOOL_DONE,  // the calls end at `at`
  ST_TOOL_WRONG, // the text from `good` on is not a call
  ST_TOOL_MEMORY // out of memory
} st_tool_result;

// Receives a call, complete or up to the end of the text. `arguments` is JSON text, an object if the call is complete.
// Returns false if out of memory or to stop the parsing.
typedef bool (*st_tool_call_fn)(void *user, st_text name, st_text arguments, bool complete);

typedef struct st_tool_reader {
  const st_tool_format *format;
  const st_json *tools; // of the request, for the types of arguments; may be NULL
  const char *text;
  size_t length;
  bool final; // no more text follows
  st_tool_call_fn fn;
  void *user;

  size_t at, good;     // the position; the end of the last complete call
  st_buffer arguments; // for syntaxes whose arguments are converted
} st_tool_reader;

// Parses the text. Frees what it allocated.
st_tool_result st_tool_read(st_tool_reader *r);

// ---- for the syntaxes ----

// Skips white space.
void st_tool_space(st_tool_reader *r);
// Skips the mark if the text at `at` begins with it; false if not. *more: it may, once there is more text.
bool st_tool_mark(st_tool_reader *r, const char *mark, bool *more);
// The mark's first position from `at` on; SIZE_MAX: there is none.
size_t st_tool_find(const st_tool_reader *r, const char *mark);
// The number of bytes at the end of the text that may be the beginning of the mark.
size_t st_tool_partial(const st_tool_reader *r, const char *mark);
// MORE, or WRONG if no more text follows.
st_tool_result st_tool_wait(const st_tool_reader *r);
// Skips a JSON value; only its end is looked for, by brackets and strings. *begin is its first byte.
st_tool_result st_tool_json(st_tool_reader *r, size_t *begin);
// Whether a text is a valid JSON object.
bool st_tool_is_object(st_text text);
// Passes a call to `fn`; a complete one moves `good`.
st_tool_result st_tool_emit(st_tool_reader *r, st_text name, st_text arguments, bool complete);

st_tool_result st_tool_read_json(st_tool_reader *r);
st_tool_result st_tool_read_fields(st_tool_reader *r);
st_tool_result st_tool_read_gemma(st_tool_reader *r);

// ---- arguments whose types the tools define ----

enum {
  ST_TYPE_NULL = 1,
  ST_TYPE_BOOLEAN = 2,
  ST_TYPE_NUMBER = 4,
  ST_TYPE_STRING = 8,
  ST_TYPE_ARRAY = 16,
  ST_TYPE_OBJECT = 32,
  ST_TYPE_ANY = 63
};

// The types that an argument may have; ST_TYPE_ANY if they are not defined.
unsigned st_tool_types(const st_json *tools, st_text tool, st_text argument);
// The function of that name, {"name", "parameters", ...}; NULL: none.
const st_json *st_tool_function(const st_json *tools, st_text name);
// Appends a text as a JSON value of one of the types: unchanged if it is JSON of such a type, otherwise as a string.
bool st_tool_append_value(st_buffer *out, st_text text, unsigned types);
// Appends a text as the contents of a JSON string, without the quotes.
bool st_tool_append_escaped(st_buffer *out, st_text text);

#endif
