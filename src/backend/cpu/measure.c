// This machine's own ceilings, measured: the fastest read, and multiply-adds from registers.
#include "backend/cpu/cpu.h"
#include "setun.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/system_memory.h"

#include <string.h>

enum { READ_DEFAULT = 512 << 20, PAGE = 4096, REPEATS = 5 };

typedef struct {
  const st_kernels *kernels;
  char *buffer;
  size_t bytes;
  uint64_t (*peak)(uint64_t n);
  uint64_t each;       // multiply-adds per thread
  uint64_t done[1024]; // by thread
} ceiling_job;

// Touches the thread's part with nonzero values: some machines read zero pages faster.
static void fill_part(void *context, int index, int threads) {
  ceiling_job *j = context;
  char page[PAGE];
  size_t first, last;
  for (size_t i = 0; i < sizeof page; i++) page[i] = (char)(i * 2654435761u >> 7);
  st_pool_share(j->bytes, PAGE, index, threads, &first, &last);
  for (size_t i = first; i < last; i += PAGE) memcpy(j->buffer + i, page, last - i < PAGE ? last - i : PAGE);
}

static void read_part(void *context, int index, int threads) {
  ceiling_job *j = context;
  size_t first, last;
  st_pool_share(j->bytes, PAGE, index, threads, &first, &last);
  j->done[index] = j->kernels->read(j->buffer + first, last - first);
}

static void peak_part(void *context, int index, int threads) {
  ceiling_job *j = context;
  (void)threads;
  j->done[index] = j->peak(j->each);
}

static double best_read(st_pool *pool, ceiling_job *j) {
  double best = 0;
  st_pool_run(pool, fill_part, j);
  for (int i = 0; i < REPEATS; i++) {
    double start = st_clock_seconds();
    st_pool_run(pool, read_part, j);
    double rate = (double)j->bytes / (st_clock_seconds() - start);
    if (rate > best) best = rate;
  }
  return best;
}

static double best_peak(st_pool *pool, ceiling_job *j, uint64_t (*peak)(uint64_t)) {
  double best = 0;
  j->peak = peak;
  j->each = 1u << 24;
  for (int i = 0; i < REPEATS;) {
    double start = st_clock_seconds(), n = 0;
    st_pool_run(pool, peak_part, j);
    double elapsed = st_clock_seconds() - start;
    for (int t = 0; t < st_pool_threads(pool); t++) n += (double)j->done[t];
    if (n / elapsed > best) best = n / elapsed;
    if (elapsed < 0.02)
      j->each *= 4; // long enough for the clock and the frequency to settle
    else
      i++;
  }
  return best;
}

// The bytes of a buffer that leaves enough memory for others; at least a page.
static size_t buffer_of(uint64_t wanted) {
  const uint64_t others = 8 << 20, available = st_memory_available();
  uint64_t room = available > others + PAGE ? available - others : PAGE;
  return (size_t)(wanted < room ? wanted : room);
}

setun_status st_cpu_measure(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                            setun_ceilings *ceilings, setun_error *err) {
  st_kernels kernels;
  st_pool *pool = NULL;
  size_t bytes = buffer_of(buffer_bytes ? buffer_bytes : READ_DEFAULT);
  setun_status s = st_kernels_get(isa, &kernels, err);
  if (s == SETUN_OK) s = st_pool_new(NULL, threads > 0 ? threads : st_default_threads(), &pool, err);
  if (s != SETUN_OK) return s;
  ceiling_job *job = st_calloc(1, sizeof *job);
  if (job) *job = (ceiling_job){.kernels = &kernels, .buffer = st_pages_alloc(bytes, true), .bytes = bytes};
  if (job && job->buffer) {
    ceilings->read_bytes_per_s = best_read(pool, job);
    if (!reading_only) ceilings->int8_macs_per_s = best_peak(pool, job, kernels.peak_int8);
    if (!reading_only) ceilings->float_macs_per_s = best_peak(pool, job, kernels.peak_float);
  } else {
    s = st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a buffer of %zu bytes", bytes);
  }
  if (job) st_pages_free(job->buffer, bytes);
  st_free(job);
  st_pool_free(pool);
  return s;
}
