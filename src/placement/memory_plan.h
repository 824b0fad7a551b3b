// The memory plan: which weights are resident and which are read again for each pass, so that the total stays within a
// budget. Made from the bound weights, before any are read; loading follows it.
//
// Weights become resident in this order: vectors; the head, which a prompt needs last; attention's matrices, layer
// by layer; the MLPs' matrices (in layers with experts, those that are not an expert's), spread evenly over the layers,
// so that about as much remains to be read for each layer. Then a cache of as many experts as there is room for, at
// least those that one token uses in one layer. The embedding last, since a token needs only one row of it. The other
// weights of layers stream through a ring of two units; a unit is what is not resident of one layer, or a piece of the
// head. The rows of an embedding that is not resident are read one by one.
#ifndef SETUN_PLACEMENT_MEMORY_PLAN_H
#define SETUN_PLACEMENT_MEMORY_PLAN_H

#include "placement/binding.h"
#include "source/expert_deltas.h"
#include "source/stream.h"

enum {
  ST_RING_SLOTS = 2,
  ST_ITEM_TENSORS = 3,
  ST_DELTA_BUFFERS = 8, // differences between experts that are read at a time
  ST_MEMORY_RESERVE =
      16 << 20 // part of the budget for what the system counts in addition: page tables, the program's files
};

// A bound matrix, or a piece of the head, with its memory needs.
typedef struct st_memory_item {
  uint32_t weight; // index in the list of bound weights
  int32_t layer;   // n_layer and above: a piece of the head; -1: the whole model, resident unless `rows`
  int32_t expert;  // of the layer; -1: of none
  bool attention;  // otherwise an MLP or expert
  bool rows;       // the embedding: rows can be read one by one
  const st_tensor *tensors[ST_ITEM_TENSORS]; // that hold its codes; NULL after the last
  uint64_t offset[ST_ITEM_TENSORS],
      bytes[ST_ITEM_TENSORS];   // of a part: where in the tensor it lies; bytes 0: all of it
  bool shared[ST_ITEM_TENSORS]; // an earlier item has the same bytes of the tensor: gate and up in one
  uint64_t codes, own, beside;  // bytes in memory: of streamed codes, of resident ones, and of what is
                                // always resident
  uint64_t copying;             // memory needed while converting it to the device's order
  bool direct;                  // stored in the device's own order
  bool resident;
} st_memory_item;

// The items of a bound weight: none for a vector, one for a matrix, one per piece for the head.
typedef struct st_item_span {
  uint32_t first, count;
} st_item_span;

// A possible batch size, with the bytes of activations and tables, of the cache, and of the cache's pages, which grow
// with the batch in layers with a window.
typedef struct st_batch_choice {
  uint32_t n_batch;
  uint64_t session, cache, pages;
} st_batch_choice;
enum { ST_BATCHES = 5 };

// Experts that are not resident, but in a cache.
typedef struct st_expert_plan {
  uint32_t n, n_layers, used; // experts of all layers, layers that have some, and those of a token in a layer
  bool direct;                // all of them are stored as the device computes with them
  // A matrix that takes another number of bytes than that of the first expert of its layer, which is an error where
  // experts are not resident; NULL: there is none. Layers may differ: slots are as large as the largest.
  const st_tensor *unequal, *equal_to;
  uint64_t bytes_found, bytes_expected;
  uint64_t record, codes; // bytes of the largest as it is read, and in the device's order
  uint64_t records;       // bytes of all of them as they are read
  uint32_t n_buffers;     // that are read into, where they are not direct
  uint32_t capacity;      // of the cache; 0: there is none
  // Differences between experts, of which one is read in place of an expert; not used where experts are not direct.
  st_expert_deltas deltas;
  bool with_deltas;       // they are used
  uint64_t delta;         // bytes of the longest as it is read
  const uint32_t *forced; // for tests: the capacity, whatever the budget; NULL: by the budget
} st_expert_plan;

// Bytes that are read for the experts of one token, if the cache has none of them; 0: experts are not cached.
static inline uint64_t st_expert_token_bytes(const st_expert_plan *e) {
  return e->capacity ? e->records / e->n * e->used * e->n_layers : 0;
}

