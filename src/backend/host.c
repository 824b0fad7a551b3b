// The operations that a backend lacks, computed by the CPU backend on copies.
#include "backend/host.h"

#include "base/memory.h"

#include <float.h>
#include <math.h>

extern const st_backend st_backend_cpu; // not from the registry, which completes its rows with these
static const st_backend *const cpu = &st_backend_cpu;

// ---- objects ------------------------------------------------------------------------------------------------------

static st_device *device_of(const st_device *d) {
  return ((const st_host_device *)d)->cpu;
}

static st_host_queue *queue_of(st_queue *q) {
  return (st_host_queue *)q;
}

static st_array *array_of(const st_array *a) {
  return a ? ((const st_host_array *)a)->cpu : NULL;
}

static st_dvector *vector_of(const st_dvector *v) {
  return v ? ((const st_host_vector *)v)->cpu : NULL;
}

setun_status st_host_device_open(st_host_device *d, const st_device_options *options, setun_error *err) {
  return cpu->device_new(options, &d->cpu, err);
}

void st_host_device_close(st_host_device *d) {
  cpu->device_free(d->cpu);
}

setun_status st_host_vector_open(st_host_vector *v, st_device *device, const float *values, size_t n,
                                 setun_error *err) {
  return cpu->vector_new(device_of(device), values, n, &v->cpu, err);
}

void st_host_vector_close(st_host_vector *v) {
  cpu->vector_free(v->cpu);
}

setun_status st_host_queue_open(st_host_queue *q, const st_backend *backend, st_device *device,
                                const st_queue_options *options, setun_error *err) {
  q->backend = backend;
  return cpu->queue_new(device_of(device), options, &q->cpu, err);
}

void st_host_queue_close(st_host_queue *q) {
  cpu->queue_free(q->cpu);
  st_free(q->buffer);
}

setun_status st_host_array_open(st_host_array *a, st_queue *q, size_t tokens, size_t width, setun_error *err) {
  a->width = width;
  return cpu->array_new(queue_of(q)->cpu, tokens, width, &a->cpu, err);
}

void st_host_array_close(st_host_array *a) {
  cpu->array_free(a->cpu);
}

setun_status st_host_finish(st_queue *queue, setun_error *err) {
  st_host_queue *q = queue_of(queue);
  setun_status s = q->error.code;
  if (s != SETUN_OK && err) *err = q->error;
  q->error.code = SETUN_OK;
  return s;
}

// ---- copies -------------------------------------------------------------------------------------------------------

// The first n tokens of a backend's array, from one device's to another's.
static setun_status copy_tokens(st_host_queue *h, const st_backend *from, st_queue *from_queue, const st_array *source,
                                const st_backend *to, st_queue *to_queue, st_array *target, size_t n) {
  if (!st_reserve(&h->buffer, &h->capacity, n, sizeof *h->buffer))
    return st_fail_memory(&h->error, "copied activations");
  setun_status s = from->read(from_queue, source, 0, n, h->buffer, &h->error);
  return s == SETUN_OK ? to->write(to_queue, target, 0, n, h->buffer, &h->error) : s;
}

// False if an earlier operation failed, or the copy does.
static bool to_host(st_queue *q, const st_array *a, uint32_t n) {
  st_host_queue *h = queue_of(q);
  if (h->error.code != SETUN_OK) return false;
  size_t floats = n * ((const st_host_array *)a)->width;
  return copy_tokens(h, h->backend, q, a, cpu, h->cpu, array_of(a), floats) == SETUN_OK;
}

