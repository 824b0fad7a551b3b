// The types of the Vulkan backend, shared by its files: vk.c opens the loader, device.c a device, memory.c its buffers,
// pipelines.c its shaders; matrix.c and values.c pack weights; queue.c logs and submits work, which recording.c
// records; stream.c brings weights that are not resident; linear.c, rows.c, heads.c, attention.c, recurrent.c and
// experts.c are the operations, which check.c compares with the CPU's.
//
// Shaders take addresses of memory, not bindings, so that a buffer may be of any size and nothing is bound but a
// pipeline and push constants.
#ifndef SETUN_BACKEND_VULKAN_DEVICE_H
#define SETUN_BACKEND_VULKAN_DEVICE_H

#include "backend/host.h"
#include "backend/vulkan/vk.h"

#include <pthread.h>

// ---- memory -------------------------------------------------------------------------------------------------------

typedef enum st_vk_kind {
  ST_VK_LOCAL,    // the device's own
  ST_VK_UPLOAD,   // mapped; the host writes it, the device reads it
  ST_VK_READBACK, // mapped and cached; the device writes it, the host reads it
  ST_VK_DIRECT,   // the device's own and mapped, where there is such
  ST_VK_STAGED,   // the host's, mapped; the queue for copies reads it
  ST_VK_COPIED    // the device's own; the queue for copies writes it
} st_vk_kind;

typedef struct st_vk_buffer {
  VkBuffer buffer;
  VkDeviceMemory memory;
  VkDeviceAddress address;
  uint8_t *mapped; // NULL: not mapped
  uint64_t size;
} st_vk_buffer;

// A part of a buffer.
typedef struct st_vk_piece {
  VkBuffer buffer;
  uint64_t offset, size;
  VkDeviceAddress address;
} st_vk_piece;

typedef struct st_vk_chunk st_vk_chunk; // weights are in large buffers, one after the other
typedef struct st_vk_spare st_vk_spare; // freed parts of these

// When the commands of a queue last read or wrote a buffer: the queue's epoch then, which a barrier ends.
typedef struct st_vk_use {
  uint32_t read, written;
} st_vk_use;

// ---- shaders ------------------------------------------------------------------------------------------------------

typedef enum st_vk_shader {
#define SHADER(id, ...) ST_VK_##id,
#include "backend/vulkan/shaders.def"
  ST_VK_SHADERS
} st_vk_shader;

// Their code, compiled when the library is built (cmake/vulkan.cmake).
typedef struct st_vk_code {
  const uint32_t *words;
  size_t bytes;
} st_vk_code;
extern const st_vk_code st_vk_codes[];

enum { ST_VK_CONSTANTS = 9 };
// What a pipeline is specialized to: constant_id 0 is the invocations of a workgroup, the others are the shader's.
typedef struct st_vk_special {
  uint32_t constants[ST_VK_CONSTANTS];
} st_vk_special;

typedef struct st_vk_pipeline st_vk_pipeline;

// ---- objects ------------------------------------------------------------------------------------------------------

struct st_device {
  st_host_device host;
  st_vk vk;
  st_vk_traits traits;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue, copy_queue; // which may be the same
  VkPhysicalDeviceMemoryProperties memory;
  VkPipelineLayout layout;
  VkPipelineCache cache;
  char *cache_path;                   // of the file that keeps compiled pipelines; NULL: none
  uint32_t n_pipelines;               // compiled since it was read
  const char *distrusted;             // for tests: the name of what its checks take for wrong; NULL: nothing
  bool lost_experts;                  // it computes those that it chooses wrongly
  uint32_t lost_forms;                // bits by st_vk_form, of forms that it computes wrongly
  bool lost_formats[ST_FORMAT_COUNT]; // the same of formats in the form ST_VK_VALUES
  bool copies;                        // for tests: as in st_device_options
  bool tails;                         // a product's last workgroup may prepare the next one
  st_log log;
  // The following are guarded by `lock`, which is held for a submission, but not while one is waited for.
  pthread_mutex_t lock;
  st_vk_pipeline *pipelines[ST_VK_SHADERS];
  uint64_t allocated;      // bytes
  uint64_t buffers, freed; // how many were made, and freed, so far
  uint64_t borrowed;       // bytes of the largest codes that matrices borrow
  bool lost;               // what is submitted fails
  uint32_t lose_after;     // for tests: after so many submissions it is lost; 0: not
  // Memory of weights, and copies into it; guarded by `transfer_lock`, which is taken before the other.
  pthread_mutex_t transfer_lock;
  st_vk_chunk *chunks;
  uint64_t chunk_bytes; // of all of them
  st_vk_spare *spares;
  st_queue *transfer;
};

