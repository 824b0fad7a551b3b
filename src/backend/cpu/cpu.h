// The CPU backend's own types, shared by its files: device.c places weights, queue.c owns a session's memory and
// threads, ops.c computes, recurrent.c and experts.c do so for recurrent layers and the choice of experts.
#ifndef SETUN_BACKEND_CPU_CPU_H
#define SETUN_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernel/attend.h"
#include "kernel/kernel.h"

#include <stdatomic.h>

enum { ST_CPU_SMALL = 16384 }; // floats below which an operation finishes before another thread would wake

typedef struct st_arena_chunk st_arena_chunk;

struct st_device {
  st_kernels kernels;
  st_workers *workers;    // of all queues and of the placement of weights
  st_arena_chunk *chunks; // weights are in huge pages, one matrix after the other
  st_workload workload;   // over all matrices so far: the most columns for each kind of input (an st_activation)
};

struct st_dmatrix {
  st_matrix m;
  const st_format *format;
  st_shape stored;
  st_activation activation;
  float *scales; // [groups * 16] what m.scales points to; NULL: the form has no scales
  uint64_t bytes;
};

struct st_dvector {
  size_t n;
  float values[];
};

struct st_array {
  size_t tokens, width;
  float *data; // [tokens, width]
  size_t bytes;
};

struct st_cache {
  st_cache_shape shape;
  // [n_pages] of [n_head_kv] of a block of keys and a block of values (kernel/cache.h); huge pages where it is large.
  uint8_t *data;                               // [n_pages][page_bytes]
  size_t page_bytes, keys_bytes, values_bytes; // bytes of a page, and of the two blocks
};

struct st_queue {
  const st_kernels *kernels;
  st_pool *pool;
  uint32_t n_batch;
  void *input; // the prepared input of the current product
  size_t input_bytes;
  char *scratch; // attention's: [threads][scratch_each] bytes
  size_t scratch_each;
  uint8_t *product_scratch; // [threads][kernels->scratch_bytes]
  float *partial;           // [n_ctx / ST_PART][n_head][head_dim + 2]: the results of parts of one token's keys
  size_t partial_parts;
  atomic_size_t *parts_left; // [n_head] that no thread has computed yet, by the first head of a unit
};

_Static_assert((int)ST_CACHE_POSITIONS == (int)ST_KEYS && (int)ST_CACHE_PART == (int)ST_PART, "pages and parts");

// Tokens whose attention is computed together, so that keys are read once while scores stay in the caches.
static inline uint32_t st_cpu_attend_tokens(const st_cache_shape *s) {
  uint32_t tokens = 32 / (s->n_head / s->n_head_kv);
  return tokens < 1 ? 1 : tokens > 16 ? 16 : tokens;
}

bool st_cpu_device_at(size_t index, st_device_facts *facts);
setun_status st_cpu_device_new(const st_device_options *options, st_device **device, setun_error *err);
void st_cpu_device_free(st_device *device);
setun_status st_cpu_pool_new(st_device *device, int threads, st_pool **pool, setun_error *err);
const char *st_cpu_device_isa(const st_device *device);
bool st_cpu_supports(const st_device *device, const st_matrix_desc *desc, st_operation operation);
st_matrix_info st_cpu_matrix_info(const st_device *device, const st_matrix_desc *desc);
setun_status st_cpu_matrix_new(st_device *device, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err);
setun_status st_cpu_matrix_write(st_dmatrix *matrix, const st_matrix_rows *rows, setun_error *err);
void st_cpu_matrix_borrow(st_dmatrix *matrix, void *codes);
setun_status st_cpu_matrix_finalize(st_device *device, st_dmatrix *matrix, st_pool *pool, setun_error *err);
void st_cpu_matrix_free(st_dmatrix *matrix);
uint64_t st_cpu_matrix_bytes(const st_dmatrix *matrix);
setun_status st_cpu_vector_new(st_device *device, const float *values, size_t n, st_dvector **vector, setun_error *err);
void st_cpu_vector_free(st_dvector *vector);

setun_status st_cpu_measure(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                            struct setun_ceilings *ceilings, setun_error *err);

setun_status st_cpu_queue_new(st_device *device, const st_queue_options *options, st_queue **queue, setun_error *err);
void st_cpu_queue_free(st_queue *queue);
void st_cpu_workload_add(const st_device *device, const st_matrix_desc *desc, st_workload *workload);
uint64_t st_cpu_queue_size(const st_device *device, const st_queue_options *options, const st_workload *workload);
uint64_t st_cpu_cache_size(const st_device *device, const st_cache_shape *shape, int threads);
uint64_t st_cpu_cache_page_size(const st_cache_shape *shape);
setun_status st_cpu_array_new(st_queue *queue, size_t tokens, size_t width, st_array **array, setun_error *err);
void st_cpu_array_free(st_array *array);
setun_status st_cpu_read(st_queue *queue, const st_array *array, uint32_t token, size_t n, float *out,
                         setun_error *err);
setun_status st_cpu_write(st_queue *queue, st_array *array, uint32_t token, size_t n, const float *in,
                          setun_error *err);
setun_status st_cpu_argmax(st_queue *queue, const st_array *array, uint32_t n, uint32_t width, int32_t *ids,
                           setun_error *err);
setun_status st_cpu_top(st_queue *queue, const st_array *array, uint32_t width, uint32_t k, int32_t *ids, float *values,
                        setun_error *err);
setun_status st_cpu_cache_new(st_queue *queue, const st_cache_shape *shape, st_cache **cache, setun_error *err);
void st_cpu_cache_free(st_cache *cache);

uint64_t st_cpu_state_size(const st_state_shape *shape);
uint64_t st_cpu_states_size(const st_state_shape *shape);
setun_status st_cpu_states_new(st_queue *queue, const st_state_shape *shape, st_states **states, setun_error *err);
void st_cpu_states_free(st_states *states);
void st_cpu_convolve(st_queue *queue, st_states *states, uint32_t layer, const st_batch *batch, const st_array *x,
                     const st_dvector *taps, st_array *dst);
void st_cpu_delta(st_queue *queue, st_states *states, const st_batch *batch, const st_delta_args *args);
setun_status st_cpu_state_save(st_queue *queue, const st_states *states, uint32_t slot, void *bytes, setun_error *err);
setun_status st_cpu_state_restore(st_queue *queue, st_states *states, uint32_t slot, const void *bytes,
                                  setun_error *err);

void st_cpu_scatter_add(st_queue *queue, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                        uint32_t width, const st_array *y);
void st_cpu_route(st_queue *queue, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen);
void st_cpu_add_chosen(st_queue *queue, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                       const st_array *y);

void st_cpu_copy_columns(st_queue *queue, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst);

#endif