static void to_device(st_queue *q, st_array *a, uint32_t n) {
  st_host_queue *h = queue_of(q);
  copy_tokens(h, cpu, h->cpu, array_of(a), h->backend, q, a, n * ((const st_host_array *)a)->width);
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------

static void rmsnorm(st_queue *q, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                    float eps) {
  if (!to_host(q, x, n)) return;
  cpu->rmsnorm(queue_of(q)->cpu, array_of(x), n, heads, width, vector_of(norm), eps);
  to_device(q, x, n);
}

static void norm_into(st_queue *q, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                      st_array *dst) {
  if (!to_host(q, x, n) || !to_host(q, dst, n)) return;
  cpu->norm_into(queue_of(q)->cpu, array_of(x), n, width, vector_of(norm), eps, array_of(dst));
  to_device(q, dst, n);
}

static void hadamard(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *args,
                     st_array *dst) {
  st_hadamard_args a = *args;
  a.norm = vector_of(args->norm);
  a.before = vector_of(args->before);
  a.after = vector_of(args->after);
  if (!to_host(q, x, first + n) || !to_host(q, dst, n)) return;
  cpu->hadamard(queue_of(q)->cpu, array_of(x), first, n, &a, array_of(dst));
  to_device(q, dst, n);
}

static void reorder(st_queue *q, const st_array *x, uint32_t first, uint32_t n, uint32_t width, const uint32_t *order,
                    st_array *dst) {
  if (!to_host(q, x, first + n) || !to_host(q, dst, n)) return;
  cpu->reorder(queue_of(q)->cpu, array_of(x), first, n, width, order, array_of(dst));
  to_device(q, dst, n);
}

static void rope(st_queue *q, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst) {
  st_rope_args a = *args;
  a.table = vector_of(args->table);
  if (!to_host(q, x, batch->n_tokens) || !to_host(q, dst, batch->n_tokens)) return;
  cpu->rope(queue_of(q)->cpu, array_of(x), batch, &a, array_of(dst));
  to_device(q, dst, batch->n_tokens);
}

static void clip(st_queue *q, st_array *x, uint32_t n, uint32_t width, float limit) {
  if (!to_host(q, x, n)) return;
  cpu->clip(queue_of(q)->cpu, array_of(x), n, width, limit);
  to_device(q, x, n);
}

static void glu(st_queue *q, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
                st_array *dst) {
  if (!to_host(q, gate, n) || !to_host(q, up, n) || !to_host(q, dst, n)) return;
  cpu->glu(queue_of(q)->cpu, fn, array_of(gate), array_of(up), n, width, array_of(dst));
  to_device(q, dst, n);
}

// The tokens of an array up to the last listed one.
static uint32_t listed(const uint32_t *tokens, uint32_t n) {
  uint32_t end = 0;
  for (uint32_t i = 0; i < n; i++) end = tokens[i] < end ? end : tokens[i] + 1;
  return end;
}

static void gather(st_queue *q, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst) {
  if (!to_host(q, x, listed(tokens, n)) || !to_host(q, dst, n)) return;
  cpu->gather(queue_of(q)->cpu, array_of(x), tokens, n, width, array_of(dst));
  to_device(q, dst, n);
}

static void scatter_add(st_queue *q, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                        uint32_t width, const st_array *y) {
  if (!to_host(q, x, listed(tokens, n)) || !to_host(q, y, n)) return;
  cpu->scatter_add(queue_of(q)->cpu, array_of(x), tokens, weights, n, width, array_of(y));
  to_device(q, x, listed(tokens, n));
}

static void route(st_queue *q, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen) {
  if (!to_host(q, logits, n)) return;
  cpu->route(queue_of(q)->cpu, array_of(logits), n, args, array_of(chosen));
  to_device(q, chosen, n);
}

static void add_chosen(st_queue *q, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                       const st_array *y) {
  if (!to_host(q, x, n) || !to_host(q, chosen, n) || !to_host(q, y, n * used)) return;
  cpu->add_chosen(queue_of(q)->cpu, array_of(x), array_of(chosen), n, used, width, array_of(y));
  to_device(q, x, n);
}

// The CPU is called for each expert.
static setun_status experts_new(st_device *device, const st_expert_weights *list, uint32_t n, st_dexperts **experts,
                                setun_error *err) {
  (void)device, (void)list, (void)n, (void)err;
  *experts = NULL;
  return SETUN_OK;
}

static void experts_free(st_dexperts *experts) {
  (void)experts; // there are none
}

static void experts(st_queue *q, const st_experts_args *args) {
  (void)q, (void)args;
}

static void complete_experts(st_backend *b) {
  b->experts_new = experts_new;
  b->experts_free = experts_free;
  b->experts = experts;
}

static void clear(st_queue *q, st_array *x, uint32_t n, uint32_t width) {
  if (!to_host(q, x, n)) return;
  cpu->clear(queue_of(q)->cpu, array_of(x), n, width);
  to_device(q, x, n);
}

static void add(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  if (!to_host(q, x, n) || !to_host(q, y, n)) return;
  cpu->add(queue_of(q)->cpu, array_of(x), array_of(y), n, width, scale);
  to_device(q, x, n);
}

// ---- the cache, owned by the CPU backend ----------------------------------------------------------------------------

static uint64_t cache_size(const st_device *device, const st_cache_shape *shape, int threads) {
  return cpu->cache_size(device_of(device), shape, threads);
}

static setun_status cache_new(st_queue *q, const st_cache_shape *shape, st_cache **cache, setun_error *err) {
  return cpu->cache_new(queue_of(q)->cpu, shape, cache, err);
}

static void cache_write(st_queue *q, st_cache *cache, uint32_t layer, const st_batch *batch, st_array *k, st_array *v) {
  if (!to_host(q, k, batch->n_tokens) || !to_host(q, v, batch->n_tokens)) return;
  cpu->cache_write(queue_of(q)->cpu, cache, layer, batch, array_of(k), array_of(v));
}

static void cache_copy_page(st_queue *q, st_cache *cache, uint32_t from, uint32_t to) {
  cpu->cache_copy_page(queue_of(q)->cpu, cache, from, to);
}

static void attend(st_queue *q, const st_cache *cache, const st_batch *batch, const st_attend_args *args) {
  uint32_t n = batch->n_tokens;
  st_attend_args a = *args;
  a.sinks = vector_of(args->sinks);
  a.q = array_of(args->q);
  a.q_far = args->period ? array_of(args->q_far) : NULL;
  a.q_sink = args->n_sinks ? array_of(args->q_sink) : NULL;
  a.dst = array_of(args->dst);
  if (!to_host(q, args->q, n) || !to_host(q, args->dst, n)) return;
  if (a.q_far && !to_host(q, args->q_far, n)) return;
  if (a.q_sink && !to_host(q, args->q_sink, n)) return;
  cpu->attend(queue_of(q)->cpu, cache, batch, &a);
  to_device(q, args->dst, n);
}

static setun_status cache_save(st_queue *q, const st_cache *cache, uint32_t page, uint32_t head, uint32_t n, void *keys,
                               void *values, setun_error *err) {
  setun_status s = queue_of(q)->backend->finish(q, err);
  return s == SETUN_OK ? cpu->cache_save(queue_of(q)->cpu, cache, page, head, n, keys, values, err) : s;
}

static setun_status cache_restore(st_queue *q, st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                                  const void *keys, const void *values, setun_error *err) {
  setun_status s = queue_of(q)->backend->finish(q, err);
  return s == SETUN_OK ? cpu->cache_restore(queue_of(q)->cpu, cache, page, head, n, keys, values, err) : s;
}

// ---- recurrent states, owned by the CPU backend --------------------------------------------------------------------

static setun_status states_new(st_queue *q, const st_state_shape *shape, st_states **states, setun_error *err) {
  return cpu->states_new(queue_of(q)->cpu, shape, states, err);
}

static void convolve(st_queue *q, st_states *states, uint32_t layer, const st_batch *batch, const st_array *x,
                     const st_dvector *taps, st_array *dst) {
  if (!to_host(q, x, batch->n_tokens) || !to_host(q, dst, batch->n_tokens)) return;
  cpu->convolve(queue_of(q)->cpu, states, layer, batch, array_of(x), vector_of(taps), array_of(dst));
  to_device(q, dst, batch->n_tokens);
}

static void delta(st_queue *q, st_states *states, const st_batch *batch, const st_delta_args *args) {
  uint32_t n = batch->n_tokens;
  st_delta_args a = *args;
  a.rate = vector_of(args->rate);
  a.bias = vector_of(args->bias);
  a.mixed = array_of(args->mixed);
  a.alpha = array_of(args->alpha);
  a.beta = array_of(args->beta);
  a.dst = array_of(args->dst);
  if (!to_host(q, args->mixed, n) || !to_host(q, args->alpha, n) || !to_host(q, args->beta, n)) return;
  if (!to_host(q, args->dst, n)) return;
  cpu->delta(queue_of(q)->cpu, states, batch, &a);
  to_device(q, args->dst, n);
}

static setun_status state_save(st_queue *q, const st_states *states, uint32_t slot, void *bytes, setun_error *err) {
  setun_status s = queue_of(q)->backend->finish(q, err);
  return s == SETUN_OK ? cpu->state_save(queue_of(q)->cpu, states, slot, bytes, err) : s;
}

static setun_status state_restore(st_queue *q, st_states *states, uint32_t slot, const void *bytes, setun_error *err) {
  setun_status s = queue_of(q)->backend->finish(q, err);
  return s == SETUN_OK ? cpu->state_restore(queue_of(q)->cpu, states, slot, bytes, err) : s;
}

static void copy_columns(st_queue *q, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst) {
  if (!to_host(q, x, n) || !to_host(q, dst, n)) return;
  cpu->copy_columns(queue_of(q)->cpu, array_of(x), n, columns, array_of(dst));
  to_device(q, dst, n);
}

int32_t st_host_largest(const float *x, uint32_t n) {
  uint32_t best = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!(fabsf(x[i]) <= FLT_MAX)) return -1;
    if (x[i] > x[best]) best = i;
  }
  return (int32_t)best;
}

