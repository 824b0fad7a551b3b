// Pools: their threads leave signals to the application's, which may be waiting for one, several callers share them,
// and all items that are dealt are taken, each once.
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/pool.h"

enum { THREADS = 3 };

typedef struct {
  pthread_t caller;
  int own[THREADS], blocked[THREADS]; // by index: on one of the pool's own threads; with signals blocked
} masks;

// The caller waits a little, so that it does not take over the others' parts before they wake.
static void note_mask(void *context, int index, int count) {
  masks *m = context;
  sigset_t set;
  (void)count;
  pthread_sigmask(SIG_BLOCK, NULL, &set);
  m->own[index] = !pthread_equal(pthread_self(), m->caller);
  m->blocked[index] = sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) && sigismember(&set, SIGUSR1);
  if (!index) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void signals_are_the_callers(void **state) {
  (void)state;
  st_pool *pool;
  masks m = {.caller = pthread_self()};
  bool all = false;
  assert_int_equal(st_pool_new(NULL, THREADS, &pool, NULL), SETUN_OK);
  for (int tries = 0; tries < 1000 && !all; tries++) {
    st_pool_run(pool, note_mask, &m);
    all = true;
    for (int i = 0; i < THREADS; i++) {
      assert_int_equal(m.blocked[i], m.own[i]);
      all = all && m.own[i] == (i > 0);
    }
  }
  assert_true(all);
  st_pool_free(pool);
}

// ---- several callers ----------------------------------------------------------------------------------------------

// Each part of each call runs once, and has ended when the call returns, whatever other callers do.
typedef struct {
  st_workers *workers;
  int threads;
  atomic_int parts[THREADS + 2];
  bool wrong;
} caller;

static void count_part(void *context, int index, int count) {
  caller *c = context;
  if (count != c->threads) c->wrong = true;
  atomic_fetch_add(&c->parts[index], 1);
}

static void *call_often(void *user) {
  caller *c = user;
  for (int round = 0; round < 20; round++) {
    st_pool *pool;
    if (st_pool_new(c->workers, c->threads, &pool, NULL) != SETUN_OK) return c->wrong = true, NULL;
    for (int call = 1; call <= 200; call++) {
      st_pool_run(pool, count_part, c);
      for (int i = 0; i < c->threads; i++) {
        if (atomic_load(&c->parts[i]) != round * 200 + call) c->wrong = true;
      }
    }
    st_pool_free(pool);
  }
  return NULL;
}

static void callers_share_workers(void **state) {
  (void)state;
  enum { CALLERS = 4 };
  static caller callers[CALLERS];
  pthread_t threads[CALLERS];
  st_workers *workers;
  assert_int_equal(st_workers_new(&workers, NULL), SETUN_OK);
  for (int i = 0; i < CALLERS; i++) {
    callers[i].workers = workers;
    callers[i].threads = 1 + i;
    assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
  }
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(threads[i], NULL);
    assert_false(callers[i].wrong);
  }
  st_workers_free(workers);
}

// ---- items --------------------------------------------------------------------------------------------------------

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
    assert_int_equal(st_pool_new(NULL, threads, &pool, NULL), SETUN_OK);
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

// Alone, a thread takes half of what is left, but at least the grain, until nothing is left.
static void halves_are_taken(void **state) {
  (void)state;
  static const size_t ends[] = {50, 75, 88, 94, 100};
  st_pool *pool;
  size_t first, last = 0;
  assert_int_equal(st_pool_new(NULL, 1, &pool, NULL), SETUN_OK);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(signals_are_the_callers), cmocka_unit_test(callers_share_workers),
                                     cmocka_unit_test(items_are_taken_once), cmocka_unit_test(halves_are_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
