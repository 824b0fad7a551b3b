// Bound weights: a family's roles, each with the tensors of a directory that hold it. One walk makes the list; the
// memory plan, loading, streaming and conversion read it.
#ifndef SETUN_PLACEMENT_BINDING_H
#define SETUN_PLACEMENT_BINDING_H

#include "model/arch.h"
#include "source/weight.h"

// One matrix or vector of the model. A stack of experts is one for each expert.
typedef struct st_bound {
  st_role role;
  int32_t layer;    // -1: of the model
  int32_t expert;   // -1: of none
  bool stacked;     // one expert of a tensor of all
  bool guessed;     // floats that are ternary as far as their first rows say: see st_bound_finalize
  st_weight weight; // its shape, format, tensors and scales
  bool rotated;     // its inputs are in a rotated basis, or its rows where it is the embedding
  uint32_t bias;    // of the module: 1 + its place in the list's `beside`; 0: none
  uint32_t norm;    // of the matrix's input, likewise
} st_bound;

typedef struct st_bound_list {
  const st_directory *directory;
  const st_spec *spec;
  const st_hparams *h;
  st_bound *items; // of the model, then layer by layer in the order of roles, each expert's gate, up and down together
  size_t n, capacity;
  st_weight *beside; // biases and norms of modules: of one row, or where their elements do not lie together one column
  size_t n_beside, beside_capacity;
  size_t embedding, head; // of the items; the same where the head is the embedding
  bool *used;             // by tensor
} st_bound_list;

// Binds all tensors. Missing ones and those of a wrong shape are errors that name them; so are tensors that nothing in
// a model of the family uses, and parts that only some layers have. Reads no weights but a few rows of each matrix of
// floats in models with int8 activations, which may be ternary, and a head beside a tied embedding: where the two
// differ h->tied becomes false, which is a notice of the directory. The directory, the spec and the parameters must
// outlive the list, which is freed with st_bound_list_free, also after a failure.
setun_status st_bind(const st_directory *directory, const st_spec *spec, st_hparams *h, st_bound_list *list,
                     setun_error *err);
void st_bound_list_free(st_bound_list *list);

// Reads what of the weight is known only when all of it was read: whether it is ternary, and the scale of latent
// floats.
setun_status st_bound_finalize(const st_bound_list *list, st_bound *bound, setun_error *err);

// The weight as it is stored, without the guess.
static inline st_weight st_bound_stored(const st_bound *b) {
  st_weight w = b->weight;
  if (b->guessed) w.latent = false;
  if (b->guessed) w.latent_scale = 0;
  return w;
}

// The name that a row of a family's table has in the directory for a layer and an expert, in `out`; NULL when the row
// does not apply to its container.
const char *st_bound_name(const st_directory *directory, const st_spec *spec, const st_binding *row, uint32_t layer,
                          uint32_t expert, char out[ST_NAME_SIZE]);

#endif
