// Loading models for the server: each is planned with the memory that was promised to the other loaded models.
#define _POSIX_C_SOURCE 200809L
#include "serve_models.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

// ---- names ----

static bool add_aliases(serve_models *m, const text_list *aliases) {
  for (size_t k = 0; k < aliases->count; k++) {
    const char *equals = strchr(aliases->items[k], '=');
    size_t i = 0;
    while (equals && i < m->n_models && strcmp(m->models[i].name, equals + 1)) i++;
    if (!equals || equals == aliases->items[k] || i == m->n_models) {
      failure("--alias: expected NAME=MODEL with one of the models in %s, found '%s'", m->store.folder,
              aliases->items[k]);
      return false;
    }
    char *word = strndup(aliases->items[k], (size_t)(equals - aliases->items[k]));
    if (!word) return !failure("out of memory for a name");
    m->words[m->n_words++] = word;
    m->models[i].n_aliases++;
  }
  // Now that the number of each model's names is known, stores them contiguously.
  size_t at = 0;
  for (size_t i = 0; i < m->n_models; i++) {
    m->models[i].aliases = m->aliases + at;
    for (size_t k = 0; k < aliases->count; k++) {
      if (!strcmp(strchr(aliases->items[k], '=') + 1, m->models[i].name)) m->aliases[at++] = m->words[k];
    }
  }
  return true;
}

bool read_models(const char *folder, const text_list *aliases, serve_models *m) {
  if (!store_open(folder, &m->store)) return false;
  size_t n = m->store.count;
  if (!n) return !failure("%s: expected models, found none", m->store.folder);
  m->models = calloc(n, sizeof *m->models);
  m->served = calloc(n, sizeof *m->served);
  m->aliases = calloc(aliases->count + 1, sizeof *m->aliases);
  m->words = calloc(aliases->count + 1, sizeof *m->words);
  if (!m->models || !m->served || !m->aliases || !m->words) return !failure("out of memory for the names of models");
  m->n_models = n;
  for (size_t i = 0; i < n; i++) {
    const stored_model *from = &m->store.models[i];
    const char *slash = strrchr(from->path, '/');
    m->served[i].path = from->path;
    m->models[i] = (server_model){.name = from->name,
                                  .file = slash ? slash + 1 : from->path,
                                  .created = from->choice.modified,
                                  .bytes = from->choice.bytes};
  }
  return add_aliases(m, aliases);
}

void free_models(serve_models *m) {
  for (size_t i = 0; i < m->n_words; i++) free(m->words[i]);
  free(m->words);
  free(m->aliases);
  free(m->served);
  free(m->models);
  store_close(&m->store);
}

// ---- loading ----

// The plan of a model in addition to the loaded ones, whose promised memory counts whether they use it or not.
static setun_status plan_beside(serve_models *m, const char *path, setun_model_params *params, setun_plan *plan,
                                setun_error *error) {
  uint64_t promised = m->constraints;
  *plan = (setun_plan){.size = sizeof *plan};
  params->beside = 0;
  setun_status s = setun_model_plan(path, params, plan, error);
  if (s != SETUN_OK && s != SETUN_ERROR_MEMORY) return s;
  if (!m->measured) m->process = plan->process;
  m->measured = true;
  for (size_t i = 0; i < m->n_models; i++) promised += m->served[i].promised;
  if (m->process + promised <= plan->process) return s;
  params->beside = m->process + promised - plan->process;
  *plan = (setun_plan){.size = sizeof *plan};
  return setun_model_plan(path, params, plan, error);
}

// Removes the folder from a message for clients, which are told only file names.
static setun_status without_folder(const char *path, setun_error *error) {
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash + 1 - path) : 0;
  if (n && strncmp(error->message, path, n) == 0)
    memmove(error->message, error->message + n, strlen(error->message + n) + 1);
  return error->code;
}

// See server_loader.
static setun_status load(void *user, size_t index, bool alone, setun_progress_fn progress, void *progress_user,
                         server_loaded *loaded, setun_error *error) {
  serve_models *m = user;
  served_model *served = &m->served[index];
  setun_session_params session = session_params(m->compute);
  setun_model_params params = loading_params(m->model, m->compute, &session);
  setun_plan plan;
  setun_status s = plan_beside(m, served->path, &params, &plan, error);
  if (s != SETUN_OK) return without_folder(served->path, error);
  if (plan.streamed && !alone) { // it would be read from disk for every pass
    snprintf(error->message, sizeof error->message, "it does not fit into memory beside the models that are loaded");
    return error->code = SETUN_ERROR_MEMORY;
  }
  bool verbose = m->verbose;
  setun_model *model = NULL;
  params.progress = progress;
  params.user = progress_user;
  s = setun_model_load(served->path, &params, &model, error);
  if (s != SETUN_OK) return without_folder(served->path, error);
  if (!sampling_params(model, m->sampling, &loaded->sampling)) {
    setun_model_free(model);
    snprintf(error->message, sizeof error->message, "the sampling options do not apply to it");
    return error->code = SETUN_ERROR_ARGUMENT;
  }
  if (verbose) note("%s: %llu bytes", served->path, (unsigned long long)(plan.total - plan.process));
  served->promised = plan.total - plan.process;
  loaded->model = model;
  loaded->context = m->context;
  return SETUN_OK;
}

static void unload(void *user, size_t index, setun_model *model) {
  serve_models *m = user;
  if (m->n_models) m->served[index].promised = 0;
  setun_model_free(model);
}

server_loader models_loader(serve_models *m) {
  return (server_loader){load, unload, m};
}