// The form in which a matrix's rows are kept; each has rows in shaders.def, and a decoder in shaders/weights.glsl.
typedef enum st_vk_form {
  ST_VK_F32,
  ST_VK_F16,
  ST_VK_BF16,
  ST_VK_TRITS2,  // 16 codes of 2 bits a word, trit + 1: byte j's bit pair p is column 4p + j; a float32 scale a row
  ST_VK_TRITS5,  // 20 trits a word, 5 a byte in base 3: byte j's digit p is column 4p + j; a float32 scale a row
  ST_VK_BLOCKS2, // codes as in TRITS2, with a float32 scale a row and block of columns
  ST_VK_VALUES   // a value format in its own bits, see values.c
} st_vk_form;

// A value format as shaders/values.glsl reads it.
typedef struct st_vk_values {
  uint32_t codec, bits;        // as codecs.def has them; of a code, 0: the codec says
  uint32_t block;              // columns; 0: a row is one block
  uint32_t first, bytes, head; // the first byte of a block's codes, how many there are, the block's other bytes
} st_vk_values;

struct st_dmatrix {
  st_device *device;
  const st_format *format;
  st_vk_form form;
  st_vk_values values; // of the form VALUES
  bool int8;           // products take int8 by token
  uint32_t rows, columns, block;
  uint32_t row_words;    // of 32 bits, a row's codes
  uint32_t row_scales;   // a row's; 0: none
  st_vk_piece codes;     // empty: borrowed
  st_vk_piece scales;    // float32 [rows][row_scales], always the matrix's own
  const uint8_t *source; // borrowed codes
  uint64_t bytes;
};

struct st_dvector {
  st_host_vector host;
  st_device *device;
  st_vk_piece values;
};

struct st_array {
  st_host_array host;
  st_device *device;
  st_vk_buffer data; // float32 [tokens, width]
  size_t tokens, width;
  st_vk_use use;
};

struct st_cache {
  st_device *device;
  st_cache_shape shape;
  st_vk_buffer data;                          // [n_pages][page_words] words
  uint32_t page_words, key_words, head_words; // of a page, of a head's keys in it, of a head's keys and values
  st_vk_use use;
};

// ---- work ---------------------------------------------------------------------------------------------------------

// A buffer that commands use.
typedef struct st_vk_access {
  st_vk_use *use;
  bool writes;
} st_vk_access;
#define ST_VK_READS(object) ((st_vk_access){(st_vk_use *)&(object)->use, false})
#define ST_VK_WRITES(object) ((st_vk_access){&(object)->use, true})
#define ST_VK_WRITES_TO(itself) ((st_vk_access){&(itself), true})

typedef struct st_vk_groups {
  uint32_t x, y;
} st_vk_groups;

enum { ST_VK_PUSH_BYTES = 128, ST_VK_ACCESSES = 40 };
// A dispatch: st_vk_op_of begins one, st_vk_run carries it out. Logs are compared by their bytes: structs of push
// constants have no bytes that are not a member's.
typedef struct st_vk_op {
  st_vk_shader shader;
  st_vk_special special;
  st_vk_groups groups;
  st_vk_access accesses[ST_VK_ACCESSES];
  uint32_t n_accesses, push_bytes;
  uint8_t push[ST_VK_PUSH_BYTES];
  uint64_t read, written; // bytes, of each buffer once
} st_vk_op;

