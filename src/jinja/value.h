// Values of the template language, like Python's objects in Jinja. Everything lives in a rendering's arenas (or in the
// compiled template, which is immutable) and is never freed one by one.
#ifndef SETUN_JINJA_VALUE_H
#define SETUN_JINJA_VALUE_H

#include "base/error.h"
#include "jinja/arena.h"

typedef enum {
  JINJA_MISSING, // a variable that was never set; never seen by expressions
  JINJA_UNDEFINED,
  JINJA_NONE,
  JINJA_BOOLEAN,
  JINJA_INTEGER,
  JINJA_FLOAT,
  JINJA_STRING,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_DICT,
  JINJA_NAMESPACE,
  JINJA_RANGE,
  JINJA_VIEW,     // a dict's keys(), values() or items()
  JINJA_ITERATOR, // a generator or iterator: yields each element once
  JINJA_MACRO,
  JINJA_BUILTIN, // a global function
  JINJA_METHOD,  // a builtin method with its object
  JINJA_LOOP     // the `loop` of a for
} st_jinja_kind;

// Which bytes of a string came from untrusted strings of the context.
typedef enum { JINJA_CLEAN, JINJA_TAINTED, JINJA_MIXED } st_jinja_taint;

typedef struct {
  size_t begin, end;
} st_jinja_span;

// Valid UTF-8. Immutable except for `chars`, which is set in a compiled template's strings.
typedef struct {
  const char *data;           // not ended with 0
  size_t length;              // bytes
  size_t chars;               // code points; SIZE_MAX: not counted yet
  const st_jinja_span *spans; // of JINJA_MIXED: tainted bytes, ascending, never adjacent
  size_t n_spans;
  uint8_t taint;
  bool safe; // Markup: `+` escapes what is added to it
} st_jinja_string;

typedef struct st_jinja_list st_jinja_list;
typedef struct st_jinja_dict st_jinja_dict;
typedef struct st_jinja_iterator st_jinja_iterator;
typedef struct st_jinja_object st_jinja_object;

typedef struct {
  uint8_t kind;
  bool unsafe; // of JINJA_UNDEFINED: an attribute that the sandbox hides
  union {
    bool b;
    int64_t i;
    double f;
    st_jinja_string *s;
    st_jinja_list *l; // JINJA_LIST, JINJA_TUPLE
    st_jinja_dict *d; // JINJA_DICT, JINJA_NAMESPACE
    st_jinja_iterator *it;
    st_jinja_object *o; // the kinds from JINJA_RANGE on, except JINJA_ITERATOR
    const char *name;   // of JINJA_UNDEFINED: what was looked up, or NULL
  };
} st_jinja_value;

struct st_jinja_list {
  st_jinja_value *items;
  size_t n, capacity;
};

typedef struct {
  st_jinja_value key, value;
} st_jinja_pair;

struct st_jinja_dict {
  st_jinja_pair *pairs; // in order of insertion
  size_t n, capacity;
  uint32_t *index; // open addressing into pairs, index+1; NULL while the dict is small
  size_t mask;
};

typedef struct st_jinja_run st_jinja_run; // one rendering, see run.h

enum { JINJA_VIEW_KEYS, JINJA_VIEW_VALUES, JINJA_VIEW_ITEMS };

struct st_jinja_object {
  int id;                           // of a builtin, method or view: which
  st_jinja_value self;              // of a method: its object; of a view: its dict
  int64_t start, stop, step, count; // of a range
  const struct st_jinja_node *node; // of a macro
  struct st_jinja_variables *env;   // where it was defined
  struct st_jinja_loop *loop;
};

