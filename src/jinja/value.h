// Values of the template language: what Python's objects are to Jinja. Everything lives in a rendering's arenas (or in
// the compiled template, which is immutable) and is never freed one by one.
#ifndef SETUN_JINJA_VALUE_H
#define SETUN_JINJA_VALUE_H

#include "base/error.h"
#include "jinja/arena.h"

typedef enum {
  J_MISSING, // a variable that was never set; never seen by expressions
  J_UNDEFINED,
  J_NONE,
  J_BOOL,
  J_INT,
  J_FLOAT,
  J_STRING,
  J_LIST,
  J_TUPLE,
  J_DICT,
  J_NAMESPACE,
  J_RANGE,
  J_VIEW, // a dict's keys(), values() or items()
  J_ITER, // a generator or iterator: gives each element once
  J_MACRO,
  J_BUILTIN, // a global function
  J_METHOD,  // a builtin method with its object
  J_LOOP,    // the `loop` of a for
  J_CYCLER,
  J_JOINER
} st_jkind;

// Which bytes of a string came from untrusted strings of the context.
typedef enum { J_CLEAN, J_TAINTED, J_MIXED } st_jtaint;

typedef struct {
  size_t begin, end;
} st_jspan;

// Valid UTF-8. Immutable but for `chars`, which a compiled template's strings have set.
typedef struct {
  const char *data;      // not ended with 0
  size_t length;         // bytes
  size_t chars;          // code points; SIZE_MAX: not counted yet
  const st_jspan *spans; // of J_MIXED: tainted bytes, rising, never touching
  size_t n_spans;
  uint8_t taint;
  bool safe; // Markup: `+` escapes what is added to it
} st_jstr;

typedef struct st_jlist st_jlist;
typedef struct st_jdict st_jdict;
typedef struct st_jiter st_jiter;
typedef struct st_jobject st_jobject;

typedef struct {
  uint8_t kind;
  bool unsafe; // of J_UNDEFINED: an attribute that the sandbox hides
  union {
    bool b;
    int64_t i;
    double f;
    st_jstr *s;
    st_jlist *l; // J_LIST, J_TUPLE
    st_jdict *d; // J_DICT, J_NAMESPACE
    st_jiter *it;
    st_jobject *o;    // the kinds from J_RANGE on, but J_ITER
    const char *name; // of J_UNDEFINED: what was looked up, or NULL
  };
} st_jval;

struct st_jlist {
  st_jval *items;
  size_t n, capacity;
};

typedef struct {
  st_jval key, value;
} st_jpair;

struct st_jdict {
  st_jpair *pairs; // in order of insertion
  size_t n, capacity;
  uint32_t *index; // open addressing into pairs, index+1; NULL while the dict is small
  size_t mask;
};

typedef struct st_jrun st_jrun; // one rendering, see run.h

enum { J_VIEW_KEYS, J_VIEW_VALUES, J_VIEW_ITEMS };

struct st_jobject {
  int id;                           // of a builtin, method or view: which
  st_jval self;                     // of a method: its object; of a view: its dict; of a joiner: the separator
  int64_t start, stop, step, count; // of a range; of a cycler or joiner, start is its position
  st_jval *items;                   // of a cycler
  const struct st_jnode *node;      // of a macro, or a recursive loop
  struct st_jenv *env;              // where it was defined
  struct st_jloop *loop;
};

// Constructors that cannot fail.
static inline st_jval st_j_undefined(const char *name) {
  return (st_jval){.kind = J_UNDEFINED, .name = name};
}
static inline st_jval st_j_none(void) {
  return (st_jval){.kind = J_NONE};
}
static inline st_jval st_j_bool(bool b) {
  return (st_jval){.kind = J_BOOL, .b = b};
}
static inline st_jval st_j_int(int64_t i) {
  return (st_jval){.kind = J_INT, .i = i};
}
static inline st_jval st_j_float(double f) {
  return (st_jval){.kind = J_FLOAT, .f = f};
}
static inline st_jval st_j_text(st_jstr *s) {
  return (st_jval){.kind = J_STRING, .s = s};
}

// All functions below that return bool return false after reporting the failure to `run` (see run.h).

// Strings. The bytes are not copied by st_j_string; they live as long as the rendering.
bool st_j_string(st_jrun *run, const char *data, size_t length, st_jtaint taint, st_jval *out);
bool st_j_copy(st_jrun *run, const char *text, st_jval *out);                                // of a C string, clean
bool st_j_substring(st_jrun *run, const st_jstr *s, size_t begin, size_t end, st_jval *out); // bytes; keeps `safe`
bool st_j_concat(st_jrun *run, const st_jstr *a, const st_jstr *b, st_jval *out);
size_t st_j_chars(st_jstr *s);                           // code points
size_t st_j_offset(st_jstr *s, size_t chars);            // byte offset of a code point, at most the length
bool st_j_tainted(const st_jstr *s, size_t offset);      // of one byte
bool st_j_same_text(const st_jstr *a, const st_jstr *b); // equal bytes
bool st_j_is(const st_jstr *s, const char *text);
int st_j_order(const st_jstr *a, const st_jstr *b); // by code points: -1, 0, 1
// Where `needle` starts in s at or after byte `from`; SIZE_MAX: nowhere.
size_t st_j_find(st_jrun *run, const st_jstr *s, const st_jstr *needle, size_t from);

// A string being built, with the taint of its parts. Zero-initialize.
typedef struct {
  char *data;
  size_t length, capacity;
  st_jspan *spans;
  size_t n_spans, spans_capacity;
} st_jbuild;

bool st_j_put(st_jrun *run, st_jbuild *b, const char *data, size_t n, bool tainted);
bool st_j_put_c(st_jrun *run, st_jbuild *b, const char *text); // clean
bool st_j_put_char(st_jrun *run, st_jbuild *b, uint32_t code, bool tainted);
bool st_j_put_part(st_jrun *run, st_jbuild *b, const st_jstr *s, size_t begin, size_t end);
bool st_j_put_all(st_jrun *run, st_jbuild *b, const st_jstr *s);
bool st_j_built(st_jrun *run, st_jbuild *b, bool safe, st_jval *out);

// Lists and tuples, and dicts.
bool st_j_list(st_jrun *run, st_jkind kind, size_t capacity, st_jval *out);
bool st_j_append(st_jrun *run, st_jlist *list, st_jval item);
bool st_j_pair(st_jrun *run, st_jval a, st_jval b, st_jval *out); // a tuple
bool st_j_dict(st_jrun *run, st_jkind kind, st_jval *out);
bool st_j_set(st_jrun *run, st_jdict *dict, st_jval key, st_jval value); // refuses unhashable keys
// *out is NULL when the key is absent.
bool st_j_get(st_jrun *run, const st_jdict *dict, st_jval key, st_jval **out);
st_jval *st_j_get_text(const st_jdict *dict, const st_jstr *key); // NULL: absent

#endif
