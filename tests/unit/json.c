// The reader and the writer of JSON: against jansson over many texts, their messages, and edits.
#include "json_oracle.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

// One text, in both ways of reading and, where it is taken, of writing.
static bool check_text(const char *text, size_t length) {
  bool taken = false, ignored;
  bool same = same_reading(text, length, true, &ignored) && same_reading(text, length, false, &taken) &&
              (!taken || same_writing(text, length));
  if (!same) print_error("differs from jansson: %.*s\n", (int)(length < 400 ? length : 400), text);
  return same;
}

static const char *const texts[] = {
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "1.5",
    "-0.0",
    "0.1",
    "1e5",
    "1E+5",
    "1e-5",
    "1e0005",
    "[0.1, 1e22, 1e23, 123456789012345678, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e-400, 0e99]",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "1e308",
    "1e309",
    "-1e309",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "0.00000000000000000000000000000000000000000000000001234567890123456789",
    "9007199254740993",
    "9007199254740993.0",
    "4.35",
    "0.3",
    "2.675",
    "100000000000000000000000.5",
    "1.0000000000000000000000000000000000000001",
    "[1,2.0,3e0]",
    "01",
    "-01",
    "-",
    "+1",
    "1.",
    ".5",
    "1.e5",
    "1e",
    "1e+",
    "0x10",
    "1 2",
    "NaN",
    "Infinity",
    "-Infinity",
    "1a",
    "\"\"",
    "\"a\"",
    "\"a",
    "\"",
    "\"\\",
    "\"\\\"",
    "\"\\\\\"",
    "\"\\/\\b\\f\\n\\r\\t\\\"\"",
    "\"\\a\"",
    "\"\\u\"",
    "\"\\u12\"",
    "\"\\u00e9\\u4E2d\\u0041\"",
    "\"\\u00g0\"",
    "\"\\u0000\"",
    "\"a\\u0000b\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ud83dx\"",
    "\"\\ud83d\\ude0\"",
    "\"\\uD834\\uDD1E!\"",
    "\"\xC3\xA9\"",
    "\"\xC3\"",
    "\"\xC0\x80\"",
    "\"\xE4\xB8\xAD\"",
    "\"\xED\xA0\x80\"",
    "\"\xF0\x9F\x98\x80\"",
    "\"\xF4\x90\x80\x80\"",
    "\"\xFF\"",
    "\"\x80\"",
    "\"\xE4\xB8\"",
    "\"\\\xC3\xA9\"",
    "\xC3\xA9",
    "\xEF\xBB\xBF{}",
    "\"\x01\"",
    "\"\n\"",
    "\"\t\"",
    "\"\x7F\"",
    "\"/\x7F\\u001f\\u0001\"",
    "[",
    "]",
    "{",
    "}",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1}",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,}",
    "{\"a\" 1}",
    "{a:1}",
    "{1:2}",
    "{\"a\":1]",
    "{\"a\":1}{",
    "{\"a\":1} x",
    "[1] ]",
    "{\"a\":1}\n\t\r ",
    " \t\r\n{ \"a\" : [ 1 , 2 ] } ",
    "\f{}",
    "\v{}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,\"b\":2,\"a\":3,\"c\":{\"x\":1,\"x\":[]}}",
    "{\"\":1,\"\":2}",
    "{\"a\\u0000\":1}",
    "{\"\\u0061\":1,\"a\":2}",
    "truefalse",
    "tru",
    "nul",
    "True",
    "[true,false,null]",
    "// x\n{}",
    "{\"a\":{\"b\":[{\"c\":[[],{},\"\"]}]}}",
    "",
    " ",
    "'a'",
    "[1.5e300,-2.5e-300,1e16,1e17,123456.75,1e-7]",
    "{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"10\":10,\"11\":11,\"9\":-9,\"3\":-3}",
};

static void listed_texts(void **state) {
  (void)state;
  size_t wrong = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) wrong += !check_text(texts[i], strlen(texts[i]));
  assert_int_equal(wrong, 0);
}