// Constructors that cannot fail.
static inline st_jinja_value st_jinja_undefined(const char *name) {
  return (st_jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}
static inline st_jinja_value st_jinja_none(void) {
  return (st_jinja_value){.kind = JINJA_NONE};
}
static inline st_jinja_value st_jinja_from_bool(bool b) {
  return (st_jinja_value){.kind = JINJA_BOOLEAN, .b = b};
}
static inline st_jinja_value st_jinja_from_int(int64_t i) {
  return (st_jinja_value){.kind = JINJA_INTEGER, .i = i};
}
static inline st_jinja_value st_jinja_from_float(double f) {
  return (st_jinja_value){.kind = JINJA_FLOAT, .f = f};
}
static inline st_jinja_value st_jinja_from_string(st_jinja_string *s) {
  return (st_jinja_value){.kind = JINJA_STRING, .s = s};
}

// All functions below that return bool return false after reporting the failure to `run` (see run.h).

// Strings. The bytes are not copied by st_jinja_new_string; they live as long as the rendering.
bool st_jinja_new_string(st_jinja_run *run, const char *data, size_t length, st_jinja_taint taint, st_jinja_value *out);
bool st_jinja_copy_text(st_jinja_run *run, const char *text, st_jinja_value *out); // of a C string, clean
bool st_jinja_substring(st_jinja_run *run, const st_jinja_string *s, size_t begin, size_t end,
                        st_jinja_value *out); // bytes; keeps `safe`
bool st_jinja_concat(st_jinja_run *run, const st_jinja_string *a, const st_jinja_string *b, st_jinja_value *out);
size_t st_jinja_count_characters(st_jinja_string *s);               // code points
size_t st_jinja_character_offset(st_jinja_string *s, size_t chars); // byte offset of a code point, at most the length
bool st_jinja_is_tainted(const st_jinja_string *s, size_t offset);  // of one byte
bool st_jinja_same_text(const st_jinja_string *a, const st_jinja_string *b); // equal bytes
bool st_jinja_string_is(const st_jinja_string *s, const char *text);
int st_jinja_order_strings(const st_jinja_string *a, const st_jinja_string *b); // by code points: -1, 0, 1
// Where `needle` starts in s at or after byte `from`; SIZE_MAX: absent.
size_t st_jinja_find_text(st_jinja_run *run, const st_jinja_string *s, const st_jinja_string *needle, size_t from);

// A string being built, with the taint of its parts. Zero-initialize.
typedef struct {
  char *data;
  size_t length, capacity;
  st_jinja_span *spans;
  size_t n_spans, spans_capacity;
} st_jinja_builder;

bool st_jinja_put(st_jinja_run *run, st_jinja_builder *b, const char *data, size_t n, bool tainted);
bool st_jinja_put_text(st_jinja_run *run, st_jinja_builder *b, const char *text); // clean
bool st_jinja_put_char(st_jinja_run *run, st_jinja_builder *b, uint32_t code, bool tainted);
bool st_jinja_put_part(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s, size_t begin, size_t end);
bool st_jinja_put_all(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *s);
bool st_jinja_finish(st_jinja_run *run, st_jinja_builder *b, bool safe, st_jinja_value *out);

// Lists and tuples, and dicts.
bool st_jinja_new_list(st_jinja_run *run, st_jinja_kind kind, size_t capacity, st_jinja_value *out);
bool st_jinja_list_append(st_jinja_run *run, st_jinja_list *list, st_jinja_value item);
bool st_jinja_new_pair(st_jinja_run *run, st_jinja_value a, st_jinja_value b, st_jinja_value *out); // a tuple
bool st_jinja_new_dict(st_jinja_run *run, st_jinja_kind kind, st_jinja_value *out);
bool st_jinja_dict_set(st_jinja_run *run, st_jinja_dict *dict, st_jinja_value key,
                       st_jinja_value value); // refuses unhashable keys
// *out is NULL when the key is absent.
bool st_jinja_dict_get(st_jinja_run *run, const st_jinja_dict *dict, st_jinja_value key, st_jinja_value **out);
st_jinja_value *st_jinja_dict_find(const st_jinja_dict *dict, const st_jinja_string *key); // NULL: absent

#endif
