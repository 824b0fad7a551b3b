// The models of `setun serve`: the one that is given, or those of a folder, loaded within one budget of memory.
#ifndef SETUN_APP_SERVE_MODELS_H
#define SETUN_APP_SERVE_MODELS_H

#include "model.h"
#include "sampling.h"
#include "server/server.h"
#include "store.h"

// What a model was promised of the memory: its plan's total without what the process had.
typedef struct served_model {
  const char *path;
  uint64_t promised; // 0: it is not loaded
} served_model;

// Zero-initialize, then set the members that are marked so.
typedef struct serve_models {
  const model_options *model; // set by the caller, as the next five
  compute_options *compute;
  const sampling_options *sampling;
  setun_context_params context;
  uint64_t constraints; // bytes of compiled constraints, for all models together
  bool verbose;
  store store;
  server_model *models; // n_models, for the server
  served_model *served;
  const char **aliases; // of all models, side by side
  char **words;         // whose texts these are
  size_t n_models, n_words;
  uint64_t process; // bytes that the process had before it loaded any
  bool measured;
} serve_models;

// The models of a folder, and their other names, each "NAME=MODEL". False after a report.
bool read_models(const char *folder, const text_list *aliases, serve_models *m);
void free_models(serve_models *m);
server_loader models_loader(serve_models *m);

#endif
