// Streaming: each engine reads exactly the bytes of the file, whatever the system cuts short; else an error.
#define _GNU_SOURCE
#include "allocators.h"
#include "base/memory.h"
#include "base/random.h"
#include "source/disk.h"
#include "source/stream_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILES = 3, UNITS_MOST = 7, RANGES_MOST = 6, RANGE_MOST = 2500000 };

static char folder[] = "/tmp/setun-stream-XXXXXX";
static char *content[FILES];
static st_file files[FILES];
// The ends: inside a sector, after a whole sector, after a whole page.
static const size_t sizes[FILES] = {7345777, 3146240, 4 << 20};

static void write_file(const char *path, const char *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static void open_file(const char *name, const char *bytes, size_t n, st_file *file) {
  char path[256];
  setun_error err;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  write_file(path, bytes, n);
  if (st_file_open(path, file, &err) != SETUN_OK) fail_msg("%s", err.message);
}

static void close_file(st_file *file) {
  unlink(file->path);
  st_file_close(file);
}

static int make_files(void **state) {
  static const char *const names[FILES] = {"a", "b", "c"};
  (void)state;
  st_random random;
  st_random_seed(&random, 1);
  if (!mkdtemp(folder)) return 1;
  for (int i = 0; i < FILES; i++) {
    content[i] = malloc(sizes[i] + 8);
    for (size_t k = 0; k < sizes[i]; k += 8) memcpy(content[i] + k, &(uint64_t){st_random_u64(&random)}, 8);
    open_file(names[i], content[i], sizes[i], &files[i]);
  }
  return 0;
}

static int remove_files(void **state) {
  (void)state;
  for (int i = 0; i < FILES; i++) {
    close_file(&files[i]);
    free(content[i]);
  }
  return rmdir(folder);
}

// ---- units --------------------------------------------------------------------------------------------------------

typedef struct {
  st_stream_unit units[UNITS_MOST];
  st_stream_range ranges[UNITS_MOST][RANGES_MOST];
  size_t n;
} unit_set;

static size_t below(st_random *r, size_t n) {
  return (size_t)(st_random_u64(r) % n);
}

// A range anywhere, or directly after the one before, or up to the end of the file, or empty.
static st_stream_range any_range(st_random *r, const st_stream_range *before) {
  size_t i = below(r, FILES), kind = below(r, 8), size = sizes[i], offset = below(r, size);
  if (before && kind < 3 && before->offset + before->bytes < before->file->size) {
    i = (size_t)(before->file - files), size = sizes[i], offset = before->offset + before->bytes;
  }
  size_t most = size - offset < RANGE_MOST ? size - offset : RANGE_MOST;
  size_t bytes = kind == 3 ? 0 : below(r, most + 1);
  if (kind == 4) offset = size - bytes;
  return (st_stream_range){&files[i], offset, bytes};
}

static void any_units(st_random *r, unit_set *set) {
  set->n = 1 + below(r, UNITS_MOST);
  for (size_t u = 0; u < set->n; u++) {
    size_t n = below(r, RANGES_MOST + 1);
    for (size_t i = 0; i < n; i++) set->ranges[u][i] = any_range(r, i ? &set->ranges[u][i - 1] : NULL);
    if (n > 1 && below(r, 2)) { // not in the file's order
      st_stream_range first = set->ranges[u][0];
      set->ranges[u][0] = set->ranges[u][n - 1];
      set->ranges[u][n - 1] = first;
    }
    set->units[u] = (st_stream_unit){set->ranges[u], n};
  }
}

static st_stream *make(const unit_set *set, const st_stream_options *options) {
  setun_error err;
  st_stream *s = NULL;
  if (st_stream_new(set->units, set->n, options, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

static void compare(const unit_set *set, size_t unit, const uint8_t *const *at, const char *what) {
  for (size_t i = 0; i < set->units[unit].n_ranges; i++) {
    const st_stream_range *r = &set->ranges[unit][i];
    const char *want = content[r->file - files] + r->offset;
    if (memcmp(at[i], want, r->bytes)) fail_msg("%s: unit %zu, range %zu differs", what, unit, i);
    if (r->bytes) assert_int_equal((uintptr_t)at[i] % 4096, r->offset % 4096);
  }
}

static void take(st_stream *s, const unit_set *set, size_t unit) {
  const uint8_t *at[RANGES_MOST];
  setun_error err;
  if (st_stream_acquire(s, unit, at, &err) != SETUN_OK) fail_msg("unit %zu: %s", unit, err.message);
  compare(set, unit, at, st_stream_get_stats(s).how);
}

// A pass over the first `n` units, with or without its tail.
static void pass_with(st_stream *s, const unit_set *set, size_t n, unsigned tails) {
  st_stream_start(s, false, tails);
  for (size_t u = 0; u < n; u++) {
    take(s, set, u);
    st_stream_poll(s);
    st_stream_release(s, u);
  }
}

static void pass(st_stream *s, const unit_set *set, size_t n) {
  pass_with(s, set, n, 1);
}

// What a stream must have read for unit 0 to n - 1 of the cycle, or more for blocks in common between extents.
static uint64_t cycle_bytes(const unit_set *set, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    const st_stream_unit *u = &set->units[i % set->n];
    for (size_t k = 0; k < u->n_ranges; k++) sum += u->ranges[k].bytes ? u->ranges[k].bytes + 2 * 4096 : 0;
  }
  return sum;
}

// ---- faults -------------------------------------------------------------------------------------------------------

typedef struct {
  int refused[4]; // by step
  int refusals;   // of ST_STREAM_ENTER: so many, and then none; 0: always
  atomic_int entries;
  int cut, interrupt; // percent of reads that are cut short; that fail temporarily
  int direct_error;   // of direct reads from read `from` on
  int error, once;    // of read `from` alone, or of all from there on
  int from;
  atomic_int reads;
  atomic_ullong random;
} faults;

static int refuse(void *user, st_stream_step step) {
  faults *f = user;
  if (step == ST_STREAM_ENTER && f->refusals && atomic_fetch_add(&f->entries, 1) >= f->refusals) return 0;
  return f->refused[step];
}

static unsigned roll(faults *f, unsigned n) {
  uint64_t z = atomic_fetch_add(&f->random, 0x9E3779B97F4A7C15u);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (unsigned)((z ^ z >> 31) % n);
}

static int64_t change_result(void *user, bool direct, uint8_t *to, size_t n, int64_t result) {
  faults *f = user;
  int read = atomic_fetch_add(&f->reads, 1), error = 0;
  if (f->error && (f->once ? read == f->from : read >= f->from)) error = f->error;
  if (f->direct_error && direct && read >= f->from) error = f->direct_error;
  if (!error && (int)roll(f, 100) < f->interrupt) error = (int[]){EINTR, EAGAIN, ECANCELED}[roll(f, 3)];
  if (error) {
    memset(to, 0xA5, n);
    return -error;
  }
  if (result > 1 && (int)roll(f, 100) < f->cut) {
    int64_t less = 1 + roll(f, (unsigned)result);
    if (less < result) memset(to + less, 0xA5, n - (size_t)less);
    return less;
  }
  return result;
}

typedef struct {
  int informed, warned;
  char last[SETUN_ERROR_SIZE];
} notices;

static void note(setun_log_level level, const char *message, void *user) {
  notices *n = user;
  *(level == SETUN_LOG_WARNING ? &n->warned : &n->informed) += 1;
  snprintf(n->last, sizeof n->last, "%s", message);
}

// ---- engines ------------------------------------------------------------------------------------------------------

typedef struct {
  const char *name;
  bool direct, uring;
  int refused[3];
  const char *how; // where the system allows what was asked for
} engine;

static const engine engines[] = {
    {"io_uring, registered", true, true, {0}, "io_uring, O_DIRECT, registered buffers"},
    {"io_uring, not registered", true, true, {[ST_STREAM_REGISTER] = ENOMEM}, "io_uring, O_DIRECT"},
    {"io_uring forbidden", true, true, {[ST_STREAM_URING] = EPERM}, "pread, O_DIRECT"},
    {"no io_uring", true, true, {[ST_STREAM_URING] = ENOSYS}, "pread, O_DIRECT"},
    {"pread", true, false, {0}, "pread, O_DIRECT"},
    {"O_DIRECT refused", true, true, {[ST_STREAM_OPEN_DIRECT] = EINVAL}, "pread, buffered"},
    {"buffered", false, true, {0}, "pread, buffered"},
};
enum { ENGINES = sizeof engines / sizeof *engines };

// The faults that lead to the engine, and its options with them.
static st_stream_options use(const engine *e, int slots, faults *f, st_stream_faults *hooks, st_log *log) {
  memcpy(f->refused, e->refused, sizeof e->refused);
  *hooks = (st_stream_faults){f, refuse, change_result};
  return (st_stream_options){.slots = slots, .direct = e->direct, .uring = e->uring, .log = log, .faults = hooks};
}

// What this system allows, found by trying the same engine: a build without liburing, or a sandbox, allows less.
static bool is_offered(const engine *e) {
  unit_set set = {.n = 1};
  faults f = {0};
  st_stream_faults hooks;
  st_stream_options options = use(e, 2, &f, &hooks, NULL);
  set.ranges[0][0] = (st_stream_range){&files[0], 0, 1};
  set.units[0] = (st_stream_unit){set.ranges[0], 1};
  st_stream *s = make(&set, &options);
  bool offered = !strcmp(st_stream_get_stats(s).how, e->how);
  if (!offered) print_message("%s: here it is \"%s\"\n", e->name, st_stream_get_stats(s).how);
  st_stream_free(s);
  return offered;
}

static void run_passes(const engine *e, int slots, faults f, uint64_t seed, int rounds) {
  unit_set set;
  st_random random;
  st_stream_faults hooks;
  st_stream_options options = use(e, slots, &f, &hooks, NULL);
  st_random_seed(&random, seed);
  atomic_store(&f.random, seed);
  for (int round = 0; round < rounds; round++) {
    any_units(&random, &set);
    st_stream *s = make(&set, &options);
    const char *how = st_stream_get_stats(s).how;
    for (int i = 0; i < 6; i++) {
      pass(s, &set, below(&random, 3) ? set.n : below(&random, set.n + 1));
      if (below(&random, 4) == 0) { // abandoned while a unit is acquired
        st_stream_start(s, false, 1);
        take(s, &set, 0);
      }
    }
    if (!f.direct_error) assert_string_equal(st_stream_get_stats(s).how, how); // it continued as it had begun
    st_stream_free(s);
  }
}

static void passes(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    is_offered(&engines[i]);
    for (int slots = 2; slots <= 4; slots++) run_passes(&engines[i], slots, (faults){0}, 10 + (uint64_t)slots, 3);
  }
}

static void cut_and_interrupted(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    run_passes(&engines[i], 2, (faults){.cut = 60}, 20, 3);
    run_passes(&engines[i], 3, (faults){.interrupt = 30}, 21, 3);
    run_passes(&engines[i], 3, (faults){.cut = 30, .interrupt = 30}, 22, 3);
  }
}

// A file that opens with O_DIRECT but cannot be read so: reads go through the page cache, and one notice says so.
static void direct_reads_refused(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    for (int from = 0; from < 4; from++)
      run_passes(&engines[i], 3, (faults){.direct_error = EINVAL, .from = from}, 30, 2);
    if (!engines[i].direct || !is_offered(&engines[i])) continue;
    unit_set set;
    st_random random;
    faults f = {.direct_error = EOPNOTSUPP};
    notices seen = {0};
    st_log log = {note, &seen};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 2, &f, &hooks, &log);
    st_random_seed(&random, 31);
    any_units(&random, &set);
    st_stream *s = make(&set, &options);
    for (int k = 0; k < 3; k++) pass(s, &set, set.n);
    assert_non_null(strstr(st_stream_get_stats(s).how, "buffered"));
    assert_in_range(seen.warned, 1, FILES);
    assert_non_null(strstr(seen.last, folder));
    st_stream_free(s);
  }
}

