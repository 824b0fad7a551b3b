// A ring of buffers that reads ahead a file's units (such as the weights of a layer), in cyclic order, while the caller
// computes: 0, 1, ..., n - 1, 0, 1, ... The last units may be a tail, which a pass skips or reads several times.
// Exactly `slots` units are in memory; nothing is mapped and the page cache is not changed. Reads bypass the page cache
// (O_DIRECT), with io_uring on the caller's own thread or with pread on two more threads; a method that the system
// refuses is replaced by the next best one, with a notice in the log.
//
// A stream on demand has no order: the caller says which unit is read into which slot, and when.
// One thread at a time may call into a stream; any thread may ask for its statistics meanwhile.
#ifndef SETUN_SOURCE_STREAM_H
#define SETUN_SOURCE_STREAM_H

#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"

typedef struct st_stream st_stream;

typedef struct st_stream_range {
  const st_file *file; // must outlive the stream
  uint64_t offset, bytes;
} st_stream_range;

// The unit of reading, waiting and releasing.
typedef struct st_stream_unit {
  const st_stream_range *ranges; // in any order
  size_t n_ranges;
} st_stream_unit;

// Steps that a test can make fail.
typedef enum st_stream_step {
  ST_STREAM_OPEN_DIRECT,
  ST_STREAM_URING,    // making the ring
  ST_STREAM_REGISTER, // its buffers
  ST_STREAM_ENTER     // each entry into the kernel: after EAGAIN and EBUSY it is repeated, up to 2000 times in a row
} st_stream_step;

// Fault injection for tests. Both functions may be called on any thread of the stream, concurrently; either may be
// NULL.
typedef struct st_stream_faults {
  void *user;
  int (*refuse)(void *user, st_stream_step step); // the errno with which the step fails, or 0
  // Receives the result of a read of `n` bytes at `to`, a count or -errno, and returns the result to use.
  int64_t (*result)(void *user, bool direct, uint8_t *to, size_t n, int64_t result);
} st_stream_faults;

typedef struct st_stream_options {
  int slots;                      // units in memory at once: 2 to 64; on demand any number
  bool on_demand;                 // units are asked for one by one (st_stream_fetch) instead of in turn
  size_t n_tail;                  // number of last units that are the tail; 0: none
  bool direct;                    // bypass the page cache, if the file system can
  bool uring;                     // use io_uring, if the system has it; only with `direct`
  st_pool *touching;              // whose threads touch the memory of all slots first, so that reads do not; NULL: no
  const st_log *log;              // must outlive the stream; NULL: no notices
  const st_stream_faults *faults; // must outlive the stream; NULL: none
} st_stream_options;

typedef struct st_stream_stats {
  uint64_t bytes, reads; // read so far; bytes include padding around the ranges for alignment
  double busy_s;         // time with a read in flight; with io_uring its end is noticed only in acquire, wait and poll
  double waited_s;       // time that st_stream_acquire waited
  const char *how;       // such as "io_uring, O_DIRECT"
} st_stream_stats;

// Units and ranges are copied. Each range must lie within its file: SETUN_ERROR_FORMAT. Reads nothing yet. Freed with
// st_stream_free, which waits for reads in flight and accepts NULL. A forked child may only free it; the parent's reads
// continue.
setun_status st_stream_new(const st_stream_unit *units, size_t n_units, const st_stream_options *options,
                           st_stream **stream, setun_error *err);
void st_stream_free(st_stream *s);

// A pass begins at unit 0, or with its tail, and goes through the tail `tails` times. What the ring already holds of
// it, or is reading, is kept (read ahead past the end of the previous pass); everything else is discarded, and units
// taken before must no longer be used. Reading begins at once. An earlier pass's error is cleared. Failures are
// reported by st_stream_acquire.
void st_stream_start(st_stream *s, bool at_tail, unsigned tails);

// Waits until the unit is complete: the one after the last taken, the first after st_stream_start, and after the last
// one the tail's first or, at the end of the pass, 0. `ranges` receives a pointer for each of the unit's ranges, in
// order: into the slot, with the alignment of its place in the file (up to 4096), valid until st_stream_release or
// st_stream_start. Several units may be taken at a time, fewer than there are slots for reading to continue. On failure
// nothing is taken, and further calls return the same error: SETUN_ERROR_IO for reads that fail, and for files that end
// early.
setun_status st_stream_acquire(st_stream *s, size_t unit, const uint8_t **ranges, setun_error *err);

// Releases the unit, which must be the oldest one taken; its slot gets the next unit of the cycle, which is queued at
// once. Does nothing for any other unit.
void st_stream_release(st_stream *s, size_t unit);

// ---- on demand ------------------------------------------------------------------------------------------------------
// The functions of a pass above are not for such a stream, nor these for another.

// Queues the unit's reads into a slot that nothing is read into; the slot's contents are lost. Reads are carried out in
// the order in which they were queued, several at a time. Failures are reported by st_stream_wait.
void st_stream_fetch(st_stream *s, size_t slot, size_t unit);
// Whether the reading of the slot's unit has ended, well or not. Does not wait.
bool st_stream_arrived(st_stream *s, size_t slot);
// Waits until the slot's unit is whole. `ranges` as from st_stream_acquire, valid until the slot's next
// st_stream_fetch. On failure, as of st_stream_acquire, the slot holds nothing.
setun_status st_stream_wait(st_stream *s, size_t slot, const uint8_t **ranges, setun_error *err);
// Where the unit's ranges lie in a slot into which they were read, or for a caller that writes them itself, to a slot
// that nothing is read into.
void st_stream_locate(const st_stream *s, size_t slot, size_t unit, uint8_t **ranges);
// Cancels the reads into the slot: waits for those that have begun, and drops the others.
void st_stream_discard(st_stream *s, size_t slot);

// Checks whether reads have ended, without waiting: makes busy_s more exact and, on demand, begins the next reads.
void st_stream_poll(st_stream *s);

st_stream_stats st_stream_get_stats(const st_stream *s);

#endif
