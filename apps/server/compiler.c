// The queue of jobs that wait for constraints, the thread that compiles them, and the kept constraints.
#define _POSIX_C_SOURCE 200809L
#include "compiler.h"

#include "constraints.h"
#include "engine.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_MOST = 64, COMPILE_MILLISECONDS = 500 };
// A constraint that exceeds the time of a first try waits until all others had theirs, so that many slow constraints do
// not delay the fast ones of other clients. After this many others, a slow one has its turn.
enum { FIRST_TRY_MILLISECONDS = 25, FAST_MOST = 16 };

struct compiled {
  compiled *next; // more recently used ones come first
  const server *server;
  char *key;
  size_t key_length;
  setun_constraint *constraint;
  size_t users; // jobs
};

struct compiler {
  const server *front;
  pthread_t thread;
  bool started;
  atomic_bool busy;
  pthread_mutex_t lock; // protects everything below
  pthread_cond_t changed;
  job *waiting, **last;
  compiled *kept;
  size_t n_waiting, n_kept;
  unsigned n_fast;  // first tries since the last slow one
  uint64_t granted; // bytes by which constraints may grow in the steps that are being computed
  pthread_cond_t granted_less;
  uint64_t n_compiled, n_found;
  bool stop;
};

// ---- the kept constraints; with the lock held ----

static uint64_t bytes_of(const compiled *one) {
  setun_constraint_info info = {.size = sizeof info};
  setun_constraint_get_info(one->constraint, &info, NULL);
  return info.bytes + one->key_length;
}

static uint64_t all_bytes(const compiler *c) {
  uint64_t bytes = 0;
  for (const compiled *one = c->kept; one; one = one->next) bytes += bytes_of(one);
  return bytes;
}

static bool has_failed(const compiled *one) {
  setun_constraint_info info = {.size = sizeof info};
  setun_constraint_get_info(one->constraint, &info, NULL);
  return info.failed;
}

// Moves a kept constraint to the front, and gives it to the job. False: none has its key.
static bool take_kept(compiler *c, job *j) {
  const constraint_request *r = j->request;
  for (compiled **at = &c->kept; *at; at = &(*at)->next) {
    compiled *one = *at;
    bool same =
        one->server == j->server && one->key_length == r->key_length && !memcmp(one->key, r->key, r->key_length);
    if (!same || has_failed(one)) continue; // failed: a text of another answer reached a limit with it
    *at = one->next;
    one->next = c->kept;
    c->kept = one;
    one->users++;
    j->compiled = one;
    j->constraint = one->constraint;
    return true;
  }
  return false;
}

static void move(compiler *c, compiled **at, compiled **dropped) {
  compiled *one = *at;
  *at = one->next;
  one->next = *dropped;
  *dropped = one;
  c->n_kept--;
}

// Moves constraints without users to `dropped`: those that failed, and the least recently used ones until the others
// take no more than `bytes`. False: those in use take more.
static bool make_room(compiler *c, uint64_t bytes, size_t most, compiled **dropped) {
  for (compiled **at = &c->kept; *at;) {
    if (!(*at)->users && has_failed(*at))
      move(c, at, dropped);
    else
      at = &(*at)->next;
  }
  while (c->n_kept > most || all_bytes(c) > bytes) {
    compiled **found = NULL;
    for (compiled **at = &c->kept; *at; at = &(*at)->next) {
      if (!(*at)->users) found = at;
    }
    if (!found) return false;
    move(c, found, dropped);
  }
  return true;
}

// Without the lock: other threads need not wait for it.
static void free_all(compiled *dropped) {
  for (compiled *one = dropped, *next; one; one = next) {
    next = one->next;
    setun_constraint_free(one->constraint);
    free(one->key);
    free(one);
  }
}

void compiler_release(compiler *c, compiled *one) {
  if (!one) return;
  pthread_mutex_lock(&c->lock);
  one->users--;
  pthread_cond_signal(&c->changed); // the thread makes room
  pthread_mutex_unlock(&c->lock);
}