// A pass that ends at the last unit, or without the tail, leaves what was read ahead for the next one.
static void reads_ahead_across_passes(void **state) {
  (void)state;
  unit_set set;
  st_random random;
  st_random_seed(&random, 40);
  for (int i = 0; i < ENGINES; i++) {
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 3, &f, &hooks, NULL);
    do any_units(&random, &set);
    while (set.n < 5 || cycle_bytes(&set, set.n) < 6000000);
    st_stream *s = make(&set, &options);
    for (int k = 0; k < 10; k++) pass(s, &set, set.n);
    st_stream_stats stats = st_stream_get_stats(s);
    assert_in_range(stats.bytes, 6000000, cycle_bytes(&set, 10 * set.n + 3));
    assert_true(stats.reads > 0 && stats.busy_s > 0 && stats.waited_s > 0);
    st_stream_free(s);
    options.n_tail = set.n - 4;
    s = make(&set, &options);
    for (int k = 0; k < 10; k++) pass_with(s, &set, 4, 0);
    stats = st_stream_get_stats(s);
    assert_in_range(stats.bytes, 0, 10 * cycle_bytes(&set, 4) + cycle_bytes(&set, 3));
    st_stream_free(s);
  }
}

// ---- errors -------------------------------------------------------------------------------------------------------

