// Expressions: verdicts of Python's re (expression_vectors.h) for each text, plain, in JSON's spellings and as a whole;
// what is refused; spellings of strings.
#include "constraint/frontends.h"

#include "base/memory.h"
#include "expression_vectors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static setun_error err;

static st_term term_of(st_terms *t, const char *expression, bool search, st_spelling spelling) {
  st_term term = ST_TERM_EMPTY;
  if (st_expression_term(t, expression, strlen(expression), search, spelling, &term, &err)) {
    fail_msg("%s: %s", expression, err.message);
  }
  return term;
}

static void check_vectors(st_spelling spelling) {
  for (size_t i = 0; i < COUNT(EXPRESSION_VECTORS); i++) {
    st_terms *t;
    const char *expression = EXPRESSION_VECTORS[i].expression;
    assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
    st_term term = term_of(t, expression, true, spelling);
    for (size_t k = 0; k < COUNT(EXPRESSION_TEXTS); k++) {
      st_text text = {EXPRESSION_TEXTS[k], strlen(EXPRESSION_TEXTS[k])};
      bool expected = EXPRESSION_VECTORS[i].found[k] == '1';
      if (st_term_matches_text(t, term, text, spelling) != expected) {
        fail_msg("%s in \"%s\": expected %d", expression, text.data, expected);
      }
    }
    assert_int_equal(st_terms_status(t, &err), SETUN_OK);
    st_terms_free(t);
  }
}
static void test_plain(void **state) {
  (void)state;
  check_vectors(ST_PLAIN);
}
static void test_json(void **state) {
  (void)state;
  check_vectors(ST_JSON);
}

static void test_whole(void **state) {
  (void)state;
  static const struct {
    const char *expression, *text;
    bool matches;
  } cases[] = {{"a|b", "a", true},     {"a|b", "ab", false},     {"a", "ba", false}, {"^a$", "a", true},
               {"(?!b).*", "a", true}, {"(?!b).*", "ba", false}, {"\\p", "", false}};
  for (size_t i = 0; i + 1 < COUNT(cases); i++) {
    st_terms *t;
    assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
    st_term term = term_of(t, cases[i].expression, false, ST_PLAIN);
    assert_int_equal(st_term_matches(t, term, cases[i].text, strlen(cases[i].text)), cases[i].matches);
    st_terms_free(t);
  }
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *expression, *message;
    setun_status status;
  } cases[] = {{"(a", "expression, character 3: expected ), found the end", SETUN_ERROR_FORMAT},
               {"a)", "expression, character 2: expected the end, found \")\"", SETUN_ERROR_FORMAT},
               {"[b-a]", "character 3: expected a range in ascending order", SETUN_ERROR_FORMAT},
               {"a{3,2}", "expected counts in ascending order", SETUN_ERROR_FORMAT},
               {"*a", "expected an item to repeat, found \"*\"", SETUN_ERROR_FORMAT},
               {"[a", "expected ]", SETUN_ERROR_FORMAT},
               {"\\u12", "expected four hexadecimal digits", SETUN_ERROR_FORMAT},
               {"\\", "expected an escape, found the end", SETUN_ERROR_FORMAT},
               {"\xC3\xA9\xFF", "the expression is not UTF-8", SETUN_ERROR_FORMAT},
               {"x\\bfoo", "expression, character 3: word boundaries (\\b) are not supported", SETUN_ERROR_UNSUPPORTED},
               {"(a)\\1", "back references are not supported", SETUN_ERROR_UNSUPPORTED},
               {"(?<=a)b", "look-behind is not supported", SETUN_ERROR_UNSUPPORTED},
               {"\\p{L}", "Unicode properties (\\p) are not supported", SETUN_ERROR_UNSUPPORTED},
               {"(?i:a)", "groups with flags are not supported", SETUN_ERROR_UNSUPPORTED},
               {"(?:(?=a)b)*", "unbounded repeats", SETUN_ERROR_UNSUPPORTED},
               {"(?=^a)b", "^ inside a look-ahead", SETUN_ERROR_UNSUPPORTED}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_terms *t;
    st_term term;
    assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
    setun_status status =
        st_expression_term(t, cases[i].expression, strlen(cases[i].expression), true, ST_PLAIN, &term, &err);
    assert_int_equal(status, cases[i].status);
    if (!strstr(err.message, cases[i].message)) fail_msg("expected \"%s\" in: %s", cases[i].message, err.message);
    st_terms_free(t);
  }
}

