// Streaming on demand: each engine reads the units that are asked for, in any order, into the slots that are named; the
// bytes are the file's whatever the system cuts short, and a read that fails is the error of its unit alone.
#define _GNU_SOURCE
#include "base/random.h"
#include "source/stream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 3146241, UNITS = 9, RANGES = 3, SLOTS = 5, STEPS = 80 };

static char path[] = "/tmp/setun-demand-XXXXXX";
static uint8_t *content;
static st_file file;

static int make_file(void **state) {
  (void)state;
  setun_error err;
  st_random random;
  st_random_seed(&random, 1);
  int fd = mkstemp(path);
  content = malloc(BYTES + 8);
  if (fd < 0 || !content) return 1;
  for (size_t k = 0; k < BYTES; k += 8) memcpy(content + k, &(uint64_t){st_random_u64(&random)}, 8);
  bool written = write(fd, content, BYTES) == BYTES;
  close(fd);
  return !written || st_file_open(path, &file, &err) != SETUN_OK;
}

static int remove_file(void **state) {
  (void)state;
  st_file_close(&file);
  unlink(path);
  free(content);
  return 0;
}

// Faults: io_uring is missing; some results are cut short; one read fails.
typedef struct faults {
  bool no_uring, cut;
  int fails; // that read; negative: none
  atomic_int reads;
} faults;

static int refuse(void *user, st_stream_step step) {
  const faults *f = user;
  return step == ST_STREAM_URING && f->no_uring ? EPERM : 0;
}

static int64_t change_result(void *user, bool direct, uint8_t *to, size_t n, int64_t result) {
  faults *f = user;
  int read = atomic_fetch_add(&f->reads, 1);
  (void)direct;
  if (read == f->fails) {
    memset(to, 0xA5, n);
    return -EIO;
  }
  if (!f->cut || read % 3 || result < 2) return result;
  memset(to + result / 2, 0xA5, n - (size_t)result / 2);
  return result / 2;
}

static size_t below(st_random *r, size_t n) {
  return (size_t)(st_random_u64(r) % n);
}

static void check_unit(const st_stream_unit *unit, const uint8_t *const *at) {
  for (size_t i = 0; i < unit->n_ranges; i++) {
    assert_memory_equal(at[i], content + unit->ranges[i].offset, unit->ranges[i].bytes);
    assert_int_equal((uintptr_t)at[i] % 64, unit->ranges[i].offset % 64);
  }
}

static void check(faults f, bool direct, uint64_t seed) {
  st_stream_range ranges[UNITS][RANGES];
  st_stream_unit units[UNITS];
  size_t fetched[SLOTS] = {0}; // 1 + the unit that is read into it
  const uint8_t *at[RANGES];
  const st_stream_faults hooks = {&f, refuse, change_result};
  const st_stream_options options = {
      .slots = SLOTS, .on_demand = true, .direct = direct, .uring = true, .faults = &hooks};
  st_stream *s = NULL;
  setun_error err;
  st_random random;
  int failed = 0;
  st_random_seed(&random, seed);
  for (size_t u = 0; u < UNITS; u++) {
    for (size_t i = 0; i < RANGES; i++) {
      size_t offset = below(&random, BYTES);
      ranges[u][i] = (st_stream_range){&file, offset, below(&random, BYTES - offset + 1)};
    }
    units[u] = (st_stream_unit){ranges[u], RANGES};
  }
  if (st_stream_new(units, UNITS, &options, &s, &err)) fail_msg("%s", err.message);
  for (int i = 0; i < STEPS; i++) {
    size_t slot = below(&random, SLOTS), unit = fetched[slot];
    fetched[slot] = 0;
    if (!unit) {
      fetched[slot] = 1 + below(&random, UNITS);
      st_stream_fetch(s, slot, fetched[slot] - 1);
    } else if (below(&random, 5)) {
      while (below(&random, 3) && !st_stream_arrived(s, slot)) st_stream_poll(s);
      if (st_stream_wait(s, slot, at, &err) == SETUN_OK) {
        check_unit(&units[unit - 1], at);
      } else {
        assert_non_null(strstr(err.message, strerror(EIO)));
        assert_non_null(strstr(err.message, path));
        failed++;
      }
    } else {
      st_stream_discard(s, slot); // no longer wanted
    }
  }
  assert_true(failed <= (f.fails >= 0));
  st_stream_free(s); // with reads under way
}

static void any_order(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 2; seed++) {
    for (int engine = 0; engine < 3; engine++) {
      const bool direct = engine<2, no_uring = engine> 0;
      check((faults){.no_uring = no_uring, .fails = -1}, direct, seed);
      check((faults){.no_uring = no_uring, .fails = -1, .cut = true}, direct, seed);
      check((faults){.no_uring = no_uring, .fails = (int)seed * 7}, direct, seed);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_order)};
  return cmocka_run_group_tests(tests, make_file, remove_file);
}
