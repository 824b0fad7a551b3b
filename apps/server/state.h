// The server as a whole, for the files of this folder.
#ifndef SETUN_SERVER_STATE_H
#define SETUN_SERVER_STATE_H

#include "connections.h"
#include "server.h"

typedef struct engine engine;
typedef struct models models;
typedef struct workers workers;

typedef enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_DRAINING } server_phase;

// What handlers see. One of them listens; what it has of the daemon is its own alone. Of each model that is loaded
// there is another one, with the same options.
struct server {
  server_options options;
  models *models;
  const server_model *about; // that it answers with
  char address[320];
  char fingerprint[32]; // what clients compare to know whether replies come from the same program
  int64_t started;      // seconds since 1970
  struct MHD_Daemon *daemon;
  connections *connections;
  workers *workers;
  atomic_int phase;    // server_phase
  atomic_uint working; // exchanges that are being answered by other threads than the HTTP thread
  // Of a model:
  engine *engine;
  const setun_model *model;
  setun_chat *chat;       // NULL: the model has no template; `chat_problem` says why
  setun_chat *chat_tools; // for conversations with tools; NULL: the same
  char chat_problem[SETUN_ERROR_SIZE];
  setun_sampler_params sampling; // what requests begin with
  setun_token *ends;             // the n_ends tokens that end a text
  size_t n_ends;
  setun_model_info info;
  setun_embedding_info embeddings;
  setun_pooling pooling; // of the context; SETUN_POOLING_OFF: there are no embeddings
  uint32_t n_embed;      // tokens of a text that becomes a vector, at most
  uint32_t n_ctx, n_slots;
  uint32_t n_forced; // tokens that a choice may add to the one that it drew, so that a pass holds those of all
};

// Of a model that is loaded: makes its context, and begins to compute (server.c). `about` and the model must outlive
// it.
setun_status server_of_model(const server *front, const server_model *about, const server_loaded *loaded, server **made,
                             setun_error *error);
// Ends what it still answers.
void server_of_model_free(server *s);

#endif
