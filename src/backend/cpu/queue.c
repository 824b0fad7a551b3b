// A session's threads and memory: activations, the products' inputs, and the KV cache.
#include "backend/cpu/cpu.h"

#include "backend/host.h"

#include "base/memory.h"

#include <string.h>

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
  size_t scratch = s == SETUN_OK ? (size_t)st_pool_threads(q->pool) * d->kernels.scratch_bytes : 0;
  if (scratch && !(q->product_scratch = st_aligned_alloc(scratch))) s = st_fail_memory(err, "the sums of products");
  if (s == SETUN_OK) {
    *queue = q;
  } else {
    st_cpu_queue_free(q);
  }
  return s;
}

uint64_t st_cpu_queue_size(const st_device *d, const st_queue_options *options, const st_workload *workload) {
  return st_huge_pages(largest_input(d, options->n_batch, workload)) +
         (uint64_t)options->threads * d->kernels.scratch_bytes;
}

void st_cpu_queue_free(st_queue *q) {
  if (!q) return;
  st_pool_free(q->pool);
  st_pages_free(q->input, q->input_bytes);
  st_free(q->scratch);
  st_free(q->product_scratch);
  st_free(q->partial);
  st_free(q->parts_left);
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

// Bytes of one thread's scratch for attention: the queries of one KV head, for the tokens that are computed together,
// or those of one token.
static size_t scratch_of(const st_cache_shape *shape) {
  size_t queries = (size_t)st_cpu_attend_tokens(shape) * (shape->n_head / shape->n_head_kv);
  if (queries < shape->n_head) queries = shape->n_head;
  return st_attend_scratch(shape->keys, queries, shape->head_dim);
}

// Parts of the longest sequence, and floats of their results.
static size_t parts_of(const st_cache_shape *s) {
  return ((size_t)s->n_ctx + ST_PART - 1) / ST_PART;
}
static size_t partial_of(const st_cache_shape *s) {
  return parts_of(s) * s->n_head * ((size_t)s->head_dim + 2);
}

uint64_t st_cpu_cache_page_size(const st_cache_shape *s) {
  return (uint64_t)s->n_head_kv *
         (st_kv_block_bytes(s->keys, true, s->head_dim) + st_kv_block_bytes(s->values, false, s->head_dim));
}

uint64_t st_cpu_cache_size(const st_device *d, const st_cache_shape *shape, int threads) {
  (void)d;
  uint64_t bytes = shape->n_pages * st_cpu_cache_page_size(shape);
  if (bytes >= ST_HUGE_PAGE) bytes = st_huge_pages(bytes);
  return bytes + scratch_of(shape) * (uint64_t)threads + partial_of(shape) * sizeof(float) +
         shape->n_head * sizeof(atomic_size_t);
}

setun_status st_cpu_cache_new(st_queue *q, const st_cache_shape *shape, st_cache **cache, setun_error *err) {
  size_t bytes, scratch, each = scratch_of(shape);
  bool fits = st_mul_size((size_t)st_cpu_cache_page_size(shape), shape->n_pages, &bytes) &&
              st_mul_size(each, (size_t)st_pool_threads(q->pool), &scratch);
  st_cache *c = fits ? st_calloc(1, sizeof *c) : NULL;
  if (!c) return st_fail_memory(err, "the KV cache");
  *c = (st_cache){.shape = *shape,
                  .data = st_pages_alloc(bytes, bytes >= ST_HUGE_PAGE),
                  .page_bytes = (size_t)st_cpu_cache_page_size(shape),
                  .keys_bytes = st_kv_block_bytes(shape->keys, true, shape->head_dim),
                  .values_bytes = st_kv_block_bytes(shape->values, false, shape->head_dim)};
  st_free(q->scratch);
  st_free(q->partial);
  st_free(q->parts_left);
  q->scratch = st_aligned_alloc(scratch);
  q->scratch_each = each;
  q->partial = st_malloc(partial_of(shape), sizeof *q->partial);
  q->partial_parts = parts_of(shape);
  q->parts_left = st_malloc(shape->n_head, sizeof *q->parts_left);
  if (!c->data || !q->scratch || !q->partial || !q->parts_left) {
    st_cpu_cache_free(c);
    return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a KV cache of %u pages (%zu bytes)", shape->n_pages,
                   bytes);
  }
  *cache = c;
  return SETUN_OK;
}

void st_cpu_cache_free(st_cache *c) {
  if (!c) return;
  st_pages_free(c->data, c->shape.n_pages * c->page_bytes);
  st_free(c);
}

// ---- reading and writing ------------------------------------------------------------------------------------------

typedef struct {
  const float *from;
  float *to;
  size_t n;
} copy_job;

static void copy_part(void *context, int index, int threads) {
  enum { GRAIN = 1024 };
  const copy_job *j = context;
  size_t first, last;
  st_pool_share(j->n, GRAIN, index, threads, &first, &last);
  if (first < last) memcpy(j->to + first, j->from + first, (last - first) * sizeof *j->to);
}

// The logits of several tokens are some MB, which one thread copies in 1% of a pass.
setun_status st_cpu_read(st_queue *q, const st_array *a, uint32_t token, size_t n, float *out, setun_error *err) {
  enum { ALONE = 65536 };
  copy_job j = {a->data + (size_t)token * a->width, out, n};
  (void)err;
  if (n < ALONE)
    copy_part(&j, 0, 1);
  else
    st_pool_run(q->pool, copy_part, &j);
  return SETUN_OK;
}

setun_status st_cpu_write(st_queue *q, st_array *a, uint32_t token, size_t n, const float *in, setun_error *err) {
  (void)q, (void)err;
  memcpy(a->data + (size_t)token * a->width, in, n * sizeof *in);
  return SETUN_OK;
}

// ---- the largest number -------------------------------------------------------------------------------------------

setun_status st_cpu_argmax(st_queue *q, const st_array *x, uint32_t n, uint32_t width, int32_t *ids, setun_error *err) {
  (void)q, (void)err;
  for (uint32_t t = 0; t < n; t++) ids[t] = st_host_largest(x->data + t * x->width, width);
  return SETUN_OK;
}

setun_status st_cpu_top(st_queue *q, const st_array *x, uint32_t width, uint32_t k, int32_t *ids, float *values,
                        setun_error *err) {
  (void)q, (void)err;
  st_host_top(x->data, width, k, ids, values);
  return SETUN_OK;
}
