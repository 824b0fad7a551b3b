// Converts arguments that formats write as plain text to JSON, by the types that the request's tools define for them.
#include "chat/tool_parse.h"

#include "base/utf8.h"

#include <string.h>

enum { DEPTH_MOST = 8 }; // of schemas within schemas

static bool is_text(const st_json *value, st_text text) {
  return st_json_length(value) == text.length && st_json_is_string(value) &&
         !memcmp(st_json_string(value), text.data, text.length);
}

const st_json *st_tool_function(const st_json *tools, st_text name) {
  for (size_t i = 0; i < st_json_size(tools); i++) {
    const st_json *tool = st_json_at(tools, i), *function = st_json_get(tool, "function");
    if (!function) function = tool;
    if (is_text(st_json_get(function, "name"), name)) return function;
  }
  return NULL;
}

static unsigned type_of(const st_json *name) {
  static const struct {
    const char *name;
    unsigned bit;
  } types[] = {{"null", ST_TYPE_NULL},      {"boolean", ST_TYPE_BOOLEAN}, {"number", ST_TYPE_NUMBER},
               {"integer", ST_TYPE_NUMBER}, {"string", ST_TYPE_STRING},   {"array", ST_TYPE_ARRAY},
               {"object", ST_TYPE_OBJECT}};
  const char *text = st_json_string(name);
  for (size_t i = 0; text && i < sizeof types / sizeof *types; i++) {
    if (!strcmp(types[i].name, text)) return types[i].bit;
  }
  return ST_TYPE_ANY;
}

static unsigned type_of_value(const st_json *value) {
  switch ((st_json_type_id)value->type) {
  case ST_JSON_NULL: return ST_TYPE_NULL;
  case ST_JSON_FALSE:
  case ST_JSON_TRUE: return ST_TYPE_BOOLEAN;
  case ST_JSON_INTEGER:
  case ST_JSON_REAL: return ST_TYPE_NUMBER;
  case ST_JSON_STRING: return ST_TYPE_STRING;
  case ST_JSON_ARRAY: return ST_TYPE_ARRAY;
  case ST_JSON_OBJECT: return ST_TYPE_OBJECT;
  }
  return ST_TYPE_ANY;
}

// Looks up "#/a/b" in the function's parameters; NULL: not found.
static const st_json *referred(const st_json *root, const char *ref) {
  if (strncmp(ref, "#/", 2) != 0) return NULL;
  for (ref += 2; root && *ref;) {
    size_t n = strcspn(ref, "/");
    root = st_json_find_n(root, ref, n);
    ref += n + (ref[n] == '/');
  }
  return root;
}

static unsigned schema_types(const st_json *root, const st_json *schema, int depth);

static unsigned any_of(const st_json *root, const st_json *list, int depth) {
  unsigned types = 0;
  for (size_t i = 0; i < st_json_size(list); i++) types |= schema_types(root, st_json_at(list, i), depth);
  return types ? types : ST_TYPE_ANY;
}

static unsigned schema_types(const st_json *root, const st_json *schema, int depth) {
  const st_json *type = st_json_get(schema, "type"), *values = st_json_get(schema, "enum");
  const st_json *constant = st_json_find(schema, "const"), *ref = st_json_get(schema, "$ref");
  unsigned types = ST_TYPE_ANY, listed = 0;
  if (!st_json_is_object(schema) || depth > DEPTH_MOST) return types;
  if (st_json_is_string(type)) types = type_of(type);
  for (size_t i = 0; i < st_json_size(type); i++) listed |= type_of(st_json_at(type, i));
  if (listed) types = listed;
  listed = 0;
  for (size_t i = 0; i < st_json_size(values); i++) listed |= type_of_value(st_json_at(values, i));
  if (listed) types &= listed;
  if (constant) types &= type_of_value(constant);
  if (st_json_is_string(ref)) types &= schema_types(root, referred(root, st_json_string(ref)), depth + 1);
  types &= any_of(root, st_json_get(schema, "anyOf"), depth + 1);
  types &= any_of(root, st_json_get(schema, "oneOf"), depth + 1);
  for (size_t i = 0; i < st_json_size(st_json_get(schema, "allOf")); i++)
    types &= schema_types(root, st_json_at(st_json_get(schema, "allOf"), i), depth + 1);
  return types;
}