// An operation that was called and is not recorded yet, since the next one may become a part of its dispatch.
typedef enum st_vk_holding {
  ST_VK_NOTHING,
  ST_VK_HELD_HEADS,  // heads.c: rotated queries, or these and keys
  ST_VK_HELD_LINEAR, // linear.c: a product, to which a sum may be added, and then the preparation of the next product
  ST_VK_HELD_GATE,   // rows.c: a gate, which may become a part of the preparation of a product
  ST_VK_HELD_SUM     // rows.c: outputs of experts, whose sum may be added
} st_vk_holding;

typedef struct st_vk_held {
  st_vk_holding kind;
  st_vk_op op;
  // LINEAR, GATE, SUM: the array with the result, [n, width]. HEADS: the keys, NULL: none yet
  st_array *dst;
  uint32_t n, width;
  const st_array *gate, *up; // GATE; LINEAR: what a gate and its factor may be, [n, width] each, NULL: they are not
  uint32_t fn;
  void *output; // LINEAR: the row of the list in memory, an `output` of linear.c; NULL: there are several
  st_rope_args rope;
  st_batch batch; // HEADS
} st_vk_held;

// What dispatches of a shader did.
typedef struct st_vk_counts {
  uint64_t dispatches, barriers, read, written;
} st_vk_counts;

typedef struct st_vk_upload st_vk_upload;

// One of two buffers through which borrowed codes come: the host writes one while the device reads the other.
typedef struct st_vk_arena {
  st_vk_buffer host, local; // written by the host, and what is copied to; `local` is empty where shaders read `host`
  VkCommandBuffer copy;
  uint64_t used;
  bool pending; // commands that read it were submitted, with `fence`
  VkFence fence;
} st_vk_arena;
enum { ST_VK_ARENAS = 2 };

// Commands that are not submitted yet, in the order in which they were called; see recording.c.
typedef struct st_vk_log {
  uint8_t *bytes;
  size_t used, capacity;
} st_vk_log;

// Commands that were recorded, to be submitted again where a log is the same.
typedef struct st_vk_recorded {
  VkCommandBuffer commands;
  st_vk_log log;
  uint64_t freed; // st_device.freed then
  uint64_t used;  // the last submission of these, counted from 1; 0: none
} st_vk_recorded;
enum { ST_VK_RECORDED = 4 };

struct st_queue {
  st_host_queue host;
  st_device *device;
  VkCommandPool pool;
  VkFence fence;
  bool recording; // something was logged
  st_vk_log log;
  st_vk_recorded recorded[ST_VK_RECORDED];
  uint32_t epoch;
  st_vk_held held;
  st_vk_upload *uploads; // what this submission reads from the host, the chunk in use first
  st_vk_arena arenas[ST_VK_ARENAS];
  uint32_t arena;          // the one in use
  VkCommandPool copy_pool; // of the arenas, where these are copied, like the semaphore, which counts copies
  VkSemaphore copied;
  uint64_t copies;
  st_vk_buffer readback;
  st_vk_buffer codes, floats; // prepared inputs of products
  st_vk_use codes_use, floats_use;
  st_vk_buffer ended; // counts of workgroups that ended, and what they have in common; see st_vk_ended
  st_vk_use ended_use;
  st_vk_buffer lists; // of the largest numbers, see top.c
  st_vk_use lists_use;
  st_vk_buffer plan; // the products of experts, see experts.c
  st_vk_use plan_use;
  setun_error error; // the first since the last was returned
  st_vk_counts counts[ST_VK_SHADERS];
  uint64_t submissions, recordings;
  uint64_t uploaded, downloaded, streamed; // bytes
};

