// Threads and pools: fork and join; both sides first spin, then sleep.
#define _GNU_SOURCE
#include "base/pool.h"

#include "base/cgroup.h"
#include "base/float_modes.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/system_file.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Some tens of microseconds (x86; fewer where a pause is shorter). Every few iterations the processor is yielded, for
// example to another of our threads if there are more than processors.
enum { SPINS = 4000, YIELD_EVERY = 256 };

// The rest of a part of the items, with the first item in the lower half and the end in the upper; and the last call
// for which a thread has begun this part.
typedef struct {
  _Alignas(64) atomic_uint_fast64_t left;
  atomic_uint_fast64_t begun;
} part;

typedef struct {
  _Alignas(64) atomic_bool asleep;
  st_workers *team;
  int index; // from 1: thread 0 is the caller
  pthread_t thread;
  pthread_cond_t wake;
} worker;

enum { MOST = 1024 };

struct st_workers {
  int64_t maker;          // the process that owns the threads
  pthread_mutex_t lock;   // protects starting and sleeping threads, and the list of pools
  atomic_uint generation; // counts calls of all pools; workers look for calls when it changes
  atomic_bool quit;
  worker *all[MOST];      // [1, threads)
  int threads;            // in use
  st_pool *_Atomic pools; // all pools ever made; they stay in the list and are reused
};

struct st_pool {
  st_workers *team;
  st_pool *next;
  int threads;
  bool used, owns_team;
  atomic_uint_fast64_t call; // counts calls
  atomic_int running;        // unfinished parts of this call, without the caller's
  atomic_bool waiting;
  pthread_cond_t done;
  st_pool_fn fn;
  void *context;
  part *parts; // one per thread
};

