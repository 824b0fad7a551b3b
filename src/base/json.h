// JSON: jansson behind one strict entrance. Include <jansson.h>'s accessors through this header.
#ifndef SETUN_BASE_JSON_H
#define SETUN_BASE_JSON_H

#include "base/buffer.h"

#include <jansson.h>

// Parses one JSON text, which must be an object. Duplicate keys, invalid UTF-8, nesting beyond jansson's bound of
// 2048 and anything after the object are errors that give line and column; `name` says whose text it is. Integers
// become reals (published files hold some beyond 64 bits), so read numbers with the functions below.
// NULL on failure; otherwise freed with json_decref.
json_t *st_json_parse(const char *text, size_t length, const char *name, setun_error *err);

// The same for data whose values matter as they are written, such as a conversation: integers stay integers, and one
// beyond 64 bits is an error; of members with the same name the last counts.
json_t *st_json_parse_values(const char *text, size_t length, const char *name, setun_error *err);

// A member's value with null and absence alike: NULL.
json_t *st_json_get(const json_t *object, const char *key);

// Reads a member; `*out` keeps its value (the default) when the member is absent or null. A member of another type,
// a number that is no integer, or one outside [low, high] is an error that names the key and what was found.
setun_status st_json_u32(const json_t *object, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                         setun_error *err);
setun_status st_json_u64(const json_t *object, const char *key, uint64_t low, uint64_t high, uint64_t *out,
                         setun_error *err);
setun_status st_json_f32(const json_t *object, const char *key, float *out, setun_error *err);
setun_status st_json_bool(const json_t *object, const char *key, bool *out, setun_error *err);
// The string lives as long as the object.
setun_status st_json_text(const json_t *object, const char *key, const char **out, setun_error *err);

// Appends the value as compact JSON text, reals with 9 digits. False: out of memory.
bool st_json_append(const json_t *value, st_buffer *out);

// The same over several lines, for files: members in their order, reals with 17 digits.
bool st_json_append_lines(const json_t *value, st_buffer *out);

// "an array", "a string", ... for messages.
const char *st_json_kind(const json_t *value);

#endif
