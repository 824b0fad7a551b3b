// What computes: a table of operations on a device's own matrices, vectors and arrays. `model` speaks only this, and
// finds a backend by its name in the registry (backends.def).
//
// A device holds weights and is immutable while sessions use it, but for what placing writes; sessions on several
// threads may use it at once. A queue is one session's stream of work: operations are carried out in the order in which
// they were given, and may still be running when the call returns, until `read` or `finish`. Arrays are float32
// [tokens, width] activations on the device.
//
// Memory of the host that an operation is given (ids, tokens, weights, lists of outputs, batches) is copied before the
// call returns. Borrowed codes have to stay until `finish`.
//
// An operation that fails on the device is latched in its queue: those behind it do nothing until `read`, `finish` or a
// copy out of a cache gives its error back, once.
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
typedef struct st_cache st_cache;   // keys and values of all layers
typedef struct st_states st_states; // states of recurrent layers

// What products do with their input; the model decides, FORMATS in docs/formats.md say when.
typedef enum st_precision {
  ST_PRECISION_FLOAT, // float32 activations throughout
  ST_PRECISION_FAST,  // int8 activations by block where the weights are quantized
  ST_PRECISION_INT8   // the model prescribes int8 per token for its ternary weights; other weights take floats
} st_precision;

// In what shape a device wants the rows of a matrix of some format.
typedef enum st_rows {
  ST_ROWS_FLOAT, // float32 [count, K]
  ST_ROWS_BYTES, // as stored
  ST_ROWS_TRITS  // int8 [count, K] and scales: one a row, or one a row and block for ST_SCALE_BLOCK
} st_rows;

// Whose memory a matrix's codes are: the device's own; the host's, which says where they are before each use
// (`matrix_borrow`); or pages of a mapped file, given once.
typedef enum st_ownership { ST_OWNED, ST_BORROWED, ST_MAPPED } st_ownership;

typedef struct st_matrix_desc {
  const st_format *format; // of the rows that are written to it
  st_shape shape;
  st_shape stored; // of the tensor whose strips are written to it; {0, 0}: rows alone are
  st_precision precision;
  st_ownership ownership;
} st_matrix_desc;

typedef enum st_operation { ST_OP_LINEAR, ST_OP_EMBED } st_operation;

// Of a matrix, before there is one: bytes of its codes as they are written or borrowed, of codes of its own once it is
// finalized, and of the scales of rows beside them; and how it is written.
typedef struct st_matrix_info {
  uint64_t codes, own, beside;
  st_rows rows;      // that `matrix_write` takes
  uint32_t row_unit; // rows are written from multiples of it on
  bool strips;       // strips of `stored` can be written, in whole units
  bool direct;       // the format's stored bytes are what the device computes with, so that they can be borrowed
} st_matrix_info;

// What is written to a matrix: rows, a strip of the stored tensor, or the scales beside the codes alone.
typedef struct st_matrix_rows {
  uint64_t row, count;   // of the matrix
  const void *data;      // as st_matrix_info says, or the strip's bytes; NULL: scales alone
  const st_strip *strip; // NULL: rows
  const float *scales;   // as for ST_ROWS_TRITS; NULL: none
} st_matrix_rows;

// Which products a queue must have room for, in numbers of the device's own; {0}: none yet.
typedef struct st_workload {
  uint64_t most[8];
} st_workload;

typedef struct st_device_options {
  const char *isa; // CPU: NULL for the best
  const st_log *log;
} st_device_options;

typedef struct st_queue_options {
  int threads;      // CPU; at least 1
  uint32_t n_batch; // most tokens of one operation
} st_queue_options;

// A cache is a pool of pages, numbered from 0: ST_CACHE_POSITIONS positions of one layer each. Which of them hold what
// is up to whoever uses it, who gives the tables with each run of tokens.
enum { ST_CACHE_POSITIONS = 64 };
// Keys are added up in parts of so many positions: those of a sequence may be moved by a multiple of it with no bit of
// any result changed.
enum { ST_CACHE_PART = 512 };
typedef struct st_cache_shape {
  uint32_t n_pages, n_ctx; // n_ctx: most positions of a sequence
  uint32_t n_head, n_head_kv, head_dim;
  setun_kv_type keys, values; // formats
} st_cache_shape;

// Recurrent states (gated DeltaNet): a pool of slots, numbered from 0, each for one sequence at one position. A slot
// has for each recurrent layer the last n_taps - 1 inputs of its convolution, and for each value head a float32 matrix
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
  uint32_t column; // where the matrix's first row goes in dst, and which of the bias's it takes
} st_linear_out;

