// The engine: the only thread that computes. The sequences of its context are the slots of the batch.
#ifndef SETUN_SERVER_ENGINE_H
#define SETUN_SERVER_ENGINE_H

#include "job.h"

// Makes the context, sets the server's n_ctx and n_slots, and starts the thread.
setun_status engine_new(server *s, const setun_context_params *params, engine **made, setun_error *error);
// Takes ownership of the job. False: the caller still owns it, and `p` has the reason: the queue is full, or the server
// is shutting down.
bool engine_add(engine *e, job *j, problem *p);
// Answers jobs without a slot with 503; the others continue.
void engine_drain(engine *e);
bool engine_busy(engine *e);
// Ends running jobs at once, with an error, and the thread.
void engine_stop(engine *e);
void engine_free(engine *e); // after engine_stop; `e` may be NULL

// ---- statistics, for any thread ----

typedef struct slot_state {
  bool busy, drawing; // drawing: the prompt is evaluated
  uint32_t prompt, cached, done, drawn;
  char id[40];
} slot_state;

typedef struct engine_state {
  uint64_t prompt_tokens, cached_tokens, drawn_tokens, passes, places, answers, canceled, refused;
  uint64_t beside_compiling;              // passes while a constraint was being compiled
  double prompt_seconds, drawing_seconds; // for passes with prompts, and all others
  uint32_t running, waiting, n_slots;
  uint64_t pages, pages_used, pages_kept;
} engine_state;

// `slots` may be NULL, otherwise it has room for the server's n_slots.
void engine_look(engine *e, engine_state *state, slot_state *slots);

#endif
