// Reads by io_uring, submitted on the caller's own thread: all of a unit at once, so that the disk is never idle while
// the caller computes. Completions are processed only when a unit is needed.
//
// A disk completes reads in any order. So that the unit needed first is not the last to complete, reads of later units
// wait until few reads of earlier ones are left.
#define _GNU_SOURCE
#include "base/memory.h"
#include "source/stream_private.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#ifndef SETUN_URING

int st_stream_uring_new(st_stream *s) {
  (void)s;
  return ENOSYS;
}

#else
#ifndef __linux__
#error "stream_uring.c is for Linux only: configure with -DSETUN_URING=OFF"
#endif

#include <liburing.h>

enum {
  PIECE_BYTES = 1 << 20,
  DEPTH = 1024,               // most reads in the kernel at a time; the rest waits in the queue
  WINDOW = 8,                 // later units start while fewer reads are in the kernel: enough to keep a disk busy
  DEMANDED = 128,             // the same on demand: enough for the time between two calls during a prompt
  COMPLETIONS = 32,
  REFUSALS_MOST = 2000, // consecutive entries into the kernel
  REFUSALS_AT_ONCE = 16
};
static const size_t REGISTERED_MOST = (size_t)1 << 30; // the kernel's bound for one buffer

typedef struct {
  struct io_uring ring;
  st_piece_queue queue; // not yet in the ring
  bool registered;      // slot i is the ring's buffer i
  int broken;           // the errno of a failed ring, which is then unusable
  int refusals;         // consecutive attempts in which the kernel accepted nothing
} uring_engine;

// Submits what is in the ring, and waits for a completion where `wait` is 1. A submission that the kernel cannot take
// now stays in the ring and is retried with the next one, a limited number of times.
static void enter(st_stream *s, unsigned wait) {
  uring_engine *e = s->state;
  const st_stream_faults *faults = s->options.faults;
  int refused = faults && faults->refuse ? faults->refuse(faults->user, ST_STREAM_ENTER) : 0;
  int result = refused ? -refused : io_uring_submit_and_wait(&e->ring, wait), error = -result;
  if (result >= 0) {
    e->refusals = 0;
  } else if (error == EINTR) {
    return; // any number of signals may arrive
  } else if ((error != EAGAIN && error != EBUSY) || ++e->refusals > REFUSALS_MOST) {
    e->broken = error;
  } else if (wait && e->refusals > REFUSALS_AT_ONCE) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

// Whether the piece may be read now: all earlier units are complete, or nearly so.
static bool is_due(const st_stream *s, const st_piece *p) {
  size_t i = 0;
  if (s->options.on_demand) return s->in_flight < DEMANDED;
  while (i < s->queued && !s->slots[(s->head + i) % s->n_slots].pending) i++;
  return p->slot == &s->slots[(s->head + i) % s->n_slots] || s->in_flight < WINDOW;
}

// Moves pieces from the queue to the ring, as many as it takes, and submits them.
static void push(st_stream *s) {
  uring_engine *e = s->state;
  while (s->in_flight < DEPTH && e->queue.head && !e->broken && is_due(s, e->queue.head)) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
    if (!sqe) break;
    st_piece *p = st_piece_queue_next(&e->queue);
    st_read r = st_piece_aim(p);
    if (e->registered) {
      io_uring_prep_read_fixed(sqe, r.fd, r.to, (unsigned)r.n, r.offset, (int)(p->slot - s->slots));
    } else {
      io_uring_prep_read(sqe, r.fd, r.to, (unsigned)r.n, r.offset);
    }
    io_uring_sqe_set_data(sqe, p);
    pthread_mutex_lock(&s->lock); // for readers of the statistics
    st_stream_read_begins(s);
    pthread_mutex_unlock(&s->lock);
  }
  if (io_uring_sq_ready(&e->ring) && !e->broken) enter(s, 0);
}

static void complete(st_stream *s, st_piece *p, int result) {
  uring_engine *e = s->state;
  setun_error err;
  size_t before = p->got;
  st_piece_state state = st_piece_result(s, p, result, &err);
  pthread_mutex_lock(&s->lock);
  st_stream_read_ends(s, (int64_t)(p->got - before));
  pthread_mutex_unlock(&s->lock);
  if (state == ST_PIECE_AGAIN) {
    st_piece_queue_return(&e->queue, p);
  } else {
    st_piece_ends(p, state, &err);
  }
}

