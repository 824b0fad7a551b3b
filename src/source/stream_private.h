// The parts of a stream: the places of units' bytes in a slot (read_plan.c), the reads and their results (stream.c),
// and the two engines that carry out reads (stream_pread.c, stream_uring.c). Private to src/source.
#ifndef SETUN_SOURCE_STREAM_PRIVATE_H
#define SETUN_SOURCE_STREAM_PRIVATE_H

#include "source/stream.h"

#include <pthread.h>
#include <stdatomic.h>

// ---- the plan -----------------------------------------------------------------------------------------------------

// Consecutive blocks of a file, from an aligned place on; the last block may reach past the file's end.
typedef struct st_extent {
  size_t file; // index into the plan's files
  uint64_t offset;
  size_t bytes, at; // at: place in the slot; both aligned
} st_extent;

typedef struct st_planned_file {
  const st_file *file;
  size_t alignment; // alignment of offset and length for O_DIRECT; 0: unsupported
} st_planned_file;

typedef struct st_read_plan {
  size_t n_units, n_files;
  size_t alignment;  // alignment of extents: a power of two, at least 4096
  size_t slot_bytes; // bytes of the largest unit's extents, at least one block
  st_planned_file *files;
  st_extent *extents; // unit u has [first_extent[u], first_extent[u + 1])
  size_t *first_extent;
  size_t *places; // offset in the slot of each range; unit u's from first_range[u] on
  size_t *first_range;
} st_read_plan;

// Makes the plan, freed with st_read_plan_free; nothing to free on failure.
setun_status st_read_plan_make(const st_stream_unit *units, size_t n_units, const st_stream_options *options,
                               st_read_plan *plan, setun_error *err);
void st_read_plan_free(st_read_plan *plan);

// ---- reads -------------------------------------------------------------------------------------------------

typedef struct st_stream_file {
  const st_file *file;
  int fd;             // opened with O_DIRECT; -1: not opened
  size_t alignment;   // of direct reads
  atomic_bool direct; // reads go to `fd`
  atomic_int refused; // errno of a refused direct read, until logged
} st_stream_file;

typedef struct st_slot {
  size_t unit, pending;    // unfinished pieces; with the pread engine under the lock, like `error`
  setun_error error;       // code SETUN_OK: none
  uint8_t *base;           // slot_bytes
  struct st_piece *pieces; // the unit's pieces, n_pieces of them
  size_t n_pieces;
} st_slot;

// One read, which continues until complete.
typedef struct st_piece {
  struct st_piece *next; // in the engine's own state queue
  st_slot *slot;
  st_stream_file *file;
  uint64_t offset;
  uint8_t *to;
  size_t length, need, got; // length: in whole blocks; need: up to the file's end
  int retries;
  bool buffered; // a direct read stopped between two blocks
  bool direct;   // how the read in flight was issued
} st_piece;

typedef struct st_read_engine {
  void (*queue)(st_stream *s, st_slot *slot); // all of its pieces
  void (*wait)(st_stream *s, st_slot *slot);  // waits until none is pending; a failure is in the slot's error
  void (*drop)(st_stream *s, st_slot *slot);  // the same, but drops pieces that have not started
  void (*poll)(st_stream *s);
  void (*free)(st_stream *s);    // stops the engine; nothing is pending
  void (*abandon)(st_stream *s); // in a forked child: frees only its memory, since the rest is the parent's
} st_read_engine;

typedef struct st_piece_queue {
  st_piece *head, **tail;
} st_piece_queue;

// A pass's position: the unit, and how many times the tail is still to be read, including the current one.
typedef struct st_cursor {
  size_t unit;
  unsigned tails;
} st_cursor;

struct st_stream {
  st_read_plan plan;
  st_stream_options options;
  st_stream_file *files;
  uint8_t *area; // the slots, one after the other
  size_t area_bytes;
  bool area_withheld; // protected from forked children
  int64_t maker;      // the process that owns the threads or the ring
  st_piece *pieces;
  st_slot *slots;
  size_t n_slots, piece_bytes;
  size_t head, queued, taken; // slots in the order of the units: the oldest, their number, the number taken
  st_cursor next;             // the next to queue
  const st_read_engine *engine;
  void *state;          // the engine's own state
  const char *names[2]; // its name: with O_DIRECT, buffered
  pthread_mutex_t lock; // protects the rest and, with the pread engine, slots
  size_t in_flight;
  double busy_since;
  st_stream_stats stats;
};

// Makes the engine and sets s->engine, state, names and piece_bytes. st_stream_uring_new returns an errno if the system
// refuses io_uring to this process, or ENOSYS if the build lacks it.
int st_stream_uring_new(st_stream *s);
setun_status st_stream_pread_new(st_stream *s, setun_error *err);

void st_piece_queue_init(st_piece_queue *q);
void st_piece_queue_add(st_piece_queue *q, st_piece *pieces, size_t n);
void st_piece_queue_return(st_piece_queue *q, st_piece *p);           // to the front
st_piece *st_piece_queue_next(st_piece_queue *q);                     // NULL: empty
size_t st_piece_queue_remove(st_piece_queue *q, const st_slot *slot); // number of the slot's pieces removed

// The destination of the piece's next read.
typedef struct st_read {
  int fd;
  uint8_t *to;
  size_t n;
  uint64_t offset;
} st_read;
st_read st_piece_aim(st_piece *p);

// Applies the result of a read (a count, or -errno) to the piece: complete, failed (with *err), or to be continued. Any
// thread may call it for its own piece.
typedef enum { ST_PIECE_WHOLE, ST_PIECE_AGAIN, ST_PIECE_FAILED } st_piece_state;
st_piece_state st_piece_result(const st_stream *s, st_piece *p, int64_t result, setun_error *err);

// Bookkeeping around each read, under the lock.
void st_stream_read_begins(st_stream *s);
void st_stream_read_ends(st_stream *s, int64_t result);
void st_piece_ends(st_piece *p, st_piece_state state, const setun_error *err);

#endif
