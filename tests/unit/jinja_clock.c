// strftime_now against what tools/make_chat_clock.py had Python's datetime make of each supported directive.
#include "base/file.h"
#include "base/memory.h"
#include "jinja/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static json_t *moments; // tests/chat/clock.json

static int load(void **state) {
  (void)state;
  char *text;
  size_t length;
  setun_error err = {0};
  assert_int_equal(st_file_load(SETUN_TEST_DATA "/chat/clock.json", 1 << 20, &text, &length, &err), SETUN_OK);
  moments = st_json_parse_values(text, length, "clock.json", &err);
  if (!moments) fail_msg("%s", err.message);
  st_free(text);
  return 0;
}

static int unload(void **state) {
  (void)state;
  json_decref(moments);
  return 0;
}

static setun_status formatted(st_template *t, const st_template_time *now, json_t *format, st_buffer *out,
                              setun_error *err) {
  json_t *context = json_pack("{sO}", "form", format);
  assert_non_null(context);
  setun_status s = st_template_render(t, context, &(st_template_options){.now = now}, out, NULL, err);
  json_decref(context);
  return s;
}

static st_template *clock_template(void) {
  const char *text = "{{ strftime_now(form) }}";
  setun_error err = {0};
  st_template *t = NULL;
  assert_int_equal(st_template_compile(text, strlen(text), "clock", &t, &err), SETUN_OK);
  return t;
}

static int part(const json_t *moment, size_t i) {
  return (int)json_integer_value(json_array_get(json_array_get(moment, 0), i));
}

static void test_moments(void **state) {
  (void)state;
  json_t *formats = json_object_get(moments, "formats"), *all = json_object_get(moments, "moments"), *one, *format;
  st_template *t = clock_template();
  size_t i, f, wrong = 0;
  assert_true(json_array_size(all) > 200 && json_array_size(formats) == 6);
  json_array_foreach(all, i, one) {
    st_template_time now = {part(one, 0), part(one, 1), part(one, 2), part(one, 3), part(one, 4), part(one, 5), 0};
    json_array_foreach(formats, f, format) {
      const char *expected = json_string_value(json_array_get(json_array_get(one, 1), f));
      st_buffer out = {0};
      setun_error err = {0};
      setun_status s = formatted(t, &now, format, &out, &err);
      if (s || out.length != strlen(expected) || memcmp(out.data ? out.data : "", expected, out.length)) {
        print_error("%d-%d-%d, %s\n  expected: %s\n  found:    %s\n", now.year, now.month, now.day,
                    json_string_value(format), expected,
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
    json_t *format = json_pack("s#", (char[]){'%', *c}, 2);
    st_buffer out = {0};
    setun_error err = {0};
    assert_int_equal(formatted(t, &now, format, &out, &err), SETUN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "strftime_now: '%"));
    st_buffer_free(&out);
    json_decref(format);
  }
  st_template_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_moments), cmocka_unit_test(test_unknown_directives)};
  return cmocka_run_group_tests(tests, load, unload);
}
