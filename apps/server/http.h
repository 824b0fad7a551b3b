// HTTP by libmicrohttpd: the listening socket, and the path of a request from its first byte to its handler.
#ifndef SETUN_SERVER_HTTP_H
#define SETUN_SERVER_HTTP_H

#include "state.h"

// Listens, and starts the thread that serves connections.
setun_status http_start(server *s, setun_error *error);

// Answers an exchange with a complete body, on any thread: by the route's handler, or with a problem.
void http_handle(server *s, exchange *x);

#endif
