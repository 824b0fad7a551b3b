// JSON: a strict reader into a compact tree, access to its values, edits, and the writer.
//
// A document is its root value, which owns everything below it: values, texts and additions are in one arena, which
// st_json_free frees as a whole. Values are 16 bytes and copied freely within their document.
#ifndef SETUN_BASE_JSON_H
#define SETUN_BASE_JSON_H

#include "base/buffer.h"

typedef enum st_json_type_id {
  ST_JSON_NULL,
  ST_JSON_FALSE,
  ST_JSON_TRUE,
  ST_JSON_INTEGER,
  ST_JSON_REAL,
  ST_JSON_STRING,
  ST_JSON_ARRAY,
  ST_JSON_OBJECT
} st_json_type_id;

typedef struct st_json_member st_json_member;

typedef struct st_json {
  uint8_t type;    // st_json_type_id
  uint8_t room;    // in edited containers: binary logarithm of the capacity; 0: no spare room
  uint8_t indexed; // objects: a hash table follows the members
  uint32_t count;  // elements, members, a string's bytes, or where a number begins in the text that was read
  union {
    int64_t integer;
    double real;
    const char *text; // UTF-8, followed by a 0 byte; may contain further ones
    struct st_json *items;
    st_json_member *members;
  } as;
} st_json;

struct st_json_member {
  const char *key; // without 0 bytes except the one at its end
  uint32_t length;
  uint32_t at; // the key's offset in the text that was read, for messages
  st_json value;
};

// ---- reading ----

// Maximum nesting of values; a scalar counts as a level.
enum { ST_JSON_DEPTH_MOST = 2048 };

// Reads one JSON text, which must be an object. Duplicate keys, invalid UTF-8, nesting beyond ST_JSON_DEPTH_MOST and
// anything after the object are errors (SETUN_ERROR_FORMAT) that give line and column; `name` identifies the text.
// Integers become reals (published files hold some beyond 64 bits), so read numbers with the functions below.
// `*root` is freed with st_json_free; it is NULL on failure. The text is no longer needed.
setun_status st_json_parse(const char *text, size_t length, const char *name, st_json **root, setun_error *err);

// The same for data whose values must be preserved, such as a conversation: integers stay integers, beyond 64 bits they
// are an error. Duplicate keys are errors, which name the place of their object.
setun_status st_json_parse_values(const char *text, size_t length, const char *name, st_json **root, setun_error *err);

// Like st_json_parse_values, but the text may be any value.
setun_status st_json_parse_any(const char *text, size_t length, const char *name, st_json **root, setun_error *err);

// Like st_json_parse_any for text that a model wrote: of members with the same name the last is kept.
setun_status st_json_parse_lenient(const char *text, size_t length, const char *name, st_json **root, setun_error *err);

// Any value; duplicate keys are such errors, too, and integers of any size are read, as reals: who needs a number's
// exact value reads its digits from the text, at the number's `count`.
setun_status st_json_parse_decimals(const char *text, size_t length, const char *name, st_json **root,
                                    setun_error *err);

void st_json_free(st_json *root); // may be NULL

// ---- values: all of these accept NULL, as absent ----

static inline bool st_json_is(const st_json *v, st_json_type_id type) {
  return v && v->type == type;
}
static inline bool st_json_is_null(const st_json *v) {
  return st_json_is(v, ST_JSON_NULL);
}
static inline bool st_json_is_bool(const st_json *v) {
  return st_json_is(v, ST_JSON_FALSE) || st_json_is(v, ST_JSON_TRUE);
}
static inline bool st_json_is_number(const st_json *v) {
  return st_json_is(v, ST_JSON_INTEGER) || st_json_is(v, ST_JSON_REAL);
}
static inline bool st_json_is_string(const st_json *v) {
  return st_json_is(v, ST_JSON_STRING);
}
static inline bool st_json_is_array(const st_json *v) {
  return st_json_is(v, ST_JSON_ARRAY);
}
static inline bool st_json_is_object(const st_json *v) {
  return st_json_is(v, ST_JSON_OBJECT);
}

