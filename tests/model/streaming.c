// Streamed weights: the same bits as with all of them held, for every family and layout, whatever share is held, for
// every number of threads, after passes that were stopped, and from several sessions at once; and clear errors.
#define _XOPEN_SOURCE 700 // truncate
#include "models.h"

#include "backend/backend.h"
#include "model/model.h"
#include "model/streamer.h"
#include "runtime/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { TOKENS = 10 };

typedef struct opened {
  st_directory *directory;
  st_model *model;
} opened;

static opened open_path(const char *path, const uint32_t *held_parts, bool precise) {
  opened o = {0};
  setun_error err = {SETUN_OK, ""};
  st_model_options options = {.backend = &st_backend_cpu, .precise = precise, .threads = 2, .held_parts = held_parts};
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_model_load(o.directory, &options, &o.model, &err)) fail_msg("%s: %s", path, err.message);
  return o;
}

static void close_model(opened *o) {
  st_model_free(o->model);
  st_directory_free(o->directory);
}

static void fill_ids(setun_token *ids) {
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + 7) % 250;
}

// Logits after a prompt taken in batches of `n_batch` and three tokens more. Freed with st_free.
static float *run(const st_model *m, uint32_t n_batch, int threads) {
  setun_error err = {SETUN_OK, ""};
  setun_session_params p = {.n_ctx = 64, .n_batch = n_batch, .threads = threads};
  setun_token ids[TOKENS];
  st_session *s = NULL;
  fill_ids(ids);
  if (st_session_new(m, &p, &s, &err)) fail_msg("%s", err.message);
  if (st_session_eval(s, ids, TOKENS - 3, NULL, &err)) fail_msg("%s", err.message);
  for (int i = TOKENS - 3; i < TOKENS; i++) {
    if (st_session_eval(s, ids + i, 1, NULL, &err)) fail_msg("%s", err.message);
  }
  float *logits = st_malloc(m->h.n_vocab, sizeof *logits);
  memcpy(logits, st_session_logits(s), m->h.n_vocab * sizeof *logits);
  st_session_free(s);
  return logits;
}

static void check_run(const char *path, const st_model *m, uint32_t n_batch, int threads, const float *expected) {
  float *logits = run(m, n_batch, threads);
  if (memcmp(logits, expected, m->h.n_vocab * sizeof *logits)) {
    fail_msg("%s: batches of %u, %d threads: other logits than from held weights", path, n_batch, threads);
  }
  st_free(logits);
}

static void check_model(const char *path, bool precise) {
  opened held = open_path(path, NULL, precise);
  assert_null(held.model->streamer);
  float *expected = run(held.model, 0, 2);
  uint32_t n = held.model->h.n_layer, shares[] = {0, n + 1};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    opened o = open_path(path, &shares[i], precise);
    assert_int_equal(o.model->streamer != NULL, shares[i] < 2 * n);
    check_run(path, o.model, i ? 3 : 0, i ? 1 : 2, expected);
    close_model(&o);
  }
  st_free(expected);
  close_model(&held);
}

static void families(void **state) {
  (void)state;
  static const char *const names[] = {
      "hf/bitnet-auto",   "hf/bitnet-latent", "hf/bitnet-div", "hf/llama3-tied-sharded", "hf/qwen3",
      "hf/gemma3",        "hf/mixtral",       "hf/gpt-oss",    "gguf/gemma3-plain.gguf", "gguf/olmoe-plain.gguf",
      "gguf/gpt-oss.gguf"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", names[i]);
    check_model(path, i % 2);
  }
}

// A copy of the tales model in a layout, made by the library. The caller removes it.
static void convert_tales(const char *layout, char *path, size_t size) {
  setun_error err = {SETUN_OK, ""};
  setun_convert_params p = setun_convert_params_default();
  snprintf(path, size, "setun-streaming-%s-%d.gguf", layout, (int)getpid());
  p.to = layout;
  if (setun_convert(SETUN_SOURCE_DIR "/models/setun-tales-7m", path, &p, &err)) fail_msg("%s", err.message);
}

static void layouts(void **state) {
  (void)state;
  static const char *const names[] = {"t16", "i2_s", "tq1_0", "f16"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    convert_tales(names[i], path, sizeof path);
    check_model(path, false);
    unlink(path);
  }
}

// t16 is stored in the kernels' own order: nothing may be put together anew for it. (The head is another matter.)
static void direct(void **state) {
  (void)state;
  char path[512];
  uint32_t head = 1;
  convert_tales("t16", path, sizeof path);
  opened o = open_path(path, &head, false);
  assert_int_equal(o.model->n_head, 0);
  assert_true(o.model->plan.ring > 0);
  assert_int_equal(o.model->plan.packed, 0);
  close_model(&o);
  unlink(path);
}

