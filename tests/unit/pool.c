// The pool: its threads leave signals to the application's, which may be waiting for one, and take all items that are
// dealt, each once.
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

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

// Takes items and notes who took which; one thread comes late.
typedef struct {
  st_pool *pool;
  size_t grain;
  int slow;
  atomic_int *taken;
} taking;

static void take_items(void *context, int index, int count) {
  taking *t = context;
  size_t first, last;
  if (index == t->slow && count > 1) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  while (st_pool_take(t->pool, index, t->grain, &first, &last)) {
    assert_true(first < last);
    for (size_t i = first; i < last; i++) atomic_fetch_add(&t->taken[i], 1);
  }
}

static void items_are_taken_once(void **state) {
  (void)state;
  static const size_t counts[] = {0, 1, 2, 3, 7, 64, 1000};
  enum { MOST = 1000 };
  static atomic_int taken[MOST + 1];
  for (int threads = 1; threads <= 5; threads++) {
    st_pool *pool;
    assert_int_equal(st_pool_new(threads, &pool, NULL), SETUN_OK);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      for (size_t grain = 1; grain <= 8; grain += 7) {
        taking t = {.pool = pool, .grain = grain, .slow = (int)c % threads, .taken = taken};
        for (size_t i = 0; i <= MOST; i++) atomic_store(&taken[i], 0);
        st_pool_deal(pool, counts[c]);
        st_pool_run(pool, take_items, &t);
        for (size_t i = 0; i <= MOST; i++) assert_int_equal(atomic_load(&taken[i]), i < counts[c]);
      }
    }
    st_pool_free(pool);
  }
}

// Alone, a thread takes half of what is left, but at least the grain, and then nothing more.
static void halves_are_taken(void **state) {
  (void)state;
  static const size_t ends[] = {50, 75, 88, 94, 100};
  st_pool *pool;
  size_t first, last = 0;
  assert_int_equal(st_pool_new(1, &pool, NULL), SETUN_OK);
  st_pool_deal(pool, 100);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t before = last;
    assert_true(st_pool_take(pool, 0, 6, &first, &last));
    assert_int_equal(first, before);
    assert_int_equal(last, ends[i]);
  }
  assert_false(st_pool_take(pool, 0, 6, &first, &last));
  st_pool_free(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(signals_are_the_callers), cmocka_unit_test(items_are_taken_once),
                                     cmocka_unit_test(halves_are_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