// A string's text and bytes; NULL and 0 for anything else.
static inline const char *st_json_string(const st_json *v) {
  return st_json_is_string(v) ? v->as.text : NULL;
}
static inline size_t st_json_length(const st_json *v) {
  return st_json_is_string(v) ? v->count : 0;
}
// A number's value; 0 for anything else.
static inline double st_json_number(const st_json *v) {
  return st_json_is(v, ST_JSON_REAL) ? v->as.real : st_json_is(v, ST_JSON_INTEGER) ? (double)v->as.integer : 0;
}

// An array's element count, 0 for anything else, and one element, NULL past the end.
static inline size_t st_json_size(const st_json *v) {
  return st_json_is_array(v) ? v->count : 0;
}
static inline const st_json *st_json_at(const st_json *v, size_t i) {
  return i < st_json_size(v) ? &v->as.items[i] : NULL;
}

// An object's member count, 0 for anything else, and one member, which must exist, in order.
static inline size_t st_json_members(const st_json *v) {
  return st_json_is_object(v) ? v->count : 0;
}
static inline const st_json_member *st_json_member_at(const st_json *v, size_t i) {
  return &v->as.members[i];
}

// A member's value; NULL when absent. st_json_get treats null as absent.
const st_json *st_json_find(const st_json *object, const char *key);
const st_json *st_json_find_n(const st_json *object, const char *key, size_t length);
const st_json *st_json_get(const st_json *object, const char *key);

// Reads a member; `*out` keeps its value (the default) when the member is absent or null. A member of another type,
// a number that is not an integer, or one outside [low, high] is an error that names the key and what was found.
setun_status st_json_u32(const st_json *object, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                         setun_error *err);
setun_status st_json_f32(const st_json *object, const char *key, float *out, setun_error *err);
setun_status st_json_bool(const st_json *object, const char *key, bool *out, setun_error *err);
// The string lives as long as the document.
setun_status st_json_text(const st_json *object, const char *key, const char **out, setun_error *err);

// "an array", "a string", ... for messages.
const char *st_json_kind(const st_json *value);

// ---- making and editing ----
//
// Values are created first and then copied into their container: later edits of the original do not affect the copy.
// `root` provides the arena. A failure (no memory, text that is not UTF-8, a number that is not finite) leaves the
// container unchanged and is kept by the document, so that it needs to be checked only once, at the end.

st_json *st_json_new(void);         // an empty object as root; NULL: out of memory
bool st_json_failed(st_json *root); // whether anything failed since the last call

st_json st_json_make_null(void);
st_json st_json_make_bool(bool value);
st_json st_json_make_integer(int64_t value);
st_json st_json_make_real(st_json *root, double value);
st_json st_json_make_string(st_json *root, const char *text, size_t length); // copied
st_json st_json_make_text(st_json *root, const char *text);                  // copied, up to its 0
st_json st_json_make_array(void);
st_json st_json_make_object(void);
// A deep copy of another document's value.
st_json st_json_copy_of(st_json *root, const st_json *value);

// Sets a member, replacing one with that key or at the end. The key is copied.
void st_json_set(st_json *root, st_json *object, const char *key, st_json value);
// Appends a member whose key is known to be new: for large objects, where a search takes long.
void st_json_add(st_json *root, st_json *object, const char *key, size_t length, st_json value);
void st_json_delete(st_json *object, const char *key);
// Inserts an element before index `i`, at most the array's size.
void st_json_insert(st_json *root, st_json *array, size_t i, st_json value);
void st_json_push(st_json *root, st_json *array, st_json value); // at the end
void st_json_remove(st_json *array, size_t first, size_t n);     // existing elements
// For edits in place; NULL when absent. Valid until its container is edited.
st_json *st_json_edit(st_json *object, const char *key);

// ---- writing ----

// Appends the value as compact JSON text, reals with 9 digits. False: out of memory.
bool st_json_append(const st_json *value, st_buffer *out);

// The same with reals at 17 digits, which preserves their value.
bool st_json_append_exact(const st_json *value, st_buffer *out);

// The same with reals at the fewest of 15 to 17 digits that preserve their value: decimals stay what they were.
bool st_json_append_shortest(const st_json *value, st_buffer *out);

// The same over several lines, for files: members in their order, reals with 17 digits.
bool st_json_append_lines(const st_json *value, st_buffer *out);

#endif