static void mapped(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  convert_tales("t16", path, sizeof path);
  opened held = open_path(path, NULL, false), o = {0};
  st_model_options options = {.backend = &st_backend_cpu, .threads = 2, .mapped = true};
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_model_load(o.directory, &options, &o.model, &err)) fail_msg("%s", err.message);
  assert_true(o.model->plan.held < held.model->plan.held);
  float *expected = run(held.model, 0, 2);
  check_run(path, o.model, 0, 2, expected);
  st_free(expected);
  close_model(&o);
  close_model(&held);
  unlink(path);
}

static bool stop_at(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  (void)position, (void)n, (void)hidden;
  return layer != *(const uint32_t *)user;
}

// Passes that end within a layer leave nothing behind that a later one could take for its own.
static void stopped(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  setun_token ids[TOKENS];
  uint32_t none = 0;
  fill_ids(ids);
  convert_tales("t16", path, sizeof path);
  opened o = open_path(path, &none, false);
  float *expected = run(o.model, 0, 2);
  for (uint32_t layer = 0; layer <= o.model->h.n_layer; layer++) {
    st_session *s = NULL;
    setun_eval_params p = {.on_hidden = stop_at, .user = &layer};
    if (st_session_new(o.model, NULL, &s, &err)) fail_msg("%s", err.message);
    assert_int_equal(st_session_eval(s, ids, 5, &p, &err), SETUN_ERROR_CANCELED);
    st_session_free(s);
    check_run(path, o.model, 0, 2, expected);
  }
  st_free(expected);
  close_model(&o);
  unlink(path);
}

typedef struct worker {
  const st_model *model;
  float *logits;
} worker;

static void *work(void *context) {
  worker *w = context;
  w->logits = run(w->model, 5, 1);
  return NULL;
}

static void several_sessions(void **state) {
  (void)state;
  char path[512];
  uint32_t none = 0;
  worker workers[3];
  pthread_t threads[3];
  convert_tales("i2_s", path, sizeof path);
  opened o = open_path(path, &none, false);
  float *expected = run(o.model, 0, 2);
  for (int i = 0; i < 3; i++) {
    workers[i] = (worker){o.model, NULL};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
    assert_memory_equal(workers[i].logits, expected, o.model->h.n_vocab * sizeof *expected);
    st_free(workers[i].logits);
  }
  st_free(expected);
  close_model(&o);
  unlink(path);
}

// A file that shrinks while it is used: an error that names it, whether it streams or is mapped.
static void shrinking(void **state) {
  (void)state;
  setun_token ids[TOKENS];
  uint32_t none = 0;
  fill_ids(ids);
  for (int map = 0; map < 2; map++) {
    char path[512];
    setun_error err = {SETUN_OK, ""};
    st_session *s = NULL;
    opened o = {0};
    st_model_options options = {
        .backend = &st_backend_cpu, .threads = 1, .held_parts = map ? NULL : &none, .mapped = map};
    convert_tales("t16", path, sizeof path);
    if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
    if (st_model_load(o.directory, &options, &o.model, &err)) fail_msg("%s", err.message);
    if (st_session_new(o.model, NULL, &s, &err)) fail_msg("%s", err.message);
    assert_int_equal(st_session_eval(s, ids, 3, NULL, &err), SETUN_OK);
    assert_int_equal(truncate(path, 1 << 20), 0);
    setun_status status = SETUN_OK;
    for (int i = 0; i < 3 && !status; i++)
      status = st_session_eval(s, ids, 3, NULL, &err); // one pass may be read ahead
    assert_int_equal(status, SETUN_ERROR_IO);
    if (!strstr(err.message, path)) fail_msg("the file's name is missing: %s", err.message);
    st_session_free(s);
    close_model(&o);
    unlink(path);
  }
}

// A budget below the least is refused before anything is read, with the least in the message; the least itself does.
static void budgets(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  setun_plan plan;
  convert_tales("t16", path, sizeof path);
  setun_session_params session = {.n_ctx = 64, .n_batch = 8, .threads = 1};
  setun_model_params p = setun_model_params_default();
  p.session = &session;
  p.threads = 1;
  p.memory = 1 << 20;
  assert_int_equal(setun_plan_model(path, &p, &plan, &err), SETUN_ERROR_MEMORY);
  assert_non_null(strstr(err.message, "at least"));
  assert_true(plan.least > p.memory);
  p.memory = plan.least + (4 << 20); // what the process has grew a little
  if (setun_plan_model(path, &p, &plan, &err)) fail_msg("%s", err.message);
  assert_true(plan.total <= p.memory);
  setun_model *m = NULL;
  if (setun_model_load(path, &p, &m, &err)) fail_msg("%s", err.message);
  setun_model_free(m);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(families),  cmocka_unit_test(layouts),
                                     cmocka_unit_test(direct),    cmocka_unit_test(mapped),
                                     cmocka_unit_test(stopped),   cmocka_unit_test(several_sessions),
                                     cmocka_unit_test(shrinking), cmocka_unit_test(budgets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
