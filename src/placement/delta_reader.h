// Reads the differences between experts (source/expert_deltas.h) for the cache of experts, and applies them to copies
// of experts that it has (nothing is read for an expert in the cache, a delta where the cache has one
// that it can be made from, and otherwise all of it). One thread at a time, that of the cache.
#ifndef SETUN_PLACEMENT_DELTA_READER_H
#define SETUN_PLACEMENT_DELTA_READER_H

#include "base/log.h"
#include "base/pool.h"
#include "source/expert_deltas.h"
#include "source/stream.h"

typedef struct st_delta_reader st_delta_reader;

// How an expert is made from another one. Experts are numbered layer * n_expert + expert.
typedef struct st_delta_link {
  uint32_t base;  // the other expert
  uint32_t delta; // index in the deltas
} st_delta_link;

// All arguments must outlive the reader. Freed with st_delta_reader_free, which accepts NULL.
setun_status st_delta_reader_new(const st_expert_deltas *deltas, const st_directory *directory, uint32_t n_layer,
                                 uint32_t n_expert, const st_log *log, st_delta_reader **reader, setun_error *err);
void st_delta_reader_free(st_delta_reader *r);

// The shortest delta for the expert whose other expert is `present`; NULL: none.
const st_delta_link *st_delta_reader_find(const st_delta_reader *r, uint32_t expert,
                                          bool (*present)(void *context, uint32_t expert), void *context);
// Begins to read the delta; returns a buffer, UINT32_MAX if all are in use.
uint32_t st_delta_reader_begin(st_delta_reader *r, const st_delta_link *link);
bool st_delta_reader_arrived(st_delta_reader *r, uint32_t buffer);
// Cancels the read.
void st_delta_reader_discard(st_delta_reader *r, uint32_t buffer);

// The codes of an expert's matrices gate, up and down.
typedef struct st_delta_codes {
  uint8_t *codes[ST_DELTA_MATRICES];
  size_t bytes[ST_DELTA_MATRICES];
} st_delta_codes;

// Copies the codes; the threads of the pool take a matrix each.
void st_delta_copy(const st_delta_codes *from, const st_delta_codes *to, st_pool *pool);
// Waits for the delta and turns the other expert's codes into this one's, in place. Frees the buffer, also after a
// failure, whose codes are useless: SETUN_ERROR_FORMAT for a delta that does not fit, SETUN_ERROR_IO as for any read.
setun_status st_delta_reader_apply(st_delta_reader *r, uint32_t buffer, const st_delta_link *link, st_delta_codes *to,
                                   st_pool *pool, setun_error *err);

void st_delta_reader_poll(st_delta_reader *r);
st_stream_stats st_delta_reader_stats(const st_delta_reader *r);
// Bytes of the link's delta.
uint64_t st_delta_reader_bytes(const st_delta_reader *r, const st_delta_link *link);

#endif
