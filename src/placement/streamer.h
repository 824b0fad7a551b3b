// Weights that are not resident: read for a layer while it runs, through the ring (source/stream.h), where they are
// used as they are, or converted to the device's order first; experts through their cache (expert_cache.h); or, where
// the model's file is mapped, used in place.
//
// One pass at a time: passes of several sessions of a model wait for one another.
#ifndef SETUN_PLACEMENT_STREAMER_H
#define SETUN_PLACEMENT_STREAMER_H

#include "base/pool.h"
#include "model/model.h"
#include "placement/expert_cache.h"

typedef struct st_streamer st_streamer;

// A streamer for what the plan does not make resident; *streamer stays NULL where everything is resident. All arguments
// must outlive it; after success it owns the pool. Freed with st_streamer_free, which accepts NULL.
setun_status st_streamer_new(const st_model *model, const st_memory_plan *plan, const st_directory *directory,
                             st_pool *pool, const st_prefetch_options *prefetch, const st_log *log,
                             st_streamer **streamer, setun_error *err);
// Adds a matrix made without codes; `item` is its item in the plan. Reads its separate scales.
setun_status st_streamer_add(st_streamer *streamer, const st_memory_item *item, const st_weight *weight,
                             const st_format *format, st_dmatrix *matrix, setun_error *err);
// Adds an embedding that is not resident.
setun_status st_streamer_add_rows(st_streamer *streamer, const st_weight *weight, const st_format *format,
                                  st_precision precision, setun_error *err);
// Called after the last matrix: reading may begin.
setun_status st_streamer_open(st_streamer *streamer, setun_error *err);
void st_streamer_free(st_streamer *streamer);

// The experts that the cache has, in a file, see expert_state.h; SETUN_ERROR_STATE without a cache.
setun_status st_streamer_save_experts(st_streamer *streamer, const char *path, setun_error *err);
// Before the first pass; does nothing without a cache.
setun_status st_streamer_load_experts(st_streamer *streamer, const char *path, setun_error *err);

// The interface that passes call; lives as long as the streamer.
const st_supply *st_streamer_supply(st_streamer *streamer);

// Statistics so far: bytes read, reading time, how long passes waited, and their total time.
typedef struct st_streamer_stats {
  st_stream_stats read;
  double passes_s, packed_s;
  uint64_t expert_hits, expert_misses; // experts that layers needed: in the cache, and not in it
  const char *expert_rule;             // see st_expert_stats; NULL: experts are not cached
  uint64_t deltas, delta_bytes;        // the same
  uint64_t prefetched, prefetch_hits, experts_in_turn;
  double recall[ST_PREFETCH_DISTANCES];
  st_prefetch_effect effect;
} st_streamer_stats;
st_streamer_stats st_streamer_get_stats(const st_streamer *streamer);
// The experts of one layer; unchanged without a cache.
void st_streamer_count_experts(const st_streamer *streamer, uint32_t layer, uint64_t *hits, uint64_t *misses);

// The disk's own speed: reads about `total_bytes` of the units into the ring and does nothing with them. Waits for a
// running pass.
setun_status st_streamer_measure(st_streamer *streamer, uint64_t total_bytes, double *bytes_per_s, setun_error *err);

#endif