// The tokens of a pass: runs of them, each of one sequence at positions that follow one another. Row t of an array is
// token t, counted through all runs.
typedef struct st_token_run {
  uint32_t position, n; // position: of the run's first token, in the tables
  uint32_t forgotten;   // tokens of the sequence before it that have no position any more
  // pages[layer * stride + p / ST_CACHE_POSITIONS] holds position p of a layer; entries of positions that no token of
  // the run sees or is stored at are not read.
  const uint32_t *pages;
  size_t stride;
  // Slots with the state before the run's first token (ST_NO_STATE: zeros), and for that behind its last; they may be
  // the same.
  uint32_t state_from, state_to;
} st_token_run;

typedef struct st_batch {
  const st_token_run *runs; // [n_runs], no sequence twice; what they write to is in the tables of one run only
  uint32_t n_runs, n_tokens;
} st_batch;

// Of rows `width` wide, of blocks that a Hadamard matrix over sqrt(block) multiplies: see st_kernels.hadamard.
typedef struct st_hadamard_args {
  uint32_t width, block;
  const st_dvector *norm; // RMSNorm before it; NULL: none
  float eps;
  const st_dvector *before, *after; // [width] factors before and behind it; NULL: none
} st_hadamard_args;

typedef struct st_rope_args {
  uint32_t heads, head_dim;
  uint32_t n_rot;          // of each head the first elements are turned, and others passed
  const st_dvector *table; // [n][2][n_rot / 2]: cosines, then sines, of each position; NULL: none is turned
  bool interleaved;
  uint32_t period; // a token counts as at position % period, 0: at its position,
  uint32_t most;   // and as at this one if it is less
} st_rope_args;

// Tokens of a run are all before, or all behind, position n_sinks + window, and likewise of period.
typedef struct st_attend_args {
  uint32_t layer;
  uint32_t n_head;
  uint32_t window;    // a key is visible when query - key < window; 0: all before it
  uint32_t n_sinks;   // the first keys, which are visible too: to a token before position n_sinks + window all are
  uint32_t period;    // 0, or a multiple of ST_CACHE_PART: q_far is for keys before it where the token is not
  bool bidirectional; // keys behind a token are visible too, to the end of its run, which is a whole sequence; a window
                      // reaches as far forward as it does back. n_sinks and period are 0 then
  float scale;
  const st_dvector *sinks; // [n_head]; NULL: none
  const st_array *q;       // [n, n_head * head_dim]
  const st_array *q_far;   // likewise; where period is 0 not used
  const st_array *q_sink;  // likewise, for the first n_sinks keys of a token behind n_sinks + window; of 0 not used
  st_array *dst;           // likewise
} st_attend_args;

typedef enum st_activation_fn {
  ST_FN_SILU,
  ST_FN_RELU2,
  ST_FN_GELU_TANH,
  ST_FN_GPT_OSS,
  ST_FN_SIGMOID,
  ST_FN_SILU_CLAMPED
} st_activation_fn;

// `count` pieces of n columns: from column `from` and each from_step behind it, to column `to` and each to_step.
typedef struct st_columns {
  uint32_t from, from_step, to, to_step, n, count;
} st_columns;

typedef struct st_delta_args {
  uint32_t layer;         // among the recurrent ones
  st_array *mixed;        // [n, channels] convolved queries, keys and values; changed
  st_array *alpha, *beta; // [n, n_value_heads] products; changed
  const st_dvector *rate; // [n_value_heads] decay = exp(-rate * softplus(alpha + bias))
  const st_dvector *bias; // [n_value_heads]
  st_array *dst;          // [n, n_value_heads * value_dim]
} st_delta_args;

// Functions marked "optional" may be NULL in the object that a backend defines; host.h has what then takes their place,
// and what the backend's objects begin with where one is missing. Those of the cache are left out together, or none is,
// and likewise those of the states. What the registry gives has all of them.
struct st_backend {
  const char *name;

  // Optional: the instruction sets that can run here, best last; and this machine's ceilings, see
  // setun_measure_ceilings.
  const char *(*available)(void);
  const char *(*isa_name)(size_t index); // of all that there are kernels for; NULL beyond the last
  setun_status (*measure)(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                          struct setun_ceilings *ceilings, setun_error *err);

