// A loaded model: parameters and weights on a device. Immutable once loaded.
#ifndef SETUN_MODEL_MODEL_H
#define SETUN_MODEL_MODEL_H

#include "base/pool.h"
#include "model/arch.h"
#include "model/memory_plan.h"

typedef struct st_linear {
  st_dmatrix *matrix; // NULL: the model has none
  st_dvector *bias;   // NULL: none
  st_dvector *norm;   // of the input, after the block's own (BitNet's use_rms_norm); NULL: none
  // Adapters of this matrix, all together: y += lora_b (lora_a x). Float32 [rank, columns] and [rows, rank]; NULL:
  // none.
  st_dmatrix *lora_a, *lora_b;
  uint32_t rank, rows;
  uint32_t columns;   // of the matrix, unless it is an expert of a stack
  uint32_t first_row; // of a piece of a matrix: its place among the rows of the whole
} st_linear;

// One expert of one layer: the unit in which experts are held.
typedef struct st_expert {
  st_linear gate, up, down;
} st_expert;

typedef struct st_layer {
  st_linear linear[ST_ROLE_COUNT]; // by role; those of matrices
  st_dvector *vector[ST_ROLE_COUNT];
  st_expert *experts;                  // [n_expert]; NULL: a dense layer
  uint32_t q_norm_width, k_norm_width; // head_dim, or the full width
} st_layer;

typedef struct st_model {
  const st_backend *backend;
  st_device *device;
  const st_spec *spec;
  st_hparams h;
  // output.matrix may be token_embd.matrix. A head that streams has no matrix, but pieces, which own theirs alone; an
  // embedding that is not held has none either, and its rows are read one by one.
  st_linear token_embd, output;
  st_linear *head; // [n_head]
  uint32_t n_head;
  struct st_row_copy *rows; // of the embedding; NULL: it is held
  st_dvector *output_norm;
  float *rope_divisors; // [head_dim / 2]; NULL: none
  st_layer *layers;
  uint32_t max_rank, max_lora_rows; // of all adapted matrices; 0: there are none
  bool fast;                        // some quantized weights take int8 activations by block
  uint32_t max_normed_columns;      // of all matrices with norms of their own; 0: there are none
  uint64_t identity;                // a hash of all tensors' names, shapes and some of their bytes
  struct st_streamer *streamer;     // what brings the weights that are not held; NULL: all are
  st_memory_plan plan;              // what loading followed
  uint64_t n_params, weight_bytes, bytes_per_token, macs_per_token, head_macs;
} st_model;

typedef struct st_model_options {
  const st_backend *backend;
  const char *isa, *activation; // see setun_model_params; NULL: by default
  bool precise;
  int threads;
  setun_progress_fn progress;
  void *user;
  const st_log *log;
  const setun_adapter *adapters;
  size_t n_adapters;
  const setun_session_params *session; // that room is left for; NULL: one with defaults
  uint64_t memory;                     // the budget in bytes; 0: what is available, less a margin
  bool mapped;                         // the file is mapped, not read, where the device takes its bytes as they are
  const uint32_t *held_parts;          // for tests: hold so many attentions and MLPs, whatever the budget; NULL: no
} st_model_options;

// Makes the plan that loading would follow: reads the directory, no weights. The parts of *info that come from the
// parameters are set too. Errors: those of loading as far as they are seen without reading weights, and
// SETUN_ERROR_MEMORY where the budget is too small (*plan then holds `least` all the same). Freed with
// st_memory_plan_free.
setun_status st_model_plan(const st_directory *directory, const st_model_options *options, st_memory_plan *plan,
                           setun_error *err);

// Reads the parameters, binds every tensor to its role - missing, unexpected and wrongly shaped ones are errors that
// name them - makes the plan and places the weights by it. Where weights stream (model->streamer) the directory must
// outlive the model. Freed with st_model_free.
setun_status st_model_load(const st_directory *directory, const st_model_options *options, st_model **model,
                           setun_error *err);
void st_model_free(st_model *model);

#endif