static inline void relax(int turn) {
  if (turn % YIELD_EVERY == YIELD_EVERY - 1) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// ---- workers ------------------------------------------------------------------------------------------------------

// Begins the part of the current call, unless another thread has. A call is not over before all of its parts have begun
// and ended, so a thread that begins one uses the call's own function and context.
static bool begin_part(st_pool *p, int index) {
  uint_fast64_t call = atomic_load_explicit(&p->call, memory_order_acquire), before = call - 1;
  atomic_uint_fast64_t *begun = &p->parts[index].begun;
  return atomic_load_explicit(begun, memory_order_relaxed) == before &&
         atomic_compare_exchange_strong(begun, &before, call);
}

static void end_part(st_pool *p) {
  if (atomic_fetch_sub(&p->running, 1) != 1 || !atomic_load(&p->waiting)) return;
  pthread_mutex_lock(&p->team->lock);
  pthread_cond_signal(&p->done);
  pthread_mutex_unlock(&p->team->lock);
}

// The worker's parts of all current calls.
static bool run_parts(const worker *w) {
  bool ran = false;
  for (st_pool *p = atomic_load_explicit(&w->team->pools, memory_order_acquire); p; p = p->next) {
    if (w->index >= p->threads || !begin_part(p, w->index)) continue;
    p->fn(p->context, w->index, p->threads);
    end_part(p);
    ran = true;
  }
  return ran;
}

// Waits for a new generation; spins at first, unless there are only calls for others.
static void wait_for_work(worker *w, unsigned seen, int *spins) {
  st_workers *t = w->team;
  for (; *spins < SPINS; ++*spins) {
    if (atomic_load_explicit(&t->generation, memory_order_acquire) != seen) return;
    relax(*spins);
  }
  pthread_mutex_lock(&t->lock);
  atomic_store(&w->asleep, true);
  while (atomic_load(&t->generation) == seen) pthread_cond_wait(&w->wake, &t->lock);
  atomic_store(&w->asleep, false);
  pthread_mutex_unlock(&t->lock);
}

static void *work(void *argument) {
  worker *w = argument;
  int spins = 0;
  st_float_modes_default(); // instead of the inherited ones
  while (!atomic_load(&w->team->quit)) {
    unsigned seen = atomic_load(&w->team->generation);
    if (run_parts(w)) {
      spins = 0;
    } else {
      wait_for_work(w, seen, &spins);
    }
  }
  return NULL;
}

// Announces a new generation to the first `threads` - 1 workers, waking those that sleep.
static void announce(st_workers *t, int threads) {
  bool asleep = false;
  atomic_fetch_add(&t->generation, 1);
  for (int i = 1; i < threads; i++) asleep = asleep || atomic_load(&t->all[i]->asleep);
  if (!asleep) return;
  pthread_mutex_lock(&t->lock);
  for (int i = 1; i < threads; i++) pthread_cond_signal(&t->all[i]->wake);
  pthread_mutex_unlock(&t->lock);
}

setun_status st_workers_new(st_workers **workers, setun_error *err) {
  st_workers *t = st_calloc(1, sizeof *t);
  if (!t) return st_fail_memory(err, "threads");
  pthread_mutex_init(&t->lock, NULL);
  t->maker = st_process_current();
  t->threads = 1;
  *workers = t;
  return SETUN_OK;
}

// A child process has no threads to join, and what they waited for cannot be destroyed.
void st_workers_free(st_workers *t) {
  if (!t) return;
  bool child = t->maker != st_process_current();
  if (!child) {
    atomic_store(&t->quit, true);
    announce(t, t->threads);
  }
  for (int i = 1; i < t->threads; i++) {
    if (!child) pthread_join(t->all[i]->thread, NULL);
    if (!child) pthread_cond_destroy(&t->all[i]->wake);
    st_free(t->all[i]);
  }
  for (st_pool *p = atomic_load(&t->pools), *next; p; p = next) {
    next = p->next;
    if (!child) pthread_cond_destroy(&p->done);
    st_free(p->parts);
    st_free(p);
  }
  if (!child) pthread_mutex_destroy(&t->lock);
  st_free(t);
}

static setun_status start_worker(st_workers *t, int threads, setun_error *err) {
  worker *w = st_aligned_alloc(sizeof *w);
  if (!w) return st_fail_memory(err, "a thread");
  *w = (worker){.team = t, .index = t->threads};
  pthread_cond_init(&w->wake, NULL);
  int failed = st_thread_start(&w->thread, work, w);
  if (!failed) {
    t->all[t->threads++] = w;
    return SETUN_OK;
  }
  pthread_cond_destroy(&w->wake);
  st_free(w);
  return st_fail(err, SETUN_ERROR_MEMORY, "cannot start thread %d of %d: %s", t->threads + 1, threads,
                 failed == EAGAIN ? "out of memory for its stack, or no more threads are allowed" : strerror(failed));
}

// ---- pools --------------------------------------------------------------------------------------------------------

static st_pool *make_pool(st_workers *t, int threads) {
  st_pool *p = st_calloc(1, sizeof *p);
  part *parts = st_aligned_alloc((size_t)threads * sizeof *parts);
  if (!p || !parts) {
    st_free(p);
    st_free(parts);
    return NULL;
  }
  for (int i = 0; i < threads; i++) {
    atomic_init(&parts[i].left, 0);
    atomic_init(&parts[i].begun, 0);
  }
  pthread_cond_init(&p->done, NULL);
  p->team = t;
  p->threads = threads;
  p->parts = parts;
  p->next = atomic_load(&t->pools);
  atomic_store(&t->pools, p);
  return p;
}

// With the lock held: an unused pool, or a new one. Workers may look at a pool at any time, so its number of threads
// never changes.
static setun_status take_pool(st_workers *t, int threads, st_pool **pool, setun_error *err) {
  setun_status s = SETUN_OK;
  while (t->threads < threads && s == SETUN_OK) s = start_worker(t, threads, err);
  if (s != SETUN_OK) return s;
  st_pool *p = atomic_load(&t->pools);
  while (p && (p->used || p->threads != threads)) p = p->next;
  if (!p) p = make_pool(t, threads);
  if (!p) return st_fail_memory(err, "the thread pool");
  p->used = true;
  *pool = p;
  return SETUN_OK;
}

setun_status st_pool_new(st_workers *workers, int threads, st_pool **pool, setun_error *err) {
  if (threads < 1 || threads > MOST) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "threads: expected 1 to %d, found %d", MOST, threads);
  }
  st_workers *t = workers;
  setun_status s = t ? SETUN_OK : st_workers_new(&t, err);
  if (s != SETUN_OK) return s;
  pthread_mutex_lock(&t->lock);
  s = take_pool(t, threads, pool, err);
  pthread_mutex_unlock(&t->lock);
  if (s == SETUN_OK) {
    (*pool)->owns_team = !workers;
  } else if (!workers) {
    st_workers_free(t);
  }
  return s;
}

void st_pool_free(st_pool *p) {
  if (!p) return;
  st_workers *t = p->team;
  if (p->owns_team) {
    st_workers_free(t);
  } else if (t->maker == st_process_current()) { // in a child a nonexistent thread may hold the lock
    pthread_mutex_lock(&t->lock);
    p->used = false;
    pthread_mutex_unlock(&t->lock);
  }
}

int st_pool_threads(const st_pool *p) {
  return p->threads;
}

static void wait_for_workers(st_pool *p) {
  for (int i = 0; i < SPINS; i++) {
    if (!atomic_load_explicit(&p->running, memory_order_acquire)) return;
    relax(i);
  }
  pthread_mutex_lock(&p->team->lock);
  atomic_store(&p->waiting, true);
  while (atomic_load(&p->running)) pthread_cond_wait(&p->done, &p->team->lock);
  atomic_store(&p->waiting, false);
  pthread_mutex_unlock(&p->team->lock);
}