// The most that one constraint may take, while it is compiled and afterwards: such that one can be compiled while
// another one grows to this size.
static uint64_t share_of(const compiler *c) {
  return c->front->options.constraint_memory / 3;
}

bool compiler_grant(compiler *c, const compiled *one, uint64_t *bytes) {
  compiled *dropped = NULL;
  const uint64_t share = share_of(c);
  pthread_mutex_lock(&c->lock);
  bool room = false, others = true;
  while (!room && others) {
    uint64_t now = bytes_of(one), taken = atomic_load(&c->busy) ? share : 0;
    *bytes = now < share ? share - now : 0;
    taken += c->granted + *bytes;
    const uint64_t limit = c->front->options.constraint_memory;
    room = taken <= limit && make_room(c, limit - taken, SIZE_MAX, &dropped);
    others = c->granted > 0;
    if (!room && others) pthread_cond_wait(&c->granted_less, &c->lock); // another model's step, which ends soon
  }
  if (room) c->granted += *bytes;
  pthread_mutex_unlock(&c->lock);
  free_all(dropped);
  return room;
}

void compiler_take_back(compiler *c, uint64_t bytes) {
  pthread_mutex_lock(&c->lock);
  c->granted -= bytes;
  pthread_cond_broadcast(&c->granted_less);
  pthread_cond_signal(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

void compiler_forget(compiler *c, const server *s) {
  compiled *dropped = NULL;
  pthread_mutex_lock(&c->lock);
  for (compiled **at = &c->kept; *at;) {
    if ((*at)->server == s)
      move(c, at, &dropped);
    else
      at = &(*at)->next;
  }
  pthread_mutex_unlock(&c->lock);
  free_all(dropped);
}

// ---- jobs ----

static void refuse(job *j, const char *why) {
  problem p = {0};
  fail(&p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL, "%s", why);
  p.retry_after = 1;
  reply_problem(j->x, &p);
  job_free(j);
}

// With the lock held.
static void append(compiler *c, job *j) {
  j->next = NULL;
  *c->last = j;
  c->last = &j->next;
  c->n_waiting++;
  pthread_cond_signal(&c->changed);
}

void compiler_submit(compiler *c, job *j) {
  pthread_mutex_lock(&c->lock);
  const bool stop = c->stop, found = !stop && take_kept(c, j), room = c->n_waiting < c->front->options.queue_limit + 1;
  if (found) {
    c->n_found++;
  } else if (!stop && room) {
    append(c, j);
  }
  pthread_mutex_unlock(&c->lock);
  if (found)
    job_submit(j);
  else if (stop)
    refuse(j, "the server is shutting down");
  else if (!room)
    refuse(j, "too many requests wait for their constraints to be compiled");
}

// The first waiting job whose turn it is. NULL: none waits.
static job **next_turn(compiler *c) {
  job **slow = NULL, **fast = NULL;
  for (job **at = &c->waiting; *at; at = &(*at)->next) {
    job ***kind = (*at)->slow ? &slow : &fast;
    if (!*kind) *kind = at;
  }
  return fast && (!slow || c->n_fast < FAST_MOST) ? fast : slow;
}

// The next job, if there is memory to compile its constraint, which is reserved. With the lock held.
static job *first_job(compiler *c, compiled **dropped) {
  const uint64_t limit = c->front->options.constraint_memory, taken = c->granted + share_of(c);
  job **at = next_turn(c), *j = at ? *at : NULL;
  if (!j) {
    make_room(c, limit, KEPT_MOST, dropped);
    return NULL;
  }
  if (!atomic_load(&j->x->gone) && !take_kept(c, j)) {
    if (taken > limit || !make_room(c, limit - taken, KEPT_MOST - 1, dropped)) return NULL;
    atomic_store(&c->busy, true);
  }
  *at = j->next;
  if (!j->next) c->last = at;
  c->n_waiting--;
  c->n_fast = j->slow ? 0 : c->n_fast + 1;
  c->n_found += j->compiled != NULL;
  return j;
}

// Waits for a job. NULL: the thread is to end.
static job *next_job(compiler *c) {
  job *j = NULL;
  pthread_mutex_lock(&c->lock);
  while (!c->stop && !j) {
    compiled *dropped = NULL;
    j = first_job(c, &dropped);
    if (dropped) {
      pthread_mutex_unlock(&c->lock);
      free_all(dropped);
      pthread_mutex_lock(&c->lock);
    } else if (!j) {
      pthread_cond_wait(&c->changed, &c->lock);
    }
  }
  pthread_mutex_unlock(&c->lock);
  return j;
}

// Keeps the constraint, whose first user is the job.
static bool keep(compiler *c, job *j, setun_constraint *constraint) {
  compiled *one = calloc(1, sizeof *one);
  if (!one) return false;
  constraint_request *r = j->request;
  *one =
      (compiled){.server = j->server, .key = r->key, .key_length = r->key_length, .constraint = constraint, .users = 1};
  r->key = NULL;
  j->compiled = one;
  j->constraint = constraint;
  pthread_mutex_lock(&c->lock);
  one->next = c->kept;
  c->kept = one;
  c->n_kept++;
  c->n_compiled++;
  pthread_mutex_unlock(&c->lock);
  return true;
}

static void wait_again(compiler *c, job *j) {
  pthread_mutex_lock(&c->lock);
  j->slow = true;
  append(c, j);
  pthread_mutex_unlock(&c->lock);
}

static void compile(compiler *c, job *j) {
  const constraint_limits limits = {share_of(c), j->slow ? COMPILE_MILLISECONDS : FIRST_TRY_MILLISECONDS};
  setun_constraint *constraint = NULL;
  problem p = {0};
  setun_status s = constraint_compile(j, &limits, &constraint, &p);
  if (s == SETUN_ERROR_LIMIT && !j->slow) {
    wait_again(c, j);
    return;
  }
  bool fine = s == SETUN_OK;
  if (fine && !keep(c, j, constraint)) {
    setun_constraint_free(constraint);
    fine = fail_memory(&p);
  }
  atomic_store(&c->busy, false);
  if (fine) {
    job_submit(j);
    return;
  }
  reply_problem(j->x, &p);
  job_free(j);
}

static void *work(void *cls) {
  compiler *c = cls;
  for (job *j; (j = next_job(c));) {
    if (atomic_load(&j->x->gone))
      job_free(j);
    else if (atomic_load(&c->front->phase) == SERVER_DRAINING)
      refuse(j, "the server is shutting down");
    else if (j->compiled)
      job_submit(j);
    else
      compile(c, j);
    atomic_store(&c->busy, false);
  }
  return NULL;
}

// ---- the beginning and the end ----

compiler *compiler_new(const server *front) {
  compiler *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->front = front;
  c->last = &c->waiting;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  pthread_cond_init(&c->granted_less, NULL);
  c->started = !pthread_create(&c->thread, NULL, work, c);
  if (c->started) return c;
  compiler_free(c);
  return NULL;
}

void compiler_stop(compiler *c) {
  if (!c || !c->started) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  pthread_join(c->thread, NULL);
  c->started = false;
  for (job *j = c->waiting, *next; j; j = next) {
    next = j->next;
    refuse(j, "the server is shutting down");
  }
  c->waiting = NULL;
}

void compiler_free(compiler *c) {
  if (!c) return;
  free_all(c->kept);
  pthread_cond_destroy(&c->changed);
  pthread_cond_destroy(&c->granted_less);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void compiler_look(compiler *c, compiler_state *state) {
  pthread_mutex_lock(&c->lock);
  *state = (compiler_state){.compiled = c->n_compiled,
                            .found = c->n_found,
                            .bytes = all_bytes(c),
                            .waiting = (uint32_t)c->n_waiting,
                            .kept = (uint32_t)c->n_kept};
  pthread_mutex_unlock(&c->lock);
}

bool compiler_is_busy(const compiler *c) {
  return atomic_load(&c->busy);
}
