// Bound weights: a family's roles with the tensors that hold them. One walk makes the list; the memory plan, loading,
// streaming and conversion use it.
#ifndef SETUN_PLACEMENT_BINDING_H
#define SETUN_PLACEMENT_BINDING_H

#include "model/arch.h"
#include "source/weight.h"

// One matrix or vector of the model. A stack of experts is one item per expert.
typedef struct st_bound {
  st_role role;
  int32_t layer;    // -1: the model
  int32_t expert;   // -1: none
  bool stacked;     // one expert in a tensor of all
  bool guessed;     // floats whose first rows are ternary: see st_bound_finalize
  st_weight weight; // its shape, format, tensors and scales
  bool rotated;     // its inputs are in a rotated basis, or, for the embedding, its rows
  uint32_t bias;    // the module's bias: 1 + its index in the list's `beside`; 0: none
  uint32_t norm;    // the norm of the matrix's input, the same
} st_bound;

typedef struct st_bound_list {
  const st_directory *directory;
  const st_spec *spec;
  const st_hparams *h;
  st_bound *items; // the model's, then layer by layer in the order of roles, each expert's gate, up and down together
  size_t n, capacity;
  st_weight *beside; // biases and norms of modules: one row or, where elements are not contiguous, one column
  size_t n_beside, beside_capacity;
  size_t embedding, head; // indices of items; equal where the head is the embedding
  bool *used;             // by tensor index
} st_bound_list;

// Binds all tensors. Errors name missing tensors, those with a wrong shape, those that a model of the family does not
// use, and parts that only some layers have. Reads no weights except a few rows of each float matrix in models with
// int8 activations, which may be ternary, and a separate head of a tied embedding: if the two differ, h->tied becomes
// false, with a notice. The directory, the spec and the parameters must outlive the list, which is freed with
// st_bound_list_free, also after a failure.
setun_status st_bind(const st_directory *directory, const st_spec *spec, st_hparams *h, st_bound_list *list,
                     setun_error *err);
void st_bound_list_free(st_bound_list *list);

// Determines what is known only after reading all of the weight: whether it is ternary, and the scale of latent floats.
setun_status st_bound_finalize(const st_bound_list *list, st_bound *bound, setun_error *err);

// The weight as stored, without assuming trits.
static inline st_weight st_bound_stored(const st_bound *b) {
  st_weight w = b->weight;
  if (b->guessed) w.latent = false;
  if (b->guessed) w.latent_scale = 0;
  return w;
}

// Writes to `out` the name of a row of a family's table in the directory, for a layer and an expert; NULL when the row
// does not apply to the container.
const char *st_bound_name(const st_directory *directory, const st_spec *spec, const st_binding *row, uint32_t layer,
                          uint32_t expert, char out[ST_NAME_SIZE]);

#endif
