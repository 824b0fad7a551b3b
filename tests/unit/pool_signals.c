// The library's threads leave signals to the application's, which may be waiting for one.
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"

enum { THREADS = 3 };

static void note_mask(void *context, int index, int count) {
  int *blocked = context;
  sigset_t set;
  (void)count;
  pthread_sigmask(SIG_BLOCK, NULL, &set);
  blocked[index] = sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) && sigismember(&set, SIGUSR1);
}

static void signals_are_the_callers(void **state) {
  (void)state;
  st_pool *pool;
  int blocked[THREADS] = {-1, -1, -1};
  assert_int_equal(st_pool_new(THREADS, &pool, NULL), SETUN_OK);
  st_pool_run(pool, note_mask, blocked);
  assert_int_equal(blocked[0], 0); // the caller's own thread
  for (int i = 1; i < THREADS; i++) assert_int_equal(blocked[i], 1);
  st_pool_free(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(signals_are_the_callers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
