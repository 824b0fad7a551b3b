// Backends: a table of operations on a device's own matrices, vectors and arrays. `model` uses only this interface, and
// finds a backend by name in the registry (backends.def).
//
// A device holds weights and is immutable while sessions use it, except for weights being placed; sessions on several
// threads may use it at once. A queue is one session's stream of work: operations run in the order of the calls and may
// still be running when a call returns, until `read` or `finish`. Arrays are float32 [tokens, width] activations on the
// device.
//
// Host memory passed to an operation (ids, tokens, weights, lists of outputs, batches) is copied before the call
// returns. Borrowed codes must stay valid until `finish`.
//
// The error of an operation that fails on the device is latched in its queue: later operations do nothing until `read`,
// `finish` or a copy out of a cache returns the error, once.
#ifndef SETUN_BACKEND_BACKEND_H
#define SETUN_BACKEND_BACKEND_H

#include "base/log.h"
#include "base/pool.h"
#include "quant/quant.h"

struct setun_ceilings; // setun.h

typedef struct st_backend st_backend;
typedef struct st_device st_device;
typedef struct st_queue st_queue;
typedef struct st_dmatrix st_dmatrix; // a weight matrix in the device's own form
typedef struct st_dvector st_dvector; // float32 constants: norms, biases, tables
typedef struct st_array st_array;
typedef struct st_cache st_cache;       // keys and values of all layers
typedef struct st_states st_states;     // states of recurrent layers
typedef struct st_dexperts st_dexperts; // the experts of a layer

// What products do with their input; the model decides, see docs/formats.md.
typedef enum st_precision {
  ST_PRECISION_FLOAT, // float32 activations throughout
  ST_PRECISION_FAST,  // int8 activations by block where the weights are quantized
  ST_PRECISION_INT8   // the model prescribes int8 per token for its ternary weights; other weights take floats
} st_precision;

// The form in which a device takes the rows of a matrix.
typedef enum st_rows {
  ST_ROWS_FLOAT, // float32 [count, K]
  ST_ROWS_BYTES, // as stored
  ST_ROWS_TRITS  // int8 [count, K] and scales: one a row, or one a row and block for ST_SCALE_BLOCK
} st_rows;

// Who owns the memory of a matrix's codes: the device; the host, which passes their address before each use
// (`matrix_borrow`); or a mapped file, passed once.
typedef enum st_ownership { ST_OWNED, ST_BORROWED, ST_MAPPED } st_ownership;

typedef struct st_matrix_desc {
  const st_format *format; // of the rows written to it
  st_shape shape;
  st_shape stored; // of the tensor whose strips are written to it; {0, 0}: only rows are written
  st_precision precision;
  st_ownership ownership;
} st_matrix_desc;

typedef enum st_operation { ST_OP_LINEAR, ST_OP_EMBED } st_operation;

// A matrix's sizes before it exists: bytes of its codes as written or borrowed, of its own codes after finalizing, and
// of separate row scales; and how it is written.
typedef struct st_matrix_info {
  uint64_t codes, own, beside;
  st_rows rows;      // as `matrix_write` takes them
  uint32_t row_unit; // writes start at multiples of this row count
  bool strips;       // strips of `stored` can be written, in whole units
  bool direct;       // the device computes with the format's stored bytes, so that they can be borrowed
} st_matrix_info;

// Data to write to a matrix: rows, a strip of the stored tensor, or only the separate scales.
typedef struct st_matrix_rows {
  uint64_t row, count;   // of the matrix
  const void *data;      // as in st_matrix_info, or the strip's bytes; NULL: only scales
  const st_strip *strip; // NULL: rows
  const float *scales;   // as for ST_ROWS_TRITS; NULL: none
} st_matrix_rows;

// Products that a queue must have room for, in the device's own units; {0}: none yet.
typedef struct st_workload {
  uint64_t most[8];
} st_workload;

