// Threads that turn requests into work for the engine: parsing JSON, rendering templates and tokenizing take time,
// during which the HTTP thread serves others.
#ifndef SETUN_SERVER_WORKERS_H
#define SETUN_SERVER_WORKERS_H

#include "state.h"

workers *workers_new(server *s); // NULL: out of memory, or no threads
// Lets a worker handle the exchange, with a reference of its own; or answers that too many are waiting.
void workers_add(workers *w, exchange *x);
void workers_free(workers *w); // drops waiting exchanges; `w` may be NULL

#endif
