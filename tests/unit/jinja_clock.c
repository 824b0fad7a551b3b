// strftime_now against what tools/make_chat_clock.py had Python's datetime make of each supported directive.
#include "base/file.h"
#include "base/memory.h"
#include "jinja/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static st_json *moments; // tests/chat/clock.json

static int load(void **state) {
  (void)state;
  char *text;
  size_t length;
  setun_error err = {0};
  assert_int_equal(st_file_load(SETUN_TEST_DATA "/chat/clock.json", 1 << 20, &text, &length, &err), SETUN_OK);
  st_json_parse_values(text, length, "clock.json", &moments, &err);
  if (!moments) fail_msg("%s", err.message);
  st_free(text);
  return 0;
}

static int unload(void **state) {
  (void)state;
  st_json_free(moments);
  return 0;
}

static setun_status formatted(st_template *t, const st_template_time *now, const char *format, st_buffer *out,
                              setun_error *err) {
  st_json *context = st_json_new();
  assert_non_null(context);
  st_json_set(context, context, "form", st_json_make_text(context, format));
  setun_status s = st_template_render(t, context, &(st_template_options){.now = now}, out, NULL, err);
  st_json_free(context);
  return s;
}

static st_template *clock_template(void) {
  const char *text = "{{ strftime_now(form) }}";
  setun_error err = {0};
  st_template *t = NULL;
  assert_int_equal(st_template_compile(text, strlen(text), "clock", &t, &err), SETUN_OK);
  return t;
}

static int part(const st_json *moment, size_t i) {
  return (int)st_json_number(st_json_at(st_json_at(moment, 0), i));
}

static void test_moments(void **state) {
  (void)state;
  const st_json *formats = st_json_find(moments, "formats"), *all = st_json_find(moments, "moments");
  st_template *t = clock_template();
  size_t wrong = 0;
  assert_true(st_json_size(all) > 200 && st_json_size(formats) == 6);
  for (size_t i = 0; i < st_json_size(all); i++) {
    const st_json *one = st_json_at(all, i);
    st_template_time now = {part(one, 0), part(one, 1), part(one, 2), part(one, 3), part(one, 4), part(one, 5), 0};
    for (size_t f = 0; f < st_json_size(formats); f++) {
      const char *format = st_json_string(st_json_at(formats, f));
      const char *expected = st_json_string(st_json_at(st_json_at(one, 1), f));
      st_buffer out = {0};
      setun_error err = {0};
      setun_status s = formatted(t, &now, format, &out, &err);
      if (s || out.length != strlen(expected) || memcmp(out.data ? out.data : "", expected, out.length)) {
        print_error("%d-%d-%d, %s\n  expected: %s\n  found:    %s\n", now.year, now.month, now.day, format, expected,
                    s          ? err.message
                    : out.data ? out.data
                               : "");
        wrong++;
      }
      st_buffer_free(&out);
    }
  }
  st_template_free(t);
  assert_int_equal(wrong, 0);
}

static void test_unknown_directives(void **state) {
  (void)state;
  st_template *t = clock_template();
  const st_template_time now = {2026, 1, 2, 3, 4, 5, 0};
  for (const char *c = "EOQivqJeCGgkUlWVuwcxXDFTRrhntzZfP_^#0 "; *c; c++) {
    const char format[] = {'%', *c, 0};
    st_buffer out = {0};
    setun_error err = {0};
    assert_int_equal(formatted(t, &now, format, &out, &err), SETUN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "strftime_now: '%"));
    st_buffer_free(&out);
  }
  st_template_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_moments), cmocka_unit_test(test_unknown_directives)};
  return cmocka_run_group_tests(tests, load, unload);
}
