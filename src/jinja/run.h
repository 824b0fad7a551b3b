// One rendering: its memory, limits, clock and place, and how failures are reported.
#ifndef SETUN_JINJA_RUN_H
#define SETUN_JINJA_RUN_H

#include "jinja/ast.h"
#include "jinja/template.h"
#include "jinja/value.h"

// The variables of one call of a function of the template (the whole, a macro, ...).
typedef struct st_jinja_variables {
  struct st_jinja_variables *parent; // where the function was defined
  st_jinja_value slots[];
} st_jinja_variables;

// The depth of everything that is walked by functions that call themselves: values that are compared, printed or
// copied, expressions, and calls of macros.
enum { JINJA_MAX_DEPTH = 150 };

typedef struct st_jinja_block st_jinja_block; // see exec.c

struct st_jinja_run {
  st_jinja_arena objects, bytes; // `bytes` holds string data only, so that appending to a string can extend it in place
  uint64_t steps_left;
  int depth;             // how deeply values, expressions and macros are nested now, at most JINJA_MAX_DEPTH
  st_jinja_block *spare; // records of blocks that have ended
  size_t max_output;
  st_jinja_place place; // of what is being evaluated
  const char *name;
  setun_status status; // SETUN_OK until something failed
  setun_error *err;
  st_jinja_dict *context;      // the variables given
  st_jinja_builder *out;       // receives the rendered text
  st_jinja_value filter_input; // what a filter block captured
  st_template_time now;
};

// Reports a failure at the current place and returns false. Only the first one is kept.
bool st_jinja_fail(st_jinja_run *run, setun_status status, const char *format, ...) ST_PRINTF(3, 4);
// TypeError, ValueError and the like: an error in the template.
#define st_jinja_fail_format(run, ...) st_jinja_fail(run, SETUN_ERROR_FORMAT, __VA_ARGS__)
// A feature of Jinja that is not supported here.
#define st_jinja_fail_unsupported(run, ...) st_jinja_fail(run, SETUN_ERROR_UNSUPPORTED, __VA_ARGS__)

// Counts `n` units of work (an evaluated node, a few bytes looked at); false when there were too many.
bool st_jinja_charge(st_jinja_run *run, uint64_t n);

void *st_jinja_allocate(st_jinja_run *run, size_t count, size_t size); // zeroed; NULL after reporting
char *st_jinja_allocate_bytes(st_jinja_run *run, size_t size);         // NULL after reporting

// A value's name in messages: Python's name of its type.
const char *st_jinja_type_name(st_jinja_value v);
// A string's text for a message: at most 60 bytes, whole characters, in a buffer of 64.
const char *st_jinja_shorten(const st_jinja_string *s, char buffer[64]);

// Arguments of a call.
typedef struct {
  const st_jinja_string *name;
  st_jinja_value value;
} st_jinja_keyword;

typedef struct {
  st_jinja_value *items;
  size_t n;
  st_jinja_keyword *keywords;
  size_t n_keywords;
} st_jinja_arguments;

// Distributes arguments over the parameters named in `names` ("width,first,blank"), of which the first `required`
// must be given; those not given are JINJA_MISSING in `out`. `what` is the function for messages.
bool st_jinja_bind_arguments(st_jinja_run *run, const char *what, const st_jinja_arguments *args, const char *names,
                             size_t required, st_jinja_value *out);

// ops.c: operators, by Python's rules.
bool st_jinja_to_boolean(st_jinja_run *run, st_jinja_value v, bool *out);
bool st_jinja_equal(st_jinja_run *run, st_jinja_value a, st_jinja_value b, bool *out);
bool st_jinja_compare(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value b,
                      bool *out); // also in and not in
bool st_jinja_less_than(st_jinja_run *run, st_jinja_value a, st_jinja_value b, bool *out);
bool st_jinja_apply_binary(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value b,
                           st_jinja_value *out);