static setun_status argmax(st_queue *q, const st_array *x, uint32_t n, uint32_t width, int32_t *ids, setun_error *err) {
  const st_host_queue *h = queue_of(q);
  setun_status s = SETUN_OK;
  for (uint32_t t = 0; t < n && s == SETUN_OK; t++) {
    float *row = st_malloc(width, sizeof *row);
    s = row ? h->backend->read(q, x, t, width, row, err) : st_fail_memory(err, "logits");
    if (s == SETUN_OK) ids[t] = st_host_largest(row, width);
    st_free(row);
  }
  return s;
}

// Each number of the row goes to its place among the largest so far.
void st_host_top(const float *row, uint32_t width, uint32_t k, int32_t *ids, float *values) {
  bool finite = true;
  for (uint32_t i = 0, n = 0; i < width; i++) {
    uint32_t at = n < k ? n++ : k;
    finite = finite && fabsf(row[i]) <= FLT_MAX;
    for (; at && row[i] > values[at - 1]; at--) {
      if (at < k) values[at] = values[at - 1], ids[at] = ids[at - 1];
    }
    if (at < k) values[at] = row[i], ids[at] = (int32_t)i;
  }
  for (uint32_t i = 0; i < k && !finite; i++) ids[i] = -1;
}

static setun_status top(st_queue *q, const st_array *x, uint32_t width, uint32_t k, int32_t *ids, float *values,
                        setun_error *err) {
  const st_host_queue *h = queue_of(q);
  float *row = st_malloc(width, sizeof *row);
  setun_status s = row ? h->backend->read(q, x, 0, width, row, err) : st_fail_memory(err, "logits");
  if (s == SETUN_OK) st_host_top(row, width, k, ids, values);
  st_free(row);
  return s;
}

