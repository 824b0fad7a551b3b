// The engine's thread.
#include "engine.h"

#include <stdlib.h>

struct engine {
  server *server;
  setun_context *context;
};

setun_status engine_new(server *s, const setun_context_params *params, engine **made, setun_error *error) {
  setun_context_info info = {.size = sizeof info};
  engine *e = calloc(1, sizeof *e);
  if (!e) return SETUN_ERROR_MEMORY;
  e->server = s;
  setun_status status = setun_context_new(s->model, params, &e->context, error);
  if (status == SETUN_OK) status = setun_context_get_info(e->context, &info, error);
  s->n_ctx = info.n_ctx;
  s->n_slots = info.n_seq_max;
  if (status == SETUN_OK)
    *made = e;
  else
    engine_free(e);
  return status;
}

void engine_drain(engine *e) {
  (void)e;
}

bool engine_busy(engine *e) {
  (void)e;
  return false;
}

void engine_stop(engine *e) {
  (void)e;
}

void engine_free(engine *e) {
  if (!e) return;
  setun_context_free(e->context);
  free(e);
}
