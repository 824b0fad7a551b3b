// Threads that turn requests into work for the engine: parsing JSON, rendering templates and tokenizing take time,
// during which the HTTP thread serves others.
#ifndef SETUN_SERVER_WORKERS_H
#define SETUN_SERVER_WORKERS_H

#include "state.h"

workers *workers_new(server *s); // NULL: out of memory, or no threads
// Lets a worker handle the exchange, which it holds meanwhile; or answers that there are too many.
void workers_add(workers *w, exchange *x);
void workers_free(workers *w); // drops waiting exchanges; `w` may be NULL

#endif
