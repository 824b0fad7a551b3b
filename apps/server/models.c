// Choosing the model for a request, and the thread that loads and unloads models.
#define _POSIX_C_SOURCE 200809L
#include "models.h"

#include "engine.h"
#include "params.h"
#include "routes.h"
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
  models *all;
  const server_model *about;
  server *server; // NULL: not loaded
  size_t users;   // exchanges being answered
  double used;    // time of the last request
  bool loading;   // or waiting to be loaded
  bool leaving;   // accepts no new exchanges: unloaded when it has no users
  uint64_t asked; // position in the order of models waiting to be loaded; 0: not waiting
  exchange *waiting, **last;
} entry;

struct models {
  server *front;
  entry *entries;
  size_t n;
  bool any_name; // a single model, loaded at the start
  pthread_t thread;
  bool started;
  // For all models:
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t count;   // counter of requests
  size_t n_waiting; // exchanges
  bool drain;
  atomic_bool stop;
};

models *models_new(server *front) {
  models *m = calloc(1, sizeof *m);
  size_t n = front->options.n_models;
  if (!m) return NULL;
  m->front = front;
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  m->entries = calloc(n + 1, sizeof *m->entries);
  if (!m->entries) {
    models_free(m);
    return NULL;
  }
  m->n = n;
  for (size_t i = 0; i < n; i++) {
    entry *e = &m->entries[i];
    e->all = m;
    e->about = &front->options.models[i];
    e->last = &e->waiting;
  }
  return m;
}

bool models_are_chosen(const models *m) {
  return !m->any_name;
}

// ---- names ----

static bool is_called(const server_model *about, const char *name) {
  if (!strcmp(about->name, name)) return true;
  for (size_t i = 0; i < about->n_aliases; i++) {
    if (!strcmp(about->aliases[i], name)) return true;
  }
  return false;
}

const server_model *models_find(const models *m, const char *name) {
  for (size_t i = 0; i < m->n; i++) {
    if (is_called(m->entries[i].about, name)) return m->entries[i].about;
  }
  return NULL;
}

// The model for a request that names none: the last requested one. With the lock held.
static entry *default_entry(models *m, problem *p) {
  entry *best = m->n == 1 ? m->entries : NULL;
  for (size_t i = 0; i < m->n; i++) {
    entry *e = &m->entries[i];
    if (e->used > 0 && (!best || e->used > best->used)) best = e;
  }
  if (!best) invalid(p, "model", "model: expected the name of a model (GET /v1/models lists them), found none");
  return best;
}

static entry *find_entry(models *m, const char *name, problem *p) {
  for (size_t i = 0; i < m->n; i++) {
    if (is_called(m->entries[i].about, name)) return &m->entries[i];
  }
  fail(p, MHD_HTTP_NOT_FOUND, "invalid_request_error", "model", "the model '%.200s' does not exist", name);
  p->code = "model_not_found";
  return NULL;
}

// The name in a request's body, or in its address; NULL: none, or `p` has the error.
static const char *asked_name(exchange *x, problem *p) {
  if (x->route->fields && !x->parsed) x->parsed = read_body(x, p);
  const st_json *name = st_json_get(x->parsed, "model");
  if (!name && x->route->handle == handle_ollama_show) name = st_json_get(x->parsed, "name"); // Ollama's name for it
  if (p->status) return NULL;
  if (!name || (st_json_is_string(name) && !st_json_length(name))) return *x->model ? x->model : NULL;
  if (!st_json_is_string(name)) invalid(p, "model", "model: expected a string, found %s", kind_of(name));
  const char *text = st_json_string(name);
  return text && strlen(text) != st_json_length(name) ? "?" : text; // the name of no model
}

// ---- requests ----

// Called when an exchange is over: see exchange.h.
static void release(void *acquired) {
  entry *e = acquired;
  pthread_mutex_lock(&e->all->lock);
  e->users--;
  pthread_cond_broadcast(&e->all->changed);
  pthread_mutex_unlock(&e->all->lock);
}

// With the lock held.
static void acquire(entry *e, exchange *x) {
  e->users++;
  x->acquired = e;
  x->release = release;
}

// Puts the exchange among those that wait for a model. With the lock held.
static void wait_for(models *m, entry *e, exchange *x, problem *p) {
  const bool ends = m->drain || atomic_load(&m->stop);
  if (ends || m->n_waiting > m->front->options.queue_limit) {
    fail(p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL,
         ends ? "the server is shutting down" : "too many requests wait for models");
    p->retry_after = 1;
    return;
  }
  exchange_keep(x);
  x->next = NULL;
  *e->last = x;
  e->last = &x->next;
  m->n_waiting++;
  if (!e->asked) e->asked = ++m->count;
  pthread_cond_broadcast(&m->changed);
}

