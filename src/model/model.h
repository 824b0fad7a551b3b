// A loaded model: parameters and weights on a device. Immutable once loaded.
#ifndef SETUN_MODEL_MODEL_H
#define SETUN_MODEL_MODEL_H

#include "model/arch.h"
#include "model/lora.h"
#include "model/supply.h"

// The basis of the inputs of matrices that are so wide: W x = W' (H (signs * x)), H in blocks; or their order: W' has
// column order[i] of W as its column i.
typedef struct st_basis st_basis;
struct st_basis {
  uint32_t width, block;
  st_dvector *signs; // [width]; NULL: all are +1
  uint32_t *order;   // [width] of the host's memory; NULL: it is a rotation
  st_basis *next;    // of the model's
};

typedef struct st_linear {
  st_dmatrix *matrix;    // [rows, columns], the role's shape; NULL: the model has none
  st_dvector *bias;      // [rows]; NULL: none
  st_dvector *norm;      // [columns] norm of the input, after the block's (BitNet's use_rms_norm); NULL: none
  const st_basis *basis; // the model's, of the input, and of an embedding's rows; NULL: not rotated
  uint32_t number;       // its index in st_lora.pairs; 0: none
  uint32_t columns;      // the matrix's
  uint32_t first_row;    // for a piece of a matrix: its first row in the whole
} st_linear;

// One expert of one layer, the unit of placement.
typedef struct st_expert {
  st_linear gate, up, down;
} st_expert;

typedef struct st_layer {
  st_linear linear[ST_ROLE_COUNT];   // by role; those of matrices
  st_dvector *vector[ST_ROLE_COUNT]; // by role; vectors, of this many floats each:
  uint32_t width[ST_ROLE_COUNT];     // q and k norms have head_dim, or the full width
  st_expert *experts;                // [n_expert]; NULL: a dense layer
} st_layer;

enum { ST_LORA_HEAD = 1 };

typedef struct st_model {
  const st_backend *backend;
  st_device *device;
  const st_spec *spec;
  st_hparams h;
  // output.matrix may be token_embd.matrix. A streamed head has no matrix but pieces, each with its own; an embedding
  // that is not resident has none either, and the supply reads its rows. Both are [n_vocab, n_embd].
  st_linear token_embd, output;
  st_linear *head; // [n_head] pieces, each [rows of a piece, n_embd]
  uint32_t n_head;
  st_dvector *output_norm;          // [n_embd]
  st_linear dense[ST_DENSE_MOST];   // for embeddings
  float *rope_divisors;             // [n_rot / 2]; NULL: none
  st_layer *layers;                 // [n_layer]
  const st_supply *supply;          // reads weights that are not resident; NULL: all are. Must outlive the model's use
  uint32_t n_batch;                 // the largest batch within the memory plan; 0: any
  st_lora *lora;                    // the adapters loaded with it; NULL: none
  uint32_t n_linear;                // its matrices' indices are below this; the head's is ST_LORA_HEAD
  uint32_t max_rank, max_lora_rows; // most rows of an adapted matrix in the layers; 0: none
  bool lora_head;                   // the head is adapted
  bool fast;                        // some quantized weights take int8 activations by block
  uint32_t max_normed_columns;      // of all matrices whose inputs are normed by themselves; 0: there are none
  st_basis *bases;                  // the last that was made first; NULL: there are none
  uint32_t max_rotated_columns;     // of all matrices with inputs in another basis; 0: there are none
  uint64_t identity;                // a hash of all tensors' names, shapes and some of their bytes, without adapters
  setun_experts_fn on_experts;      // NULL: not needed
  void *experts_user;
  uint64_t n_params, weight_bytes, bytes_per_token, macs_per_token, head_macs, float_macs;
} st_model;

// The member for a role's matrix, vector, or table of divisors, in a layer (< 0: the model) and an expert (< 0: none);
// NULL: the role has none. The model's layers and experts are allocated already.
st_linear *st_model_linear(st_model *model, st_role role, int32_t layer, int32_t expert);
st_dvector **st_model_vector(st_model *model, st_role role, int32_t layer);
float **st_model_table(st_model *model, st_role role);

// Frees the model, its device and everything on it.
void st_model_free(st_model *model);

#endif
