// What a request's headers must be before it is answered: well-formed, for this server, from nobody else's page, with
// a key.
#ifndef SETUN_SERVER_CHECKS_H
#define SETUN_SERVER_CHECKS_H

#include "exchange.h"
#include "server.h"

// Each gives 0, or the status of a refusal with its reason in `why`.
typedef struct refusal {
  unsigned status; // 0: none
  const char *type, *code;
  char why[192];
} refusal;

// Headers that libmicrohttpd lets through though two readers may understand them in two ways, and a body that is too
// large. `length` is the body's, UINT64_MAX: not known.
refusal check_headers(struct MHD_Connection *connection, const char *version, uint64_t most, uint64_t *length);
// Whether the Host header names this server: an address, localhost, or one of the names that were told. Other names may
// have been made to lead here by somebody else's name server.
refusal check_host(struct MHD_Connection *connection, const server_options *o);
// Whether a page of another origin sent it. `origin` receives the one that may read the reply; "": none.
refusal check_origin(struct MHD_Connection *connection, const server_options *o, char origin[256]);
refusal check_key(struct MHD_Connection *connection, const server_options *o);

#endif