server *models_take(models *m, exchange *x, problem *p) {
  const char *name = x->acquired ? NULL : asked_name(x, p);
  server *s = NULL;
  if (p->status) return NULL;
  pthread_mutex_lock(&m->lock);
  entry *e = x->acquired ? x->acquired : m->any_name ? m->entries : name ? find_entry(m, name, p) : default_entry(m, p);
  if (e) e->used = now_seconds();
  if (e && e->server && (x->acquired || !e->leaving)) {
    if (!x->acquired) acquire(e, x);
    s = e->server;
  } else if (e) {
    wait_for(m, e, x, p);
  }
  pthread_mutex_unlock(&m->lock);
  return s;
}

// ---- loading ----

static void log_line(const models *m, setun_log_level level, const char *what, const char *name) {
  const server_options *o = &m->front->options;
  char line[SETUN_ERROR_SIZE + 512];
  snprintf(line, sizeof line, "%s%s", what, name);
  if (o->log) o->log(level, line, o->user);
}

// Takes all exchanges that wait for a model out of its list. With the lock held.
static exchange *take_waiting(models *m, entry *e) {
  exchange *first = e->waiting;
  for (exchange *x = first; x; x = x->next) m->n_waiting--;
  e->waiting = NULL;
  e->last = &e->waiting;
  e->asked = 0;
  return first;
}

// Lets them be handled, or answers all with a problem.
static void release_waiting(models *m, exchange *x, const problem *p) {
  for (exchange *next; x; x = next) {
    next = x->next;
    if (p)
      reply_problem(x, p);
    else
      workers_add(m->front->workers, x);
    exchange_release(x);
  }
}

// Waits for a requested model: the one that has waited the longest. NULL: shutdown.
static entry *next_asked(models *m) {
  entry *best = NULL;
  pthread_mutex_lock(&m->lock);
  while (!best && !atomic_load(&m->stop)) {
    for (size_t i = 0; i < m->n; i++) {
      entry *e = &m->entries[i];
      if (e->asked && (!best || e->asked < best->asked)) best = e;
    }
    if (!best) pthread_cond_wait(&m->changed, &m->lock);
  }
  if (best) best->loading = true;
  pthread_mutex_unlock(&m->lock);
  return best;
}

// The model to unload: the least recently requested one, among idle models if there are any, otherwise among all. With
// the lock held.
static entry *find_victim(models *m) {
  entry *best = NULL;
  for (size_t i = 0; i < m->n; i++) {
    entry *e = &m->entries[i];
    if (!e->server) continue;
    bool better = !best || (!e->users && best->users) || (!e->users == !best->users && e->used < best->used);
    if (better) best = e;
  }
  return best;
}