static void expect_io_error(st_stream *s, size_t unit, const char *name, const char *reason) {
  const uint8_t *at[RANGES_MOST];
  setun_error err = {0};
  for (int i = 0; i < 2; i++) { // asked again, it reports the same
    assert_int_equal(st_stream_acquire(s, unit, at, &err), SETUN_ERROR_IO);
    if (!strstr(err.message, name) || !strstr(err.message, reason) || !strstr(err.message, "offset")) {
      fail_msg("expected a message on %s with \"%s\", found: %s", name, reason, err.message);
    }
  }
}

// Five units of 1.2 MB in the first file.
static void plain_units(unit_set *set, const st_file *file) {
  set->n = 5;
  for (size_t u = 0; u < set->n; u++) {
    set->ranges[u][0] = (st_stream_range){file, 1000 + u * 1200000, 1200000};
    set->units[u] = (st_stream_unit){set->ranges[u], 1};
  }
}

// Each read fails once in turn: units before it are right, its unit is an error, and the next pass is complete.
static void failing_reads(void **state) {
  (void)state;
  unit_set set;
  plain_units(&set, &files[0]);
  for (int i = 0; i < ENGINES; i++) {
    for (int from = 0; from < 12; from++) {
      faults f = {.error = EIO, .once = true, .from = from};
      st_stream_faults hooks;
      st_stream_options options = use(&engines[i], 2 + from % 2, &f, &hooks, NULL);
      st_stream *s = make(&set, &options);
      const uint8_t *at[RANGES_MOST];
      setun_error err;
      size_t u = 0;
      st_stream_start(s, false, 1);
      while (st_stream_acquire(s, u, at, &err) == SETUN_OK) {
        compare(&set, u, at, engines[i].name);
        st_stream_release(s, u);
        u = (u + 1) % set.n;
      }
      expect_io_error(s, u, files[0].path, strerror(EIO));
      if (from % 3) pass(s, &set, set.n);
      st_stream_free(s);
    }
  }
}