typedef struct st_device_options {
  const char *isa;        // of the CPU, or of the host that computes what the device lacks: NULL means the best
  size_t index;           // of device_at
  const char *cache;      // the folder of compiled shaders; NULL: none are kept
  const char *distrusted; // for tests: what a device's check of itself takes for wrong; NULL: nothing
  bool copies;            // for tests: borrowed codes are copied by a queue, also where the host could write them
  uint32_t lose_after;    // for tests: a device with a driver is lost after so many submissions; 0: it is not
  const st_log *log;
} st_device_options;

// A device that a backend finds.
typedef struct st_device_facts {
  char name[256];    // as its driver calls it
  char problem[256]; // why it cannot be used; "": it can
  uint64_t memory;   // bytes that it can use
} st_device_facts;

typedef struct st_queue_options {
  int threads;      // CPU; at least 1
  uint32_t n_batch; // most tokens of one operation
} st_queue_options;

// A cache is a pool of pages, numbered from 0, each for ST_CACHE_POSITIONS positions of one layer. The caller decides
// what they hold and passes the tables with each run of tokens.
enum { ST_CACHE_POSITIONS = 64 };
// Keys are summed in parts of this many positions: moving a sequence by a multiple of it changes no bit of any result.
enum { ST_CACHE_PART = 512 };
typedef struct st_cache_shape {
  uint32_t n_pages, n_ctx; // n_ctx: maximum positions of a sequence
  uint32_t n_head, n_head_kv, head_dim;
  setun_kv_type keys, values; // formats
} st_cache_shape;

// Recurrent states (gated DeltaNet): a pool of slots, numbered from 0, each for one sequence at one position. For each
// recurrent layer a slot holds the last n_taps - 1 inputs of its convolution and, for each value head, a float32 matrix
// [key_dim, value_dim].
enum { ST_NO_STATE = UINT32_MAX };
typedef struct st_state_shape {
  uint32_t n_slots, n_layers; // n_layers: recurrent ones
  uint32_t n_key_heads, n_value_heads, key_dim, value_dim, n_taps;
  bool tiled; // value head h takes key head h % n_key_heads; otherwise consecutive ones share one
} st_state_shape;

// Channels of the convolution: queries and keys of all key heads, values of all value heads.
static inline uint32_t st_state_channels(const st_state_shape *s) {
  return 2 * s->n_key_heads * s->key_dim + s->n_value_heads * s->value_dim;
}

// One output of `linear`: dst[row + t][column...] = matrix * input[t] (+ bias).
typedef struct st_linear_out {
  const st_dmatrix *matrix;
  const st_dvector *bias; // NULL: none
  st_array *dst;          // [row + n, column + rows of the matrix], or wider
  uint32_t row;
  uint32_t column; // the column of dst, and the element of bias, for the matrix's first row
} st_linear_out;

// The tokens of a pass: runs of tokens, each at consecutive positions of one sequence. Row t of an array is token t,
// counted across all runs.
typedef struct st_token_run {
  uint32_t position, n; // position: of the run's first token, in the tables
  uint32_t forgotten;   // earlier tokens of the sequence that no longer have a position
  // pages[layer * stride + p / ST_CACHE_POSITIONS] holds position p of a layer; entries for positions that the run
  // neither sees nor stores are not read.
  const uint32_t *pages;
  size_t stride;
  // The slot with the state before the run's first token (ST_NO_STATE: zeros), and the slot for the state after its
  // last; they may be the same.
  uint32_t state_from, state_to;
} st_token_run;

typedef struct st_batch {
  const st_token_run *runs; // [n_runs], each sequence at most once; pages written to belong to one run only
  uint32_t n_runs, n_tokens;
} st_batch;

// The transform of rows of `width` elements: blocks multiplied by a Hadamard matrix / sqrt(block); see
// st_kernels.hadamard.
typedef struct st_hadamard_args {
  uint32_t width, block;
  const st_dvector *norm; // RMSNorm applied first; NULL: none
  float eps;
  const st_dvector *before, *after; // [width] factors before and after it; NULL: none
} st_hadamard_args;