static void zero_bytes(void **state) {
  (void)state;
  static const char in_string[] = "\"a\0b\"", behind[] = "{}\0", alone[] = "\0";
  assert_true(check_text(in_string, sizeof in_string - 1));
  assert_true(check_text(behind, sizeof behind - 1));
  assert_true(check_text(alone, sizeof alone - 1));
}

// Texts are read to their length, not to a 0 after it: each ends at the end of its block.
static void cut_texts(void **state) {
  (void)state;
  static const char whole[] =
      "{\"a\\n\\ud83d\\ude00\": [1, -2.5e3, true, null, \"\xC3\xA9\\\\\"], \"b\": {\"c\": false}}";
  for (size_t n = 0; n < sizeof whole; n++) {
    char *copy = malloc(n ? n : 1);
    memcpy(copy, whole, n);
    assert_true(check_text(copy, n));
    free(copy);
  }
}

static void depth(void **state) {
  (void)state;
  for (size_t n = ST_JSON_DEPTH_MOST - 1; n <= ST_JSON_DEPTH_MOST + 1; n++) {
    for (int with = 0; with < 2; with++) { // with a scalar inside
      char *text = malloc(2 * n + 1);
      memset(text, '[', n);
      if (with) text[n] = '7';
      memset(text + n + with, ']', n);
      assert_true(check_text(text, 2 * n + (size_t)with));
      free(text);
    }
  }
}

// Numbers of every length and magnitude, which must be rounded as strtod rounds them.
static void numbers(void **state) {
  (void)state;
  st_random random;
  st_random_seed(&random, 20);
  for (int i = 0; i < 200000; i++) {
    char text[64];
    uint64_t bits = st_random_u64(&random);
    double x;
    memcpy(&x, &bits, sizeof x);
    int n = i % 3 == 0   ? snprintf(text, sizeof text, "%.*g", (int)(bits % 20), x)
            : i % 3 == 1 ? snprintf(text, sizeof text, "%.*f", (int)(bits % 12), (double)(int64_t)bits / 1e9)
                         : snprintf(text, sizeof text, "%lld", (long long)bits >> bits % 64);
    if (strchr(text, 'n')) continue; // nan, inf
    assert_true(check_text(text, (size_t)n));
  }
}

// Random changes of a text that has every kind of value.
static void changed_texts(void **state) {
  (void)state;
  static const char seed[] =
      "{\"k\\u00e9y\": [1, -20.5e+3, true, null, \"\xC3\xA9\\\\\\ud83d\\ude00\"], \"a\": {\"b\": \"\", "
      "\"c\": [[], {}], \"d\": 12345678901234567890, \"k\": 1, \"l\": 2, \"m\": 3, \"n\": 4, \"o\": 0, "
      "\"p\": 5, \"q\": 6, \"r\": 7}, \"a2\": false}";
  static const char bytes[] = "\"\"\"{}[]:,\\u0123456789eE+-. \nabkx\x80\xC3\xA9\xF0\x01";
  st_random random;
  st_random_seed(&random, 7);
  for (int i = 0; i < 100000; i++) {
    char text[sizeof seed];
    size_t n = sizeof seed - 1;
    memcpy(text, seed, sizeof seed);
    for (uint64_t changes = 1 + st_random_u64(&random) % 3; changes; changes--) {
      size_t at = (size_t)(st_random_u64(&random) % n);
      if (st_random_u64(&random) % 3) {
        text[at] = bytes[st_random_u64(&random) % (sizeof bytes - 1)];
      } else {
        memmove(text + at, text + at + 1, --n - at);
      }
    }
    assert_true(check_text(text, n));
  }
}