bool st_jinja_apply_unary(st_jinja_run *run, st_jinja_operator op, st_jinja_value a, st_jinja_value *out);
bool st_jinja_length_of(st_jinja_run *run, st_jinja_value v, int64_t *out);
bool st_jinja_as_double(st_jinja_value v, double *out); // of a number or boolean
bool st_jinja_as_int(st_jinja_value v, int64_t *out);   // of an integer or boolean

// access.c: attributes, items and slices.
bool st_jinja_get_attribute(st_jinja_run *run, st_jinja_value v, const st_jinja_string *name,
                            st_jinja_value *out);                                                     // v.name
bool st_jinja_get_item(st_jinja_run *run, st_jinja_value v, st_jinja_value key, st_jinja_value *out); // v[key]
bool st_jinja_get_slice(st_jinja_run *run, st_jinja_value v, const st_jinja_value bounds[3],
                        st_jinja_value *out); // JINJA_NONE where absent

// iter.c: iteration.
typedef enum { JINJA_END, JINJA_ITEM, JINJA_FAILED } st_jinja_step;
bool st_jinja_iterate(st_jinja_run *run, st_jinja_value v, st_jinja_iterator **out);
st_jinja_step st_jinja_next(st_jinja_run *run, st_jinja_iterator *it, st_jinja_value *out);
bool st_jinja_is_iterable(st_jinja_value v);
bool st_jinja_to_list(st_jinja_run *run, st_jinja_value v, st_jinja_kind kind,
                      st_jinja_value *out); // also of an iterator, which is then empty
// A lazy filter: `name` is map, select, ...; its arguments are evaluated when the first element is requested.
bool st_jinja_generator(st_jinja_run *run, const char *name, st_jinja_value source, const st_jinja_arguments *args,
                        st_jinja_value *out);
// The elements of `source` for which the for loop's test holds.
bool st_jinja_filtered(st_jinja_run *run, const st_jinja_node *loop, st_jinja_variables *env, st_jinja_value source,
                       st_jinja_value *out);
// item, looked up along a dotted path such as "function.name" or an index, as filters with attribute= do.
bool st_jinja_attribute_path(st_jinja_run *run, st_jinja_value item, st_jinja_value path, st_jinja_value *out);

// format.c: text of values.
bool st_jinja_put_value(st_jinja_run *run, st_jinja_builder *b, st_jinja_value v);   // as str()
bool st_jinja_to_string(st_jinja_run *run, st_jinja_value v, st_jinja_value *out);   // a string that is not safe
bool st_jinja_escape_html(st_jinja_run *run, st_jinja_value v, st_jinja_value *out); // HTML, safe
double st_jinja_decimal(const char *digits, size_t n, long exponent, bool *inexact); // digits * 10^exponent

// text.c: strings.
bool st_jinja_is_space(uint32_t code); // as str.isspace
typedef enum { JINJA_STRIP_LEFT = 1, JINJA_STRIP_RIGHT = 2 } st_jinja_sides;
bool st_jinja_strip_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *set, int sides,
                         st_jinja_value *out); // set NULL: white space
bool st_jinja_replace_text(st_jinja_run *run, const st_jinja_string *s, const st_jinja_string *old,
                           const st_jinja_string *with, int64_t count, st_jinja_value *out);
bool st_jinja_split_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *by, int64_t most,
                         st_jinja_value *out); // by NULL: at white space
bool st_jinja_join_items(st_jinja_run *run, const st_jinja_string *by, st_jinja_value items, st_jinja_value *out);
bool st_jinja_indent_text(st_jinja_run *run, st_jinja_string *s, const st_jinja_string *by, bool first, bool blank,
                          st_jinja_value *out);

// letters.c. FILTER_TITLE is Jinja's filter, whose words differ from those of Python's method.
typedef enum { JINJA_LOWER, JINJA_UPPER, JINJA_TITLE, JINJA_FILTER_TITLE, JINJA_CAPITALIZE } st_jinja_letter_case;
bool st_jinja_change_case(st_jinja_run *run, const st_jinja_string *s, st_jinja_letter_case to, st_jinja_value *out);
bool st_jinja_is_printable(uint32_t code); // as str.isprintable of one character

