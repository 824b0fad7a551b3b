// The HTTP server: what the command `setun serve` uses of it. Everything else in this folder is the server's own.
//
// A server listens from server_start on, and answers 503 to what needs a model until it is given one with server_serve.
// Three kinds of threads work in it: libmicrohttpd's one, which receives requests and sends what there is of replies
// (http.c); workers, which turn a body into tokens (workers.c); and the engine, which alone computes (engine.c).
#ifndef SETUN_SERVER_SERVER_H
#define SETUN_SERVER_SERVER_H

#include "setun.h"

typedef struct server server;

// A model that the server may answer with.
typedef struct server_model {
  const char *name;           // that clients are told, and ask for
  const char *file;           // the last part of its path
  const char *const *aliases; // n_aliases other names
  size_t n_aliases;
  int64_t created; // seconds since 1970
  uint64_t bytes;  // of its files; 0: not known
} server_model;

// A model that is loaded, with what its answers are computed with.
typedef struct server_loaded {
  setun_model *model;
  setun_context_params context;
  setun_sampler_params sampling; // what requests begin with
} server_loaded;

// How models are loaded and freed; called by one thread at a time.
typedef struct server_loader {
  // `alone`: no other one is loaded. Otherwise SETUN_ERROR_MEMORY asks for another one to be unloaded first. `progress`
  // says whether to go on.
  setun_status (*load)(void *user, size_t model, bool alone, setun_progress_fn progress, void *progress_user,
                       server_loaded *loaded, setun_error *error);
  void (*unload)(void *user, size_t model, setun_model *loaded);
  void *user;
} server_loader;

typedef struct server_options {
  const char *host;           // an address or a name that the system resolves
  uint16_t port;              // 0: one that is free
  const char *const *keys;    // any of them lets a request in; none: all come in
  const char *const *hosts;   // names that the Host header may have beside localhost and addresses
  const char *const *origins; // web pages of other origins that may use the server; "*": all
  size_t n_keys, n_hosts, n_origins;
  const server_model *models; // n_models that requests choose from by name
  size_t n_models;
  server_loader loader;
  const char *template_text; // a chat template instead of the model's own; NULL: that
  const char *template_name; // what messages call it
  size_t template_length;
  uint64_t body_limit;       // bytes of a request's body
  uint32_t queue_limit;      // answers that wait for a place in the batch; beyond it requests are refused
  uint32_t answer_limit;     // tokens of an answer; 0: as many as fit
  bool no_slots, no_metrics; // /slots and /metrics are not there
  uint32_t prefill_budget;   // tokens of prompts that a pass takes while answers are being written
  bool fixed_seed;           // requests without a seed have that of `sampling`, instead of one of their own
  bool no_shared_prefix;     // no request finds what another one left in the cache
  setun_log_fn log;          // may be called by any thread
  void *user;
} server_options;

// Binds and listens. What `options` points to must outlive the server.
setun_status server_start(const server_options *options, server **s, setun_error *error);
// The address that it listens on, such as "http://127.0.0.1:8080"; lives as long as the server.
const char *server_address(const server *s);
// Begins to answer. `only` is the one model there is, for requests that name any or none, and is unloaded in any case;
// NULL: models are loaded when they are asked for.
setun_status server_serve(server *s, const server_loaded *only, setun_error *error);
// Takes no new requests from now on, and answers the queued ones with 503.
void server_drain(server *s);
// Whether any request is still being answered.
bool server_busy(server *s);
// Ends at once what is still being answered, and frees the server; `s` may be NULL.
void server_free(server *s);

#endif
