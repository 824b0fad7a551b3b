// The models that requests choose from: loaded on request, one at a time, and unloaded, least recently used first, when
// another one needs their memory.
#ifndef SETUN_SERVER_MODELS_H
#define SETUN_SERVER_MODELS_H

#include "json_out.h"
#include "state.h"

models *models_new(server *front); // NULL: out of memory
// Starts serving, see server_serve.
setun_status models_start(models *m, const server_loaded *only, setun_error *error);
// The server for the exchange's model, which stays loaded until the exchange is over. NULL: `p` has the reason; or,
// without one, the exchange waits for its model and is handled again when that is loaded.
server *models_take(models *m, exchange *x, problem *p);
// Answers exchanges that wait for a model, and jobs that wait for a slot, with 503; the others continue.
void models_drain(models *m);
bool models_busy(models *m);
// Ends running answers and loading at once.
void models_stop(models *m);
void models_free(models *m); // after models_stop; `m` may be NULL

// Calls `each` with every model, in order, and its server, NULL if not loaded; no model is loaded or unloaded
// meanwhile.
void models_each(models *m, void (*each)(const server_model *about, bool loading, server *s, void *user), void *user);
// Whether requests choose among several models, and so must name one.
bool models_are_chosen(const models *m);
// The model with this name or alias; NULL: none.
const server_model *models_find(const models *m, const char *name);

#endif
