// The server's life cycle: listening, serving, draining, stopping.
#define _POSIX_C_SOURCE 200809L
#include "compiler.h"
#include "engine.h"
#include "http.h"
#include "models.h"
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static setun_status fail_memory_of(setun_error *error) {
  if (error) {
    error->code = SETUN_ERROR_MEMORY;
    snprintf(error->message, sizeof error->message, "out of memory for the server");
  }
  return SETUN_ERROR_MEMORY;
}

setun_status server_start(const server_options *options, server **made, setun_error *error) {
  server *s = calloc(1, sizeof *s);
  if (!s) return fail_memory_of(error);
  s->options = *options;
  s->started = time(NULL);
  snprintf(s->fingerprint, sizeof s->fingerprint, "b%d-setun", setun_version_number());
  atomic_init(&s->phase, SERVER_LOADING);
  s->workers = workers_new(s);
  s->models = models_new(s);
  s->compiler = compiler_new(s);
  setun_status status = s->workers && s->models && s->compiler ? http_start(s, error) : fail_memory_of(error);
  if (status == SETUN_OK)
    *made = s;
  else
    server_free(s);
  return status;
}

const char *server_address(const server *s) {
  return s->address;
}

// All tokens that end a text; requests may exclude them.
static setun_status find_ends(server *s, setun_error *error) {
  for (uint32_t id = 0; id < s->info.n_vocab; id++) {
    if (!setun_token_is_end(s->model, (setun_token)id)) continue;
    setun_token *grown = realloc(s->ends, (s->n_ends + 1) * sizeof *grown);
    if (!grown) return fail_memory_of(error);
    s->ends = grown;
    grown[s->n_ends++] = (setun_token)id;
  }
  return SETUN_OK;
}

static setun_status open_template(server *s, setun_error *error) {
  setun_chat_params chat = setun_chat_params_default();
  setun_error no_template;
  chat.text = s->options.template_text;
  chat.length = s->options.template_length;
  chat.name = s->options.template_text ? s->options.template_name : NULL;
  chat.log = s->options.log;
  chat.user = s->options.user;
  if (setun_chat_new(s->model, &chat, &s->chat, &no_template) == SETUN_OK) {
    static const char for_tools[] = "tool_use";
    chat.name = for_tools;
    if (!chat.text) setun_chat_new(s->model, &chat, &s->chat_tools, NULL); // most models have no template of that name
    return SETUN_OK;
  }
  // A model without a template can still continue texts; a requested template must work.
  if (error && s->options.template_text) *error = no_template;
  snprintf(s->chat_problem, sizeof s->chat_problem, "%s", no_template.message);
  return s->options.template_text ? no_template.code : SETUN_OK;
}

setun_status server_of_model(const server *front, const server_model *about, const server_loaded *loaded, server **made,
                             setun_error *error) {
  server *s = calloc(1, sizeof *s);
  if (!s) return fail_memory_of(error);
  s->options = front->options;
  s->models = front->models;
  s->compiler = front->compiler;
  s->about = about;
  s->started = front->started;
  memcpy(s->fingerprint, front->fingerprint, sizeof s->fingerprint);
  s->model = loaded->model;
  s->sampling = loaded->sampling;
  s->info = (setun_model_info){.size = sizeof s->info};
  setun_status status = setun_model_get_info(s->model, &s->info, error);
  s->embeddings = (setun_embedding_info){.size = sizeof s->embeddings};
  if (status == SETUN_OK) status = setun_model_get_embedding_info(s->model, &s->embeddings, error);
  s->pooling = loaded->context.pooling == SETUN_POOLING_MODEL ? s->embeddings.pooling : loaded->context.pooling;
  if (status == SETUN_OK) status = find_ends(s, error);
  if (status == SETUN_OK) status = engine_new(s, &loaded->context, &s->engine, error);
  if (status == SETUN_OK) status = open_template(s, error);
  if (status == SETUN_OK)
    *made = s;
  else
    server_of_model_free(s);
  return status;
}

void server_of_model_free(server *s) {
  if (s->engine) engine_stop(s->engine);
  engine_free(s->engine);
  compiler_forget(s->compiler, s);
  setun_chat_free(s->chat);
  setun_chat_free(s->chat_tools);
  free(s->ends);
  free(s);
}

setun_status server_serve(server *s, const server_loaded *only, setun_error *error) {
  setun_status status = models_start(s->models, only, error);
  if (status == SETUN_OK) atomic_store(&s->phase, SERVER_READY);
  return status;
}

void server_drain(server *s) {
  atomic_store(&s->phase, SERVER_DRAINING);
  connections_quiesce(s->connections);
  models_drain(s->models);
}

bool server_busy(server *s) {
  return atomic_load(&s->working) || models_busy(s->models) || connections_replying(s->connections);
}

void server_free(server *s) {
  if (!s) return;
  atomic_store(&s->phase, SERVER_DRAINING);
  models_stop(s->models); // before the HTTP thread, so that ended jobs get an answer if possible
  compiler_stop(s->compiler);
  connections_stop(s->connections); // before the workers, to which it adds requests
  workers_free(s->workers);
  connections_free(s->connections);
  models_free(s->models);
  compiler_free(s->compiler);
  free(s);
}
