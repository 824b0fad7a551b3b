// Chat templates: every case that tools/make_chat_cases.py had Jinja2 render, then messages, bounds, the origin of the
// text, and one template used by several threads.
#include "base/file.h"
#include "base/memory.h"
#include "jinja/template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const st_template_time NOW = {2026, 1, 2, 3, 4, 5, 0};

static setun_status render_with(const char *text, size_t length, const st_json *context, st_template_options options,
                                st_buffer *out, st_template_spans *spans, setun_error *err) {
  st_template *t = NULL;
  options.now = &NOW;
  setun_status status = st_template_compile(text, length, "case", &t, err);
  if (!status) status = st_template_render(t, context, &options, out, spans, err);
  st_template_free(t);
  return status;
}

static setun_status render(const char *text, const char *json, st_buffer *out, st_template_spans *spans,
                           setun_error *err) {
  st_json *context;
  st_json_parse_values(json, strlen(json), "context", &context, err);
  assert_non_null(context);
  setun_status status = render_with(text, strlen(text), context, (st_template_options){0}, out, spans, err);
  st_json_free(context);
  return status;
}

// ---- the cases ----

static bool check_case(const st_json *contexts, const st_json *one) {
  const st_json *template = st_json_find(one, "template"), *expected = st_json_find(one, "text");
  const st_json *context = st_json_find(contexts, st_json_string(st_json_find(one, "context")));
  st_buffer out = {0};
  setun_error err = {0};
  setun_status status = render_with(st_json_string(template), st_json_length(template), context,
                                    (st_template_options){0}, &out, NULL, &err);
  // Unsupported features are refused by name when they are reached.
  bool refused = status == SETUN_ERROR_UNSUPPORTED && strstr(err.message, "not supported");
  if (refused && st_json_find(one, "unsupported")) return true;
  bool same = st_json_is_string(expected) ? !status && out.length == st_json_length(expected) &&
                                                !memcmp(out.data, st_json_string(expected), out.length)
                                          : status != SETUN_OK;
  if (!same) {
    print_error("template: %s\n  expected: %s\n  found:    %s\n", st_json_string(template),
                st_json_is_string(expected) ? st_json_string(expected) : "(an error)", status ? err.message : out.data);
  }
  st_buffer_free(&out);
  return same;
}

static void test_cases(void **state) {
  (void)state;
  char *text;
  size_t length, wrong = 0;
  setun_error err = {0};
  assert_int_equal(st_file_load(SETUN_TEST_DATA "/chat/cases.json", 1 << 24, &text, &length, &err), SETUN_OK);
  st_json *root;
  st_json_parse_values(text, length, "cases.json", &root, &err);
  if (!root) fail_msg("%s", err.message);
  const st_json *cases = st_json_find(root, "cases");
  assert_true(st_json_size(cases) > 400);
  for (size_t i = 0; i < st_json_size(cases); i++) {
    wrong += !check_case(st_json_find(root, "contexts"), st_json_at(cases, i));
  }
  st_json_free(root);
  st_free(text);
  assert_int_equal(wrong, 0);
}

// ---- messages ----

