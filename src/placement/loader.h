// Shared by this folder's files while a model is placed.
#ifndef SETUN_PLACEMENT_LOADER_H
#define SETUN_PLACEMENT_LOADER_H

#include "placement/adapter.h"
#include "placement/placement.h"

typedef struct st_loader {
  const st_directory *d;
  const st_placement_options *o;
  st_model *m;
  st_bound_list *weights;
  st_memory_plan *plan;
  st_adapters *adapters; // NULL: none
  st_streamer *streamer; // NULL: everything is resident
  st_pool *pool;
  int threads; // threads that load
  uint64_t bytes_done, bytes_total;
  setun_error *err;
} st_loader;

// A matrix's format on the device, and how its products are computed.
typedef struct st_placing {
  const st_format *format;
  st_precision precision;
} st_placing;
st_placing st_placing_of(const st_loader *l, const st_bound *bound);
// Creates a matrix of the weight's shape, whose rows come from its tensor.
st_matrix_desc st_placing_desc(const st_placing *how, const st_weight *w, st_ownership ownership);
// Whether its products take int8 activations by block.
bool st_placing_is_fast(const st_placing *how);

// The cost of decoding a token: weight bytes read in memory, and multiply-adds.
typedef struct st_decode_cost {
  uint64_t bytes, macs, float_macs; // float_macs: the part of macs with float32 activations
  uint64_t expert_bytes;            // of all experts in layer `layer`; a token reads some of them
  bool expert_floats;
  int32_t layer;
} st_decode_cost;
// Counts one item, in the list's order, whose matrix takes `bytes` (0 for a vector), and `all` with everything that
// belongs to it.
void st_count_decode(const st_loader *l, size_t index, uint64_t bytes, uint64_t beside, st_decode_cost *cost);
void st_count_decode_end(const st_hparams *h, st_decode_cost *cost);

// Makes the items of the memory plan and plans.
setun_status st_plan_memory(st_loader *l);
// Rows in one piece of the head, the list's item `index`; all rows if it is not split.
st_weight st_head_piece(const st_memory_plan *plan, const st_weight *head, uint32_t piece);

// Places all bound weights according to the plan.
setun_status st_place_weights(st_loader *l);

#endif