static void unload(models *m, entry *e) {
  const server_loader *loader = &m->front->options.loader;
  size_t index = (size_t)(e - m->entries);
  setun_model *model = (setun_model *)e->server->model;
  server_of_model_free(e->server);
  loader->unload(loader->user, index, model);
  pthread_mutex_lock(&m->lock);
  e->server = NULL;
  e->leaving = false;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

// Unloads one model after its running answers. False: none, or the server is shutting down.
static bool make_room(models *m) {
  pthread_mutex_lock(&m->lock);
  entry *e = find_victim(m);
  if (e) e->leaving = true;
  while (e && e->users && !atomic_load(&m->stop)) pthread_cond_wait(&m->changed, &m->lock);
  bool fine = e && !e->users;
  pthread_mutex_unlock(&m->lock);
  if (!fine) return false;
  log_line(m, SETUN_LOG_INFO, "unloading ", e->about->name);
  unload(m, e);
  return true;
}

static bool is_alone(models *m) {
  pthread_mutex_lock(&m->lock);
  bool alone = !find_victim(m);
  pthread_mutex_unlock(&m->lock);
  return alone;
}

// A setun_progress_fn.
static bool go_on(double fraction, void *user) {
  models *m = user;
  (void)fraction;
  return !atomic_load(&m->stop);
}

// Starts serving a loaded model; unloads it on failure.
static setun_status begin(models *m, entry *e, const server_loaded *loaded, setun_error *error) {
  const server_loader *loader = &m->front->options.loader;
  server *s = NULL;
  setun_status status = server_of_model(m->front, e->about, loaded, &s, error);
  if (status != SETUN_OK) {
    loader->unload(loader->user, (size_t)(e - m->entries), loaded->model);
    return status;
  }
  pthread_mutex_lock(&m->lock);
  e->server = s;
  pthread_mutex_unlock(&m->lock);
  return SETUN_OK;
}

static setun_status load(models *m, entry *e, setun_error *error) {
  const server_loader *loader = &m->front->options.loader;
  for (;;) {
    server_loaded loaded = {0};
    bool alone = is_alone(m);
    size_t index = (size_t)(e - m->entries);
    setun_status s = loader->load(loader->user, index, alone, go_on, m, &loaded, error);
    if (s == SETUN_OK) s = begin(m, e, &loaded, error);
    if (s != SETUN_ERROR_MEMORY || alone || !make_room(m)) return s;
  }
}

// Whether any client still waits for it; disconnected ones are dropped.
static bool is_wanted(models *m, entry *e) {
  exchange *gone = NULL;
  pthread_mutex_lock(&m->lock);
  for (exchange **at = &e->waiting; *at;) {
    exchange *x = *at;
    if (!atomic_load(&x->gone)) {
      at = &x->next;
      continue;
    }
    *at = x->next;
    x->next = gone;
    gone = x;
    m->n_waiting--;
  }
  e->last = &e->waiting;
  while (*e->last) e->last = &(*e->last)->next;
  bool wanted = e->waiting != NULL;
  if (!wanted) e->asked = 0;
  pthread_mutex_unlock(&m->lock);
  for (exchange *x = gone, *next; x; x = next) {
    next = x->next;
    exchange_release(x);
  }
  return wanted;
}

static void *work(void *cls) {
  models *m = cls;
  for (entry *e; (e = next_asked(m));) {
    setun_error error;
    setun_status s = SETUN_OK;
    problem p = {0};
    // Loaded meanwhile for an earlier request.
    if (is_wanted(m, e) && !e->server) {
      log_line(m, SETUN_LOG_INFO, "loading ", e->about->name);
      s = load(m, e, &error);
    }
    if (s != SETUN_OK) {
      fail(&p, MHD_HTTP_INTERNAL_SERVER_ERROR, "server_error", "model", "the model %s could not be loaded: %s",
           e->about->name, error.message);
      log_line(m, SETUN_LOG_WARNING, p.message, "");
    }
    pthread_mutex_lock(&m->lock);
    e->loading = false;
    exchange *waiting = take_waiting(m, e);
    // They use it from now on: it must not be unloaded before they are answered.
    for (exchange *x = waiting; e->server && x; x = x->next) acquire(e, x);
    pthread_mutex_unlock(&m->lock);
    release_waiting(m, waiting, s == SETUN_OK ? NULL : &p);
  }
  return NULL;
}

// ---- the beginning and the end ----

setun_status models_start(models *m, const server_loaded *only, setun_error *error) {
  if (only) {
    m->any_name = true;
    return begin(m, m->entries, only, error);
  }
  m->started = !pthread_create(&m->thread, NULL, work, m);
  if (m->started) return SETUN_OK;
  if (error) *error = (setun_error){SETUN_ERROR_MEMORY, "out of memory for the thread that loads models"};
  return SETUN_ERROR_MEMORY;
}

// Answers all exchanges that wait for models.
static void refuse_waiting(models *m) {
  problem p = {0};
  fail(&p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL, "the server is shutting down");
  p.retry_after = 1;
  for (size_t i = 0; i < m->n; i++) {
    pthread_mutex_lock(&m->lock);
    exchange *waiting = take_waiting(m, &m->entries[i]);
    pthread_mutex_unlock(&m->lock);
    release_waiting(m, waiting, &p);
  }
}

void models_drain(models *m) {
  pthread_mutex_lock(&m->lock);
  m->drain = true;
  for (size_t i = 0; i < m->n; i++) {
    if (m->entries[i].server) engine_drain(m->entries[i].server->engine);
  }
  pthread_mutex_unlock(&m->lock);
  refuse_waiting(m);
}

bool models_busy(models *m) {
  pthread_mutex_lock(&m->lock);
  bool busy = m->n_waiting > 0;
  for (size_t i = 0; !busy && i < m->n; i++) busy = m->entries[i].server && engine_busy(m->entries[i].server->engine);
  pthread_mutex_unlock(&m->lock);
  return busy;
}

void models_stop(models *m) {
  if (!m) return;
  pthread_mutex_lock(&m->lock);
  atomic_store(&m->stop, true);
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  if (m->started) pthread_join(m->thread, NULL);
  m->started = false;
  refuse_waiting(m);
  for (size_t i = 0; i < m->n; i++) {
    if (m->entries[i].server) engine_stop(m->entries[i].server->engine);
  }
}

void models_free(models *m) {
  if (!m) return;
  for (size_t i = 0; i < m->n; i++) {
    if (m->entries[i].server) unload(m, &m->entries[i]);
  }
  free(m->entries);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

void models_each(models *m, void (*each)(const server_model *about, bool loading, server *s, void *user), void *user) {
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; i < m->n; i++) {
    entry *e = &m->entries[i];
    each(e->about, e->loading || e->asked, e->leaving ? NULL : e->server, user);
  }
  pthread_mutex_unlock(&m->lock);
}
