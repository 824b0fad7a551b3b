// One request and its reply. The HTTP thread receives the one and sends the other; workers and the engine write the
// reply from threads of their own. Counted: each side holds one reference.
#ifndef SETUN_SERVER_EXCHANGE_H
#define SETUN_SERVER_EXCHANGE_H

#include "base/json.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

// Bytes of a stream that its reader has not taken: more than a context's tokens give in ordinary use. A reader that is
// further behind is cut off.
enum { STREAM_UNREAD_MOST = 8 << 20, EXCHANGE_HEADERS = 4, ROUTE_REST = 256 };

struct route;

typedef struct reply_header {
  const char *name; // static text
  char value[320];
} reply_header;

typedef enum exchange_phase {
  EXCHANGE_RECEIVING, // the body
  EXCHANGE_WORKING,   // on a reply, of which there is nothing yet
  EXCHANGE_READY,     // a whole reply, or a stream that has begun
  EXCHANGE_SENDING    // libmicrohttpd has it
} exchange_phase;

typedef struct exchange {
  atomic_uint references;
  const struct route *route; // set by the HTTP thread before any other thread sees the exchange
  char rest[ROUTE_REST];     // what follows the route's path, percent-decoded
  size_t rest_length;
  st_buffer body; // of the request; whose turn it is may change it
  bool too_large;
  char model[ROUTE_REST]; // that the address asks for (?model=); "": none
  st_json *parsed;        // the body, where it was read for the model's name
  struct exchange *next;  // that waits for the same model
  void *acquired;         // the model that answers it: released when nobody has the exchange any more
  void (*release)(void *acquired);
  atomic_bool gone; // the client left; nothing more is sent

  pthread_mutex_t lock;              // of all that follows
  struct MHD_Connection *connection; // NULL: over
  exchange_phase phase;
  bool suspended;
  unsigned status;
  const char *type; // of the reply's content; static text
  reply_header headers[EXCHANGE_HEADERS];
  size_t n_headers;
  char origin[256];           // that may read the reply; "": none
  st_buffer out;              // the reply's body, or what of a stream was not taken yet
  size_t taken;               // bytes of `out` that were
  bool stream, ended, broken; // broken: the stream ends as a cut connection does
  bool revalidate;            // browsers may keep the reply, and ask each time whether its tag is still the same
  double wrote;               // when something was last written, for pings
} exchange;

exchange *exchange_new(struct MHD_Connection *connection); // NULL: out of memory
void exchange_keep(exchange *x);
void exchange_release(exchange *x);

// ---- writing the reply, from any thread ----

// To be called before the reply begins; more than EXCHANGE_HEADERS are not taken.
void exchange_header(exchange *x, const char *name, const char *value);
// The whole reply; takes the buffer's bytes, and leaves it empty.
void exchange_reply(exchange *x, unsigned status, const char *type, st_buffer *body);
// Begins a stream of server-sent events, with status 200.
void exchange_stream(exchange *x);
// Adds to it; nothing where the client has left. False: out of memory, or the reader is too far behind; the
// stream then ends as a cut connection does.
bool exchange_write(exchange *x, const char *bytes, size_t n);
void exchange_end(exchange *x);
// A comment that keeps the connection alive, where nothing was written since `before`.
void exchange_ping(exchange *x, double before);

// ---- for the HTTP thread ----

// Gives the reply to libmicrohttpd, or suspends the connection where there is none yet.
enum MHD_Result exchange_send(exchange *x);
// The client has left: wakes the connection so that libmicrohttpd finds out.
void exchange_abandon(exchange *x);
// The connection is done with it.
void exchange_over(exchange *x);

double now_seconds(void); // of a clock that only goes forward

#endif
