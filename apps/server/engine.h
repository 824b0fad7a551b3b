// The engine: the one thread that computes, over a context whose sequences are the places of the batch.
#ifndef SETUN_SERVER_ENGINE_H
#define SETUN_SERVER_ENGINE_H

#include "state.h"

// Makes the context, sets the server's n_ctx and n_slots, and starts the thread.
setun_status engine_new(server *s, const setun_context_params *params, engine **made, setun_error *error);
// Answers with 503 what has no place yet; the rest goes on.
void engine_drain(engine *e);
bool engine_busy(engine *e);
// Ends at once what is being answered, with an error, and the thread.
void engine_stop(engine *e);
void engine_free(engine *e); // after engine_stop; `e` may be NULL

#endif
