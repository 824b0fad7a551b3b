// Replies: written by any thread, sent by the HTTP thread. Connections with nothing to send are suspended.
#define _POSIX_C_SOURCE 200809L
#include "exchange.h"

#include "connections.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char ping[] = ": ping\n\n";

double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

exchange *exchange_new(struct MHD_Connection *handle, struct connection *owner) {
  exchange *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  atomic_init(&x->references, 1);
  pthread_mutex_init(&x->lock, NULL);
  x->connection = handle;
  x->owner = owner;
  return x;
}

void exchange_keep(exchange *x) {
  atomic_fetch_add(&x->references, 1);
}

void exchange_release(exchange *x) {
  if (!x || atomic_fetch_sub(&x->references, 1) != 1) return;
  if (x->acquired) x->release(x->acquired);
  st_json_free(x->parsed);
  st_buffer_free(&x->body);
  st_buffer_free(&x->out);
  pthread_mutex_destroy(&x->lock);
  free(x);
}

// Resumes the exchange in the HTTP thread. With the lock held. Returns what unlock wakes.
static connections *resume(exchange *x) {
  if (!x->suspended) return NULL;
  x->suspended = false;
  MHD_resume_connection(x->connection);
  return connection_ready(x->owner);
}

// The HTTP thread is woken without the lock, which it takes first.
static void unlock(exchange *x, connections *asleep) {
  pthread_mutex_unlock(&x->lock);
  connections_wake(asleep);
}

void exchange_header(exchange *x, const char *name, const char *value) {
  pthread_mutex_lock(&x->lock);
  if (x->n_headers < EXCHANGE_HEADERS && strlen(value) < sizeof x->headers->value) {
    reply_header *h = &x->headers[x->n_headers++];
    h->name = name;
    strcpy(h->value, value);
  }
  pthread_mutex_unlock(&x->lock);
}

void exchange_reply(exchange *x, unsigned status, const char *type, st_buffer *body) {
  connections *asleep = NULL;
  pthread_mutex_lock(&x->lock);
  if (x->phase < EXCHANGE_READY) {
    x->status = status;
    x->type = type;
    x->out = *body;
    *body = (st_buffer){0};
    x->ended = true;
    x->phase = EXCHANGE_READY;
    asleep = resume(x);
  }
  unlock(x, asleep);
  st_buffer_free(body);
}

void exchange_stream(exchange *x) {
  connections *asleep = NULL;
  pthread_mutex_lock(&x->lock);
  if (x->phase < EXCHANGE_READY) {
    x->status = MHD_HTTP_OK;
    x->type = "text/event-stream";
    x->stream = true;
    x->wrote = now_seconds();
    x->phase = EXCHANGE_READY;
    asleep = resume(x);
  }
  unlock(x, asleep);
}

// Ends the stream like a closed connection. With the lock held.
static connections *cut(exchange *x) {
  atomic_store(&x->gone, true);
  x->broken = x->ended = true;
  return resume(x);
}

// Drops sent data, so that a stream's buffer holds only unsent data. With the lock held.
static void make_room(exchange *x) {
  if (x->taken < x->out.length / 2 || !x->taken) return;
  memmove(x->out.data, x->out.data + x->taken, x->out.length - x->taken);
  x->out.length -= x->taken;
  x->taken = 0;
}

bool exchange_write(exchange *x, const char *bytes, size_t n) {
  connections *asleep = NULL;
  pthread_mutex_lock(&x->lock);
  bool open = x->connection && !x->ended, fine = true;
  if (open) {
    make_room(x);
    fine = x->out.length - x->taken + n <= STREAM_UNREAD_MOST && st_buffer_append(&x->out, bytes, n);
    x->wrote = now_seconds();
    if (fine)
      asleep = resume(x);
    else
      asleep = cut(x);
  }
  unlock(x, asleep);
  return fine;
}

void exchange_end(exchange *x) {
  connections *asleep = NULL;
  pthread_mutex_lock(&x->lock);
  x->ended = true;
  if (x->connection) asleep = resume(x);
  unlock(x, asleep);
}

