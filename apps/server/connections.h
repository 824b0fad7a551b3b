// All connections that are open, watched by a thread: libmicrohttpd does not look at a suspended connection, so it does
// not see that a client left, and its own time limit begins anew with every byte that comes.
#ifndef SETUN_SERVER_CONNECTIONS_H
#define SETUN_SERVER_CONNECTIONS_H

#include "exchange.h"

typedef struct connections connections;
typedef struct connection connection;

connections *connections_new(void); // NULL: no memory, or no thread
// After connections_close, once libmicrohttpd has closed each.
void connections_free(connections *c);

// For the HTTP thread. One that could not be added is shut down and not watched: NULL.
connection *connections_add(connections *c, int fd);
void connections_remove(connections *c, connection *one);
// A request's headers came, its body came whole, its reply was sent or cannot be. `x` is watched between the first and
// the last.
void connection_began(connections *c, connection *one, exchange *x);
void connection_received(connections *c, connection *one);
void connection_replied(connections *c, connection *one);

// Shuts down all connections, and each that is added from now on.
void connections_close(connections *c);
// Those whose replies are being made or sent.
size_t connections_replying(connections *c);

#endif
