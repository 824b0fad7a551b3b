// HTTP by libmicrohttpd: the daemon, and the way of a request from its first byte to its handler.
#ifndef SETUN_SERVER_HTTP_H
#define SETUN_SERVER_HTTP_H

#include "state.h"

setun_status http_start(server *s, setun_error *error);
void http_quiesce(server *s); // takes no new connections
// Shuts down what is open, and ends the HTTP thread.
void http_stop(server *s);

// Answers an exchange whose body is there, on whatever thread: the route's handler, or a problem.
void http_handle(server *s, exchange *x);

#endif