  setun_status (*device_new)(const st_device_options *options, st_device **device, setun_error *err);
  void (*device_free)(st_device *device);
  const char *(*device_isa)(const st_device *device); // what computes: an instruction set, or the device's name
  // Optional: a pool of the device's own threads of the host, which queues and whoever places weights share. Freed with
  // st_pool_free, before the device.
  setun_status (*pool_new)(st_device *device, int threads, st_pool **pool, setun_error *err);

  // Optional, then it has all: whether the device has the operation for such a matrix.
  bool (*supports)(const st_device *device, const st_matrix_desc *desc, st_operation operation);
  st_matrix_info (*matrix_info)(const st_device *device, const st_matrix_desc *desc);
  // A matrix is made empty. One that is owned is filled by `matrix_write` in any order, from several threads where the
  // rows are disjoint, and finalized. One that is borrowed has no codes before `matrix_borrow`, which waits for
  // nothing: matrix_info's `codes` bytes of the host's memory, aligned to 64, with ST_PAGES_SLACK readable ones behind;
  // `matrix_write` fills them. Scales beside the codes always belong to the matrix and stay.
  setun_status (*matrix_new)(st_device *device, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err);
  setun_status (*matrix_write)(st_dmatrix *matrix, const st_matrix_rows *rows, setun_error *err);
  void (*matrix_borrow)(st_dmatrix *matrix, void *codes);
  // Optional: all rows of a matrix that is owned are written, and the device may now put them into an order that it
  // computes with faster, and that takes no more memory.
  setun_status (*matrix_finalize)(st_device *device, st_dmatrix *matrix, st_pool *pool, setun_error *err);
  void (*matrix_free)(st_dmatrix *matrix);
  uint64_t (*matrix_bytes)(const st_dmatrix *matrix);

  setun_status (*vector_new)(st_device *device, const float *values, size_t n, st_dvector **vector, setun_error *err);
  void (*vector_free)(st_dvector *vector);

  setun_status (*queue_new)(st_device *device, const st_queue_options *options, st_queue **queue, setun_error *err);
  void (*queue_free)(st_queue *queue);
  // Optional: bytes of a queue, before there is one; the workload is that of all matrices, added one by one.
  void (*workload_add)(const st_device *device, const st_matrix_desc *desc, st_workload *workload);
  uint64_t (*queue_size)(const st_device *device, const st_queue_options *options, const st_workload *workload);
  // Optional, like all that is of the cache: its bytes, before there is one.
  uint64_t (*cache_size)(const st_device *device, const st_cache_shape *shape, int threads);
  // Bytes of a page, and of one position of a page in one KV head: of its key, or of its value, as it is saved.
  uint64_t (*cache_page_size)(const st_cache_shape *shape);
  size_t (*cache_row_size)(setun_kv_type type, bool keys, uint32_t head_dim);
  // NULL: the device has no such format; else the name that the CPU's has.
  const char *(*cache_format_name)(setun_kv_type type);
  setun_status (*array_new)(st_queue *queue, size_t tokens, size_t width, st_array **array, setun_error *err);
  void (*array_free)(st_array *array);
  setun_status (*cache_new)(st_queue *queue, const st_cache_shape *shape, st_cache **cache, setun_error *err);
  void (*cache_free)(st_cache *cache);

