// Constraints and matchers: a position in a text, and the steps that led to it.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include "base/memory.h"

#include <string.h>

// ---- constraints ----

setun_status st_constraint_status(const st_constraint *c, setun_error *err) {
  const setun_error *failure = c->engine.failure.code ? &c->engine.failure : NULL;
  if (!failure) return st_terms_status(c->engine.t, err);
  if (err) *err = *failure;
  return failure->code;
}

setun_status st_constraint_compile(st_grammar *grammar, const st_token_trie *trie, st_constraint **out,
                                   setun_error *err) {
  st_constraint *c = st_calloc(1, sizeof *c);
  if (!c) {
    st_grammar_free(grammar);
    return st_fail_memory(err, "a constraint");
  }
  atomic_init(&c->references, 1);
  c->trie = trie;
  setun_status status = st_engine_open(&c->engine, grammar, err);
  if (!status && pthread_mutex_init(&c->lock, NULL)) status = st_fail_memory(err, "a constraint's lock");
  if (status) {
    st_engine_close(&c->engine);
    st_free(c);
    return status;
  }
  st_engine_begin(&c->engine, c->engine.g->root, ST_STACK_ROOT, &c->start);
  status = st_constraint_status(c, err);
  if (!status) st_engine_keep(&c->engine, c->start.items, c->start.n);
  if (status)
    st_constraint_release(c);
  else
    *out = c;
  return status;
}

static st_constraint *acquire(st_constraint *c) {
  atomic_fetch_add(&c->references, 1);
  return c;
}
void st_constraint_release(st_constraint *c) {
  if (!c || atomic_fetch_sub(&c->references, 1) != 1) return;
  pthread_mutex_destroy(&c->lock);
  st_engine_close(&c->engine);
  st_free(c->start.items), st_free(c);
}

size_t st_constraint_bytes(const st_constraint *c) {
  st_constraint *shared = (st_constraint *)c; // the lock is not part of the constraint's value
  pthread_mutex_lock(&shared->lock);
  size_t bytes = st_engine_bytes(&c->engine);
  pthread_mutex_unlock(&shared->lock);
  return bytes;
}

bool st_constraint_failed(const st_constraint *c) {
  st_constraint *shared = (st_constraint *)c;
  pthread_mutex_lock(&shared->lock);
  bool failed = st_constraint_status(c, NULL) != SETUN_OK;
  pthread_mutex_unlock(&shared->lock);
  return failed;
}

// ---- matchers ----

setun_status st_matcher_room(st_matcher *m, size_t n, setun_error *err) {
  size_t need;
  if (!st_add_size(m->length, n, &need) || need > UINT32_MAX / 2) {
    return st_fail(err, SETUN_ERROR_LIMIT, "a constrained text of %zu bytes is too long", m->length);
  }
  return st_reserve(&m->text, &m->text_capacity, need, 1) ? SETUN_OK : st_fail_memory(err, "a constrained text");
}

void st_matcher_reset(st_matcher *m) {
  m->n_steps = 1;
  m->configs.n = m->c->start.n;
  m->length = 0;
}

setun_status st_matcher_new(st_constraint *c, st_matcher **out, setun_error *err) {
  st_matcher *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "a matcher");
  m->c = acquire(c);
  if (!st_reserve(&m->configs.items, &m->configs.capacity, c->start.n, sizeof *m->configs.items) ||
      !st_reserve(&m->steps, &m->steps_capacity, 1, sizeof *m->steps) || st_matcher_room(m, ST_TRIE_DEPTH, err)) {
    st_matcher_free(m);
    return st_fail_memory(err, "a matcher");
  }
  if (c->start.n) memcpy(m->configs.items, c->start.items, c->start.n * sizeof *c->start.items);
  m->steps[0] = (st_matcher_step){0, 0, false};
  st_matcher_reset(m);
  *out = m;
  return SETUN_OK;
}

