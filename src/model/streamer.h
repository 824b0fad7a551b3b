// Weights that are not held: brought for a layer while it runs, from the ring (source/stream.h), where they are used as
// they are or put into the device's order first; or, where the model's file is mapped, used in place.
//
// One pass at a time: passes of several sessions of a model wait for one another.
#ifndef SETUN_MODEL_STREAMER_H
#define SETUN_MODEL_STREAMER_H

#include "backend/backend.h"
#include "base/pool.h"
#include "model/memory_plan.h"
#include "source/weight.h"

typedef struct st_streamer st_streamer;
struct st_model;

// A streamer for what the model's plan does not hold; *streamer stays NULL where it holds everything. `directory` and
// `pool` must outlive it; once it is open the pool is its own. Freed with st_streamer_free, which accepts NULL.
setun_status st_streamer_new(const struct st_model *model, const st_directory *directory, st_pool *pool,
                             const st_log *log, st_streamer **streamer, setun_error *err);
// A matrix that was made without codes; `item` is its own in the plan. Reads the scales that stand beside it.
setun_status st_streamer_add(st_streamer *streamer, const st_plan_item *item, const st_weight *weight,
                             const st_format *format, st_dmatrix *matrix, setun_error *err);
// After the last matrix: reading may begin.
setun_status st_streamer_open(st_streamer *streamer, setun_error *err);
void st_streamer_free(st_streamer *streamer);

// A pass through the layers, or through the head alone, which is then read `heads` times from here on, in this pass or
// in those that follow. All of these do nothing for NULL. `bring` waits for what half of a layer needs (its attention,
// or what follows), or, behind the layers, for a piece of the head; `leave` says that it is done with.
typedef enum st_streamer_part { ST_STREAM_LAYERS, ST_STREAM_HEAD } st_streamer_part;
void st_streamer_begin(st_streamer *streamer, st_streamer_part part, uint32_t heads);
setun_status st_streamer_bring(st_streamer *streamer, uint32_t unit, bool attention, setun_error *err);
void st_streamer_leave(st_streamer *streamer, uint32_t unit);
void st_streamer_end(st_streamer *streamer);

// What was read so far, for how long, how long passes waited for it, and how long they took in all.
typedef struct st_streamer_stats {
  st_stream_stats read;
  double passes_s, packed_s;
} st_streamer_stats;
st_streamer_stats st_streamer_get_stats(const st_streamer *streamer);

// Looks whether reads have ended, so that the statistics know when.
void st_streamer_poll(st_streamer *streamer);

// The disk's own speed: about `total_bytes` of the units read one after the other into the ring, and nothing done with
// them. Waits for a pass that runs.
setun_status st_streamer_measure(st_streamer *streamer, uint64_t total_bytes, double *bytes_per_s, setun_error *err);

#endif
