// A thread pool: fork and join with a spinning, then sleeping, wait on both sides.
#define _GNU_SOURCE
#include "base/pool.h"

#include "base/cgroup.h"
#include "base/float_modes.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Some tens of microseconds (x86; fewer where a pause is shorter). Every few of them anyone else who waits for this
// processor may have it, such as a thread of ours where there are more than processors.
enum { SPINS = 4000, YIELD_EVERY = 256 };

// What is left of a thread's part: the first item in the lower half, the end in the upper.
typedef struct {
  _Alignas(64) atomic_uint_fast64_t left;
} part;

struct st_pool {
  int threads;   // with the caller
  int64_t maker; // the process whose threads these are
  pthread_t *workers;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  atomic_uint generation; // counts calls; a change tells the workers to run
  atomic_int running;     // workers that have not finished this call
  atomic_int sleeping;    // workers waiting on `work`
  atomic_bool waiting, quit;
  st_pool_fn fn;
  void *context;
  part *parts; // one a thread
};

typedef struct {
  st_pool *pool;
  int index;
} worker_start;

static inline void relax(int turn) {
  if (turn % YIELD_EVERY == YIELD_EVERY - 1) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

static void wait_for_work(st_pool *p, unsigned seen) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen) return;
    relax(i);
  }
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->sleeping, 1);
  while (atomic_load(&p->generation) == seen) pthread_cond_wait(&p->work, &p->lock);
  atomic_fetch_sub(&p->sleeping, 1);
  pthread_mutex_unlock(&p->lock);
}

static void *worker(void *argument) {
  worker_start start = *(worker_start *)argument;
  st_free(argument);
  st_pool *p = start.pool;
  st_float_modes_default(); // instead of those that the thread inherited
  for (unsigned seen = 0;;) {
    wait_for_work(p, seen);
    seen++;
    if (atomic_load(&p->quit)) return NULL;
    p->fn(p->context, start.index, p->threads);
    if (atomic_fetch_sub(&p->running, 1) == 1 && atomic_load(&p->waiting)) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

// Tells the workers that there is a new generation, waking those that sleep.
static void announce(st_pool *p) {
  atomic_fetch_add(&p->generation, 1);
  if (atomic_load(&p->sleeping)) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
  }
}

static setun_status start_worker(st_pool *p, int index, int wanted, setun_error *err) {
  worker_start *start = st_malloc(1, sizeof *start);
  if (!start) return st_fail_memory(err, "a thread");
  *start = (worker_start){p, index};
  int failed = st_thread_start(&p->workers[index - 1], worker, start);
  if (!failed) return SETUN_OK;
  st_free(start);
  return st_fail(err, SETUN_ERROR_MEMORY, "cannot start thread %d of %d: %s", index + 1, wanted,
                 failed == EAGAIN ? "the system leaves no memory for its stack, or allows no more threads"
                                  : strerror(failed));
}

setun_status st_pool_new(int threads, st_pool **pool, setun_error *err) {
  if (threads < 1 || threads > 1024) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "threads: expected 1 to 1024, found %d", threads);
  }
  st_pool *p = st_calloc(1, sizeof *p);
  if (!p) return st_fail_memory(err, "the thread pool");
  p->workers = st_calloc((size_t)threads, sizeof *p->workers);
  p->parts = st_aligned_alloc((size_t)threads * sizeof *p->parts);
  if (!p->workers || !p->parts) {
    st_free(p->workers);
    st_free(p->parts);
    st_free(p);
    return st_fail_memory(err, "the thread pool");
  }
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->work, NULL);
  pthread_cond_init(&p->done, NULL);
  p->threads = 1;
  p->maker = st_process_current();
  for (int i = 1; i < threads; i++) {
    setun_status s = start_worker(p, i, threads, err);
    if (s != SETUN_OK) {
      st_pool_free(p);
      return s;
    }
    p->threads = i + 1;
  }
  *pool = p;
  return SETUN_OK;
}

// In a child there are no threads that could end, and what they waited for cannot be destroyed.
void st_pool_free(st_pool *p) {
  if (!p) return;
  if (p->maker == st_process_current()) {
    atomic_store(&p->quit, true);
    announce(p);
    for (int i = 1; i < p->threads; i++) pthread_join(p->workers[i - 1], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
  }
  st_free(p->workers);
  st_free(p->parts);
  st_free(p);
}

int st_pool_threads(const st_pool *p) {
  return p->threads;
}

static void wait_for_workers(st_pool *p) {
  for (int i = 0; i < SPINS; i++) {
    if (!atomic_load_explicit(&p->running, memory_order_acquire)) return;
    relax(i);
  }
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->waiting, true);
  while (atomic_load(&p->running)) pthread_cond_wait(&p->done, &p->lock);
  atomic_store(&p->waiting, false);
  pthread_mutex_unlock(&p->lock);
}

void st_pool_run(st_pool *p, st_pool_fn fn, void *context) {
  if (p->threads > 1) {
    p->fn = fn;
    p->context = context;
    atomic_store(&p->running, p->threads - 1);
    announce(p);
  }
  fn(context, 0, p->threads);
  if (p->threads > 1) wait_for_workers(p);
}

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

// Half of what is left of a part, from its front or its back.
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

#ifdef __linux__
// The lowest processor number among the threads of the same core as `cpu`; `cpu` itself when the system does not say.
static int first_sibling(int cpu) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *f = fopen(path, "r");
  int first = cpu;
  if (f) {
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
  }
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
