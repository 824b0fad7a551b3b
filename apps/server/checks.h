// Checks of a request's headers before it is answered: well-formed, for this server, not from a foreign page, with a
// key.
#ifndef SETUN_SERVER_CHECKS_H
#define SETUN_SERVER_CHECKS_H

#include "exchange.h"
#include "server.h"

// Each returns 0, or the status of a refusal with its reason in `why`.
typedef struct refusal {
  unsigned status; // 0: none
  const char *type, *code;
  char why[192];
} refusal;

// Refuses ambiguous headers that libmicrohttpd accepts, and a body that is too large. `length` is the body's;
// UINT64_MAX: unknown.
refusal check_headers(struct MHD_Connection *connection, const char *version, uint64_t most, uint64_t *length);
// Whether the Host header names this server: an address, localhost, or one of the configured names. Other names may
// result from DNS rebinding.
refusal check_host(struct MHD_Connection *connection, const server_options *o);
// Whether a page of another origin sent it. `origin` receives the origin that may read the reply; "": none.
refusal check_origin(struct MHD_Connection *connection, const server_options *o, char origin[256]);
refusal check_key(struct MHD_Connection *connection, const server_options *o);

#endif
