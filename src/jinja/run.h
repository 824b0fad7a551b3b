// One rendering: its memory, limits, clock and place, and how failures are reported.
#ifndef SETUN_JINJA_RUN_H
#define SETUN_JINJA_RUN_H

#include "jinja/ast.h"
#include "jinja/template.h"
#include "jinja/value.h"

// The variables of one call of a function of the template (the whole, a macro, ...).
typedef struct st_jenv {
  struct st_jenv *parent; // where the function was defined
  st_jval slots[];
} st_jenv;

struct st_jrun {
  st_jarena objects, bytes; // `bytes` holds string data only, so that appending to a string can extend it in place
  uint64_t steps_left;
  int depth, calls; // how deep evaluation and macro calls are nested
  int max_depth, max_calls;
  size_t max_output;
  int line; // of what is being evaluated
  const char *name;
  setun_status status; // SETUN_OK until something failed
  setun_error *err;
  st_jdict *context;    // the variables given
  st_jbuild *out;       // where text goes now
  st_jval filter_input; // what a filter block captured
  st_template_time now;
};

// Reports a failure at the current line and returns false. Only the first one is kept.
bool st_j_fail(st_jrun *run, setun_status status, const char *format, ...) ST_PRINTF(3, 4);
// TypeError, ValueError and the like: what the template does is wrong.
#define st_j_wrong(run, ...) st_j_fail(run, SETUN_ERROR_FORMAT, __VA_ARGS__)
// Something that Jinja can do and we cannot.
#define st_j_refuse(run, ...) st_j_fail(run, SETUN_ERROR_UNSUPPORTED, __VA_ARGS__)

// Counts `n` units of work (an evaluated node, a few bytes looked at); false when there were too many.
bool st_j_charge(st_jrun *run, uint64_t n);

void *st_j_alloc(st_jrun *run, size_t count, size_t size); // zeroed; NULL after reporting
char *st_j_bytes(st_jrun *run, size_t size);               // NULL after reporting

// What a value is called in messages: Python's name of its type.
const char *st_j_type(st_jval v);
// A string's text for a message: at most 60 bytes, whole characters, in a buffer of 64.
const char *st_j_shown(const st_jstr *s, char buffer[64]);

// Arguments of a call.
typedef struct {
  const st_jstr *name;
  st_jval value;
} st_jkeyword;

typedef struct {
  st_jval *items;
  size_t n;
  st_jkeyword *keywords;
  size_t n_keywords;
} st_jargs;

// Distributes arguments over the parameters named in `names` ("width,first,blank"), of which the first `required`
// must be given; those not given are J_MISSING in `out`. `what` is the function for messages.
bool st_j_bind(st_jrun *run, const char *what, const st_jargs *args, const char *names, size_t required, st_jval *out);

// ops.c: operators, by Python's rules.
bool st_j_truth(st_jrun *run, st_jval v, bool *out);
bool st_j_equal(st_jrun *run, st_jval a, st_jval b, bool *out);
bool st_j_compare(st_jrun *run, st_jop op, st_jval a, st_jval b, bool *out); // also in and not in
bool st_j_less(st_jrun *run, st_jval a, st_jval b, bool *out);
bool st_j_contains(st_jrun *run, st_jval item, st_jval in, bool *out);
bool st_j_binary(st_jrun *run, st_jop op, st_jval a, st_jval b, st_jval *out);
bool st_j_unary(st_jrun *run, st_jop op, st_jval a, st_jval *out);
bool st_j_length(st_jrun *run, st_jval v, int64_t *out);
bool st_j_as_double(st_jval v, double *out); // of a number or boolean
bool st_j_as_int(st_jval v, int64_t *out);   // of an integer or boolean

// access.c: attributes, items and slices.
bool st_j_getattr(st_jrun *run, st_jval v, const st_jstr *name, st_jval *out);   // v.name
bool st_j_getitem(st_jrun *run, st_jval v, st_jval key, st_jval *out);           // v[key]
bool st_j_slice(st_jrun *run, st_jval v, const st_jval bounds[3], st_jval *out); // J_NONE where absent
// Only the attribute, without looking for a key: J_MISSING when there is none.
bool st_j_attribute(st_jrun *run, st_jval v, const st_jstr *name, st_jval *out);

// iter.c: iteration.
typedef enum { J_END, J_ITEM, J_FAILED } st_jnext;
bool st_j_iterate(st_jrun *run, st_jval v, st_jiter **out);
st_jnext st_j_next(st_jrun *run, st_jiter *it, st_jval *out);
bool st_j_can_iterate(st_jval v);
bool st_j_to_list(st_jrun *run, st_jval v, st_jkind kind, st_jval *out); // also of an iterator, which is then empty
bool st_j_reversed(st_jrun *run, st_jval v, bool *can, st_jval *out);
// A lazy filter: `name` is map, select, ...; its arguments are looked at when the first element is asked for.
bool st_j_generator(st_jrun *run, const char *name, st_jval source, const st_jargs *args, st_jval *out);
// The elements of `source` for which the for loop's test holds.
bool st_j_filtered(st_jrun *run, const st_jnode *loop, st_jenv *env, st_jval source, st_jval *out);
// item, looked up along a dotted path such as "function.name" or an index, as filters with attribute= do.
bool st_j_attribute_path(st_jrun *run, st_jval item, st_jval path, st_jval *out);

