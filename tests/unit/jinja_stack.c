// Templates and values nested as deep as is accepted, on a thread whose stack is looked at afterwards: nothing takes
// more of it than a small thread has, and what is nested deeper is refused by an error that names the limit.
#define _GNU_SOURCE
#include "base/memory.h"
#include "jinja/template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The stack that one rendering may use; sanitizers make frames several times larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_STACK = 256 << 10, MOST_NESTED = 2000 };
#else
enum { MOST_STACK = 56 << 10, MOST_NESTED = 5000 };
#endif
enum { STACK = 4 * MOST_STACK, PAINT = 0xA5 };
static int failures;

// One way of nesting: begin, open n times, middle, close n times, end. The result is the same for every n > 0. With
// `in_context` it is the values of the variables x and y that are so, and the template is `begin`.
static const struct {
  const char *name, *begin, *open, *middle, *close, *end, *expected;
  bool in_context;
} WRITTEN[] = {
    {"parentheses", "{{ ", "(", "1", ")", " }}", "1", false},
    {"lists", "{{ ", "[", "", "]", " is iterable }}", "True", false},
    {"tuples", "{{ ", "(", "1", ",)", " is iterable }}", "True", false},
    {"dicts", "{{ ", "{'a': ", "1", "}", " is mapping }}", "True", false},
    {"minus", "{{ 1 if ", "- ", "1", "", " }}", "1", false},
    {"not", "{{ 1 if ", "not not ", "1", "", " }}", "1", false},
    {"sums", "{{ 1 if ", "1 + (", "1", ")", " }}", "1", false},
    {"long sum", "{{ 1 if ", "1 + ", "1", "", " }}", "1", false},
    {"long product", "{{ ", "1 * ", "1", "", " }}", "1", false},
    {"long and", "{{ ", "1 and ", "1", "", " }}", "1", false},
    {"all operators", "{{ 1 if ", "0 or 1 and not 2 == 3 + 4 * (", "1", ")", " else 1 }}", "1", false},
    {"conditions", "{{ ", "0 if 0 else ", "1", "", " }}", "1", false},
    {"tests of conditions", "{{ ", "1 if (", "1", ")", " }}", "1", false},
    {"filters", "{{ 1", "|string", "", "", " }}", "1", false},
    {"arguments", "{{ ", "x|default(", "1", ")", " }}", "1", false},
    {"keyword arguments", "{{ ", "x|default(default_value=", "1", ")", " }}", "1", false},
    {"is tests", "{{ ", "(", "1", " is defined)", " }}", "True", false},
    {"calls", "{% macro f(x) %}{{ x }}{% endmacro %}{{ ", "f(", "1", ")", " }}", "1", false},
    {"subscripts", "{% set l = [0] %}{{ 1 + ", "l[", "0", "]", " }}", "1", false},
    {"slices", "{{ ", "[", "0", "][0:]", " is iterable }}", "True", false},
    {"methods", "{{ '1'", ".strip()", "", "", " }}", "1", false},
    {"if", "", "{% if 1 %}", "1", "{% endif %}", "", "1", false},
    {"else", "", "{% if 0 %}{% else %}", "1", "{% endif %}", "", "1", false},
    {"elif", "{% if 0 %}", "{% elif 0 %}", "", "", "{% else %}1{% endif %}", "1", false},
    {"for", "", "{% for x in [1] if x %}", "1", "{% endfor %}", "", "1", false},
    {"for else", "", "{% for x in [] %}{% else %}", "1", "{% endfor %}", "", "1", false},
    {"set blocks", "", "{% set x %}", "1", "{% endset %}{{ x }}", "", "1", false},
    {"filter blocks", "", "{% filter trim %}", "1", "{% endfilter %}", "", "1", false},
    {"generation", "", "{% generation %}", "1", "{% endgeneration %}", "", "1", false},
    {"macros in macros", "", "{% macro m() %}", "1", "{% endmacro %}{{ m() }}", "", "1", false},
    {"targets", "{% for ", "(x, ", "y", ")", " in [] %}{% endfor %}1", "1", false},
    {"context lists", "{{ 1 if x }}", "[", "1", "]", "", "1", true},
    {"context dicts", "{{ 1 if x }}", "{\"a\":", "1", "}", "", "1", true},
    {"context printed", "{{ (x|string)[:1] }}", "[", "1", "]", "", "[", true},
    {"context as JSON", "{{ (x|tojson)[:1] }}", "[", "1", "]", "", "[", true},
    {"context dict as JSON", "{{ (x|tojson(indent=0))[:1] }}", "{\"a\":", "1", "}", "", "{", true},
    {"context compared", "{{ x == y }}", "[", "1", "]", "", "True", true},
    {"context dicts compared", "{{ x == y }}", "{\"a\":", "1", "}", "", "True", true},
};