// What the kernel does not accept now it accepts later; if it never does, the waiting caller gets an error.
static void entries_refused(void **state) {
  (void)state;
  static const int cases[][2] = {{EAGAIN, 1}, {EBUSY, 100}, {EINTR, 5000}, {EAGAIN, 0}, {ENOMEM, 1}};
  unit_set set;
  plain_units(&set, &files[0]);
  for (size_t i = 0; is_offered(&engines[0]) && i < sizeof cases / sizeof *cases; i++) {
    faults f = {.refused = {[ST_STREAM_ENTER] = cases[i][0]}, .refusals = cases[i][1]};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[0], 2, &f, &hooks, NULL);
    const uint8_t *at[RANGES_MOST];
    setun_error err = {0};
    st_stream *s = make(&set, &options);
    st_stream_start(s, false, 1);
    if (cases[i][1] && cases[i][0] != ENOMEM) {
      for (int k = 0; k < 3; k++) pass(s, &set, set.n);
    } else {
      assert_int_equal(st_stream_acquire(s, 0, at, &err), SETUN_ERROR_IO);
      assert_non_null(strstr(err.message, strerror(cases[i][0])));
    }
    st_stream_free(s);
  }
}

// A file that becomes shorter gives the bytes that it had, or an error; nothing else, and no call waits forever.
static void shrinking_file(void **state) {
  (void)state;
  static const size_t ends[] = {4321000, 4096 * 800, 100, 0, 7000 * 512};
  for (int i = 0; i < ENGINES; i++) {
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
      unit_set set;
      st_file file;
      faults f = {0};
      st_stream_faults hooks;
      st_stream_options options = use(&engines[i], 2, &f, &hooks, NULL);
      open_file("shrinking", content[0], sizes[0], &file);
      plain_units(&set, &file);
      st_stream *s = make(&set, &options);
      st_stream_start(s, false, 1);
      const uint8_t *at[RANGES_MOST];
      setun_error err;
      size_t taken = 0, u = 0;
      for (; st_stream_acquire(s, u, at, &err) == SETUN_OK; u = (u + 1) % set.n) {
        size_t begin = set.ranges[u][0].offset, end = begin + 1200000;
        if (taken > 1 && ends[k] < end) end = ends[k]; // beyond it a read in flight may get zeros
        if (end > begin && memcmp(at[0], content[0] + begin, end - begin)) fail_msg("%s: garbage", engines[i].name);
        st_stream_release(s, u);
        if (taken++ == 1) assert_int_equal(truncate(file.path, (off_t)ends[k]), 0);
        assert_in_range(taken, 0, 2 * set.n);
      }
      assert_in_range(taken, 2, 2 * set.n);
      expect_io_error(s, u, "shrinking", "ends early: expected");
      st_stream_free(s);
      close_file(&file);
    }
  }
}