// ---- memory.c -----------------------------------------------------------------------------------------------------

setun_status st_vk_buffer_new(st_device *device, uint64_t size, st_vk_kind kind, const char *what, st_vk_buffer *buffer,
                              setun_error *err);
void st_vk_buffer_free(st_device *device, st_vk_buffer *buffer); // also one that is zero
// Memory of weights: a piece that is freed is for others of its size; all is freed with the device.
setun_status st_vk_piece_new(st_device *device, uint64_t size, const char *what, st_vk_piece *piece, setun_error *err);
void st_vk_piece_free(st_device *device, const st_vk_piece *piece); // also one that is zero
void st_vk_pieces_free(st_device *device);
// Copies bytes to a piece, at once.
setun_status st_vk_piece_write(st_device *device, const st_vk_piece *piece, uint64_t offset, const void *bytes,
                               uint64_t size, setun_error *err);

uint64_t st_vk_aligned(uint64_t bytes); // to what pieces and borrowed codes are aligned to
void st_vk_note_borrowed(st_device *device, uint64_t bytes);

// ---- pipelines.c --------------------------------------------------------------------------------------------------

// `folder`: of the file with compiled pipelines, one for each device and version of a driver; NULL: none.
setun_status st_vk_pipelines_open(st_device *device, const char *folder, setun_error *err);
void st_vk_pipelines_close(st_device *device);
// Invocations of a workgroup: as wanted, or a subgroup where that is wider.
uint32_t st_vk_local(const st_device *device, uint32_t wanted);
VkResult st_vk_pipeline_get(st_device *device, st_vk_shader shader, const st_vk_special *special, VkPipeline *pipeline);

// ---- recording.c --------------------------------------------------------------------------------------------------

// Add a command to a log. False: out of memory.
bool st_vk_log_dispatch(st_vk_log *log, VkPipeline pipeline, st_vk_groups groups, const void *push, uint32_t bytes);
bool st_vk_log_barrier(st_vk_log *log, VkPipelineStageFlags to, VkAccessFlags access);
bool st_vk_log_copy(st_vk_log *log, VkBuffer from, VkBuffer to, const VkBufferCopy *regions, uint32_t count);
bool st_vk_log_clear(st_vk_log *log, VkBuffer buffer);
// The commands of the queue's log: recorded before, or now.
VkResult st_vk_commands(st_queue *queue, VkCommandBuffer *commands);

// ---- queue.c ------------------------------------------------------------------------------------------------------

// Begins an operation: what was held is recorded. False: an earlier one failed, whose error is latched.
bool st_vk_begin(st_queue *queue);
// Host memory that the operation's shaders read, valid until the submission ends; its address is *address. NULL: out of
// memory, latched.
void *st_vk_upload_new(st_queue *queue, uint64_t size, VkDeviceAddress *address);
VkDeviceAddress st_vk_upload_copy(st_queue *queue, const void *bytes, uint64_t size); // 0: out of memory
// Submits what was logged, not empty; `fence` is for its end. Waits for a fence, which is reset.
VkResult st_vk_submit(st_queue *queue, VkFence fence);
VkResult st_vk_wait(const st_queue *queue, const VkFence *fence);
void st_vk_latch_device(st_queue *queue, VkResult result);
bool st_vk_record(st_queue *queue); // begins a log; false: an error is latched
void st_vk_latch(st_queue *queue, setun_status status, const setun_error *error);
// A dispatch of a shader, with push constants.
st_vk_op st_vk_op_of(st_vk_shader shader, const st_vk_special *special, const void *push, size_t bytes,
                     st_vk_groups groups);