void exchange_ping(exchange *x, double before) {
  pthread_mutex_lock(&x->lock);
  bool quiet = x->connection && x->stream && !x->ended && x->wrote < before && x->out.length == x->taken;
  pthread_mutex_unlock(&x->lock);
  if (quiet) exchange_write(x, ping, sizeof ping - 1);
}

// ---- the HTTP thread ----

// A MHD_ContentReaderCallback.
static ssize_t read_stream(void *cls, uint64_t position, char *to, size_t most) {
  exchange *x = cls;
  (void)position;
  pthread_mutex_lock(&x->lock);
  size_t left = x->out.length - x->taken;
  ssize_t n = 0;
  if (x->broken || atomic_load(&x->gone)) {
    n = MHD_CONTENT_READER_END_WITH_ERROR;
  } else if (left) {
    n = (ssize_t)(left < most ? left : most);
    memcpy(to, x->out.data + x->taken, (size_t)n);
    x->taken += (size_t)n;
  } else if (x->ended) {
    n = MHD_CONTENT_READER_END_OF_STREAM;
  } else {
    x->suspended = true;
    MHD_suspend_connection(x->connection);
  }
  pthread_mutex_unlock(&x->lock);
  return n;
}

static void end_stream(void *cls) {
  exchange_release(cls);
}

static struct MHD_Response *make_response(exchange *x) {
  if (x->stream) {
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 8 << 10, read_stream, x, end_stream);
    if (r) exchange_keep(x);
    return r;
  }
  struct MHD_Response *r = MHD_create_response_from_buffer(x->out.length, x->out.data, MHD_RESPMEM_MUST_COPY);
  st_buffer_free(&x->out);
  return r;
}

static void add_headers(exchange *x, struct MHD_Response *r) {
  if (x->type) MHD_add_response_header(r, "Content-Type", x->type);
  MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(r, "Cache-Control", x->stream || x->revalidate ? "no-cache" : "no-store");
  if (x->stream) MHD_add_response_header(r, "X-Accel-Buffering", "no"); // for buffering proxies
  if (x->origin[0]) {
    MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
    MHD_add_response_header(r, "Vary", "Origin");
  }
  for (size_t i = 0; i < x->n_headers; i++) MHD_add_response_header(r, x->headers[i].name, x->headers[i].value);
}

// The reply's status and headers no longer change in phase EXCHANGE_SENDING. Without the lock: libmicrohttpd holds its
// own lock for a response while it calls read_stream.
static enum MHD_Result queue(exchange *x) {
  struct MHD_Response *r = make_response(x);
  if (!r) return MHD_NO;
  add_headers(x, r);
  enum MHD_Result result = MHD_queue_response(x->connection, x->status, r);
  MHD_destroy_response(r);
  return result;
}

enum MHD_Result exchange_send(exchange *x) {
  enum MHD_Result result = MHD_NO;
  bool ready = false;
  pthread_mutex_lock(&x->lock);
  if (atomic_load(&x->gone)) {
    // the client disconnected, so there is no reader
  } else if (x->phase < EXCHANGE_READY) {
    x->suspended = true;
    MHD_suspend_connection(x->connection);
    result = MHD_YES;
  } else if (x->phase == EXCHANGE_READY) {
    x->phase = EXCHANGE_SENDING;
    ready = true;
  }
  pthread_mutex_unlock(&x->lock);
  return ready ? queue(x) : result;
}

void exchange_abandon(exchange *x) {
  connections *asleep = NULL;
  pthread_mutex_lock(&x->lock);
  atomic_store(&x->gone, true);
  if (x->connection) asleep = resume(x);
  unlock(x, asleep);
}

void exchange_over(exchange *x) {
  pthread_mutex_lock(&x->lock);
  // A complete reply is not lost; the rest of an incomplete one is dropped.
  if (!x->ended) atomic_store(&x->gone, true);
  x->connection = NULL;
  x->suspended = false;
  pthread_mutex_unlock(&x->lock);
  exchange_release(x);
}