// The types of one member of an object.
static unsigned member_types(const st_json *root, const st_json *schema, st_text key, int depth) {
  static const char *const either[] = {"anyOf", "oneOf"};
  const st_json *all = st_json_get(schema, "allOf"), *ref = st_json_get(schema, "$ref");
  if (!st_json_is_object(schema) || depth > DEPTH_MOST) return ST_TYPE_ANY;
  const st_json *properties = st_json_get(schema, "properties");
  unsigned types = schema_types(root, st_json_find_n(properties, key.data, key.length), depth);
  if (st_json_is_string(ref)) types &= member_types(root, referred(root, st_json_string(ref)), key, depth + 1);
  for (size_t i = 0; i < st_json_size(all); i++) types &= member_types(root, st_json_at(all, i), key, depth + 1);
  for (size_t k = 0; k < sizeof either / sizeof *either; k++) {
    const st_json *list = st_json_get(schema, either[k]);
    unsigned any = 0;
    for (size_t i = 0; i < st_json_size(list); i++) any |= member_types(root, st_json_at(list, i), key, depth + 1);
    if (any) types &= any;
  }
  return types;
}

unsigned st_tool_types(const st_json *tools, st_text tool, st_text argument) {
  const st_json *parameters = st_json_get(st_tool_function(tools, tool), "parameters");
  return member_types(parameters, parameters, argument, 0);
}

bool st_tool_append_escaped(st_buffer *out, st_text text) {
  bool ok = true;
  size_t begin = 0;
  for (size_t i = 0; i <= text.length && ok; i++) {
    unsigned char c = i < text.length ? (unsigned char)text.data[i] : 0;
    if (i < text.length && c >= 0x20 && c != '"' && c != '\\') continue;
    if (i > begin) ok = st_buffer_append(out, text.data + begin, i - begin);
    begin = i + 1;
    if (i == text.length || !ok) break;
    if (c == '\n')
      ok = st_buffer_text(out, "\\n");
    else if (c == '\t')
      ok = st_buffer_text(out, "\\t");
    else if (c == '\r')
      ok = st_buffer_text(out, "\\r");
    else
      ok = c < 0x20 ? st_buffer_format(out, "\\u%04x", c) : st_buffer_format(out, "\\%c", c);
  }
  return ok;
}

// Python's words and JSON's, since some templates write Python's.
static st_text json_word(st_text text) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strlen(words[i][0]) == text.length && !memcmp(words[i][0], text.data, text.length))
      return (st_text){words[i][1], strlen(words[i][1])};
  }
  return text;
}

static st_text trimmed(st_text text) {
  while (text.length && memchr(" \t\r\n", text.data[text.length - 1], 4)) text.length--;
  while (text.length && memchr(" \t\r\n", *text.data, 4)) text.data++, text.length--;
  return text;
}

bool st_tool_append_value(st_buffer *out, st_text text, unsigned types) {
  if (types & ~(unsigned)ST_TYPE_STRING) {
    st_json *root = NULL;
    st_text value = json_word(trimmed(text));
    bool fits = value.length && st_json_parse_lenient(value.data, value.length, "an argument", &root, NULL) == SETUN_OK &&
                (type_of_value(root) & types) && !st_json_is_string(root);
    st_json_free(root);
    if (fits) return st_buffer_append(out, value.data, value.length);
  }
  return st_buffer_text(out, "\"") && st_tool_append_escaped(out, text) && st_buffer_text(out, "\"");
}
