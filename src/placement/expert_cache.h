// A cache of experts that are not resident, keyed by layer and expert, with as many slots as the memory plan has room
// for. The experts of a layer that a pass needs and the cache lacks are read together, without the page cache, and are
// passed on as they arrive; an expert stays until the pass has used it. expert_policy.h decides which one is evicted.
//
// An expert's matrices - gate, up and down - are read as one record. Records whose matrices are stored in the device's
// order are used where they were read; others are read into one of a few further buffers and converted into the slot.
//
// Where the file has differences between experts (source/expert_deltas.h), an expert is made from another one that the
// cache has, with fewer bytes to read; otherwise it is read as a whole.
//
// One thread at a time: that of the pass. Any thread may ask for the statistics.
#ifndef SETUN_PLACEMENT_EXPERT_CACHE_H
#define SETUN_PLACEMENT_EXPERT_CACHE_H

#include "base/pool.h"
#include "model/model.h"
#include "placement/expert_prefetch.h"
#include "placement/memory_plan.h"

typedef struct st_expert_cache st_expert_cache;

// A cache as planned. All arguments must outlive it. Freed with st_expert_cache_free, which accepts NULL.
setun_status st_expert_cache_new(const st_model *model, const st_memory_plan *plan, const st_directory *directory,
                                 st_pool *pool, const st_prefetch_options *prefetch, const st_log *log,
                                 st_expert_cache **cache, setun_error *err);
// Adds a matrix of an expert, which was made without codes; `item` is the matrix's own in the plan. The matrices of an
// expert are added one after the other. Its scales have been read if the item is direct.
setun_status st_expert_cache_add(st_expert_cache *cache, const st_memory_item *item, const st_weight *weight,
                                 const st_format *format, st_dmatrix *matrix, setun_error *err);
// After the last matrix: reading may begin.
setun_status st_expert_cache_open(st_expert_cache *cache, setun_error *err);
void st_expert_cache_free(st_expert_cache *cache);

// Called by a pass, see st_supply. `end`: the pass is over, whether it used all experts or not.
setun_status st_expert_cache_want(st_expert_cache *cache, const st_expert_demand *demand, setun_error *err);
setun_status st_expert_cache_next(st_expert_cache *cache, bool in_order, uint32_t *places, uint32_t *n,
                                  setun_error *err);
void st_expert_cache_done(st_expert_cache *cache);
uint32_t st_expert_cache_ahead(const st_expert_cache *cache);
void st_expert_cache_expect(st_expert_cache *cache, uint32_t layer, uint32_t distance, const uint32_t *experts,
                            uint32_t n);
void st_expert_cache_end(st_expert_cache *cache);
void st_expert_cache_poll(st_expert_cache *cache);

// The experts in the cache, as layer * n_expert + expert, those that would be evicted last first; returns their
// number. `experts` has room for all experts of the model. No pass may be running.
size_t st_expert_cache_list(const st_expert_cache *cache, uint32_t *experts);
// Reads the experts of such a list, as many as there are empty slots for; those that the model does not have, and those
// already in the cache, are skipped.
setun_status st_expert_cache_warm(st_expert_cache *cache, const uint32_t *experts, size_t n, setun_error *err);

// Reads about `total_bytes` of experts one after the other without using them, to measure the disk's own speed. Some
// cached experts are lost.
setun_status st_expert_cache_measure(st_expert_cache *cache, uint64_t total_bytes, uint64_t *read, setun_error *err);

typedef struct st_expert_stats {
  st_stream_stats read;
  uint64_t hits, misses;                // experts that passes needed in layers: in the cache, and not in it
  uint64_t deltas, delta_bytes;         // experts made from others, and the bytes read for them
  uint64_t prefetched, prefetch_hits;   // read before a layer needed them; those of `hits` that were
  uint64_t in_turn;                     // read before a layer needed them because the layer before used nearly all
  double recall[ST_PREFETCH_DISTANCES]; // see st_expert_prefetch_recall
  st_prefetch_effect effect;
  double packed_s;  // time for converting matrices to the device's order
  const char *rule; // see st_expert_rule_name
} st_expert_stats;
st_expert_stats st_expert_cache_get_stats(const st_expert_cache *cache);
// The hits and misses of one layer.
void st_expert_cache_count_layer(const st_expert_cache *cache, uint32_t layer, uint64_t *hits, uint64_t *misses);

#endif
