// All open connections, watched by a thread: libmicrohttpd does not watch suspended connections, so it does not notice
// that a client disconnected, and its own time limit restarts with every received byte.
#ifndef SETUN_SERVER_CONNECTIONS_H
#define SETUN_SERVER_CONNECTIONS_H

#include "exchange.h"

typedef struct connections connections;
typedef struct connection connection;

connections *connections_new(void); // NULL: out of memory, or no thread
// Call after connections_close, when libmicrohttpd has closed all.
void connections_free(connections *c);

// The rest of these are for the HTTP thread. A connection that cannot be added is shut down: NULL.
connection *connections_add(connections *c, int fd, struct MHD_Connection *handle);
void connections_remove(connections *c, connection *one);
// A request's first line arrived; its headers; its body, of so many bytes or more, is complete; its reply was sent or
// cannot be. `x` is watched between the second and the last.
void connection_named(connections *c, connection *one);
void connection_began(connections *c, connection *one, exchange *x);
void connection_received(connections *c, connection *one, uint64_t body);
void connection_replied(connections *c, connection *one);

// The parts of a request.
enum { PART_LINE = 1, PART_HEAD = 2, PART_BODY = 4 }; // the body with its trailers
// Call when libmicrohttpd is about to refuse one of these parts. Sends `reply` on that connection and allows no further
// one. Does nothing if it may be one of several: libmicrohttpd's own reply is sent then.
void connections_refuse(connections *c, unsigned parts, const char *reply, size_t n);

// Shuts down all connections, and any added later.
void connections_close(connections *c);
// The number of connections whose replies are being computed or sent.
size_t connections_replying(connections *c);

#endif
