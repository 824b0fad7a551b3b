// Reading calls of tools out of a model's text. The text begins with the mark that opens calls and may end anywhere:
// the functions say how far it is certain. They are pure: given more of the text, they read it from its beginning
// again, and find what they found before.
#ifndef SETUN_CHAT_TOOL_PARSE_H
#define SETUN_CHAT_TOOL_PARSE_H

#include "base/json.h"
#include "chat/tool_formats.h"

typedef enum st_tool_result {
  ST_TOOL_MORE,  // what follows decides
  ST_TOOL_DONE,  // the calls end at `at`
  ST_TOOL_WRONG, // the text from `good` on is no call
  ST_TOOL_MEMORY // out of memory
} st_tool_result;

// A call that is found, whole or up to where the text ends. `arguments` is JSON text, of an object when it is whole.
// False: out of memory, or nobody wants more; the reading then ends.
typedef bool (*st_tool_call_fn)(void *user, st_text name, st_text arguments, bool whole);

typedef struct st_tool_reader {
  const st_tool_format *format;
  const st_json *tools; // of the request, for the types of arguments; may be NULL
  const char *text;
  size_t length;
  bool final; // no more text follows
  st_tool_call_fn fn;
  void *user;

  size_t at, good;     // where it reads; behind the last whole call
  st_buffer arguments; // of syntaxes whose arguments are converted
} st_tool_reader;

// Reads. Frees what it took.
st_tool_result st_tool_read(st_tool_reader *r);

// ---- for the syntaxes ----

// Moves behind white space.
void st_tool_space(st_tool_reader *r);
// Whether the text at `at` begins with the mark, which then is passed. *more: it may, once there is more text.
bool st_tool_mark(st_tool_reader *r, const char *mark, bool *more);
// Where the mark begins at or behind `at`; SIZE_MAX: nowhere.
size_t st_tool_find(const st_tool_reader *r, const char *mark);
// How many bytes at the end of the text may be the beginning of the mark.
size_t st_tool_partial(const st_tool_reader *r, const char *mark);
// MORE, or WRONG where no more text follows.
st_tool_result st_tool_wait(const st_tool_reader *r);
// Passes a JSON value, of which only its end is looked for: brackets and strings. *begin is where it begins.
st_tool_result st_tool_json(st_tool_reader *r, size_t *begin);
// Whether a text is a JSON object, whole and valid.
bool st_tool_is_object(st_text text);
// Gives a call; the whole one moves `good`.
st_tool_result st_tool_give(st_tool_reader *r, st_text name, st_text arguments, bool whole);

st_tool_result st_tool_read_json(st_tool_reader *r);
st_tool_result st_tool_read_fields(st_tool_reader *r);
st_tool_result st_tool_read_gemma(st_tool_reader *r);

// ---- arguments whose types the tools say ----

enum {
  ST_TYPE_NULL = 1,
  ST_TYPE_BOOLEAN = 2,
  ST_TYPE_NUMBER = 4,
  ST_TYPE_STRING = 8,
  ST_TYPE_ARRAY = 16,
  ST_TYPE_OBJECT = 32,
  ST_TYPE_ANY = 63
};

// The types that an argument may have; ST_TYPE_ANY where nothing says.
unsigned st_tool_types(const st_json *tools, st_text tool, st_text argument);
// The function of that name, {"name", "parameters", ...}; NULL: none.
const st_json *st_tool_function(const st_json *tools, st_text name);
// Appends a text as a JSON value of one of the types: as it is where it is JSON of such a type, otherwise as a string.
bool st_tool_append_value(st_buffer *out, st_text text, unsigned types);
// Appends a text as what is inside of a JSON string, without the quotes.
bool st_tool_append_escaped(st_buffer *out, st_text text);

#endif