static void files(void **state) {
  (void)state;
  static const char *const paths[] = {"/tests/badfiles/expected.json", "/tests/golden/directories.json",
                                      "/tests/tok/strings.json",       "/tests/tok/gpt2.json",
                                      "/tests/tok/unigram.json",       "/tests/sampler/vectors.json",
                                      "/tests/chat/cases.json",        "/models/setun-tales-7m/tokenizer.json",
                                      "/tests/tok/llama3.json"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    char path[512], *text;
    size_t length;
    snprintf(path, sizeof path, "%s%s", SETUN_SOURCE_DIR, paths[i]);
    assert_int_equal(st_file_load(path, 1 << 28, &text, &length, NULL), SETUN_OK);
    if (!check_text(text, length)) fail_msg("%s", path);
    st_free(text);
  }
}

// Where the fault is, and what.
static void messages(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "x: line 1, column 1: expected a value, found the end of the text"},
      {"[1]", "x: expected a JSON object, found an array"},
      {"{\"a\": 1,\n \"\xC3\xA9\": tru}", "x: line 2, column 7: expected a value, found 't'"},
      {"{\"a\": 1\n", "x: line 2, column 1: expected ',' or '}', found the end of the text"},
      {"{\"a\": [1, 2}", "x: line 1, column 12: expected ',' or ']', found '}'"},
      {"{\"a\": 1, \"b\": 2,\n\"a\": 3}", "x: line 2, column 1: duplicate key \"a\""},
      {"{\"p\": [1, {\"q\": {}, \"r\": {\"a\": 1, \"\\u0061\": 2}}]}",
       "x: line 1, column 35: duplicate key \"a\" in #/p/1/r"},
      {"{\"a\": 1} \x01", "x: line 1, column 10: expected the end of the text, found byte 0x01"},
      {"{\"a\": \"\xFF\"}", "x: line 1, column 8: expected UTF-8, found byte 0xff"},
      {"{\"a\": \"b", "x: line 1, column 9: the text ends within a string"},
      {"{\"a\": \"\\ud800\"}", "x: line 1, column 8: an unpaired surrogate"},
      {"{\"a\\u0000\": 1}", "x: line 1, column 2: a key that holds \\u0000"},
      {"{\"a\": 01}", "x: line 1, column 7: a number with a leading 0"},
      {"{\"a\": 1e999}", "x: line 1, column 7: a number that overflows a double"},
      {"{a: 1}", "x: line 1, column 2: expected a key in quotation marks, found 'a'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    st_json *root;
    setun_error err = {SETUN_OK, ""};
    assert_int_equal(st_json_parse(cases[i].text, strlen(cases[i].text), "x", &root, &err), SETUN_ERROR_FORMAT);
    assert_null(root);
    assert_string_equal(err.message, cases[i].message);
  }
}

// A locale whose decimal point is a comma changes nothing; skipped where no such locale is installed.
static void locales(void **state) {
  (void)state;
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "de_DE", "fa_IR.UTF-8"};
  bool found = false;
  for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) found = setlocale(LC_NUMERIC, names[i]) != NULL;
  if (!found) skip();
  st_json *root;
  static const char text[] = "[0.1, 1.25e-300, 1234567890123456789012.5]";
  assert_int_equal(st_json_parse_any(text, sizeof text - 1, "x", &root, NULL), SETUN_OK);
  st_buffer out = {0};
  assert_true(st_json_number(st_json_at(root, 0)) == 0.1);
  assert_true(st_json_number(st_json_at(root, 1)) == 1.25e-300);
  assert_true(st_json_number(st_json_at(root, 2)) == 1234567890123456789012.5);
  assert_true(st_json_append(root, &out));
  assert_string_equal(out.data, "[0.1,1.25e-300,1.23456789e21]");
  st_buffer_free(&out);
  st_json_free(root);
  setlocale(LC_NUMERIC, "C");
}

static void expect_text(const st_json *value, const char *expected) {
  st_buffer out = {0};
  assert_true(st_json_append(value, &out));
  assert_string_equal(out.data, expected);
  st_buffer_free(&out);
}

