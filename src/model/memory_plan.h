// The plan: what of a model is held in memory and what is read again for each pass, so that everything together stays
// within a budget. Made from the directory alone, before any weight is read; loading then follows it item by item.
//
// Held first: vectors, the head and the embedding, whose rows every token needs; then attention's matrices, a layer
// after the other, then the MLPs' (or experts'), spread evenly over the layers, so that each layer leaves as much to be
// read while it computes as the next one. What is left streams through a ring of two units, a unit being what one layer
// has not got.
#ifndef SETUN_MODEL_MEMORY_PLAN_H
#define SETUN_MODEL_MEMORY_PLAN_H

#include "format/directory.h"
#include "model/hparams.h"
#include "source/stream.h"

enum {
  ST_RING_SLOTS = 2,
  ST_ITEM_TENSORS = 2,
  ST_PLAN_RESERVE = 16 << 20 // of the budget, for what the system counts beside: page tables, the program's files
};

// A matrix, in the order in which loading comes to it.
typedef struct st_plan_item {
  int32_t layer;                             // -1: of the whole model, and always held
  bool attention;                            // otherwise the MLP's or an expert's
  const st_tensor *tensors[ST_ITEM_TENSORS]; // that hold its codes; NULL behind the last
  bool shared[ST_ITEM_TENSORS];              // an item before this one has the tensor too: experts in one stack
  uint64_t codes, own, beside; // bytes in memory: of codes that stream, of those that are held, and of what is
                               // held in any case
  bool direct;                 // stored as the device computes with it
  bool held;
} st_plan_item;

typedef struct st_memory_plan {
  st_plan_item *items;
  size_t n_items, capacity;
  uint32_t n_layer, n_ctx, n_batch;
  bool mapped; // what is stored as the device wants it is used where the file is mapped, outside of
               // the budget

  const uint32_t *held_parts; // hold so many attentions and MLPs, whatever the budget; NULL: no

  // Bytes.
  uint64_t budget;                  // 0: none is known
  uint64_t process;                 // what the process had when the plan was made
  uint64_t vectors;                 // norms, biases, scales, adapters
  uint64_t cache;                   // keys and values, and attention's scratch
  uint64_t work;                    // activations and tables of a session; or what loading needs, where that is more
  uint64_t held;                    // codes of held matrices
  uint64_t rounding;                // huge pages that these do not fill
  uint64_t ring;                    // buffers that the others are read into
  uint64_t packed;                  // and, where they are stored in another order, are put into the device's
  uint64_t streamed;                // of the file, read for each pass
  uint64_t least;                   // the smallest budget that would do
  uint64_t token_bytes, token_macs; // that the decoding of a token reads in memory, and computes
  uint64_t all;                     // codes of all matrices
} st_memory_plan;

static inline uint64_t st_memory_plan_total(const st_memory_plan *p) {
  return p->process + p->vectors + p->cache + p->work + p->held + p->rounding + p->ring + p->packed;
}

// Appends an item; `shared` and `held` are the plan's to set. False when out of memory.
bool st_memory_plan_add(st_memory_plan *plan, const st_plan_item *item);

// Decides what is held, once all items and the fields above `held` are there. SETUN_ERROR_MEMORY when the budget is
// below the least, which the message names.
setun_status st_memory_plan_decide(st_memory_plan *plan, const st_directory *directory, setun_error *err);

// What a layer has to be read for: ranges of the files, without repetition, in order; freed with st_free.
setun_status st_memory_plan_unit(const st_memory_plan *plan, const st_directory *directory, uint32_t layer,
                                 st_stream_range **ranges, size_t *n, setun_error *err);

void st_memory_plan_free(st_memory_plan *plan);

#endif