typedef struct st_memory_plan {
  st_item_span *spans; // by bound weight
  st_memory_item *items;
  size_t n_items, capacity;
  uint32_t n_layer, n_ctx, n_ctx_most;
  uint32_t n_batch;                    // the chosen one
  st_batch_choice batches[ST_BATCHES]; // candidates, the largest first
  uint32_t n_batches;
  // Pieces into which the head can be split, one item each, and the rows of each but the last; 0: one item, always
  // resident. The head is resident or streamed as a whole.
  uint32_t n_pieces;
  size_t first_piece; // of the items
  uint64_t piece_rows;
  bool mapped; // weights stored in the device's order are used in the mapped file, outside
               // the budget

  // Number of attentions and MLPs that are resident regardless of the budget; NULL: by the budget.
  const uint32_t *resident_parts;

  // Bytes.
  uint64_t budget;                  // 0: unknown
  uint64_t device_budget;           // of a device with memory of its own; 0: there is none, or it is unknown
  bool device_owns;                 // there is a device with memory of its own
  uint64_t device_least;            // the smallest sufficient one
  uint64_t device_whole;            // what it would take with all weights resident
  uint64_t process;                 // the process's memory when the plan was made
  uint64_t vectors;                 // norms, biases, scales, adapters
  uint64_t cache;                   // keys and values, and attention's scratch
  uint64_t pages;                   // part of `cache`: keys and values
  uint64_t states;                  // part of `cache`: states of recurrent layers
  uint64_t work;                    // activations and tables of a session, or what loading needs if more
  uint64_t session;                 // part of `work`: activations and tables; with matrices converted in each pass,
                                    // plus the memory for that
  uint64_t row_area;                // memory for reading the embedding's rows
  uint64_t resident;                // codes of resident matrices
  uint64_t rounding;                // unused parts of huge pages
  uint64_t ring;                    // buffers for streamed matrices
  uint64_t copied;                  // the largest codes that a device with memory of its own gets for each pass
  uint64_t packed;                  // and for converting them to the device's order if necessary; and rows
                                    // of the embedding
  uint64_t expert_area;             // the cache of experts
  uint64_t streamed;                // bytes of the files read for each pass; of experts those of one token
  uint64_t stored;                  // bytes of the files for all matrices, counted the same way
  uint64_t rearranged;              // codes converted to the device's order in each pass
  uint64_t least;                   // the smallest sufficient budget, also for another start: whole MiB
  uint64_t token_bytes, token_macs; // read in memory, and computed, for decoding a token
  uint64_t all;                     // codes of all matrices
  st_expert_plan experts;
} st_memory_plan;

static inline uint64_t st_memory_plan_total(const st_memory_plan *p) {
  return p->process + p->vectors + p->cache + p->work + p->resident + p->rounding + p->ring + p->packed +
         p->expert_area;
}

// What a device with memory of its own takes of it, in addition to resident weights, vectors, the cache and
// activations. Weights are in pieces of which the last is not full, and of others a sixteenth at most is unused; two
// buffers have room for four of the largest codes that are copied to them (src/backend/vulkan).
static inline uint64_t st_memory_plan_device_rounding(const st_memory_plan *p) {
  const uint64_t piece = 64 << 20, least = 1 << 20, kept = p->resident + p->vectors;
  return kept / 15 + (kept / 8 < piece ? kept / 8 : piece) + least;
}
static inline uint64_t st_memory_plan_device_buffers(const st_memory_plan *p) {
  return 2 * 4 * p->copied;
}
static inline uint64_t st_memory_plan_device(const st_memory_plan *p) {
  return p->resident + p->vectors + st_memory_plan_device_rounding(p) + st_memory_plan_device_buffers(p) + p->cache +
         p->session;
}

// The default budget: what the process has plus what is available, less a margin for others, since the system's figure
// is an estimate and changes. At least what the process has.
static inline uint64_t st_default_budget(uint64_t process, uint64_t available) {
  uint64_t margin = available / 32 + ((uint64_t)16 << 20);
  return process + (available > margin ? available - margin : 0);
}

// Appends an item; the plan sets `shared` and `resident`. False when out of memory.
bool st_memory_plan_add(st_memory_plan *plan, const st_memory_item *item);

// Decides what is resident, after all items and the fields above `resident` (except `work`) are set. SETUN_ERROR_MEMORY
// when the budget is below the least, which the message names.
setun_status st_memory_plan_decide(st_memory_plan *plan, const st_directory *directory, setun_error *err);

// The layer's unit with nothing of it resident; the largest of all layers.
typedef struct st_unit_size {
  uint64_t stored, packed; // bytes in the ring, and of those that are converted
} st_unit_size;
st_unit_size st_memory_plan_largest(const st_memory_plan *plan);

// The bytes of the item's i-th tensor.
st_stream_range st_memory_item_range(const st_memory_item *item, int i, const st_directory *directory);

// Whether the head streams.
bool st_memory_plan_cut_head(const st_memory_plan *plan);

// The ranges of the files to read for a layer or a piece of the head, in order, without duplicates; freed with st_free.
setun_status st_memory_plan_unit(const st_memory_plan *plan, const st_directory *directory, uint32_t layer,
                                 st_stream_range **ranges, size_t *n, setun_error *err);

void st_memory_plan_free(st_memory_plan *plan);

#endif