// Only what a model wrote may have a key twice.
static void lenient(void **state) {
  (void)state;
  static const char text[] = "{\"a\": [{\"b\": 1, \"c\": 2, \"b\": 3}]}";
  st_json *root;
  setun_error err;
  assert_int_equal(st_json_parse_values(text, sizeof text - 1, "x", &root, &err), SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "x: line 1, column 25: duplicate key \"b\" in #/a/0");
  assert_int_equal(st_json_parse_any(text, sizeof text - 1, "x", &root, &err), SETUN_ERROR_FORMAT);
  assert_int_equal(st_json_parse_lenient(text, sizeof text - 1, "x", &root, &err), SETUN_OK);
  expect_text(root, "{\"a\":[{\"b\":3,\"c\":2}]}");
  st_json_free(root);
}

static void edits(void **state) {
  (void)state;
  static const char text[] = "{\"a\": [1, 2, 3], \"b\": {\"c\": null}, \"d\": 4}";
  st_json *root;
  assert_int_equal(st_json_parse_values(text, sizeof text - 1, "x", &root, NULL), SETUN_OK);
  st_json *a = st_json_edit(root, "a");
  st_json_push(root, a, st_json_make_real(root, 0.5));
  st_json_insert(root, a, 0, st_json_make_bool(true));
  st_json_remove(a, 1, 2);
  expect_text(root, "{\"a\":[true,3,0.5],\"b\":{\"c\":null},\"d\":4}");
  st_json_set(root, root, "d", st_json_make_text(root, "\"\x1F\xC3\xA9"));
  st_json_delete(root, "b");
  st_json_delete(root, "none");
  for (char key[3] = "k0"; key[1] <= '9'; key[1]++) st_json_set(root, root, key, st_json_make_integer(key[1] - '0'));
  expect_text(root, "{\"a\":[true,3,0.5],\"d\":\"\\\"\\u001F\xC3\xA9\",\"k0\":0,\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,"
                    "\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9}");
  assert_false(st_json_failed(root));
  st_json *copy = st_json_new();
  st_json_set(copy, copy, "all", st_json_copy_of(copy, root));
  st_json_free(root);
  assert_true(st_json_number(st_json_find(st_json_find(copy, "all"), "k9")) == 9);
  assert_null(st_json_find(copy, "k9"));
  st_json_make_string(copy, "\xFF", 1);
  assert_true(st_json_failed(copy));
  assert_false(st_json_failed(copy));
  st_json_make_real(copy, INFINITY);
  assert_true(st_json_failed(copy));
  st_json_free(copy);
}

// Every key of a large object is found, and no other.
static void many_members(void **state) {
  (void)state;
  enum { MANY = 5000 };
  st_buffer text = {0};
  assert_true(st_buffer_text(&text, "{"));
  for (int i = 0; i < MANY; i++) assert_true(st_buffer_format(&text, "%s\"key %d\": %d", i ? ", " : "", i, i));
  assert_true(st_buffer_text(&text, "}"));
  assert_true(check_text(text.data, text.length));
  st_json *root;
  char key[32];
  assert_int_equal(st_json_parse(text.data, text.length, "x", &root, NULL), SETUN_OK);
  for (int i = 0; i < MANY; i++) {
    snprintf(key, sizeof key, "key %d", i);
    assert_true(st_json_number(st_json_find(root, key)) == i);
    snprintf(key, sizeof key, "key %d", i + MANY);
    assert_null(st_json_find(root, key));
  }
  st_json_free(root);
  st_buffer_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(listed_texts), cmocka_unit_test(zero_bytes), cmocka_unit_test(cut_texts),
      cmocka_unit_test(depth),        cmocka_unit_test(numbers),    cmocka_unit_test(changed_texts),
      cmocka_unit_test(files),        cmocka_unit_test(messages),   cmocka_unit_test(locales),
      cmocka_unit_test(lenient),      cmocka_unit_test(edits),      cmocka_unit_test(many_members),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
