// The HTTP server's interface for the command `setun serve`. Everything else in this folder is private.
//
// A server listens from server_start on, and answers requests for a model with 503 until server_serve. It has four
// kinds of threads: one receives requests and sends replies (connections.c, http.c); workers, which turn a body
// into tokens (workers.c); one compiles constraints (compiler.c); and the engine alone computes (engine.c).
#ifndef SETUN_SERVER_SERVER_H
#define SETUN_SERVER_SERVER_H

#include "setun.h"

typedef struct server server;

// A model that the server can answer with.
typedef struct server_model {
  const char *name;           // the name for clients
  const char *file;           // the last part of its path
  const char *const *aliases; // n_aliases other names
  size_t n_aliases;
  int64_t created; // seconds since 1970
  uint64_t bytes;  // of its files; 0: unknown
} server_model;

// A loaded model, with the parameters of its answers.
typedef struct server_loaded {
  setun_model *model;
  setun_context_params context;
  setun_sampler_params sampling; // defaults of requests
} server_loaded;

// How models are loaded and freed; called by one thread at a time.
typedef struct server_loader {
  // `alone`: no other model is loaded. Otherwise SETUN_ERROR_MEMORY requests that another one is unloaded first.
  // `progress` returns whether to continue.
  setun_status (*load)(void *user, size_t model, bool alone, setun_progress_fn progress, void *progress_user,
                       server_loaded *loaded, setun_error *error);
  void (*unload)(void *user, size_t model, setun_model *loaded);
  void *user;
} server_loader;

typedef struct server_options {
  const char *host;           // an address or a name that the system resolves
  uint16_t port;              // 0: any free port
  const char *const *keys;    // each of them permits requests; none: no key needed
  const char *const *hosts;   // names allowed in the Host header, in addition to localhost and addresses
  const char *const *origins; // other origins whose pages may use the server; "*": all
  size_t n_keys, n_hosts, n_origins;
  const server_model *models; // n_models that requests choose from by name
  size_t n_models;
  server_loader loader;
  const char *template_text; // a chat template instead of the model's own; NULL: the model's own
  const char *template_name; // its name in messages
  size_t template_length;
  uint64_t body_limit;        // most bytes of a request's body
  uint32_t queue_limit;       // most answers waiting for a slot of the batch; further requests are refused
  uint64_t constraint_memory; // most bytes of the compiled constraints that are kept
  uint32_t answer_limit;      // most tokens of an answer; 0: as many as fit
  bool no_slots, no_metrics;  // /slots and /metrics are disabled
  uint32_t prefill_budget;    // most prompt tokens in a pass while answers are being generated
  bool fixed_seed;            // requests without a seed use that of `sampling`, instead of a random one
  bool no_shared_prefix;      // requests do not reuse the cache of other requests
  setun_log_fn log;           // may be called by any thread
  void *user;
} server_options;

// Binds and listens. What `options` points to must outlive the server.
setun_status server_start(const server_options *options, server **s, setun_error *error);
// The address that it listens on, such as "http://127.0.0.1:8080"; lives as long as the server.
const char *server_address(const server *s);
// Starts serving. `only` is the single model, for requests that name any or none; it is always unloaded in the end.
// NULL: models are loaded on request.
setun_status server_serve(server *s, const server_loaded *only, setun_error *error);
// Stops accepting requests, and answers queued ones with 503.
void server_drain(server *s);
// Whether any request is still being answered.
bool server_busy(server *s);
// Ends running answers at once, and frees the server; `s` may be NULL.
void server_free(server *s);

#endif
