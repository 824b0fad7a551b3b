// What the files that load a model share: load.c binds names to tensors, load_experts.c those of experts, place.c
// copies weights to the device.
#ifndef SETUN_MODEL_LOAD_H
#define SETUN_MODEL_LOAD_H

#include "model/memory_plan.h"
#include "model/model.h"
#include "source/weight.h"

enum { ST_NAME_SIZE = 192 }; // of modules' names; those of the tables are far shorter

typedef struct st_loader {
  const st_directory *d;
  const st_model_options *o;
  st_model *m;
  st_pool *pool;
  bool *used; // by tensor
  uint64_t bytes_done, bytes_total;
  setun_error *err;

  // The plan is made by the same walk over the tables of names as loading takes: `surveying` says which of the two this
  // is. Where the walk stands: the next item of the plan, the layer (-1: none), and whether its attention is meant.
  st_memory_plan *plan;
  bool surveying;
  size_t item;
  int32_t layer;
  bool attention;
  size_t columns[ST_INPUT_KINDS]; // the widest input of a product so far
  int threads;                    // that load
  uint64_t matrix_bytes;          // of the matrix placed last
  uint64_t head_bytes;
  bool is_head, is_embedding; // what the walk is at; a tied embedding is both
  st_weight head;             // while the plan is made: to be cut into pieces when all layers are known
  const st_format *head_format;
  st_precision head_precision;
} st_loader;

// The name that a row of the table has in this container for a layer and an expert, in `out`; NULL when the row does
// not apply to it.
const char *st_binding_name(const st_loader *l, const st_binding *b, uint32_t layer, uint32_t expert,
                            char out[ST_NAME_SIZE]);
// Notes that something uses the weight's tensors.
void st_mark_used(st_loader *l, const st_weight *w);
// The shape that the parameters demand of a role, for experts of one. A q or k norm may also be as wide as all heads.
st_shape st_role_shape(const st_hparams *h, st_role role);

// A vector's floats, one added to each where the file stores norms that way; freed with st_free.
setun_status st_read_vector(st_loader *l, const st_weight *w, bool plus_one, float **out);
// Counts `n` floats that will be placed.
setun_status st_count_floats(st_loader *l, size_t n);
// `n` floats on the device.
setun_status st_place_floats(st_loader *l, const float *values, size_t n, st_dvector **out);
setun_status st_place_vector(st_loader *l, const st_weight *w, bool plus_one, st_dvector **out);
// A matrix on the device. `exact`: products with it take floats, whatever the model prefers.
setun_status st_place_matrix(st_loader *l, const st_weight *w, bool exact, st_dmatrix **out);
// A matrix and, where they are, its bias and the norm of its input.
setun_status st_place_linear(st_loader *l, const char *module, const st_weight *w, bool exact, st_linear *out);

// `pattern` of a table of names with its %u and %e replaced.
void st_fill_name(const char *pattern, uint32_t layer, uint32_t expert, char *out, size_t size);

// Some bytes of each tensor, with its name and shape, go into the model's identity.
setun_status st_identify(st_loader *l, const st_directory *d);
// Reads the options' adapters and puts them beside the matrices that they adapt, which are placed already. An adapter
// of another shape or family than the model, or with a tensor that fits nothing, is an error.
setun_status st_load_adapters(st_loader *l);
// What they will take, for the plan.
setun_status st_survey_adapters(st_loader *l);

// How a matrix is held, and its products computed.
typedef struct st_placing {
  const st_format *format;
  st_precision precision;
} st_placing;

// What copying such a matrix takes while it lasts, all threads together.
uint64_t st_copying(const st_loader *l, const st_weight *w, const st_format *format);

// The head. While the plan is made: notes it, and when all layers are known cuts it into pieces no larger than a
// layer's unit, each an item of the plan, or enters it as one item where its rows do not stand together in the file.
// Then, where it streams, makes its pieces, and when the adapters are there lets them share what stands beside the
// matrix.
setun_status st_plan_head(st_loader *l);
setun_status st_place_head(st_loader *l, const st_weight *w, const st_placing *how);
void st_finish_head(st_model *m);

// The experts of one layer, found and placed.
setun_status st_load_experts(st_loader *l, uint32_t layer);

#endif
