// The server as a whole, for the files of this folder.
#ifndef SETUN_SERVER_STATE_H
#define SETUN_SERVER_STATE_H

#include "connections.h"
#include "server.h"

typedef struct compiler compiler;
typedef struct engine engine;
typedef struct models models;
typedef struct workers workers;

typedef enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_DRAINING } server_phase;

// What handlers see. One server listens. Each loaded model has another server with the
// same options.
struct server {
  server_options options;
  models *models;
  const server_model *about; // the model that it answers with
  char address[320];
  char fingerprint[32]; // clients compare it to tell whether replies come from the same program
  int64_t started;      // seconds since 1970
  connections *connections;
  workers *workers;
  compiler *compiler;
  atomic_int phase;    // server_phase
  atomic_uint working; // exchanges being answered by threads other than the HTTP thread
  // For a model's server:
  engine *engine;
  const setun_model *model;
  setun_chat *chat;       // NULL: the model has no template; `chat_problem` says why
  setun_chat *chat_tools; // for conversations with tools; NULL: the same
  char chat_problem[SETUN_ERROR_SIZE];
  setun_sampler_params sampling; // the defaults of requests
  setun_token *ends;             // the n_ends tokens that end a text
  size_t n_ends;
  setun_model_info info;
  setun_embedding_info embeddings;
  setun_pooling pooling; // of the context; SETUN_POOLING_OFF: no embeddings
  uint32_t n_embed;      // most tokens of a text that becomes a vector
  uint32_t n_ctx, n_slots;
  uint32_t n_forced; // forced tokens per choice after its drawn one, such that a pass holds those of all choices
};

// The server of a loaded model: creates its context and starts its engine (server.c). `about` and the model must
// outlive it.
setun_status server_of_model(const server *front, const server_model *about, const server_loaded *loaded, server **made,
                             setun_error *error);
// Ends running answers.
void server_of_model_free(server *s);

#endif