static void expect_refused(const unit_set *set, st_stream_options options, setun_status want, const char *words) {
  st_stream *s = NULL;
  setun_error err = {0};
  assert_int_equal(st_stream_new(set->units, set->n, &options, &s, &err), want);
  assert_null(s);
  assert_non_null(strstr(err.message, words));
}

static void refused_arguments(void **state) {
  (void)state;
  unit_set set;
  st_stream_options options = {.slots = 2, .direct = true, .uring = true};
  plain_units(&set, &files[0]);
  set.ranges[3][0] = (st_stream_range){&files[0], sizes[0] - 10, 11};
  expect_refused(&set, options, SETUN_ERROR_FORMAT, "unit 3: expected 11 bytes at offset 7345767");
  set.ranges[3][0] = (st_stream_range){&files[0], sizes[0] + 1, 0};
  expect_refused(&set, options, SETUN_ERROR_FORMAT, files[0].path);
  set.ranges[3][0] = (st_stream_range){&files[0], 4096, UINT64_MAX - 4095};
  expect_refused(&set, options, SETUN_ERROR_FORMAT, files[0].path);
  set.ranges[3][0] = (st_stream_range){&files[0], UINT64_MAX, 2};
  expect_refused(&set, options, SETUN_ERROR_FORMAT, files[0].path);
  plain_units(&set, &files[0]);
  options.slots = 1;
  expect_refused(&set, options, SETUN_ERROR_ARGUMENT, "expected 2 to 64 buffers, found 1");
  options.slots = 65;
  expect_refused(&set, options, SETUN_ERROR_ARGUMENT, "found 65");
  options.slots = 2;
  options.n_tail = 6;
  expect_refused(&set, options, SETUN_ERROR_ARGUMENT, "a tail of at most 5 units, found 6");
  set.n = 0;
  expect_refused(&set, options, SETUN_ERROR_ARGUMENT, "found 0");
}

static void order_of_calls(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    unit_set set;
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 3, &f, &hooks, NULL);
    const uint8_t *at[RANGES_MOST];
    setun_error err;
    plain_units(&set, &files[0]);
    st_stream *s = make(&set, &options);
    assert_int_equal(st_stream_acquire(s, 0, at, &err), SETUN_ERROR_STATE);
    st_stream_release(s, 0);
    st_stream_start(s, false, 1);
    assert_int_equal(st_stream_acquire(s, 1, at, &err), SETUN_ERROR_ARGUMENT);
    take(s, &set, 0);
    take(s, &set, 1);
    st_stream_release(s, 1); // not the oldest: ignored
    take(s, &set, 2);
    assert_int_equal(st_stream_acquire(s, 3, at, &err), SETUN_ERROR_STATE);
    for (size_t u = 0; u < 3; u++) st_stream_release(s, u);
    st_stream_release(s, 3);
    take(s, &set, 3);
    st_stream_free(s);
  }
}

