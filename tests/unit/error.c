// Errors: where something happened is put before what happened, once.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system_error.h"

static void check(const char *message, const char *context, const char *expected) {
  setun_error err = {SETUN_OK, ""};
  st_fail(&err, SETUN_ERROR_IO, "%s", message);
  assert_int_equal(st_fail_in(&err, SETUN_ERROR_IO, "%s", context), SETUN_ERROR_IO);
  assert_string_equal(err.message, expected);
}

static void contexts(void **state) {
  (void)state;
  check("ends early", "m/a.gguf", "m/a.gguf: ends early");
  check("m/a.gguf: ends early", "m/a.gguf", "m/a.gguf: ends early");
  check("m/a.gguf: ends early", "m", "m/a.gguf: ends early");
  check("blk.0.attn_q.weight: m/a.gguf: ends early", "m/a.gguf", "blk.0.attn_q.weight: m/a.gguf: ends early");
  check("blk.0.attn_q.weight: m/a.gguf: ends early", "m", "blk.0.attn_q.weight: m/a.gguf: ends early");
  // Another file, whose name begins or ends alike.
  check("m/a.gguf.bak: ends early", "m/a.gguf", "m/a.gguf: m/a.gguf.bak: ends early");
  check("some/m/a.gguf: ends early", "m/a.gguf", "m/a.gguf: some/m/a.gguf: ends early");
  check("expected m/a.gguf", "m/a.gguf", "m/a.gguf: expected m/a.gguf");
}

static void the_system(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  assert_int_equal(st_fail_system(&err, ENOMEM, "%s: cannot open", "m/a.gguf"), SETUN_ERROR_MEMORY);
  assert_int_equal(err.code, SETUN_ERROR_MEMORY);
  assert_string_equal(err.message, "m/a.gguf: cannot open: out of memory");
  assert_int_equal(st_fail_system(&err, EIO, "%s: cannot open", "m/a.gguf"), SETUN_ERROR_IO);
  assert_int_equal(err.code, SETUN_ERROR_IO);
  assert_string_equal(err.message, "m/a.gguf: cannot open: Input/output error");
  assert_int_equal(st_fail_system(NULL, ENOMEM, "x"), SETUN_ERROR_MEMORY);
}

static void no_error_to_fill(void **state) {
  (void)state;
  assert_int_equal(st_fail(NULL, SETUN_ERROR_IO, "x"), SETUN_ERROR_IO);
  assert_int_equal(st_fail_in(NULL, SETUN_ERROR_MEMORY, "x"), SETUN_ERROR_MEMORY);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(contexts), cmocka_unit_test(the_system),
                                     cmocka_unit_test(no_error_to_fill)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