// Nesting by a loop or by macros that call themselves; %d is how often.
static const struct {
  const char *name, *text, *expected;
} REPEATED[] = {
#define NESTED(value)                                                                                                  \
  "{% set a = namespace(x=1, y=1) %}{% for i in range(%d) %}{% set a.x = " value("a.x") " %}"                          \
                                                                                        "{% set a.y = " value(         \
                                                                                            "a.y") " %}{% endfor %}"
#define LIST(x) "[" x "]"
#define TUPLE(x) "(" x ",)"
#define DICT(x) "{'k': " x "}"
#define MAPPED(x) "[" x "]|map('list')"
#define CHAINED(x) "(" x " if " x " is not number else [1])|map('string')"
    {"built", NESTED(LIST) "1", "1"},
    {"equal", NESTED(LIST) "{{ a.x == a.y }}", "True"},
    {"unequal", NESTED(LIST) "{{ a.x != a.y }}", "False"},
    {"in", NESTED(LIST) "{{ a.x in [a.y] }}", "True"},
    {"not in", NESTED(LIST) "{{ a.x not in [0, a.y] }}", "False"},
    {"less", NESTED(LIST) "{{ a.x < a.y }}", "False"},
    {"sorted", NESTED(LIST) "{{ [a.x, a.y]|sort|length }}", "2"},
    {"least", NESTED(LIST) "{{ [a.x, a.y]|min is iterable }}", "True"},
    {"equal dicts", NESTED(DICT) "{{ a.x == a.y }}", "True"},
    {"equal tuples", NESTED(TUPLE) "{{ a.x == a.y }}", "True"},
    {"keys", NESTED(TUPLE) "{{ {a.x: 1}[a.y] }}", "1"},
    {"unique", NESTED(TUPLE) "{{ [a.x, a.y]|unique|list|length }}", "1"},
    {"printed", NESTED(LIST) "{{ (a.x ~ '')[:1] }}", "["},
    {"printed dicts", NESTED(DICT) "{{ (a.x ~ '')[:1] }}", "{"},
    {"joined", NESTED(LIST) "{{ ([a.x]|join)[:1] }}", "["},
    {"JSON", NESTED(LIST) "{{ (a.x|tojson(indent=1))[:1] }}", "["},
    {"JSON dicts", NESTED(DICT) "{{ (a.x|tojson)[:1] }}", "{"},
    {"selected", NESTED(LIST) "{{ [a.x]|select('equalto', a.y)|list|length }}", "1"},
    {"generators", NESTED(CHAINED) "{{ a.x|join }}", "1"},
    {"macro", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in for",
     "{% macro f(n) %}{% for x in [n] if n %}{{ f(n - 1) }}{% else %}1{% endfor %}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in set",
     "{% macro f(n) %}{% if n %}{% set x = f(n - 1) %}{{ x }}{% else %}1{% endif %}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in expression", "{% macro f(n) %}{{ ('' ~ (f(n - 1) if n else 1))|trim }}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in default", "{% macro f(n, m=f(n - 1) if n else 1) %}{{ m }}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in argument", "{% macro f(n) %}{{ x|default(f(n - 1) if n else 1) }}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in for's test",
     "{% macro f(n) %}{% for x in [1] if not n or f(n - 1) %}1{% endfor %}{% endmacro %}{{ f(%d) }}", "1"},
    {"macro in filter block",
     "{% macro f(n) %}{% filter replace('x', f(n - 1) if n else '1') %}x{% endfilter %}{% endmacro %}{{ f(%d) }}", "1"},
    {"macros of two names",
     "{% macro f(n) %}{% if n %}{{ g(n - 1) }}{% else %}1{% endif %}{% endmacro %}"
     "{% macro g(n) %}{% if n %}{{ f(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ f(%d) }}",
     "1"},
};

typedef struct {
  const char *text;
  const st_json *context;
  setun_status status;
  setun_error err;
  char out[64];
} job;

static void *work(void *argument) {
  job *j = argument;
  st_template *t = NULL;
  st_buffer out = {0};
  if (!j->text) return NULL;
  j->status = st_template_compile(j->text, strlen(j->text), "case", &t, &j->err);
  if (!j->status) j->status = st_template_render(t, j->context, NULL, &out, NULL, &j->err);
  snprintf(j->out, sizeof j->out, "%s", out.data ? out.data : "");
  st_template_free(t);
  st_buffer_free(&out);
  return NULL;
}