// With io_uring results are processed where the header says: in acquire and poll, not in release.
static void where_ends_are_seen(void **state) {
  (void)state;
  unit_set set;
  faults f = {0};
  st_stream_faults hooks;
  st_stream_options options = use(&engines[0], 3, &f, &hooks, NULL);
  plain_units(&set, &files[0]);
  if (!is_offered(&engines[0])) return;
  st_stream *s = make(&set, &options);
  st_stream_start(s, false, 1);
  take(s, &set, 0);
  int seen = atomic_load(&f.reads);
  st_stream_release(s, 0);
  usleep(200000); // it has arrived
  assert_int_equal(atomic_load(&f.reads), seen);
  st_stream_poll(s);
  assert_true(atomic_load(&f.reads) > seen);
  st_stream_free(s);
}

// Passes that leave the tail out or go through it several times, in any order, after any pass before.
static void tails(void **state) {
  (void)state;
  st_random random;
  st_random_seed(&random, 41);
  for (int round = 0; round < 12 * ENGINES; round++) {
    unit_set set;
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[round % ENGINES], 2 + (int)below(&random, 3), &f, &hooks, NULL);
    any_units(&random, &set);
    options.n_tail = below(&random, set.n + 1);
    st_stream *s = make(&set, &options);
    size_t head = set.n - options.n_tail;
    for (int i = 0; i < 6; i++) {
      unsigned n = (unsigned)below(&random, 4);
      bool at_tail = options.n_tail && below(&random, 3) == 0;
      st_stream_start(s, at_tail, n);
      for (size_t k = at_tail ? head : 0; k < head + n * options.n_tail; k++) {
        size_t unit = k < head ? k : head + (k - head) % options.n_tail;
        take(s, &set, unit);
        st_stream_release(s, unit);
      }
    }
    st_stream_free(s);
  }
}

static void *start_elsewhere(void *stream) {
  const uint8_t *at[RANGES_MOST];
  st_stream_start(stream, false, 1);
  return st_stream_acquire(stream, 0, at, NULL) == SETUN_OK ? stream : NULL;
}

// The thread that submitted reads ends while they are in flight; another goes on.
static void thread_that_ends(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    unit_set set;
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 3, &f, &hooks, NULL);
    plain_units(&set, &files[0]);
    st_stream *s = make(&set, &options);
    for (int k = 0; k < 5; k++) {
      pthread_t thread;
      void *started;
      assert_int_equal(pthread_create(&thread, NULL, start_elsewhere, s), 0);
      assert_int_equal(pthread_join(thread, &started), 0);
      assert_ptr_equal(started, s);
      st_stream_release(s, 0);
      for (size_t u = 1; u + (size_t)(k % 2) < set.n; u++) {
        take(s, &set, u);
        st_stream_release(s, u);
      }
    }
    st_stream_free(s);
  }
}

// ---- where the file is --------------------------------------------------------------------------------------------

// Another file under the name, or none: the open one is read nevertheless, and a notice says why through the cache.
static void renamed_file(void **state) {
  (void)state;
  for (int replaced = 0; replaced < 2; replaced++) {
    unit_set set;
    st_file file;
    notices seen = {0};
    st_log log = {note, &seen};
    st_stream_options options = {.slots = 2, .direct = true, .uring = true, .log = &log};
    open_file("renamed", content[0], sizes[0], &file);
    unlink(file.path);
    if (replaced) write_file(file.path, content[0] + 1, sizes[0]);
    plain_units(&set, &file);
    st_stream *s = make(&set, &options);
    assert_int_equal(seen.warned, 1);
    assert_non_null(strstr(seen.last, strerror(replaced ? ESTALE : ENOENT)));
    st_stream_start(s, false, 1);
    for (size_t u = 0; u < set.n; u++) {
      const uint8_t *at[RANGES_MOST];
      setun_error err;
      assert_int_equal(st_stream_acquire(s, u, at, &err), SETUN_OK);
      assert_memory_equal(at[0], content[0] + set.ranges[u][0].offset, 1200000);
      st_stream_release(s, u);
    }
    assert_string_equal(st_stream_get_stats(s).how, "pread, buffered");
    st_stream_free(s);
    close_file(&file);
  }
}