static void test_errors(void **state) {
  (void)state;
  static const struct {
    const char *template;
    setun_status status;
    const char *message; // part of it
  } table[] = {
      {"a\n{% if x %}\nb", SETUN_ERROR_FORMAT, "line 2, column 9: expected the tag 'endif'"},
      {"\n\n{{ 1 + }}", SETUN_ERROR_FORMAT, "line 3, column 8: expected an expression, found '}}'"},
      {"{{ 'abc }}", SETUN_ERROR_FORMAT, "line 1, column 4: a string begins with ' and has no end"},
      {"\n{% nosuch %}", SETUN_ERROR_FORMAT, "line 2, column 4: expected for, if, set, macro,"},
      {"x\n{{ a.b.c }}", SETUN_ERROR_FORMAT, "line 2, column 5: 'a' is undefined"},
      {"{{ 1 + 'a' }}", SETUN_ERROR_FORMAT, "'+' between int and str"},
      {"\n{{ raise_exception('roles must\nalternate') }}", SETUN_ERROR_ARGUMENT,
       "line 2, column 19: the template says: roles must alternate"},
      {"{% block x %}{% endblock %}", SETUN_ERROR_UNSUPPORTED, "line 1, column 4: the tag 'block' is not supported"},
      {"é\n {{ 'x'\n |wordwrap }}", SETUN_ERROR_UNSUPPORTED,
       "line 3, column 3: the filter 'wordwrap' is not supported; expected one of capitalize, default, "},
      {"é {{ 1|nosuch }}", SETUN_ERROR_FORMAT,
       "line 1, column 8: expected the name of a filter of Jinja, found 'nosuch'"},
      {"{% if 1 %}{{ 1|nosuch }}{% endif %}", SETUN_ERROR_FORMAT, "there is no filter 'nosuch'; expected one of "},
      {"{{ 1 is odd }}", SETUN_ERROR_UNSUPPORTED,
       "line 1, column 6: the test 'odd' is not supported; expected one of "},
      {"{{ 1 is nosuch }}", SETUN_ERROR_FORMAT, "expected the name of a test of Jinja, found 'nosuch'"},
      {"{{ ['nosuch']|map('nosuch')|list }}", SETUN_ERROR_FORMAT, "there is no filter 'nosuch'; expected one of "},
      {"{{ 'a'.zfill(3) }}", SETUN_ERROR_UNSUPPORTED, "the method 'zfill' of a str is not supported"},
      {"{{ 7 // 2 }}", SETUN_ERROR_UNSUPPORTED, "line 1, column 6: the operator '//' is not supported"},
      {"{{ '%s' % 1 }}", SETUN_ERROR_UNSUPPORTED, "'%' that formats a string is not supported"},
      {"{{ lipsum() }}", SETUN_ERROR_UNSUPPORTED, "the function 'lipsum' is not supported"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", SETUN_ERROR_UNSUPPORTED, "'varargs' in a macro is not supported"},
      {"{{ 9223372036854775807 + 1 }}", SETUN_ERROR_UNSUPPORTED, "beyond 64 bits"},
      {"{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}", SETUN_ERROR_LIMIT, "steps"},
      {"{{ ('a' * 1000) * 100000 }}", SETUN_ERROR_LIMIT, "string longer than"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", SETUN_ERROR_LIMIT, "nested deeper than 150 levels"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
       SETUN_ERROR_LIMIT, "nested deeper"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
       SETUN_ERROR_LIMIT, "memory"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    st_buffer out = {0};
    setun_error err = {0};
    setun_status status = render(table[i].template, "{}", &out, NULL, &err);
    if (status != table[i].status || !strstr(err.message, table[i].message)) {
      fail_msg("%s\n  expected %d %s\n  found %d %s", table[i].template, table[i].status, table[i].message, status,
               err.message);
    }
    assert_int_equal(out.length, 0);
    st_buffer_free(&out);
  }
  setun_error err = {0};
  st_template *t = NULL;
  assert_int_equal(st_template_compile("\xff", 1, "bytes", &t, &err), SETUN_ERROR_FORMAT);
  assert_null(t);
}

static void test_deep_nesting(void **state) {
  (void)state;
  static const char *const open[] = {"{{ ((((((((", "{% if 1 %}", "{{ [[[[[[[[", "{{ - - - - - - - - ",
                                     "{{ not not not "};
  for (size_t k = 0; k < sizeof open / sizeof *open; k++) {
    st_buffer text = {0}, out = {0};
    setun_error err = {0};
    const char *rest = open[k][1] == '%' ? open[k] : open[k] + 3;
    assert_true(st_buffer_text(&text, open[k]));
    for (int i = 0; i < 20000; i++) assert_true(st_buffer_text(&text, rest));
    assert_true(st_buffer_text(&text, "1 }}"));
    assert_int_not_equal(render(text.data, "{}", &out, NULL, &err), SETUN_OK);
    st_buffer_free(&text);
    st_buffer_free(&out);
  }
}

// ---- where the text comes from ----

// Marks what the spans cover with [ and ].
static void expect_marked(const char *template, const char *json, const char *expected) {
  st_buffer out = {0}, marked = {0};
  st_template_spans spans = {0};
  setun_error err = {0};
  if (render(template, json, &out, &spans, &err)) fail_msg("%s: %s", template, err.message);
  size_t at = 0;
  assert_true(st_buffer_text(&marked, ""));
  for (size_t i = 0; i < spans.n; i++) {
    assert_true(spans.items[i].begin >= at && spans.items[i].end > spans.items[i].begin);
    assert_true(spans.items[i].end <= out.length);
    assert_true(st_buffer_append(&marked, out.data + at, spans.items[i].begin - at) && st_buffer_text(&marked, "["));
    at = spans.items[i].end;
    assert_true(st_buffer_append(&marked, out.data + spans.items[i].begin, at - spans.items[i].begin));
    assert_true(st_buffer_text(&marked, "]"));
  }
  assert_true(st_buffer_append(&marked, out.data + at, out.length - at));
  assert_string_equal(marked.data, expected);
  st_template_spans_free(&spans);
  st_buffer_free(&marked);
  st_buffer_free(&out);
}

static void test_spans(void **state) {
  (void)state;
  static const char json[] = "{\"bos_token\": \"<s>\", \"x\": \"a<s>b\", \"y\": \" \\u00e9 \", \"l\": [\"p\", \"q\"], "
                             "\"d\": {\"k\": \"v\"}, \"n\": 5}";
  expect_marked("{{ bos_token }}<{{ x }}>", json, "<s><[a<s>b]>");
  expect_marked("{{ bos_token + x + '|' }}", json, "<s>[a<s>b]|");
  expect_marked("{{ ('<' + x + '>')[2:] }}", json, "[<s>b]>");
  expect_marked("{{ ('<' + x + '>').split('<s>')|join('-') }}", json, "<[a]-[b]>");
  expect_marked("{{ ('<' + x + '>').replace('s', 'tt') }}", json, "<[a<]tt[>b]>");
  expect_marked("{{ ('A' ~ x)|lower|upper }}{{ y|trim }}|{{ y.strip()|length }}", json, "A[A<S>B\xC3\xA9]|1");
  expect_marked("{{ d|tojson }}{{ l }}{{ n }}", json, "{\"[k]\": \"[v]\"}['[p]', '[q]']5");
  expect_marked("{% set t %}<{{ x }}>{% endset %}{{ t }}{{ ('<'|safe) + x }}", json, "<[a<s>b]><[a&lt;s&gt;b]");
  expect_marked(
      "{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x)|replace('(', '{') }}{% for c in l %}{{ c }},{% endfor %}", json,
      "{[a<s>b])[p],[q],");
  expect_marked("{{ ('u' ~ y ~ 'v')[::-1] }}{{ '{}-{}+'.format(x, y) }}", json, "v[ \xC3\xA9 ]u[a<s>b]-[ \xC3\xA9 ]+");
  expect_marked("{{ 'plain' }}{{ n * 2 }}", json, "plain10");
}

// ---- limits that the caller sets ----

static void test_limits(void **state) {
  (void)state;
  setun_error err = {0};
  st_json *context = st_json_new();
  st_buffer out = {0};
  static const char loop[] = "{% for x in range(100) %}{{ 'abcdefghij' }}{% endfor %}";
  static const char lists[] = "{% for x in range(100) %}{% set y = [x, x, x, x] %}{% endfor %}";
  assert_true(st_buffer_text(&out, "kept"));
  assert_int_equal(
      render_with(loop, sizeof loop - 1, context, (st_template_options){.max_steps = 50}, &out, NULL, &err),
      SETUN_ERROR_LIMIT);
  assert_int_equal(
      render_with(loop, sizeof loop - 1, context, (st_template_options){.max_output = 500}, &out, NULL, &err),
      SETUN_ERROR_LIMIT);
  assert_int_equal(
      render_with(lists, sizeof lists - 1, context, (st_template_options){.max_memory = 9000}, &out, NULL, &err),
      SETUN_ERROR_LIMIT);
  assert_string_equal(out.data, "kept");
  assert_int_equal(render_with(loop, sizeof loop - 1, context, (st_template_options){0}, &out, NULL, &err), SETUN_OK);
  assert_int_equal(out.length, 1004);
  st_buffer_free(&out);
  st_json_free(context);
}

// Appending to a text piece by piece takes time and memory in proportion to it.
static void test_appending(void **state) {
  (void)state;
  setun_error err = {0};
  st_buffer out = {0};
  assert_int_equal(
      render("{% set ns = namespace(s='') %}{% for x in range(90000) %}{% set ns.s = ns.s + 'abcdefghij' %}"
             "{% endfor %}{{ ns.s|length }}",
             "{}", &out, NULL, &err),
      SETUN_OK);
  assert_string_equal(out.data, "900000");
  st_buffer_free(&out);
}

// ---- threads ----

typedef struct {
  const st_template *t;
  const st_json *context;
  bool ok;
} job;

static void *work(void *argument) {
  job *j = argument;
  j->ok = true;
  for (int i = 0; i < 200 && j->ok; i++) {
    st_buffer out = {0};
    j->ok = !st_template_render(j->t, j->context, NULL, &out, NULL, NULL) && !strcmp(out.data, "HI1é2x3");
    st_buffer_free(&out);
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  static const char text[] = "{% for m in l %}{{ m|upper if loop.first else m }}{{ loop.index }}{% endfor %}";
  setun_error err = {0};
  st_template *t = NULL;
  assert_int_equal(st_template_compile(text, sizeof text - 1, "threads", &t, &err), SETUN_OK);
  static const char list[] = "{\"l\": [\"hi\", \"é\", \"x\"]}";
  st_json *context;
  assert_int_equal(st_json_parse_values(list, sizeof list - 1, "context", &context, &err), SETUN_OK);
  job jobs[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    jobs[i] = (job){t, context, false};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_true(jobs[i].ok);
  }
  st_json_free(context);
  st_template_free(t);
}

static void test_values(void **state) {
  (void)state;
  setun_error err = {0};
  static const char big[] = "{\"a\": 18446744073709551616}";
  st_json *none;
  assert_int_equal(st_json_parse_values(big, sizeof big - 1, "big", &none, &err), SETUN_ERROR_FORMAT);
  st_buffer out = {0};
  assert_int_equal(render("{{ a }} {{ b }} {{ c }} {{ d|tojson }}",
                          "{\"a\": 1, \"b\": 1.0, \"c\": 1e2, \"d\": [-0.5, 1E+30]}", &out, NULL, &err),
                   SETUN_OK);
  assert_string_equal(out.data, "1 1.0 100.0 [-0.5, 1e+30]");
  st_buffer_free(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),        cmocka_unit_test(test_errors),
                                     cmocka_unit_test(test_deep_nesting), cmocka_unit_test(test_spans),
                                     cmocka_unit_test(test_limits),       cmocka_unit_test(test_appending),
                                     cmocka_unit_test(test_threads),      cmocka_unit_test(test_values)};
  return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
