// The part of cmocka's interface that tests/kernel uses, for cross builds where cmocka is not at hand. A failed
// assertion ends the program with status 1 after saying where; otherwise each test is run in turn.
#ifndef SETUN_TEST_CROSS_CMOCKA_H
#define SETUN_TEST_CROSS_CMOCKA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                                     \
  { #function, function }
#define cmocka_run_group_tests(tests, setup, teardown)                                                                 \
  cross_run(tests, sizeof(tests) / sizeof *(tests), (setup), (teardown))

typedef int (*cross_fixture)(void **state);

static inline int cross_run(const struct CMUnitTest *tests, size_t count, cross_fixture setup, cross_fixture teardown) {
  void *state = NULL;
  if (setup && setup(&state)) return 1;
  for (size_t i = 0; i < count; i++) {
    printf("%s\n", tests[i].name);
    fflush(stdout);
    tests[i].run(&state);
  }
  return teardown && teardown(&state) ? 1 : 0;
}

static inline void cross_fail(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: %s\n", file, line, what);
  exit(1);
}

#define assert_true(c) ((c) ? (void)0 : cross_fail(__FILE__, __LINE__, #c " is false"))
#define assert_false(c) ((c) ? cross_fail(__FILE__, __LINE__, #c " is true") : (void)0)
#define assert_int_equal(a, b)                                                                                         \
  ((uintmax_t)(a) == (uintmax_t)(b) ? (void)0 : cross_fail(__FILE__, __LINE__, #a " differs from " #b))
#define assert_int_not_equal(a, b)                                                                                     \
  ((uintmax_t)(a) != (uintmax_t)(b) ? (void)0 : cross_fail(__FILE__, __LINE__, #a " equals " #b))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_string_equal(a, b)                                                                                      \
  (strcmp((a), (b)) == 0 ? (void)0 : cross_fail(__FILE__, __LINE__, #a " differs from " #b))
#define assert_memory_equal(a, b, n)                                                                                   \
  (memcmp((a), (b), (n)) == 0 ? (void)0 : cross_fail(__FILE__, __LINE__, #a " differs from " #b))
#define fail() cross_fail(__FILE__, __LINE__, "fail()")
#define fail_msg(...) (fprintf(stderr, __VA_ARGS__), cross_fail(__FILE__, __LINE__, "fail_msg()"))
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) fprintf(stderr, __VA_ARGS__)
#define skip() exit(77)

#endif