static size_t cached_pages(const st_file *file) {
  static unsigned char resident[32 << 20 >> 12];
  size_t n = (file->size + 4095) / 4096, cached = 0;
  void *map = mmap(NULL, file->size, PROT_READ, MAP_SHARED, file->fd, 0);
  assert_true(map != MAP_FAILED && n <= sizeof resident && !mincore(map, file->size, resident));
  for (size_t i = 0; i < n; i++) cached += resident[i] & 1;
  munmap(map, file->size);
  return cached;
}

// Streaming leaves nothing in the page cache; reads through it leave at most what the system read ahead beyond the
// end.
static void page_cache_stays_empty(void **state) {
  (void)state;
  st_file file;
  size_t size = 4 * sizes[0];
  char *text = malloc(size);
  for (int i = 0; i < 4; i++) memcpy(text + (size_t)i * sizes[0], content[0], sizes[0]);
  open_file("cached", text, size, &file);
  free(text);
  assert_int_equal(fsync(file.fd), 0);
  for (int i = 0; i < ENGINES; i++) {
    unit_set set;
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 2, &f, &hooks, NULL);
    plain_units(&set, &file);
    for (size_t u = 0; u < set.n; u++) set.ranges[u][0] = (st_stream_range){&file, 1000 + u * 5800000, 5800000};
    posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
    if (cached_pages(&file)) {
      print_message("the system keeps a file in memory here: nothing to see\n");
      break;
    }
    st_stream *s = make(&set, &options);
    bool direct = strstr(st_stream_get_stats(s).how, "O_DIRECT");
    st_stream_start(s, false, 1);
    for (size_t u = 0; u < 2 * set.n; u++) {
      const uint8_t *at[RANGES_MOST];
      setun_error err;
      assert_int_equal(st_stream_acquire(s, u % set.n, at, &err), SETUN_OK);
      st_stream_release(s, u % set.n);
    }
    st_stream_free(s);
    assert_in_range(cached_pages(&file), 0, direct ? 0 : size / 4096 / 2);
  }
  close_file(&file);
}

// A file system in memory, which reads directly or refuses to.
static void memory_file(void **state) {
  (void)state;
  char path[] = "/dev/shm/setun-stream-XXXXXX";
  int fd = mkstemp(path);
  if (fd < 0) {
    print_message("no /dev/shm here\n");
    skip();
  }
  close(fd);
  write_file(path, content[0], sizes[0]);
  st_file file;
  setun_error err;
  assert_int_equal(st_file_open(path, &file, &err), SETUN_OK);
  unit_set set;
  plain_units(&set, &file);
  for (int uring = 0; uring < 2; uring++) {
    st_stream *s = make(&set, &(st_stream_options){.slots = 3, .direct = true, .uring = uring});
    print_message("/dev/shm: %s\n", st_stream_get_stats(s).how);
    st_stream_start(s, false, 1);
    for (size_t i = 0; i < 3 * set.n; i++) {
      const uint8_t *at[RANGES_MOST];
      size_t u = i % set.n;
      if (st_stream_acquire(s, u, at, &err) != SETUN_OK) fail_msg("%s", err.message);
      assert_memory_equal(at[0], content[0] + set.ranges[u][0].offset, 1200000);
      st_stream_release(s, u);
    }
    st_stream_free(s);
  }
  close_file(&file);
}

// ---- memory -------------------------------------------------------------------------------------------------------

static uint64_t memory_of(st_stream_range *ranges, size_t n, int slots) {
  st_stream_unit unit = {ranges, n};
  st_stream_options options = {.slots = slots};
  setun_error err;
  st_read_plan plan;
  assert_int_equal(st_read_plan_make(&unit, 1, &options, &plan, &err), SETUN_OK);
  uint64_t bytes = st_pages_size(plan.slot_bytes * (size_t)slots);
  return st_read_plan_free(&plan), bytes;
}