typedef struct st_rope_args {
  uint32_t heads, head_dim;
  uint32_t n_rot;          // the first elements of each head are rotated, the others copied
  const st_dvector *table; // [n][2][n_rot / 2]: cosines, then sines, of each position; NULL: no rotation
  bool interleaved;
  uint32_t period; // a token is rotated for position % period, 0: for its position,
  uint32_t most;   // and at least for this one
} st_rope_args;

// The tokens of a run are all before, or all at or after, position n_sinks + window; the same for period.
typedef struct st_attend_args {
  uint32_t layer;
  uint32_t n_head;
  uint32_t window;    // a key is visible when query - key < window; 0: all before it
  uint32_t n_sinks;   // the first keys are visible too; to a token before position n_sinks + window, all keys are
  uint32_t period;    // 0, or a multiple of ST_CACHE_PART: q_far is for keys before it, for tokens after it
  bool bidirectional; // keys behind a token are visible too, to the end of its run, which is a whole sequence; a window
                      // reaches as far forward as it does back. n_sinks and period are 0 then
  float scale;
  const st_dvector *sinks; // [n_head]; NULL: none
  const st_array *q;       // [n, n_head * head_dim]
  const st_array *q_far;   // the same; unused if period is 0
  // The same, for the first n_sinks keys of tokens after n_sinks + window; unused if n_sinks is 0.
  const st_array *q_sink;
  st_array *dst; // [n, n_head * head_dim]
} st_attend_args;

typedef enum st_activation_fn {
  ST_FN_SILU,
  ST_FN_RELU2,
  ST_FN_GELU_TANH,
  ST_FN_GPT_OSS,
  ST_FN_SIGMOID,
  ST_FN_SILU_CLAMPED
} st_activation_fn;

// An expert's gate, factor of the gate, and last matrix, with their biases (NULL: none).
enum { ST_MATRIX_GATE, ST_MATRIX_UP, ST_MATRIX_DOWN, ST_EXPERT_MATRICES };
typedef struct st_expert_weights {
  const st_dmatrix *matrix[ST_EXPERT_MATRICES];
  const st_dvector *bias[ST_EXPERT_MATRICES];
} st_expert_weights;

typedef struct st_experts_args {
  const st_dexperts *experts;
  const st_array *x;      // [n, columns of gates]
  const st_array *chosen; // [n, 2 * used], see `route`
  uint32_t n, used;
  st_activation_fn fn;
  // For what is computed meanwhile, [rows, ...]: inputs, gates, factors, outputs. `rows` is at least `used`.
  st_array *part, *gate, *up, *out;
  uint32_t rows;
  st_array *dst; // [n, rows of the last matrices]
} st_experts_args;

// `count` pieces of n columns: from column `from` and every from_step after it, to column `to` and every to_step.
typedef struct st_columns {
  uint32_t from, from_step, to, to_step, n, count;
} st_columns;

enum { ST_TOP_MOST = 128 };

// How a router's logits become the weights of the chosen experts.
typedef enum st_router {
  ST_ROUTER_ALL,    // softmax over all experts, then the largest
  ST_ROUTER_CHOSEN, // the largest, then softmax over those
  ST_ROUTER_SIGMOID // the largest, then the sigmoid of each
} st_router;

enum { ST_MAX_EXPERTS = 1024 };
typedef struct st_route_args {
  uint32_t n_expert, used; // used: how many are chosen for a token
  st_router router;
  bool renormalize; // ST_ROUTER_ALL: the chosen weights are divided by their sum
} st_route_args;

// What a device did for an operation: how often it began one, how often it waited for others before, and the bytes that
// it read and wrote, of each buffer once.
typedef struct st_op_counts {
  const char *name;
  uint64_t dispatches, barriers, read, written;
} st_op_counts;

typedef struct st_delta_args {
  uint32_t layer;         // index among the recurrent layers
  st_array *mixed;        // [n, channels] convolved queries, keys and values; changed
  st_array *alpha, *beta; // [n, n_value_heads] products; changed
  const st_dvector *rate; // [n_value_heads] decay = exp(-rate * softplus(alpha + bias))
  const st_dvector *bias; // [n_value_heads]
  st_array *dst;          // [n, n_value_heads * value_dim]
} st_delta_args;

