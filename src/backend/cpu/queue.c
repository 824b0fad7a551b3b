// A session's threads and memory: activations, the products' inputs, and the KV cache.
#include "backend/cpu/cpu.h"

#include "base/memory.h"

_Static_assert((size_t)ST_ACT_COUNT <= sizeof((st_workload *)0)->most / sizeof(uint64_t), "kinds of inputs");

static size_t largest_input(const st_device *d, uint32_t n_batch, const st_workload *w) {
  size_t most = 0;
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    size_t columns = (size_t)w->most[kind];
    size_t n = columns ? d->kernels.input_bytes((st_activation)kind, n_batch, columns) : 0;
    if (n > most) most = n;
  }
  return most;
}

setun_status st_cpu_queue_new(st_device *d, const st_queue_options *options, st_queue **queue, setun_error *err) {
  st_queue *q = st_calloc(1, sizeof *q);
  if (!q) return st_fail_memory(err, "the session's queue");
  q->kernels = &d->kernels;
  q->n_batch = options->n_batch;
  q->input_bytes = largest_input(d, options->n_batch, &d->workload);
  q->input = st_pages_alloc(q->input_bytes, true);
  setun_status s = q->input ? st_pool_new(d->workers, options->threads, &q->pool, err)
                            : st_fail_memory(err, "the inputs of products");
  if (s == SETUN_OK) {
    *queue = q;
  } else {
    st_cpu_queue_free(q);
  }
  return s;
}

uint64_t st_cpu_queue_size(const st_device *d, const st_queue_options *options, const st_workload *workload) {
  return st_huge_pages(largest_input(d, options->n_batch, workload));
}

void st_cpu_queue_free(st_queue *q) {
  if (!q) return;
  st_pool_free(q->pool);
  st_pages_free(q->input, q->input_bytes);
  st_free(q->scores);
  st_free(q);
}

setun_status st_cpu_array_new(st_queue *q, size_t tokens, size_t width, st_array **array, setun_error *err) {
  (void)q;
  size_t n, bytes;
  st_array *a = st_calloc(1, sizeof *a);
  if (!a || !st_mul_size(tokens, width, &n) || !st_mul_size(n, sizeof(float), &bytes)) {
    st_free(a);
    return st_fail_memory(err, "activations");
  }
  *a = (st_array){tokens, width, st_pages_alloc(bytes, false), bytes};
  if (!a->data) {
    st_free(a);
    return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for activations of %zu x %zu", tokens, width);
  }
  *array = a;
  return SETUN_OK;
}

void st_cpu_array_free(st_array *a) {
  if (!a) return;
  st_pages_free(a->data, a->bytes);
  st_free(a);
}

// Floats of one thread's scores: those of the tokens that are computed together with the query heads of one KV head;
// with a window 16 more each. False on overflow.
static bool scores_of(const st_cache_shape *shape, size_t *n) {
  size_t keys = (((size_t)shape->n_ctx + 15) & ~(size_t)15) + 16;
  return st_mul_size(keys, st_cpu_attend_tokens(shape) * (shape->n_head / shape->n_head_kv), n);
}

uint64_t st_cpu_cache_size(const st_cache_shape *shape, int threads) {
  size_t scores = 0;
  uint64_t keys =
      (uint64_t)shape->n_sequences * st_cpu_cache_runs(shape) * st_cpu_cache_run(shape).stride * (shape->half ? 2 : 4);
  scores_of(shape, &scores);
  if (keys >= ST_HUGE_PAGE) keys = st_huge_pages(keys);
  return 2 * keys + (uint64_t)scores * (uint64_t)threads * sizeof(float);
}

setun_status st_cpu_cache_new(st_queue *q, const st_cache_shape *shape, st_cache **cache, setun_error *err) {
  size_t n = shape->half ? 2 : 4, scores;
  bool fits = st_mul_size(n, shape->n_sequences, &n) && st_mul_size(n, shape->n_layer, &n) &&
              st_mul_size(n, shape->n_head_kv, &n) && st_mul_size(n, shape->head_dim, &n) &&
              st_mul_size(n, st_cpu_cache_runs(shape) * st_cpu_cache_run(shape).positions, &n);
  fits = fits && scores_of(shape, &q->scores_each) &&
         st_mul_size(q->scores_each, (size_t)st_pool_threads(q->pool), &scores);
  st_cache *c = fits ? st_calloc(1, sizeof *c) : NULL;
  if (!c) return st_fail_memory(err, "the KV cache");
  bool huge = n >= ST_HUGE_PAGE;
  *c = (st_cache){.shape = *shape, .keys = st_pages_alloc(n, huge), .values = st_pages_alloc(n, huge), .bytes = n};
  st_free(q->scores);
  q->scores = st_aligned_alloc(scores * sizeof(float));
  if (!c->keys || !c->values || !q->scores) {
    st_cpu_cache_free(c);
    return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a KV cache of %u tokens (2 x %zu bytes)", shape->n_ctx,
                   n);
  }
  *cache = c;
  return SETUN_OK;
}

void st_cpu_cache_free(st_cache *c) {
  if (!c) return;
  st_pages_free(c->keys, c->bytes);
  st_pages_free(c->values, c->bytes);
  st_free(c);
}