// The caller takes the parts of workers that are late, or busy with other calls.
void st_pool_run(st_pool *p, st_pool_fn fn, void *context) {
  if (p->threads == 1) {
    fn(context, 0, 1);
    return;
  }
  p->fn = fn;
  p->context = context;
  atomic_store(&p->running, p->threads - 1);
  atomic_fetch_add(&p->call, 1);
  announce(p->team, p->threads);
  fn(context, 0, p->threads);
  for (int i = 1; i < p->threads; i++) {
    if (!begin_part(p, i)) continue;
    fn(context, i, p->threads);
    atomic_fetch_sub(&p->running, 1);
  }
  wait_for_workers(p);
}

// ---- shares -------------------------------------------------------------------------------------------------------

void st_pool_share(size_t items, size_t grain, int index, int count, size_t *first, size_t *last) {
  size_t grains = (items + grain - 1) / grain;
  size_t each = grains / (size_t)count, extra = grains % (size_t)count, i = (size_t)index;
  size_t begin = i * each + (i < extra ? i : extra);
  size_t end = begin + each + (i < extra);
  *first = begin * grain < items ? begin * grain : items;
  *last = end * grain < items ? end * grain : items;
}

static uint64_t range_of(size_t first, size_t end) {
  return (uint64_t)end << 32 | first;
}

void st_pool_deal(st_pool *p, size_t items) {
  for (int i = 0; i < p->threads; i++) {
    size_t first, last;
    st_pool_share(items, 1, i, p->threads, &first, &last);
    atomic_store_explicit(&p->parts[i].left, range_of(first, last), memory_order_relaxed);
  }
}

// Takes half of the rest of a part, from its front or its back.
static bool take_half(part *from, bool back, size_t grain, size_t *first, size_t *last) {
  uint_fast64_t left = atomic_load_explicit(&from->left, memory_order_relaxed), after;
  do {
    size_t begin = (uint32_t)left, end = (size_t)(left >> 32), n = (end - begin + 1) / 2;
    if (begin == end) return false;
    if (n < grain) n = end - begin < grain ? end - begin : grain;
    *first = back ? end - n : begin;
    *last = *first + n;
    after = back ? range_of(begin, *first) : range_of(*last, end);
  } while (
      !atomic_compare_exchange_weak_explicit(&from->left, &left, after, memory_order_relaxed, memory_order_relaxed));
  return true;
}

bool st_pool_take(st_pool *p, int index, size_t grain, size_t *first, size_t *last) {
  if (take_half(&p->parts[index], false, grain, first, last)) return true;
  for (int i = index + 1; i < index + p->threads; i++) {
    if (take_half(&p->parts[i % p->threads], true, grain, first, last)) return true;
  }
  return false;
}

typedef struct {
  st_pool *pool;
  volatile uint8_t *block;
  size_t bytes;
} touching;

static void touch_pages(void *context, int index, int count) {
  const touching *t = context;
  enum { PAGE_LEAST = 4096 };
  size_t first, last;
  (void)count;
  while (st_pool_take(t->pool, index, 1, &first, &last)) {
    size_t begin = first * ST_HUGE_PAGE, end = last * ST_HUGE_PAGE < t->bytes ? last * ST_HUGE_PAGE : t->bytes;
    for (size_t at = begin; at < end; at += PAGE_LEAST) t->block[at] = 0;
  }
}

void st_pool_touch(st_pool *pool, void *block, size_t bytes) {
  touching t = {pool, block, bytes};
  st_pool_deal(pool, bytes / ST_HUGE_PAGE + 1);
  st_pool_run(pool, touch_pages, &t);
}

#ifdef __linux__
// The lowest processor number among the threads of the same core as `cpu`; `cpu` itself if unknown.
static int first_sibling(int cpu) {
  enum { LIST_SIZE = 1024 };
  char path[96], line[LIST_SIZE];
  int first = cpu;
  st_system_file f;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  st_system_file_open(&f, path);
  if (st_system_file_line(&f, line, sizeof line) && sscanf(line, "%d", &first) != 1) first = cpu;
  st_system_file_close(&f);
  return first;
}

int st_default_threads(void) {
  cpu_set_t allowed, cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
  CPU_ZERO(&cores);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    int core = CPU_ISSET(cpu, &allowed) ? first_sibling(cpu) : -1;
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &cores);
  }
  int n = CPU_COUNT(&cores);
  int32_t most = st_cgroup_processors(&st_cgroups);
  return n < 1 ? 1 : n < most ? n : most;
}
#else
int st_default_threads(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > 1024 ? 1024 : (int)n;
}
#endif