  // dst[first + t] = scale * row ids[t] of the matrix.
  void (*embed)(st_queue *queue, const st_dmatrix *matrix, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                uint32_t first);
  // The tokens [first, first + n) of `x`, normalized by `norm` first unless that is NULL, through each matrix.
  void (*linear)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                 const st_linear_out *outs, int count);

  // From here to `add`: optional. Each of the n * heads pieces of x, `width` wide, in place: RMSNorm times `norm`.
  void (*rmsnorm)(st_queue *queue, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                  float eps);
  // dst[t] = RMSNorm(x[t]) * norm, `width` wide, for the first n tokens.
  void (*norm_into)(st_queue *queue, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                    st_array *dst);
  // dst[t] = the blocks of x[first + t], transformed, for n tokens; dst may be x where `first` is 0.
  void (*hadamard)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *args,
                   st_array *dst);
  // dst[t][i] = x[first + t][order[i]], `width` wide, for n tokens; dst is another array than x.
  void (*reorder)(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, uint32_t width, const uint32_t *order,
                  st_array *dst);
  // dst = x with each head rotated: elements i and i + n_rot / 2 of it, or 2i and 2i + 1 where they are interleaved, by
  // the angle i. dst may be x.
  void (*rope)(st_queue *queue, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst);
  void (*clip)(st_queue *queue, st_array *x, uint32_t n, uint32_t width, float limit);
  // Stores the tokens' keys and values, [n_tokens, n_head_kv * head_dim] each, which it may change.
  void (*cache_write)(st_queue *queue, st_cache *cache, uint32_t layer, const st_batch *batch, st_array *k,
                      st_array *v);
  // Page `to` becomes what page `from` is.
  void (*cache_copy_page)(st_queue *queue, st_cache *cache, uint32_t from, uint32_t to);
  // Attention of the tokens, whose keys are in the cache already. Query heads share a KV head with their neighbours.
  void (*attend)(st_queue *queue, const st_cache *cache, const st_batch *batch, const st_attend_args *args);
  // Keys and values of the first `n` positions of a page in one KV head: waits, then copies n rows of cache_row_size
  // each out of the cache, or into it.
  setun_status (*cache_save)(st_queue *queue, const st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                             void *keys, void *values, setun_error *err);
  setun_status (*cache_restore)(st_queue *queue, st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                                const void *keys, const void *values, setun_error *err);
  // States, whose functions are left out together, or none is. Bytes of a slot, and of a pool of them, before there is
  // one.
  uint64_t (*state_size)(const st_state_shape *shape);
  uint64_t (*states_size)(const st_state_shape *shape);
  setun_status (*states_new)(st_queue *queue, const st_state_shape *shape, st_states **states, setun_error *err);
  void (*states_free)(st_states *states);
  // dst = silu(the causal convolution of x, [n_tokens, channels], by `taps` [n_taps][channels], the last of which meets
  // the token itself); the last inputs go to the runs' states. dst is another array than x.
  void (*convolve)(st_queue *queue, st_states *states, uint32_t layer, const st_batch *batch, const st_array *x,
                   const st_dvector *taps, st_array *dst);
  // The gated delta rule: for each token and value head, with its key head's q and k normalized (L2) and q divided by
  // sqrt(key_dim), beta = sigmoid(beta): S *= decay; S += k (beta (v - S^T k))^T; dst = S^T q.
  void (*delta)(st_queue *queue, st_states *states, const st_batch *batch, const st_delta_args *args);
  // Waits, then copies a slot's state_size bytes out of the pool, or into it.
  setun_status (*state_save)(st_queue *queue, const st_states *states, uint32_t slot, void *bytes, setun_error *err);
  setun_status (*state_restore)(st_queue *queue, st_states *states, uint32_t slot, const void *bytes, setun_error *err);
  // Columns of x's first n tokens to columns of dst.
  void (*copy_columns)(st_queue *queue, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst);
  // dst = act(gate) * up; dst may be gate, or up. ST_FN_RELU2: the square of what is positive; ST_FN_GPT_OSS: g / (1 +
  // exp(-1.702 g)) with gate at most 7, times up + 1 with up in -7..7; ST_FN_SIGMOID: 1 / (1 + exp(-g));
  // ST_FN_SILU_CLAMPED: SiLU of a gate at most 7, times up in -7..7.
  void (*glu)(st_queue *queue, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n,
              uint32_t width, st_array *dst);
  // dst[i] = x[tokens[i]].
  void (*gather)(st_queue *queue, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst);
  // x[tokens[i]] += weights[i] * y[i]. A token may stand in the list more than once; its sum is made in the list's
  // order.
  void (*scatter_add)(st_queue *queue, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                      uint32_t width, const st_array *y);
  // The first n tokens become zero.
  void (*clear)(st_queue *queue, st_array *x, uint32_t n, uint32_t width);
  // x += scale * y.
  void (*add)(st_queue *queue, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale);

  // Waits; then the error of the first operation that failed since the last error was given back.
  setun_status (*finish)(st_queue *queue, setun_error *err);
  // The same, then copies `n` floats of token `token`, from its beginning on and on into the next tokens.
  setun_status (*read)(st_queue *queue, const st_array *array, uint32_t token, size_t n, float *out, setun_error *err);
  // Copies `n` floats into token `token` and on into the next ones.
  setun_status (*write)(st_queue *queue, st_array *array, uint32_t token, size_t n, const float *in, setun_error *err);
};

// The registry: by name, NULL for the default; and one an index, NULL beyond the last.
const st_backend *st_backend_find(const char *name);
const st_backend *st_backend_at(size_t index);

#endif
