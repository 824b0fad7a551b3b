// Reads by pread on two more threads, in the order of queueing.
#define _POSIX_C_SOURCE 200809L
#include "base/memory.h"
#include "base/thread.h"
#include "source/stream_private.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, PIECE_BYTES = 4 << 20 };

typedef struct {
  pthread_t threads[THREADS];
  int n_threads;
  pthread_cond_t work, done; // with the stream's lock, which protects the rest
  st_piece_queue queue;
  bool quit;
} pread_engine;

// Reads the piece to its end. The lock is held on entry and on return, but not during system calls.
static void read_piece(st_stream *s, st_piece *p) {
  setun_error err;
  st_piece_state state = ST_PIECE_AGAIN;
  while (state == ST_PIECE_AGAIN) {
    st_stream_read_begins(s);
    pthread_mutex_unlock(&s->lock);
    st_read r = st_piece_aim(p);
    size_t before = p->got;
    ssize_t n = pread(r.fd, r.to, r.n, (off_t)r.offset);
    state = st_piece_result(s, p, n < 0 ? -(int64_t)errno : (int64_t)n, &err);
    pthread_mutex_lock(&s->lock);
    st_stream_read_ends(s, (int64_t)(p->got - before));
  }
  st_piece_ends(p, state, &err);
}

static void *worker(void *argument) {
  st_stream *s = argument;
  pread_engine *e = s->state;
  pthread_mutex_lock(&s->lock);
  while (!e->quit) {
    st_piece *p = st_piece_queue_next(&e->queue);
    if (!p) {
      pthread_cond_wait(&e->work, &s->lock);
      continue;
    }
    read_piece(s, p);
    if (!p->slot->pending) pthread_cond_signal(&e->done);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

static void queue(st_stream *s, st_slot *slot) {
  pread_engine *e = s->state;
  pthread_mutex_lock(&s->lock);
  st_piece_queue_add(&e->queue, slot->pieces, slot->n_pieces);
  pthread_cond_broadcast(&e->work);
  pthread_mutex_unlock(&s->lock);
}

static void wait_for(st_stream *s, st_slot *slot) {
  pread_engine *e = s->state;
  pthread_mutex_lock(&s->lock);
  while (slot->pending) pthread_cond_wait(&e->done, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void drop(st_stream *s, st_slot *slot) {
  pread_engine *e = s->state;
  pthread_mutex_lock(&s->lock);
  slot->pending -= st_piece_queue_remove(&e->queue, slot);
  while (slot->pending) pthread_cond_wait(&e->done, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void look(st_stream *s) {
  (void)s;
} // the threads see for themselves

static void end(st_stream *s) {
  pread_engine *e = s->state;
  pthread_mutex_lock(&s->lock);
  e->quit = true;
  pthread_cond_broadcast(&e->work);
  pthread_mutex_unlock(&s->lock);
  for (int i = 0; i < e->n_threads; i++) pthread_join(e->threads[i], NULL);
  pthread_cond_destroy(&e->work);
  pthread_cond_destroy(&e->done);
  st_free(e);
}

static void abandon(st_stream *s) {
  st_free(s->state);
}

setun_status st_stream_pread_new(st_stream *s, setun_error *err) {
  static const st_read_engine engine = {queue, wait_for, drop, look, end, abandon};
  pread_engine *e = st_calloc(1, sizeof *e);
  if (!e) return st_fail_memory(err, "threads that read");
  pthread_cond_init(&e->work, NULL);
  pthread_cond_init(&e->done, NULL);
  st_piece_queue_init(&e->queue);
  s->state = e;
  s->engine = &engine;
  s->piece_bytes = PIECE_BYTES;
#ifdef __linux__
  s->names[0] = "pread, O_DIRECT";
#else
  s->names[0] = "pread, uncached";
#endif
  s->names[1] = "pread, buffered";
  int failed = 0;
  while (e->n_threads < THREADS && !(failed = st_thread_start(&e->threads[e->n_threads], worker, s))) {
    e->n_threads++;
  }
  if (e->n_threads) return SETUN_OK; // one suffices, more slowly
  return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for a thread that reads: %s",
                 strerror(failed)); // freed with s
}
