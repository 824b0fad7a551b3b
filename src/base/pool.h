// Thread pools: one function on several threads at once, with the caller as thread 0.
#ifndef SETUN_BASE_POOL_H
#define SETUN_BASE_POOL_H

#include "base/error.h"

#include <stdbool.h>

typedef struct st_workers st_workers;
typedef struct st_pool st_pool;

// Runs on each thread with its index in [0, count).
typedef void (*st_pool_fn)(void *context, int index, int count);

// Threads that any number of pools share; none at first. Freed with st_workers_free, after the pools.
setun_status st_workers_new(st_workers **workers, setun_error *err);
void st_workers_free(st_workers *workers);

// A pool of `threads` >= 1, which counts the caller: workers are started where there are fewer. `workers` NULL: the
// pool has its own. Freed with st_pool_free, when nothing runs in it; any thread may make, use and free its pools while
// others use theirs.
setun_status st_pool_new(st_workers *workers, int threads, st_pool **pool, setun_error *err);
void st_pool_free(st_pool *pool);
int st_pool_threads(const st_pool *pool);

// Calls fn once with each index and returns when all calls have returned: each on a thread of its own, but for those
// that the caller takes over because their workers were late. One caller of a pool at a time; callers of several pools
// share the workers. Waiting threads spin for some tens of microseconds, since the next call mostly follows at once,
// and then sleep. `fn` must not wait for another index to run.
void st_pool_run(st_pool *pool, st_pool_fn fn, void *context);

// The part of `items`, in whole multiples of `grain`, that thread `index` of `count` takes: contiguous and fixed.
void st_pool_share(size_t items, size_t grain, int index, int count, size_t *first, size_t *last);

// Items that threads take as they come to them: each its own contiguous part of those dealt, from the front, then what
// the others have left, from the back. So a thread that is slower than others, or was interrupted, keeps nobody waiting
// long. `items` is below 2^32. Between two calls of st_pool_run:
void st_pool_deal(st_pool *pool, size_t items);
// In st_pool_run: the next items for thread `index`, half of what is left of a part but at least `grain`, or all where
// fewer are left; false when all are taken.
bool st_pool_take(st_pool *pool, int index, size_t grain, size_t *first, size_t *last);

// How many threads suit this machine and this process: physical cores that it may run on, at most as many as the time
// of processors that its control groups allow.
int st_default_threads(void);

#endif