// numbers.c: as int() and float() of a string.
bool st_jinja_parse_int(const st_jinja_string *s, int64_t *out, bool *overflow);
bool st_jinja_parse_float(const st_jinja_string *s, double *out);

// methods.c: methods of strings and dicts.
// The method's id; -1: the type has none of this name; -2: it has one that changes the object.
int st_jinja_find_method(st_jinja_kind kind, const st_jinja_string *name);
bool st_jinja_call_method(st_jinja_run *run, const st_jinja_object *bound, const st_jinja_arguments *args,
                          st_jinja_value *out);

// filters.c, filters_list.c, tests.c
typedef enum { JINJA_SUPPORTED, JINJA_UNSUPPORTED, JINJA_UNKNOWN } st_jinja_support;
// The names of a table whose rows begin with them, `row` bytes each, and Jinja's other names.
typedef struct {
  const char *what; // for messages
  const void *rows;
  size_t n_rows, row;
  const char *const *others;
  size_t n_others;
} st_jinja_names;
// run.c
st_jinja_support st_jinja_find_name(const st_jinja_names *names, const st_jinja_string *name);
// Reports a name that is not in the table; false.
bool st_jinja_fail_name(st_jinja_run *run, const st_jinja_names *names, const st_jinja_string *name);
st_jinja_support st_jinja_find_filter(const st_jinja_string *name);
st_jinja_support st_jinja_find_test(const st_jinja_string *name);
bool st_jinja_apply_filter(st_jinja_run *run, const st_jinja_string *name, st_jinja_value v,
                           const st_jinja_arguments *args, st_jinja_value *out);
bool st_jinja_apply_test(st_jinja_run *run, const st_jinja_string *name, st_jinja_value v,
                         const st_jinja_arguments *args, bool *out);
typedef bool st_jinja_filter_fn(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args,
                                st_jinja_value *out);
st_jinja_filter_fn st_jinja_filter_dictsort, st_jinja_filter_first, st_jinja_filter_items, st_jinja_filter_join,
    st_jinja_filter_last, st_jinja_filter_list, st_jinja_filter_map, st_jinja_filter_min, st_jinja_filter_reject,
    st_jinja_filter_rejectattr, st_jinja_filter_select, st_jinja_filter_selectattr, st_jinja_filter_sort,
    st_jinja_filter_tojson, st_jinja_filter_unique;
// The elements of unique, computed when the first one is requested.
bool st_jinja_unique_list(st_jinja_run *run, st_jinja_value v, const st_jinja_arguments *args, st_jinja_value *out);

// call.c
int st_jinja_find_builtin(const st_jinja_string *name); // a global function's id; -1: none
bool st_jinja_call(st_jinja_run *run, st_jinja_value callee, const st_jinja_arguments *args, st_jinja_value *out);
bool st_jinja_strftime(st_jinja_run *run, const st_jinja_string *format, st_jinja_value *out);

// eval.c and exec.c
bool st_jinja_evaluate(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *node, st_jinja_value *out);
bool st_jinja_assign(st_jinja_run *run, st_jinja_variables *env, const st_jinja_node *target, st_jinja_value v);
bool st_jinja_execute(st_jinja_run *run, st_jinja_variables *env, const st_jinja_nodes *body);
void st_jinja_enter_scope(st_jinja_run *run, st_jinja_variables *env, const st_jinja_scope *scope);
st_jinja_variables *st_jinja_new_variables(st_jinja_run *run, st_jinja_variables *parent, size_t slots);
bool st_jinja_loop_attribute(st_jinja_run *run, struct st_jinja_loop *loop, const st_jinja_string *name,
                             st_jinja_value *out);
bool st_jinja_loop_length(st_jinja_run *run, struct st_jinja_loop *loop, int64_t *out);
// One more level of nesting, which run->depth-- ends. False: too deep.
bool st_jinja_nest(st_jinja_run *run);

#endif