static bool copy_array(void *to, size_t *capacity, const void *from, size_t n, size_t size) {
  if (!st_reserve(to, capacity, n ? n : 1, size)) return false;
  if (n) memcpy(*(void **)to, from, n * size);
  return true;
}

setun_status st_matcher_copy(const st_matcher *m, st_matcher **out, setun_error *err) {
  st_matcher *copy = st_calloc(1, sizeof *copy);
  if (!copy) return st_fail_memory(err, "a matcher");
  copy->c = acquire(m->c);
  copy->length = m->length;
  copy->n_steps = m->n_steps;
  copy->configs.n = m->configs.n;
  if (!copy_array(&copy->configs.items, &copy->configs.capacity, m->configs.items, m->configs.n, sizeof(st_config)) ||
      !copy_array(&copy->steps, &copy->steps_capacity, m->steps, m->n_steps, sizeof *m->steps) ||
      !copy_array(&copy->text, &copy->text_capacity, m->text, m->length, 1)) {
    st_matcher_free(copy);
    return st_fail_memory(err, "a matcher");
  }
  *out = copy;
  return SETUN_OK;
}

void st_matcher_free(st_matcher *m) {
  if (!m) return;
  st_constraint_release(m->c);
  st_free(m->configs.items), st_free(m->steps), st_free(m->text), st_free(m->walk.items), st_free(m);
}

// ---- steps ----

// Computes the configurations after the bytes in m->walk; the bytes are stored after the text's end. Needs the lock.
static bool read_bytes(st_matcher *m, const char *bytes, size_t n) {
  st_engine *e = &m->c->engine;
  size_t count;
  const st_config *now = st_matcher_now(m, &count);
  if (!st_engine_reserve(e, &m->walk.items, &m->walk.capacity, count, sizeof *now)) return false;
  if (count) memcpy(m->walk.items, now, count * sizeof *now);
  m->walk.n = count;
  e->text = m->text;
  for (size_t i = 0, from = 0; i < n && m->walk.n; i++) {
    m->text[m->length + i] = bytes[i];
    e->position = m->length + i + 1;
    count = m->walk.n;
    if (!st_engine_step(e, &m->walk, from, count, (uint8_t)bytes[i], &m->walk)) return false;
    m->walk.n -= count;
    memmove(m->walk.items, m->walk.items + count, m->walk.n * sizeof *now);
  }
  return true;
}

// Computes the configurations after the token in m->walk. Needs the lock.
static bool read_token(st_matcher *m, int32_t token, const char *bytes, size_t n) {
  st_engine *e = &m->c->engine;
  m->walk.n = 0;
  if (n && !read_bytes(m, bytes, n)) return false;
  size_t from = m->steps[m->n_steps - 1].configs, count = m->configs.n - from;
  e->text = m->text;
  e->position = m->length + n;
  if (!st_engine_token(e, &m->configs, from, count, token, &m->walk)) return false;
  st_engine_merge(e, &m->walk, 0);
  if (e->failure.code) return false;
  st_engine_keep(e, m->walk.items, m->walk.n);
  return true;
}

static setun_status add_step(st_matcher *m, size_t n, bool ended, setun_error *err) {
  if (!st_reserve(&m->configs.items, &m->configs.capacity, m->configs.n + m->walk.n, sizeof *m->configs.items) ||
      !st_reserve(&m->steps, &m->steps_capacity, m->n_steps + 1, sizeof *m->steps)) {
    return st_fail_memory(err, "a matcher");
  }
  m->length += n;
  m->steps[m->n_steps++] = (st_matcher_step){m->configs.n, m->length, ended};
  if (m->walk.n) memcpy(m->configs.items + m->configs.n, m->walk.items, m->walk.n * sizeof *m->walk.items);
  m->configs.n += m->walk.n;
  return SETUN_OK;
}

static bool accepting(const st_config *configs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (configs[i].stack == ST_STACK_END) return true;
  }
  return false;
}