void st_vk_op_uses(st_vk_op *op, st_vk_access access);
// Records an operation, or holds it; st_vk_begin was called before.
void st_vk_run(st_queue *queue, const st_vk_op *op);
void st_vk_hold(st_queue *queue, st_vk_holding kind, const st_vk_op *op);
// Waits for what commands other than dispatches depend on; and such a command.
void st_vk_sync(st_queue *queue, const st_vk_access *accesses, uint32_t count);
void st_vk_copy(st_queue *queue, VkBuffer from, VkBuffer to, const VkBufferCopy *regions, uint32_t count);
// Makes a buffer zero; frees it where that cannot be logged.
void st_vk_clear_buffer(st_queue *queue, st_vk_buffer *buffer);
// Memory for shaders whose last workgroup goes on, all zero at first: a count of the workgroups that ended, which is
// zero again after each dispatch, and room for what they tell it. 0: out of memory, latched.
enum { ST_VK_ENDED_GROUPS = 256 };
VkDeviceAddress st_vk_ended(st_queue *queue);
// Grows a buffer of prepared inputs.
bool st_vk_grow(st_queue *queue, st_vk_buffer *buffer, uint64_t size);
// Copies between a buffer and host memory, at once: regions of `bytes` that follow each other in host memory.
setun_status st_vk_copy_out(st_queue *queue, VkBuffer from, const VkBufferCopy *regions, uint32_t count, uint64_t bytes,
                            void *to, setun_error *err);
setun_status st_vk_copy_in(st_queue *queue, VkBuffer to, const VkBufferCopy *regions, uint32_t count, uint64_t bytes,
                           const void *from, setun_error *err);

setun_status st_vk_queue_new(st_device *device, const st_queue_options *options, st_queue **queue, setun_error *err);
void st_vk_queue_free(st_queue *queue);
setun_status st_vk_array_new(st_queue *queue, size_t tokens, size_t width, st_array **array, setun_error *err);
void st_vk_array_free(st_array *array);
setun_status st_vk_finish(st_queue *queue, setun_error *err);
setun_status st_vk_read(st_queue *queue, const st_array *array, uint32_t token, size_t n, float *out, setun_error *err);
setun_status st_vk_write(st_queue *queue, st_array *array, uint32_t token, size_t n, const float *in, setun_error *err);
setun_status st_vk_argmax(st_queue *queue, const st_array *array, uint32_t n, uint32_t width, int32_t *ids,
                          setun_error *err);
setun_status st_vk_top(st_queue *queue, const st_array *array, uint32_t width, uint32_t k, int32_t *ids, float *values,
                       setun_error *err);
bool st_vk_counted(const st_queue *queue, size_t index, st_op_counts *counts);

// ---- stream.c -----------------------------------------------------------------------------------------------------

// Room for so many bytes of borrowed codes, after st_vk_begin: where there is none left, what was logged is submitted,
// and the other buffer taken, once the device has read it. False: latched.
bool st_vk_stream_room(st_queue *queue, uint64_t bytes);
VkDeviceAddress st_vk_stream_copy(st_queue *queue, const void *codes, uint64_t bytes);
// Submits the copy of the arena in use; *waits: what is submitted next must wait until `copied` is `copies`.
VkResult st_vk_stream_send(st_queue *queue, bool *waits);
bool st_vk_stream_used(const st_queue *queue); // whether an arena has codes that the device may still read
// Waits until the device has read all arenas.
VkResult st_vk_stream_empty(st_queue *queue);
void st_vk_stream_free(st_queue *queue);

// ---- matrix.c -----------------------------------------------------------------------------------------------------