// By hand: blocks of 4096 that the ranges touch, times slots, and 16384 bytes of slack, in pages of 2 MiB.
static void memory_needed(void **state) {
  (void)state;
  const st_file *a = &files[0];
  assert_int_equal(memory_of((st_stream_range[]){{a, 5000, 10000}}, 1, 2), 2 << 20);
  assert_int_equal(memory_of((st_stream_range[]){{a, 0, 1 << 20}}, 1, 2), 4 << 20);
  // Three blocks less than half of what leaves room for the slack, then one too many, by one byte over a block's end.
  assert_int_equal(memory_of((st_stream_range[]){{a, 4096, (2 << 20) - 8192}}, 1, 2), 4 << 20);
  assert_int_equal(memory_of((st_stream_range[]){{a, 4096, (2 << 20) - 8191}}, 1, 2), 6 << 20);
  assert_int_equal(memory_of((st_stream_range[]){{a, 4095, (2 << 20) - 8192}}, 1, 2), 6 << 20);
  // Ranges in the same block share it; apart, each has its own.
  assert_int_equal(memory_of((st_stream_range[]){{a, (1 << 20) + 4000, 50}, {a, 4096, (2 << 20) - 8192}}, 2, 2),
                   4 << 20);
  assert_int_equal(memory_of((st_stream_range[]){{a, 4 << 20, 50}, {a, 4096, (2 << 20) - 8192}}, 2, 2), 6 << 20);
}

// If the n-th allocation fails: out of memory, or the next best engine with the same bytes.
static void allocation_failures(void **state) {
  (void)state;
  unit_set set;
  plain_units(&set, &files[0]);
  for (int i = 0; i < ENGINES; i++) {
    long n = 0;
    for (bool reached = true; reached; n++) {
      faults f = {0};
      st_stream_faults hooks;
      st_stream_options options = use(&engines[i], 2, &f, &hooks, NULL);
      st_stream *s = NULL;
      setun_error err = {0};
      atomic_store(&left, n);
      atomic_store(&armed, true);
      setun_status status = st_stream_new(set.units, set.n, &options, &s, &err);
      atomic_store(&armed, false);
      reached = atomic_load(&left) < 0;
      if (status == SETUN_OK) {
        pass(s, &set, set.n);
        st_stream_free(s);
      } else {
        assert_true(reached && status == SETUN_ERROR_MEMORY && *err.message);
      }
    }
    assert_in_range(n, 8, 40);
  }
}

static void disk_speed(void **state) {
  (void)state;
  for (int i = 0; i < ENGINES; i++) {
    faults f = {0};
    st_stream_faults hooks;
    st_stream_options options = use(&engines[i], 3, &f, &hooks, NULL);
    double speed = 0;
    assert_int_equal(st_disk_measure(&files[0], 5 << 20, 20 << 20, &options, &speed, NULL), SETUN_OK);
    assert_true(speed > 1e5 && speed < 1e12);
    assert_int_equal(st_disk_measure(&files[2], 0, 0, &options, &speed, NULL), SETUN_OK);
    f.error = EIO;
    assert_int_equal(st_disk_measure(&files[1], 1 << 20, 9 << 20, &options, &speed, NULL), SETUN_ERROR_IO);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(passes),
                                     cmocka_unit_test(cut_and_interrupted),
                                     cmocka_unit_test(direct_reads_refused),
                                     cmocka_unit_test(reads_ahead_across_passes),
                                     cmocka_unit_test(failing_reads),
                                     cmocka_unit_test(entries_refused),
                                     cmocka_unit_test(shrinking_file),
                                     cmocka_unit_test(refused_arguments),
                                     cmocka_unit_test(order_of_calls),
                                     cmocka_unit_test(where_ends_are_seen),
                                     cmocka_unit_test(tails),
                                     cmocka_unit_test(thread_that_ends),
                                     cmocka_unit_test(renamed_file),
                                     cmocka_unit_test(page_cache_stays_empty),
                                     cmocka_unit_test(memory_file),
                                     cmocka_unit_test(memory_needed),
                                     cmocka_unit_test(allocation_failures),
                                     cmocka_unit_test(disk_speed)};
  return cmocka_run_group_tests(tests, make_files, remove_files);
}