// Repeats of repeats match the same texts as the counts say, and become one repeat where no count is left out.
static void test_nested_repeats(void **state) {
  (void)state;
  enum { LONGEST = 40, ANY = 1000 };
  static const struct {
    const char *expression;
    unsigned m, n, min, max; // between m and n times, min to max times
    const char *same;        // as one repeat; NULL: it is not one
  } cases[] = {{"(?:a{2,3}){2}", 2, 3, 2, 2, "a{4,6}"},
               {"(?:a{3}){0,2}", 3, 3, 0, 2, NULL},
               {"(?:a{3}){2,}", 3, 3, 2, ANY, NULL},
               {"(?:a{1,2})?", 1, 2, 0, 1, "a{0,2}"},
               {"(?:a{2,4}){1,3}", 2, 4, 1, 3, "a{2,12}"},
               {"(?:a{3,4}){1,2}", 3, 4, 1, 2, NULL},
               {"(?:a{3,4}){2,9}", 3, 4, 2, 9, "a{6,36}"},
               {"(?:a{2,}){3}", 2, ANY, 3, 3, "a{6,}"},
               {"(?:a{2,}){0,3}", 2, ANY, 0, 3, NULL},
               {"(?:a+){2,5}", 1, ANY, 2, 5, "a{2,}"},
               {"(?:a{0,3}){2,}", 0, 3, 0, ANY, "a*"},
               {"(?:a{5})*", 5, 5, 0, ANY, NULL},
               {"(?:a{65536}){65536}", 65536, 65536, 65536, 65536, NULL}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_terms *t;
    char text[LONGEST + 1];
    memset(text, 'a', sizeof text);
    assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
    st_term term = term_of(t, cases[i].expression, false, ST_PLAIN);
    if (cases[i].same) assert_int_equal(term, term_of(t, cases[i].same, false, ST_PLAIN));
    for (unsigned length = 0; length <= LONGEST; length++) {
      bool matches = false;
      for (unsigned k = cases[i].min; k <= cases[i].max && k <= LONGEST; k++)
        matches |= k * cases[i].m <= length && length <= k * (uint64_t)cases[i].n;
      if (st_term_matches(t, term, text, length) != matches) fail_msg("%s: %u", cases[i].expression, length);
    }
    st_terms_free(t);
  }
}

// RFC 8259, section 7: the ways to write a character, and invalid ones.
static void test_spellings(void **state) {
  (void)state;
  static const struct {
    const char *text, *written;
    bool any, tight;
  } cases[] = {{"a", "a", true, true},
               {"a", "\\u0061", true, false},
               {"/", "\\/", true, false},
               {"/", "/", true, true},
               {"\"", "\\\"", true, true},
               {"\"", "\\u0022", true, true},
               {"\"", "\"", false, false},
               {"\n", "\\n", true, true},
               {"\n", "\\u000A", true, true},
               {"\n", "\n", false, false},
               {"\x7F", "\x7F", true, true},
               {"\xC3\xA9", "\xC3\xA9", true, true},
               {"\xC3\xA9", "\\u00E9", true, true},
               {"\xC3\xA9", "\\u00e9", true, true},
               {"\xC3\xA9", "\\U00e9", false, false},
               {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", true, true},
               {"\xF0\x9F\x98\x80", "\\uD83D\\ude00", true, true},
               {"\xF0\x9F\x98\x80", "\\ud83d", false, false},
               {"\xEF\xBF\xBF", "\\uffff", true, true}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_terms *t;
    assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
    st_text text = {cases[i].text, strlen(cases[i].text)};
    size_t n = strlen(cases[i].written);
    st_term any = st_term_string(t, text, ST_JSON), tight = st_term_string(t, text, ST_JSON_TIGHT);
    assert_int_equal(st_term_matches(t, any, cases[i].written, n), cases[i].any);
    assert_int_equal(st_term_matches(t, tight, cases[i].written, n), cases[i].tight);
    assert_int_equal(st_term_matches(t, st_term_any_character(t, ST_JSON), cases[i].written, n), cases[i].any);
    st_terms_free(t);
  }
  st_terms *t; // half a surrogate pair is not a character, before, after or in place of one
  assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
  st_term all = st_term_any_text(t, ST_JSON);
  static const char *const halves[] = {"\\ud83d", "\\ude00", "\\ud83d\\ud83d\\ude00", "\xED\xA0\xBD", "\\ud83dx"};
  for (size_t i = 0; i < COUNT(halves); i++) assert_false(st_term_matches(t, all, halves[i], strlen(halves[i])));
  st_terms_free(t);
}

// Sets of thousands of texts, and operations that may leave nothing.
static void test_sets(void **state) {
  (void)state;
  enum { N = 10000 };
  static char buffers[N][16];
  static st_text texts[N];
  st_terms *t;
  assert_int_equal(st_terms_new(NULL, &t, &err), SETUN_OK);
  for (int i = 0; i < N; i++) {
    snprintf(buffers[i], sizeof buffers[i], "key-%d", i * 7919 % 100000);
    texts[i] = (st_text){buffers[i], strlen(buffers[i])};
  }
  st_term all = st_term_strings(t, texts, N, ST_JSON);
  assert_true(st_term_matches(t, all, "key-7919", 8));
  assert_true(st_term_matches(t, all, "k\\u0065y-0", 10));
  assert_false(st_term_matches(t, all, "key-1", 5));
  st_term others = st_term_other_text(t, all, ST_JSON);
  assert_false(st_term_matches(t, others, "key-7919", 8));
  assert_true(st_term_matches(t, others, "key-1", 5));
  assert_true(st_term_is_empty(t, st_term_and2(t, all, others)));
  st_term words = term_of(t, "^[a-z]+$", true, ST_JSON), digits = term_of(t, "^[0-9]*$", true, ST_JSON);
  assert_true(st_term_is_empty(t, st_term_and2(t, words, digits)));
  assert_false(st_term_is_empty(t, st_term_and2(t, words, st_term_not(t, digits))));
  assert_int_equal(st_terms_status(t, &err), SETUN_OK);
  st_terms_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),   cmocka_unit_test(test_json),           cmocka_unit_test(test_whole),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_nested_repeats), cmocka_unit_test(test_spellings),
      cmocka_unit_test(test_sets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
