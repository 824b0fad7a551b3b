// HTTP by libmicrohttpd: the daemon, and the path of a request from its first byte to its handler.
#ifndef SETUN_SERVER_HTTP_H
#define SETUN_SERVER_HTTP_H

#include "state.h"

setun_status http_start(server *s, setun_error *error);
void http_quiesce(server *s); // stops accepting connections
// Closes open connections and ends the HTTP thread.
void http_stop(server *s);

// Answers an exchange with a complete body, on any thread: by the route's handler, or with a problem.
void http_handle(server *s, exchange *x);

#endif