st_matrix_info st_vk_matrix_info(const st_device *device, const st_matrix_desc *desc);
setun_status st_vk_matrix_new(st_device *device, const st_matrix_desc *desc, st_dmatrix **matrix, setun_error *err);
setun_status st_vk_matrix_write(st_dmatrix *matrix, const st_matrix_rows *rows, setun_error *err);
void st_vk_matrix_borrow(st_dmatrix *matrix, void *codes);
void st_vk_matrix_free(st_dmatrix *matrix);
uint64_t st_vk_matrix_bytes(const st_dmatrix *matrix);
// values.c: whether a format has the form VALUES; words of a row; what shaders are specialized to; a row's stored bytes
// to words.
bool st_vk_values_of(const st_format *format, st_vk_values *values);
uint64_t st_vk_values_words(const st_vk_values *values, uint64_t columns);
void st_vk_values_special(const st_vk_values *values, st_vk_special *special);
void st_vk_values_pack(const st_vk_values *values, uint32_t columns, const uint8_t *row, uint32_t *out);
// A description of weights that are kept in the form and, for int8, multiplied by such tokens. False: there is none.
bool st_vk_desc_of(st_vk_form form, bool int8, st_matrix_desc *desc);
setun_status st_vk_vector_new(st_device *device, const float *values, size_t n, st_dvector **vector, setun_error *err);
void st_vk_vector_free(st_dvector *vector);
// The address of a matrix's codes. Borrowed ones are copied to where the device reads them, for which there must be
// room for all matrices of an operation. 0: out of memory, latched.
VkDeviceAddress st_vk_matrix_codes(st_queue *queue, const st_dmatrix *matrix);
uint64_t st_vk_matrix_borrows(const st_dmatrix *matrix); // bytes of room

// ---- check.c ------------------------------------------------------------------------------------------------------

// Compare results with the CPU's: what every model needs, attention over a cache, products of weights in a form, which
// may be avoided afterwards. SETUN_ERROR_UNSUPPORTED: the device cannot be used.
setun_status st_vk_check(st_device *device, setun_error *err);
setun_status st_vk_check_cache(st_device *device, setun_kv_type keys, setun_kv_type values, setun_error *err);
setun_status st_vk_check_states(st_device *device, setun_error *err);
setun_status st_vk_check_experts(st_device *device, setun_error *err);
setun_status st_vk_check_form(st_device *device, st_vk_form form, bool int8, setun_error *err);
setun_status st_vk_check_format(st_device *device, const st_format *format, setun_error *err); // in the form VALUES

// ---- operations ---------------------------------------------------------------------------------------------------

void st_vk_embed(st_queue *queue, const st_dmatrix *matrix, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                 uint32_t first);
void st_vk_linear(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                  const st_linear_out *outs, int count);
void st_vk_rmsnorm(st_queue *queue, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                   float eps);
void st_vk_norm_into(st_queue *queue, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                     st_array *dst);
// Adds the sum to the product that is held, which is y; or the gate that is held to the preparation. False: it is
// another.
bool st_vk_add_held(st_queue *queue, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale);
// The two products that are held become a gate's, whose result is dst. False: these are others.
bool st_vk_gate_held(st_queue *queue, uint32_t fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
                     st_array *dst);
void st_vk_rope(st_queue *queue, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst);
void st_vk_clip(st_queue *queue, st_array *x, uint32_t n, uint32_t width, float limit);
uint32_t st_vk_gate_of(st_activation_fn fn); // see shaders/glu.glsl
void st_vk_glu(st_queue *queue, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n,
               uint32_t width, st_array *dst);
void st_vk_gather(st_queue *queue, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width,
                  st_array *dst);
void st_vk_scatter_add(st_queue *queue, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                       uint32_t width, const st_array *y);
void st_vk_clear(st_queue *queue, st_array *x, uint32_t n, uint32_t width);
void st_vk_add(st_queue *queue, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale);
void st_vk_copy_columns(st_queue *queue, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst);

// A sum of experts' outputs: of tokens [first, first + n) of x and their choices; y has a row for each choice.
typedef struct st_vk_sum {
  st_array *x;
  const st_array *chosen, *y;
  uint32_t first, n, used, width;
  VkDeviceAddress rows; // of the plan: the rows of choices in y; 0: they are in order
  bool alone;           // x has the sum alone
} st_vk_sum;
void st_vk_sum_chosen(st_queue *queue, const st_vk_sum *sum);
// dst[i] = x[first + tokens[i]] for n tokens that the plan lists.
void st_vk_gather_planned(st_queue *queue, const st_array *x, uint32_t first, VkDeviceAddress tokens, uint32_t n,
                          uint32_t width, st_array *dst);