// format.c: text of values.
bool st_j_put_value(st_jrun *run, st_jbuild *b, st_jval v); // as str()
bool st_j_put_repr(st_jrun *run, st_jbuild *b, st_jval v, int depth);
bool st_j_str(st_jrun *run, st_jval v, st_jval *out); // a string that is not safe
bool st_j_repr_float(double x, char out[32]);
bool st_j_tojson(st_jrun *run, const st_jargs *args, st_jval v, st_jval *out);
bool st_j_escape(st_jrun *run, st_jval v, st_jval *out);                         // HTML, safe
double st_j_decimal(const char *digits, size_t n, long exponent, bool *inexact); // digits * 10^exponent

// pyformat.c: str.format and the % operator on strings.
bool st_j_format(st_jrun *run, st_jstr *format, const st_jargs *args, st_jval *out);
bool st_j_percent(st_jrun *run, st_jstr *format, st_jval values, st_jval *out);
bool st_j_put_padded(st_jrun *run, st_jbuild *b, st_jstr *s, int64_t width, uint32_t fill, char align);

// text.c: strings.
bool st_j_is_space(uint32_t code); // as str.isspace
typedef enum { J_STRIP_LEFT = 1, J_STRIP_RIGHT = 2 } st_jstrip;
bool st_j_strip(st_jrun *run, st_jstr *s, const st_jstr *set, int sides, st_jval *out); // set NULL: white space
typedef enum { J_LOWER, J_UPPER, J_TITLE, J_CAPITALIZE, J_SWAPCASE, J_CASEFOLD } st_jcase;
bool st_j_case(st_jrun *run, const st_jstr *s, st_jcase to, st_jval *out);
bool st_j_filter_title(st_jrun *run, const st_jstr *s, st_jval *out);
bool st_j_replace(st_jrun *run, const st_jstr *s, const st_jstr *old, const st_jstr *with, int64_t count, st_jval *out);
bool st_j_split(st_jrun *run, st_jstr *s, const st_jstr *by, int64_t most, bool right, st_jval *out);
bool st_j_splitlines(st_jrun *run, st_jstr *s, bool keep, st_jval *out);
bool st_j_join(st_jrun *run, const st_jstr *by, st_jval items, bool strict, st_jval *out);
bool st_j_indent(st_jrun *run, st_jstr *s, const st_jstr *by, bool first, bool blank, st_jval *out);
bool st_j_printable(uint32_t code);               // as str.isprintable of one character
bool st_j_is_class(st_jstr *s, const char *what); // "isalpha", "isupper", ...
bool st_j_parse_int(const st_jstr *s, int base, int64_t *out, bool *overflow);
bool st_j_parse_float(const st_jstr *s, double *out);

// methods.c: methods of strings, dicts, lists and tuples.
// The method's id; -1: the type has none of this name; -2: it has one that changes the object.
int st_j_method(st_jkind kind, const st_jstr *name);
bool st_j_call_method(st_jrun *run, const st_jobject *method, const st_jargs *args, st_jval *out);
bool st_j_string_method(st_jrun *run, const char *name, st_jstr *s, const st_jargs *args, st_jval *out);
const char *st_j_method_name(st_jkind kind, int id);

// filters.c, filters_list.c, tests.c
bool st_j_has_filter(const st_jstr *name);
bool st_j_has_test(const st_jstr *name);
bool st_j_filter(st_jrun *run, const st_jstr *name, st_jval v, const st_jargs *args, st_jval *out);
bool st_j_list_filter(st_jrun *run, const char *name, st_jval v, const st_jargs *args, st_jval *out);
// The elements of unique, batch and slice, which are asked for when the first one is.
bool st_j_generated_list(st_jrun *run, const char *name, st_jval v, const st_jargs *args, st_jval *out);
bool st_j_test(st_jrun *run, const st_jstr *name, st_jval v, const st_jargs *args, bool *out);
bool st_j_make_dict(st_jrun *run, const char *what, st_jkind kind, const st_jargs *args, st_jval *out);

// call.c
int st_j_builtin(const st_jstr *name); // a global function's id; -1: no such
bool st_j_call(st_jrun *run, st_jval callee, const st_jargs *args, st_jval *out);
bool st_j_call_macro(st_jrun *run, const st_jobject *macro, const st_jargs *args, st_jval *out);
bool st_j_strftime(st_jrun *run, const st_jstr *format, st_jval *out);

// eval.c and exec.c
bool st_j_eval(st_jrun *run, st_jenv *env, const st_jnode *node, st_jval *out);
bool st_j_eval_args(st_jrun *run, st_jenv *env, const st_jnode *call, st_jargs *out);
bool st_j_assign(st_jrun *run, st_jenv *env, const st_jnode *target, st_jval v);
typedef enum { J_NEXT, J_BREAK, J_CONTINUE, J_ERROR } st_jflow;
st_jflow st_j_exec(st_jrun *run, st_jenv *env, st_jnode *const *body, size_t n);
void st_j_enter(st_jrun *run, st_jenv *env, const st_jframe *frame);
st_jenv *st_j_new_env(st_jrun *run, st_jenv *parent, size_t slots);
bool st_j_loop_attribute(st_jrun *run, struct st_jloop *loop, const st_jstr *name, st_jval *out);
bool st_j_loop_method(st_jrun *run, struct st_jloop *loop, const char *name, const st_jargs *args, st_jval *out);
bool st_j_loop_call(st_jrun *run, struct st_jloop *loop, const st_jargs *args, st_jval *out);
// One more level of nesting; false when it is too deep. Left with run->depth--.
bool st_j_deeper(st_jrun *run);

#endif