bool st_matcher_may_end(const st_matcher *m) {
  size_t n;
  const st_config *now = st_matcher_now(m, &n);
  return m->steps[m->n_steps - 1].ended || accepting(now, n);
}
bool st_matcher_must_end(st_matcher *m) {
  size_t n;
  const st_config *now = st_matcher_now(m, &n);
  return m->steps[m->n_steps - 1].ended || (n == 1 && accepting(now, n));
}

int32_t st_matcher_end_token(st_matcher *m) {
  int32_t end = st_tokenizer_eos(m->c->trie->tokenizer);
  return end >= 0 && st_matcher_allows(m, end) ? end : -1;
}

// Tries a token: SETUN_ERROR_ARGUMENT if it is not allowed; otherwise m->walk holds the configurations after it.
static setun_status try_token(st_matcher *m, int32_t token, size_t *n, bool *ends, setun_error *err) {
  const char *bytes;
  *ends = false;
  if (token < 0 || (uint32_t)token >= m->c->trie->size) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "token %d is not in the vocabulary", (int)token);
  }
  setun_status status = st_token_bytes(m->c->trie, token, &bytes, n, err);
  if (!status) status = st_matcher_room(m, *n + ST_TRIE_DEPTH, err);
  if (status) return status;
  if (m->steps[m->n_steps - 1].ended) return st_fail(err, SETUN_ERROR_STATE, "the constrained text has ended");
  pthread_mutex_lock(&m->c->lock);
  st_terms_begin_steps(m->c->engine.t);
  bool read = read_token(m, token, bytes, *n);
  status = st_constraint_status(m->c, err);
  pthread_mutex_unlock(&m->c->lock);
  if (status || !read) return status ? status : st_fail_memory(err, "a matcher");
  if (m->walk.n) return SETUN_OK;
  *ends = st_tokenizer_is_end(m->c->trie->tokenizer, token) && st_matcher_may_end(m);
  if (*ends) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "token %d may not follow byte %zu of the constrained text", (int)token,
                 m->length);
}

bool st_matcher_allows(st_matcher *m, int32_t token) {
  size_t n;
  bool ends;
  return try_token(m, token, &n, &ends, NULL) == SETUN_OK;
}

setun_status st_matcher_accept(st_matcher *m, int32_t token, setun_error *err) {
  size_t n;
  bool ends;
  setun_status status = try_token(m, token, &n, &ends, err);
  return status ? status : add_step(m, n, ends, err);
}

setun_status st_matcher_accept_bytes(st_matcher *m, const char *bytes, size_t n, setun_error *err) {
  setun_status status = st_matcher_room(m, n + ST_TRIE_DEPTH, err);
  if (status) return status;
  if (m->steps[m->n_steps - 1].ended) return st_fail(err, SETUN_ERROR_STATE, "the constrained text has ended");
  pthread_mutex_lock(&m->c->lock);
  st_terms_begin_steps(m->c->engine.t);
  bool read = read_bytes(m, bytes, n);
  if (read) st_engine_keep(&m->c->engine, m->walk.items, m->walk.n);
  status = st_constraint_status(m->c, err);
  pthread_mutex_unlock(&m->c->lock);
  if (status || !read) return status ? status : st_fail_memory(err, "a matcher");
  if (!m->walk.n) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "these %zu bytes may not follow byte %zu of the constrained text", n,
                   m->length);
  }
  return add_step(m, n, false, err);
}

setun_status st_matcher_rollback(st_matcher *m, size_t n, setun_error *err) {
  if (n >= m->n_steps) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%zu tokens to take back, of %zu that were accepted", n, m->n_steps - 1);
  }
  if (!n) return SETUN_OK;
  m->configs.n = m->steps[m->n_steps - n].configs;
  m->n_steps -= n;
  m->length = m->steps[m->n_steps - 1].length;
  return SETUN_OK;
}
size_t st_matcher_accepted(const st_matcher *m) {
  return m->n_steps - 1;
}