static bool own_memory(const st_device *device, uint64_t *left) {
  (void)device;
  if (left) *left = 0;
  return false;
}

static bool counted(const st_queue *queue, size_t index, st_op_counts *counts) {
  (void)queue, (void)index, (void)counts;
  return false;
}

// ---- missing functions ----------------------------------------------------------------------------------------------

static const char *available(void) {
  return "";
}

static const char *isa_name(size_t index) {
  (void)index;
  return NULL;
}

static setun_status measure(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                            struct setun_ceilings *ceilings, setun_error *err) {
  (void)isa, (void)threads, (void)buffer_bytes, (void)reading_only, (void)ceilings;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "this backend does not measure its ceilings");
}

static bool device_at(size_t index, st_device_facts *facts) {
  (void)index, (void)facts;
  return false;
}

static setun_status pool_new(st_device *device, int threads, st_pool **pool, setun_error *err) {
  return cpu->pool_new(device_of(device), threads, pool, err);
}

static bool supports(const st_device *device, const st_matrix_desc *desc, st_operation operation) {
  (void)device, (void)desc, (void)operation;
  return true;
}

static setun_status matrix_finalize(st_device *device, st_dmatrix *matrix, st_pool *pool, setun_error *err) {
  (void)device, (void)matrix, (void)pool, (void)err;
  return SETUN_OK;
}

