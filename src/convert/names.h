// Between names of tensors and what they are for, in both containers, by the families' binding tables; and the order in
// which a model uses its tensors.
#ifndef SETUN_CONVERT_NAMES_H
#define SETUN_CONVERT_NAMES_H

#include "model/arch.h"

enum { ST_USE_NAME = 320 };

// Where in a model a module belongs.
typedef struct st_tensor_use {
  bool known;     // a binding has this name
  st_role role;   // ST_ROLE_COUNT where it is not known
  bool in_layer;  // known, or at least named "blk.N."
  uint32_t layer; // with in_layer
  bool expert_of; // of one expert or, stacked, of all
  bool stacked;
  uint32_t expert; // neither stacked nor without experts: which one
} st_tensor_use;

// Finds the place of a module (a tensor's name without ".weight") in a family's table, or in all of them when `spec` is
// NULL. A name that no table has gives a place that is not known.
st_tensor_use st_use_of(const st_spec *spec, bool gguf, const char *module);
// The module's name for a role in a family's table (NULL: in any); `place->stacked` chooses between the two ways of
// experts. False: the container has no name for it.
bool st_use_name(const st_spec *spec, bool gguf, const st_tensor_use *place, char name[ST_USE_NAME]);
// The order of use: embedding, layers, each expert's gate, up and down together, last norm and head. Places that are
// not known come after their layer's known ones, or before everything's end. 0 when neither goes first.
int st_use_compare(const st_tensor_use *a, const st_tensor_use *b);

// Matrices of a layer that BitNet training makes ternary (not the routers).
bool st_role_is_linear(st_role role);

#endif
