// Thread pools: one function on several threads at once, with the caller as thread 0.
#ifndef SETUN_BASE_POOL_H
#define SETUN_BASE_POOL_H

#include "base/error.h"

#include <stdbool.h>

typedef struct st_workers st_workers;
typedef struct st_pool st_pool;

// The function that each thread runs, with its index in [0, count).
typedef void (*st_pool_fn)(void *context, int index, int count);

// Threads that any number of pools share; initially none. Freed with st_workers_free, after the pools.
setun_status st_workers_new(st_workers **workers, setun_error *err);
void st_workers_free(st_workers *workers);

// A pool of `threads` >= 1, including the caller; missing workers are started. `workers` NULL: the pool has its own.
// Freed with st_pool_free, when nothing runs in it; any thread may make, use and free its pools while others use
// theirs.
setun_status st_pool_new(st_workers *workers, int threads, st_pool **pool, setun_error *err);
void st_pool_free(st_pool *pool);
int st_pool_threads(const st_pool *pool);

// Calls fn once with each index and returns when all calls have returned: each on its own thread, except those that the
// caller takes over from late workers. One caller of a pool at a time; callers of several pools share the workers.
// Waiting threads spin for some tens of microseconds, since the next call usually follows at once, and then sleep. `fn`
// must not wait for another index.
void st_pool_run(st_pool *pool, st_pool_fn fn, void *context);

// The part of `items`, in multiples of `grain`, for thread `index` of `count`: contiguous and fixed.
void st_pool_share(size_t items, size_t grain, int index, int count, size_t *first, size_t *last);

// Dynamic distribution of items: each thread takes its own contiguous part from the front, then the rest of others'
// parts from the back. A thread that is slow or interrupted thus does not delay the others much. `items` is below 2^32.
// Between two calls of st_pool_run:
void st_pool_deal(st_pool *pool, size_t items);
// In st_pool_run: the next items for thread `index`: half of the rest of a part, at least `grain`, or all if fewer are
// left; false when all are taken.
bool st_pool_take(st_pool *pool, int index, size_t grain, size_t *first, size_t *last);

// Writes to all pages of a block of zeros from st_pages_alloc, on all threads, so that the system provides them now.
void st_pool_touch(st_pool *pool, void *block, size_t bytes);

// A suitable number of threads for this machine and process: the physical cores that it may run on, limited by its
// control groups.
int st_default_threads(void);

#endif