static void workload_add(const st_device *device, const st_matrix_desc *desc, st_workload *workload) {
  (void)device, (void)desc, (void)workload;
}

static uint64_t queue_size(const st_device *device, const st_queue_options *options, const st_workload *workload) {
  return cpu->queue_size(device_of(device), options, workload);
}

static void complete_cache(st_backend *b) {
  b->cache_size = cache_size;
  b->cache_page_size = cpu->cache_page_size;
  b->cache_row_size = cpu->cache_row_size;
  b->cache_format_name = cpu->cache_format_name;
  b->cache_new = cache_new;
  b->cache_free = cpu->cache_free;
  b->cache_write = cache_write;
  b->cache_copy_page = cache_copy_page;
  b->attend = attend;
  b->cache_save = cache_save;
  b->cache_restore = cache_restore;
}

static void complete_states(st_backend *b) {
  b->state_size = cpu->state_size;
  b->states_size = cpu->states_size;
  b->states_new = states_new;
  b->states_free = cpu->states_free;
  b->convolve = convolve;
  b->delta = delta;
  b->state_save = state_save;
  b->state_restore = state_restore;
}

void st_host_complete(st_backend *b) {
  if (!b->available) b->available = available;
  if (!b->isa_name) b->isa_name = isa_name;
  if (!b->measure) b->measure = measure;
  if (!b->device_at) b->device_at = device_at;
  if (!b->own_memory) b->own_memory = own_memory;
  if (!b->pool_new) b->pool_new = pool_new;
  if (!b->supports) b->supports = supports;
  if (!b->matrix_finalize) b->matrix_finalize = matrix_finalize;
  if (!b->workload_add) b->workload_add = workload_add;
  if (!b->queue_size) b->queue_size = queue_size;
  if (!b->cache_new) complete_cache(b);
  if (!b->states_new) complete_states(b);
  if (!b->copy_columns) b->copy_columns = copy_columns;
  if (!b->rmsnorm) b->rmsnorm = rmsnorm;
  if (!b->norm_into) b->norm_into = norm_into;
  if (!b->hadamard) b->hadamard = hadamard;
  if (!b->reorder) b->reorder = reorder;
  if (!b->rope) b->rope = rope;
  if (!b->clip) b->clip = clip;
  if (!b->glu) b->glu = glu;
  if (!b->gather) b->gather = gather;
  if (!b->scatter_add) b->scatter_add = scatter_add;
  if (!b->route) b->route = route;
  if (!b->add_chosen) b->add_chosen = add_chosen;
  if (!b->experts_new) complete_experts(b);
  if (!b->clear) b->clear = clear;
  if (!b->add) b->add = add;
  if (!b->argmax) b->argmax = argmax;
  if (!b->top) b->top = top;
  if (!b->counted) b->counted = counted;
}
