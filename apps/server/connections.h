// All connections, and the thread that accepts and serves them. Each has a daemon of libmicrohttpd of its own (10 us
// and 6 KB): libmicrohttpd 0.9.75 reports by daemon what it refuses, not by connection, and does not watch suspended
// connections, so this thread polls for all of them, and sees which clients disconnect.
#ifndef SETUN_SERVER_CONNECTIONS_H
#define SETUN_SERVER_CONNECTIONS_H

#include "exchange.h"

typedef struct connections connections;
typedef struct connection connection;

// Creates the daemon of a connection. NULL: out of memory or descriptors.
typedef struct MHD_Daemon *daemon_fn(void *user, connection *one);

// Serves the clients of a listening socket, which it takes ownership of. NULL: out of memory, or no thread.
connections *connections_new(int listener, daemon_fn *open, void *user);
void connections_quiesce(connections *c); // stops accepting
// The number of connections whose replies are being computed or sent. `c` may be NULL.
size_t connections_replying(const connections *c);
// Closes all connections, and ends the thread; `c` may be NULL.
void connections_stop(connections *c);
// After connections_stop, when no thread will call connections_wake any more; `c` may be NULL.
void connections_free(connections *c);

// Call after resuming a connection of libmicrohttpd, from any thread, while it is certain not to be closed; then pass
// the result to connections_wake, without a lock.
connections *connection_ready(connection *one);
void connections_wake(connections *c); // `c` may be NULL

// ---- for libmicrohttpd's callbacks, on that thread ----

void connection_opened(connection *one, struct MHD_Connection *handle);
void connection_closed(connection *one); // before its socket is closed
// A request's first line arrived; its headers; its body is complete; its reply was sent, or cannot be. `x` is watched
// between the second and the last.
void connection_named(connection *one);
void connection_began(connection *one, exchange *x);
void connection_received(connection *one);
void connection_replied(connection *one);
// Call when libmicrohttpd is about to refuse the request with a reply of its own: sends this one, and none after it.
void connection_refuse(connection *one, const char *reply, size_t n);

#endif
