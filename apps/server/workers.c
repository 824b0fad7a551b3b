// A queue of exchanges, and the threads that take from it.
#define _POSIX_C_SOURCE 200809L
#include "workers.h"

#include "http.h"
#include "json_out.h"

#include <stdlib.h>

enum { WORKERS = 2, WAITING_MOST = 4096 };

struct workers {
  server *server;
  pthread_mutex_t lock;
  pthread_cond_t some;
  pthread_t threads[WORKERS];
  size_t n_threads;
  exchange *waiting[WAITING_MOST]; // a ring
  size_t first, count;
  bool stop;
};

static void *work(void *cls) {
  workers *w = cls;
  pthread_mutex_lock(&w->lock);
  while (!w->stop) {
    if (!w->count) {
      pthread_cond_wait(&w->some, &w->lock);
      continue;
    }
    exchange *x = w->waiting[w->first];
    w->first = (w->first + 1) % WAITING_MOST;
    w->count--;
    pthread_mutex_unlock(&w->lock);
    if (!atomic_load(&x->gone)) http_handle(w->server, x);
    exchange_release(x);
    atomic_fetch_sub(&w->server->working, 1);
    pthread_mutex_lock(&w->lock);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

workers *workers_new(server *s) {
  workers *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->server = s;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->some, NULL);
  while (w->n_threads < WORKERS && !pthread_create(&w->threads[w->n_threads], NULL, work, w)) w->n_threads++;
  if (w->n_threads) return w;
  workers_free(w);
  return NULL;
}

void workers_add(workers *w, exchange *x) {
  problem p = {0};
  pthread_mutex_lock(&w->lock);
  bool room = w->count < WAITING_MOST && !w->stop;
  if (room) {
    exchange_keep(x);
    atomic_fetch_add(&w->server->working, 1);
    w->waiting[(w->first + w->count++) % WAITING_MOST] = x;
    pthread_cond_signal(&w->some);
  }
  pthread_mutex_unlock(&w->lock);
  if (room) return;
  fail(&p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL, "too many requests wait already");
  p.retry_after = 1;
  reply_problem(x, &p);
}

void workers_free(workers *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_broadcast(&w->some);
  pthread_mutex_unlock(&w->lock);
  for (size_t i = 0; i < w->n_threads; i++) pthread_join(w->threads[i], NULL);
  for (; w->count; w->count--, w->first = (w->first + 1) % WAITING_MOST) exchange_release(w->waiting[w->first]);
  pthread_cond_destroy(&w->some);
  pthread_mutex_destroy(&w->lock);
  free(w);
}