// linear.c: whether experts with these matrices can be in one list of products; and such products, of n tokens of x
// from `first` on.
typedef struct st_vk_planned {
  VkDeviceAddress records; // a piece each, or two with a gate
  uint32_t pieces, tile;   // tile: most tokens of a piece
  uint32_t gate;           // what is made of both, as shaders/glu.glsl has it; 0: nothing
} st_vk_planned;
enum { ST_VK_RECORD = 80 }; // bytes of an `output` of linear.c, which experts.comp writes too
bool st_vk_are_alike(const st_device *device, const st_dmatrix *a, const st_dmatrix *b);
void st_vk_multiply_planned(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_dmatrix *like,
                            const st_vk_planned *list, st_vk_op *op);
setun_status st_vk_experts_new(st_device *device, const st_expert_weights *list, uint32_t n, st_dexperts **experts,
                               setun_error *err);
void st_vk_experts_free(st_dexperts *experts);
void st_vk_experts(st_queue *queue, const st_experts_args *args);
void st_vk_route(st_queue *queue, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen);
void st_vk_add_chosen(st_queue *queue, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                      const st_array *y);

void st_vk_hadamard(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *args,
                    st_array *dst);
void st_vk_reorder(st_queue *queue, const st_array *x, uint32_t first, uint32_t n, uint32_t width,
                   const uint32_t *order, st_array *dst);

uint64_t st_vk_state_size(const st_state_shape *shape);
uint64_t st_vk_states_size(const st_state_shape *shape);
setun_status st_vk_states_new(st_queue *queue, const st_state_shape *shape, st_states **states, setun_error *err);
void st_vk_states_free(st_states *states);
void st_vk_convolve(st_queue *queue, st_states *states, uint32_t layer, const st_batch *batch, const st_array *x,
                    const st_dvector *taps, st_array *dst);
void st_vk_delta(st_queue *queue, st_states *states, const st_batch *batch, const st_delta_args *args);
setun_status st_vk_state_save(st_queue *queue, const st_states *states, uint32_t slot, void *bytes, setun_error *err);
setun_status st_vk_state_restore(st_queue *queue, st_states *states, uint32_t slot, const void *bytes,
                                 setun_error *err);

uint64_t st_vk_cache_size(const st_device *device, const st_cache_shape *shape, int threads);
uint64_t st_vk_cache_page_size(const st_cache_shape *shape);
// The first word of the page with a position.
uint32_t st_vk_cache_page(const st_cache *cache, const st_token_run *run, uint32_t layer, uint32_t position);
size_t st_vk_cache_row_size(setun_kv_type type, bool keys, uint32_t head_dim);
const char *st_vk_cache_format_name(setun_kv_type type);
setun_status st_vk_cache_new(st_queue *queue, const st_cache_shape *shape, st_cache **cache, setun_error *err);
void st_vk_cache_free(st_cache *cache);
void st_vk_cache_write(st_queue *queue, st_cache *cache, uint32_t layer, const st_batch *batch, st_array *k,
                       st_array *v);
void st_vk_cache_copy_page(st_queue *queue, st_cache *cache, uint32_t from, uint32_t to);
void st_vk_attend(st_queue *queue, const st_cache *cache, const st_batch *batch, const st_attend_args *args);
setun_status st_vk_cache_save(st_queue *queue, const st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                              void *keys, void *values, setun_error *err);
setun_status st_vk_cache_restore(st_queue *queue, st_cache *cache, uint32_t page, uint32_t head, uint32_t n,
                                 const void *keys, const void *values, setun_error *err);

#endif
