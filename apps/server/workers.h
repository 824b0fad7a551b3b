// Threads that turn requests into work for the engine: reading JSON, templates and tokenizing take time, in which the
// HTTP thread answers others.
#ifndef SETUN_SERVER_WORKERS_H
#define SETUN_SERVER_WORKERS_H

#include "state.h"

workers *workers_new(server *s); // NULL: no memory, or no threads
// Has a worker handle the exchange, which it keeps meanwhile; or answers that there are too many.
void workers_add(workers *w, exchange *x);
void workers_free(workers *w); // what waits is dropped; `w` may be NULL

#endif
