// Maps tensor names to roles and back, in both containers, by the families' binding tables; and the order in which a
// model uses its tensors.
#ifndef SETUN_CONVERT_NAMES_H
#define SETUN_CONVERT_NAMES_H

#include "model/arch.h"

enum { ST_USE_NAME = 320 };

// A module's place in a model.
typedef struct st_tensor_use {
  bool known;     // some binding has this name
  st_role role;   // ST_ROLE_COUNT if unknown
  bool in_layer;  // known, or named "blk.N."
  uint32_t layer; // if in_layer
  bool expert_of; // of one expert or, stacked, of all
  bool stacked;
  uint32_t expert; // which expert, if not stacked
} st_tensor_use;

// Finds the place of a module (a tensor's name without ".weight") in a family's table, or in all of them when `spec` is
// NULL. Names in no table have a place that is not known.
st_tensor_use st_use_of(const st_spec *spec, bool gguf, const char *module);
// The module's name for a role in a family's table (NULL: in any); `place->stacked` chooses between stacked and single
// experts. False: the container has no name for it.
bool st_use_name(const st_spec *spec, bool gguf, const st_tensor_use *place, char name[ST_USE_NAME]);
// The order of use: embedding, layers, each expert's gate, up and down together, last norm and head. Unknown places
// come after their layer's known ones, or last of all. 0: equal.
int st_use_compare(const st_tensor_use *a, const st_tensor_use *b);

// Whether BitNet training makes a matrix of a layer ternary (routers are not).
bool st_role_is_linear(st_role role);

#endif
