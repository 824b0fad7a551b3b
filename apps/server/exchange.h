// One request and its reply. The HTTP thread receives the request and sends the reply; workers and the engine write the
// reply on their own threads. Reference counted: each side holds one reference.
#ifndef SETUN_SERVER_EXCHANGE_H
#define SETUN_SERVER_EXCHANGE_H

#include "base/json.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

// Most unsent bytes of a stream: more than a context's tokens produce in ordinary use. A slower reader is disconnected.
enum { STREAM_UNREAD_MOST = 8 << 20, EXCHANGE_HEADERS = 4, ROUTE_REST = 256 };

struct connection;
struct route;

typedef struct reply_header {
  const char *name; // static text
  char value[320];
} reply_header;

typedef enum exchange_phase {
  EXCHANGE_RECEIVING, // the body
  EXCHANGE_WORKING,   // waiting for a reply that has not begun
  EXCHANGE_READY,     // a complete reply, or a stream that has begun
  EXCHANGE_SENDING    // passed to libmicrohttpd
} exchange_phase;

typedef struct exchange {
  atomic_uint references;
  const struct route *route; // set by the HTTP thread before other threads see the exchange
  char rest[ROUTE_REST];     // the rest after the route's path, percent-decoded
  size_t rest_length;
  st_buffer body; // the request's; changed only by its current owner
  bool too_large;
  char model[ROUTE_REST]; // the model in the address (?model=); "": none
  st_json *parsed;        // the body, if it was parsed for the model's name
  struct exchange *next;  // next exchange waiting for the same model
  void *acquired;         // the model that answers it: released with the exchange
  void (*release)(void *acquired);
  atomic_bool gone; // the client disconnected; nothing more is sent

  pthread_mutex_t lock;              // protects everything below
  struct MHD_Connection *connection; // NULL: over
  struct connection *owner;          // of that connection
  exchange_phase phase;
  bool suspended;
  unsigned status;
  const char *type; // of the reply's content; static text
  reply_header headers[EXCHANGE_HEADERS];
  size_t n_headers;
  char origin[256];           // origin that may read the reply; "": none
  st_buffer out;              // the reply's body, or the unsent part of a stream
  size_t taken;               // sent bytes of `out`
  bool stream, ended, broken; // broken: the stream ends like a closed connection
  bool revalidate;            // browsers may cache the reply, and revalidate its tag each time
  double wrote;               // time of the last write, for pings
} exchange;

exchange *exchange_new(struct MHD_Connection *handle, struct connection *owner); // NULL: out of memory
void exchange_keep(exchange *x);
void exchange_release(exchange *x);

// ---- writing the reply, from any thread ----

// Call before the reply begins; at most EXCHANGE_HEADERS are kept.
void exchange_header(exchange *x, const char *name, const char *value);
// The complete reply; takes the buffer's bytes and leaves it empty.
void exchange_reply(exchange *x, unsigned status, const char *type, st_buffer *body);
// Begins a stream of server-sent events, with status 200.
void exchange_stream(exchange *x);
// Adds to the stream; does nothing if the client has disconnected. False: out of memory, or the reader is too slow; the
// stream then ends like a closed connection.
bool exchange_write(exchange *x, const char *bytes, size_t n);
void exchange_end(exchange *x);
// Sends a comment that keeps the connection alive, if nothing was written since `before`.
void exchange_ping(exchange *x, double before);

// ---- for the HTTP thread ----

// Passes the reply to libmicrohttpd, or suspends the connection if there is none yet.
enum MHD_Result exchange_send(exchange *x);
// The client has disconnected: resumes the connection so that libmicrohttpd notices.
void exchange_abandon(exchange *x);
// The connection is done with it.
void exchange_over(exchange *x);

double now_seconds(void); // seconds of a monotonic clock

#endif