// Functions marked "optional" may be NULL in the object that a backend defines; host.h has their replacements, and the
// members with which the backend's objects begin where one is missing. The cache's functions are either all present or
// all absent, and so are those of the states. Objects from the registry have all functions.
struct st_backend {
  const char *name;

  // Optional: the instruction sets that can run here, best last; the machine's ceilings, see setun_measure_ceilings.
  const char *(*available)(void);
  const char *(*isa_name)(size_t index); // all that have kernels; NULL past the last
  setun_status (*measure)(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                          struct setun_ceilings *ceilings, setun_error *err);

  // Optional (absent: none is listed): the devices found now, by index; false past the last.
  bool (*device_at)(size_t index, st_device_facts *facts);
  setun_status (*device_new)(const st_device_options *options, st_device **device, setun_error *err);
  void (*device_free)(st_device *device);
  const char *(*device_isa)(const st_device *device); // an instruction set, or the device's name
  // Optional: whether the device has memory of its own, and the bytes of it that are free, which take a
  // while to ask for; 0: unknown. `left` may be NULL.
  bool (*own_memory)(const st_device *device, uint64_t *left);
  // Optional: a pool of the device's host threads, shared by queues and by the placement of weights. Freed with
  // st_pool_free, before the device.
  setun_status (*pool_new)(st_device *device, int threads, st_pool **pool, setun_error *err);

  // Optional (absent: everything is supported): whether the device has the operation for such a matrix.
  bool (*supports)(const st_device *device, const st_matrix_desc *desc, st_operation operation);
  st_matrix_info (*matrix_info)(const st_device *device, const st_matrix_desc *desc);
  // A matrix is created empty. An owned one is filled by `matrix_write` in any order, from several threads if the rows
  // are disjoint, and then finalized. A borrowed one has no codes before `matrix_borrow`, which does not wait; they are
  // matrix_info's `codes` bytes of host memory, aligned to 64 and followed by ST_PAGES_SLACK readable bytes;
  // `matrix_write` fills them. Separate scales always belong to the matrix and stay.
  setun_status (*matrix_new)(st_device *device, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err);
  setun_status (*matrix_write)(st_dmatrix *matrix, const st_matrix_rows *rows, setun_error *err);
  void (*matrix_borrow)(st_dmatrix *matrix, void *codes);
  // Optional: called after all rows of an owned matrix were written; the device may now reorder them for faster
  // computing, within the same memory.
  setun_status (*matrix_finalize)(st_device *device, st_dmatrix *matrix, st_pool *pool, setun_error *err);
  void (*matrix_free)(st_dmatrix *matrix);
  uint64_t (*matrix_bytes)(const st_dmatrix *matrix);

  setun_status (*vector_new)(st_device *device, const float *values, size_t n, st_dvector **vector, setun_error *err);
  void (*vector_free)(st_dvector *vector);

  setun_status (*queue_new)(st_device *device, const st_queue_options *options, st_queue **queue, setun_error *err);
  void (*queue_free)(st_queue *queue);
  // Optional: the bytes that a queue will take; the workload covers all matrices, added one by one.
  void (*workload_add)(const st_device *device, const st_matrix_desc *desc, st_workload *workload);
  uint64_t (*queue_size)(const st_device *device, const st_queue_options *options, const st_workload *workload);
  // Optional, like all functions of the cache: the bytes that it will take.
  uint64_t (*cache_size)(const st_device *device, const st_cache_shape *shape, int threads);
  // Bytes of a page, and of one position in one KV head: of its key, or of its value, as saved to a file.
  uint64_t (*cache_page_size)(const st_cache_shape *shape);
  size_t (*cache_row_size)(setun_kv_type type, bool keys, uint32_t head_dim);
  // NULL: the device lacks the format; otherwise the same name as on the CPU.
  const char *(*cache_format_name)(setun_kv_type type);
  setun_status (*array_new)(st_queue *queue, size_t tokens, size_t width, st_array **array, setun_error *err);
  void (*array_free)(st_array *array);
  setun_status (*cache_new)(st_queue *queue, const st_cache_shape *shape, st_cache **cache, setun_error *err);
  void (*cache_free)(st_cache *cache);