// Processes completions, without waiting, and submits more reads.
static void reap(st_stream *s) {
  uring_engine *e = s->state;
  struct io_uring_cqe *cqes[COMPLETIONS];
  unsigned n;
  while (!e->broken && (n = io_uring_peek_batch_cqe(&e->ring, cqes, COMPLETIONS))) {
    for (unsigned i = 0; i < n; i++) complete(s, io_uring_cqe_get_data(cqes[i]), cqes[i]->res);
    io_uring_cq_advance(&e->ring, n);
  }
  push(s);
}

static void queue(st_stream *s, st_slot *slot) {
  uring_engine *e = s->state;
  st_piece_queue_add(&e->queue, slot->pieces, slot->n_pieces);
  push(s);
}

static void wait_for(st_stream *s, st_slot *slot) {
  uring_engine *e = s->state;
  reap(s);
  while (slot->pending && !e->broken) {
    enter(s, 1);
    reap(s);
  }
  if (slot->pending && slot->error.code == SETUN_OK) {
    const st_piece *p = slot->pieces;
    while (p + 1 < slot->pieces + slot->n_pieces && p->got == p->need) p++;
    st_fail(&slot->error, SETUN_ERROR_IO, "%s: reading %zu bytes at offset %llu: io_uring: waiting for them: %s",
            p->file->file->path, p->need, (unsigned long long)p->offset, strerror(e->broken));
  }
}

static void drop(st_stream *s, st_slot *slot) {
  uring_engine *e = s->state;
  slot->pending -= st_piece_queue_remove(&e->queue, slot);
  wait_for(s, slot);
}

// Parent and child share the ring in the kernel; this unmaps and closes the process's own part and consumes no
// completions.
static void end(st_stream *s) {
  uring_engine *e = s->state;
  io_uring_queue_exit(&e->ring);
  st_free(e);
}

// ---- making -------------------------------------------------------------------------------------------------------

// 0 if the ring can read and can be entered, which a sandbox may forbid separately; or an errno.
static int try_ring(struct io_uring *ring) {
  struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
  if (!probe) return ENOSYS;
  bool reads = io_uring_opcode_supported(probe, IORING_OP_READ);
  io_uring_free_probe(probe);
  if (!reads) return ENOSYS;
  io_uring_prep_nop(io_uring_get_sqe(ring));
  int n = io_uring_submit_and_wait(ring, 1);
  struct io_uring_cqe *cqe;
  if (n < 0) return -n;
  if (io_uring_peek_cqe(ring, &cqe)) return EIO;
  io_uring_cqe_seen(ring, cqe);
  return 0;
}

// Saves the kernel from pinning the pages for each read. Refused beyond the limit of locked memory; optional.
static int register_slots(st_stream *s, struct io_uring *ring) {
  const st_stream_faults *faults = s->options.faults;
  int refused = faults && faults->refuse ? faults->refuse(faults->user, ST_STREAM_REGISTER) : 0;
  if (refused) return refused;
  if (s->plan.slot_bytes > REGISTERED_MOST) return EFBIG;
  struct iovec *slots = st_malloc(s->n_slots, sizeof *slots);
  if (!slots) return ENOMEM;
  for (size_t i = 0; i < s->n_slots; i++) slots[i] = (struct iovec){s->slots[i].base, s->plan.slot_bytes};
  int result = io_uring_register_buffers(ring, slots, (unsigned)s->n_slots);
  st_free(slots);
  return -result;
}

int st_stream_uring_new(st_stream *s) {
  static const st_read_engine engine = {queue, wait_for, drop, reap, end, end};
  const st_stream_faults *faults = s->options.faults;
  int error = faults && faults->refuse ? faults->refuse(faults->user, ST_STREAM_URING) : 0;
  if (error) return error;
  uring_engine *e = st_calloc(1, sizeof *e);
  if (!e) return ENOMEM;
  error = -io_uring_queue_init(DEPTH, &e->ring, 0);
  if (error) {
    st_free(e);
    return error;
  }
  error = try_ring(&e->ring);
  if (error) {
    io_uring_queue_exit(&e->ring);
    st_free(e);
    return error;
  }
  st_piece_queue_init(&e->queue);
  error = s->options.on_demand ? 0 : register_slots(s, &e->ring);
  e->registered = !error && !s->options.on_demand; // slots on demand may be more than the kernel registers
  if (error) {
    st_log_write(s->options.log, SETUN_LOG_INFO,
                 "io_uring: buffers are not registered (%s): reading without registered ones", strerror(error));
  }
  s->state = e;
  s->engine = &engine;
  s->piece_bytes = PIECE_BYTES;
  s->names[0] = e->registered ? "io_uring, O_DIRECT, registered buffers" : "io_uring, O_DIRECT";
  s->names[1] = "io_uring, buffered";
  return 0;
}

#endif