// Renders on a stack of its own; returns how much of it was used.
static size_t run(job *j) {
  unsigned char *stack = aligned_alloc(4096, STACK);
  pthread_attr_t attributes;
  pthread_t thread;
  assert_non_null(stack);
  memset(stack, PAINT, STACK);
  assert_int_equal(pthread_attr_init(&attributes), 0);
  assert_int_equal(pthread_attr_setstack(&attributes, stack, STACK), 0);
  assert_int_equal(pthread_create(&thread, &attributes, work, j), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  size_t untouched = 0;
  while (untouched < STACK && stack[untouched] == PAINT) untouched++;
  free(stack);
  return STACK - untouched;
}

typedef struct {
  const char *name, *expected;
  void (*make)(st_buffer *text, st_buffer *context, size_t which, int n);
  size_t which;
} nesting;

static void make_written(st_buffer *text, st_buffer *context, size_t which, int n) {
  st_buffer *to = WRITTEN[which].in_context ? context : text;
  assert_true(st_buffer_text(text, WRITTEN[which].begin));
  if (to == context) assert_true(st_buffer_text(to, "{\"x\":"));
  for (int round = 0; round < (to == context ? 2 : 1); round++) {
    if (round) assert_true(st_buffer_text(to, ",\"y\":"));
    for (int i = 0; i < n; i++) assert_true(st_buffer_text(to, WRITTEN[which].open));
    assert_true(st_buffer_text(to, WRITTEN[which].middle));
    for (int i = 0; i < n; i++) assert_true(st_buffer_text(to, WRITTEN[which].close));
  }
  assert_true(st_buffer_text(text, WRITTEN[which].end) && st_buffer_text(context, to == context ? "}" : "{}"));
}

static void make_repeated(st_buffer *text, st_buffer *context, size_t which, int n) {
  char number[16];
  const char *from = REPEATED[which].text, *at = strstr(from, "%d");
  snprintf(number, sizeof number, "%d", n);
  assert_true(st_buffer_append(text, from, (size_t)(at - from)) && st_buffer_text(text, number) &&
              st_buffer_text(text, at + 2) && st_buffer_text(context, "{}"));
}

// The status with n levels. An accepted template gives the right text; an error names the limit.
static setun_status status_of(const nesting *c, int n, size_t *used) {
  st_buffer text = {0}, context = {0};
  c->make(&text, &context, c->which, n);
  job j = {.text = text.data};
  setun_error err = {0};
  st_json *json = NULL;
  st_json_parse_values(context.data, context.length, "context", &json, &err);
  j.context = json;
  *used = 0;
  if (json)
    *used = run(&j);
  else
    j.status = SETUN_ERROR_LIMIT; // the reader of JSON has a limit of its own
  if (!j.status && strcmp(j.out, c->expected)) fail_msg("%s, %d deep: found \"%s\"", c->name, n, j.out);
  bool named = strstr(j.err.message, "nested deeper than") && strstr(j.err.message, "levels");
  if (j.status && json && !named) fail_msg("%s, %d deep: %s", c->name, n, j.err.message);
  st_json_free(json);
  st_buffer_free(&text);
  st_buffer_free(&context);
  return j.status;
}

static void check(const nesting *c, size_t base, size_t *worst) {
  size_t used, most = 0;
  int low = 1, high = MOST_NESTED + 1; // accepted; refused
  for (int n = low; high - low > 1; n = low + (high - low) / 2) {
    if (n == low && n > 1) break;
    bool accepted = status_of(c, n, &used) == SETUN_OK;
    if (n == 1 && !accepted) fail_msg("%s: one level is refused", c->name);
    if (accepted)
      low = n;
    else
      high = n;
    if (used > most) most = used;
  }
  (void)status_of(c, MOST_NESTED, &used);
  most = (used > most ? used : most) - base;
  print_message("%-24s %5d levels, %6zu bytes\n", c->name, low, most);
  if (most > MOST_STACK)
    failures++, print_error("%s: %zu bytes of stack, at most %d are allowed\n", c->name, most, MOST_STACK);
  if (most > *worst) *worst = most;
}

static void test_depth(void **state) {
  (void)state;
  size_t worst = 0, base = run(&(job){0}); // what the thread itself uses
  for (size_t i = 0; i < sizeof WRITTEN / sizeof *WRITTEN; i++) {
    check(&(nesting){WRITTEN[i].name, WRITTEN[i].expected, make_written, i}, base, &worst);
  }
  for (size_t i = 0; i < sizeof REPEATED / sizeof *REPEATED; i++) {
    check(&(nesting){REPEATED[i].name, REPEATED[i].expected, make_repeated, i}, base, &worst);
  }
  print_message("at most %zu bytes\n", worst);
  assert_int_equal(failures, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_depth)};
  return cmocka_run_group_tests_name("jinja_stack", tests, NULL, NULL);
}