  // dst[first + t] = scale * (row ids[t] of the matrix).
  void (*embed)(st_queue *queue, const st_dmatrix *matrix, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                uint32_t first);
  // Multiplies the tokens [first, first + n) of `x`, first normalized by `norm` unless NULL, by each matrix.
  void (*linear)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                 const st_linear_out *outs, int count);

  // From here to `add`: optional. In place: RMSNorm times `norm` of each of the n * heads pieces of x, `width` elements
  // each.
  void (*rmsnorm)(st_queue *queue, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                  float eps);
  // dst[t] = RMSNorm(x[t]) * norm, `width` elements, for the first n tokens.
  void (*norm_into)(st_queue *queue, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                    st_array *dst);
  // dst[t] = the blocks of x[first + t], transformed, for n tokens; dst may be x where `first` is 0.
  void (*hadamard)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *args,
                   st_array *dst);
  // dst[t][i] = x[first + t][order[i]], `width` wide, for n tokens; dst is another array than x.
  void (*reorder)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, uint32_t width, const uint32_t *order,
                  st_array *dst);
  // dst = x with each head rotated: elements i and i + n_rot / 2 of it, or 2i and 2i + 1 if interleaved, by angle i.
  // dst may be x.
  void (*rope)(st_queue *queue, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst);
  void (*clip)(st_queue *queue, st_array *x, uint32_t n, uint32_t width, float limit);
  // Stores the tokens' keys and values, [n_tokens, n_head_kv * head_dim] each; may modify them.
  void (*cache_write)(st_queue *queue, st_cache *cache, uint32_t layer, const st_batch *batch, st_array *k,
                      st_array *v);
  // Copies page `from` to page `to`.
  void (*cache_copy_page)(st_queue *queue, st_cache *cache, uint32_t from, uint32_t to);
  // Attention of the tokens, whose keys are already in the cache. Neighbouring query heads share a KV head.
  void (*attend)(st_queue *queue, const st_cache *cache, const st_batch *batch, const st_attend_args *args);
  // Keys and values of the first `n` positions of a page in one KV head: waits, then copies n rows of cache_row_size
  // each out of the cache, or into it.
  setun_status (*cache_save)(st_queue *queue, const st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                             void *keys, void *values, setun_error *err);
  setun_status (*cache_restore)(st_queue *queue, st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                                const void *keys, const void *values, setun_error *err);
  // States; their functions are either all present or all absent. Bytes of a slot, and of a pool of slots that does not
  // exist yet.
  uint64_t (*state_size)(const st_state_shape *shape);
  uint64_t (*states_size)(const st_state_shape *shape);
  setun_status (*states_new)(st_queue *queue, const st_state_shape *shape, st_states **states, setun_error *err);
  void (*states_free)(st_states *states);
  // dst = silu(the causal convolution of x, [n_tokens, channels], by `taps` [n_taps][channels], the last of which
  // belongs to the token itself); the last inputs go to the runs' states. dst must not be x.
  void (*convolve)(st_queue *queue, st_states *states, uint32_t layer, const st_batch *batch, const st_array *x,
                   const st_dvector *taps, st_array *dst);
  // The gated delta rule: for each token and value head, with its key head's q and k normalized (L2) and q divided by
  // sqrt(key_dim), beta = sigmoid(beta): S *= decay; S += k (beta (v - S^T k))^T; dst = S^T q.
  void (*delta)(st_queue *queue, st_states *states, const st_batch *batch, const st_delta_args *args);
  // Waits, then copies a slot's state_size bytes out of the pool, or into it.
  setun_status (*state_save)(st_queue *queue, const st_states *states, uint32_t slot, void *bytes, setun_error *err);
  setun_status (*state_restore)(st_queue *queue, st_states *states, uint32_t slot, const void *bytes, setun_error *err);
  // Copies columns of x's first n tokens to columns of dst.
  void (*copy_columns)(st_queue *queue, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst);
  // dst = act(gate) * up; dst may be gate or up. ST_FN_RELU2: max(g, 0)^2; ST_FN_GPT_OSS: g / (1 + exp(-1.702 g)) with
  // gate at most 7, times up + 1 with up in -7..7; ST_FN_SIGMOID: 1 / (1 + exp(-g)); ST_FN_SILU_CLAMPED: SiLU of a gate
  // at most 7, times up in -7..7.
  void (*glu)(st_queue *queue, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n,
              uint32_t width, st_array *dst);
  // dst[i] = x[tokens[i]].
  void (*gather)(st_queue *queue, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst);
  // x[tokens[i]] += weights[i] * y[i]. A token may occur more than once; its sum is in the list's order.
  void (*scatter_add)(st_queue *queue, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                      uint32_t width, const st_array *y);
  // chosen[t] = the experts for a token's logits, [n, n_expert]: for each of them, by ascending index, the index and
  // the weight of its output. Among equal logits the first is larger; NaN is the smallest.
  void (*route)(st_queue *queue, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen);
  // x[t] += weight * y[t * used + i], `width` elements, for each expert i of chosen[t], in their order.
  void (*add_chosen)(st_queue *queue, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                     const st_array *y);
  // The experts of a layer, to be chosen on the device; their functions are either all present or all absent. The
  // matrices remain the caller's. *experts is NULL: the device has to be called for each expert that `route` chose.
  setun_status (*experts_new)(st_device *device, const st_expert_weights *list, uint32_t n, st_dexperts **experts,
                              setun_error *err);
  void (*experts_free)(st_dexperts *experts);
  // dst[t] = the sum of weight * down(act(gate(x[t])) * up(x[t])) over the experts of chosen[t], in their order.
  void (*experts)(st_queue *queue, const st_experts_args *args);
  // The first n tokens become zero.
  void (*clear)(st_queue *queue, st_array *x, uint32_t n, uint32_t width);
  // x += scale * y.
  void (*add)(st_queue *queue, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale);

  // Waits; then returns the first error since the last one was returned.
  setun_status (*finish)(st_queue *queue, setun_error *err);
  // The same, then copies `n` floats from the beginning of token `token` on, continuing with the next tokens.
  setun_status (*read)(st_queue *queue, const st_array *array, uint32_t token, size_t n, float *out, setun_error *err);
  // Waits; then ids[t] is the index of the largest of the first `width` numbers of token t, the first of equal ones, or
  // -1 where one of them is not finite; for n tokens. Optional.
  setun_status (*argmax)(st_queue *queue, const st_array *array, uint32_t n, uint32_t width, int32_t *ids,
                         setun_error *err);
  // Waits; then the k largest of the first `width` numbers of token 0 and their indices, the largest first and the
  // first of equal ones; k is at most `width` and ST_TOP_MOST. Indices are -1 where one of all numbers is not finite.
  // Optional.
  setun_status (*top)(st_queue *queue, const st_array *array, uint32_t width, uint32_t k, int32_t *ids, float *values,
                      setun_error *err);
  // Optional (absent: nothing is counted): what the queue did since it was made, by index; false past the last.
  bool (*counted)(const st_queue *queue, size_t index, st_op_counts *counts);
  // Copies `n` floats to token `token`, continuing with the next ones.
  setun_status (*write)(st_queue *queue, st_array *array, uint32_t token, size_t n, const float *in, setun_error *err);
};

// The registry: by name (NULL: the default), or by index (NULL past the last).
const st_backend *st_backend_find(const char *name);
const st_backend *st_backend_at(size_t index);
// The backend and the index of a device by setun_model_params.device. SETUN_ERROR_ARGUMENT: a name that no backend has;
// SETUN_ERROR_UNSUPPORTED: none of the devices can be used here.
setun_status st_backend_choose(const char *device, const st_backend **backend, size_t *index, setun_error *err);

#endif
