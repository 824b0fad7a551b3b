// The server as a whole, for the files of this folder.
#ifndef SETUN_SERVER_STATE_H
#define SETUN_SERVER_STATE_H

#include "connections.h"
#include "server.h"

typedef struct engine engine;
typedef struct workers workers;

typedef enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_DRAINING } server_phase;

struct server {
  server_options options;
  char address[320];
  char fingerprint[32]; // what clients compare to know whether replies come from the same program
  int64_t started;      // seconds since 1970
  struct MHD_Daemon *daemon;
  connections *connections;
  workers *workers;
  atomic_int phase;    // server_phase
  atomic_uint working; // exchanges that are being answered by other threads than the HTTP thread
  // What SERVER_READY promises:
  engine *engine;
  const setun_model *model;
  setun_chat *chat; // NULL: the model has no template; `chat_problem` says why
  char chat_problem[SETUN_ERROR_SIZE];
  setun_sampler_params sampling; // what requests begin with
  setun_token *ends;             // the n_ends tokens that end a text
  size_t n_ends;
  setun_model_info info;
  setun_embedding_info embeddings;
  setun_pooling pooling; // of the context; SETUN_POOLING_OFF: there are no embeddings
  uint32_t n_embed;      // tokens of a text that becomes a vector, at most
  uint32_t n_ctx, n_slots;
};

#endif
