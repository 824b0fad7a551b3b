// The models that requests choose from: loaded when they are asked for, one after the other, and unloaded, those that
// were not used for the longest time first, where another one needs their memory.
#ifndef SETUN_SERVER_MODELS_H
#define SETUN_SERVER_MODELS_H

#include "json_out.h"
#include "state.h"

models *models_new(server *front); // NULL: out of memory
// Begins to answer, see server_serve.
setun_status models_start(models *m, const server_loaded *only, setun_error *error);
// What answers the exchange, with the model that it asks for, which stays loaded until the exchange is over. NULL: `p`
// says why; or, where that is none, the exchange waits for its model, and is handled again when that is loaded.
server *models_take(models *m, exchange *x, problem *p);
// Answers with 503 what waits, here and for places; the rest goes on.
void models_drain(models *m);
bool models_busy(models *m);
// Ends at once what is being answered, and the loading.
void models_stop(models *m);
void models_free(models *m); // after models_stop; `m` may be NULL

// Calls `each` with every model in their order, and with its server, NULL where it is not loaded; no model comes or
// goes meanwhile.
void models_each(models *m, void (*each)(const server_model *about, bool loading, server *s, void *user), void *user);
// Whether requests choose among several, and so have to name one.
bool models_are_chosen(const models *m);
// The model of a name or an alias; NULL: none has it.
const server_model *models_find(const models *m, const char *name);

#endif
