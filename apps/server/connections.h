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

// For the HTTP thread. A request's first line arrived: until connection_began, libmicrohttpd may refuse it by itself.
void connection_named(connections *c, connection *one, struct MHD_Connection *handle);
// Sends `reply` on the connection whose headers libmicrohttpd has read but not passed on, and allows no further one.
void connections_refuse(connections *c, const char *reply, size_t n);
// A connection that cannot be added is shut down: NULL.
connection *connections_add(connections *c, int fd);
void connections_remove(connections *c, connection *one);
// A request's headers arrived; its body is complete; its reply was sent or cannot be. `x` is watched between the first
// and the last.
void connection_began(connections *c, connection *one, exchange *x);
void connection_received(connections *c, connection *one);
void connection_replied(connections *c, connection *one);

// Shuts down all connections, and any added later.
void connections_close(connections *c);
// The number of connections whose replies are being computed or sent.
size_t connections_replying(connections *c);

#endif
