// Sessions that are made, used and freed on several threads while others stream the same weights, or share a cache of
// experts, and while the statistics are asked for: each gets the logits that it gets alone. For the thread sanitizer
// above all.
#include "models.h"

#include "backend/backend.h"
#include "placement/placement.h"
#include "runtime/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 3, TOKENS = 6 };

typedef struct job {
  const st_model *model;
  int index;
  atomic_bool *running;
  const st_streamer *streamer;
  float *logits; // [n_vocab] of this index's tokens
  bool failed;
} job;

static setun_status evaluate(const job *j, float *logits) {
  const setun_session_params params = {.size = sizeof params, .threads = 1 + j->index % 3, .n_ctx = 32, .n_batch = 3};
  setun_token ids[TOKENS];
  st_session *s = NULL;
  for (int i = 0; i < TOKENS; i++) ids[i] = (j->index * 31 + i * 7 + 1) % 200;
  setun_status status = st_session_new(j->model, &params, &s, NULL);
  if (status == SETUN_OK) status = st_session_eval(s, ids, TOKENS, NULL, NULL);
  if (status == SETUN_OK) memcpy(logits, st_session_logits(s), j->model->h.n_vocab * sizeof *logits);
  st_session_free(s);
  return status;
}

static void *come_and_go(void *user) {
  job *j = user;
  size_t bytes = j->model->h.n_vocab * sizeof(float);
  float *logits = st_malloc(bytes, 1);
  j->failed = !logits;
  for (int i = 0; i < ROUNDS && !j->failed; i++) {
    j->failed = evaluate(j, logits) != SETUN_OK || memcmp(logits, j->logits, bytes) != 0;
  }
  st_free(logits);
  return NULL;
}

static void *watch(void *user) {
  job *j = user;
  uint64_t before = 0, hits = 0, misses = 0;
  while (atomic_load(j->running)) {
    st_streamer_count_experts(j->streamer, 0, &hits, &misses);
    st_streamer_stats stats = st_streamer_get_stats(j->streamer);
    if (stats.read.bytes < before || stats.passes_s < stats.read.waited_s) j->failed = true;
    if (stats.expert_hits < hits || stats.expert_misses < misses) j->failed = true;
    before = stats.read.bytes;
  }
  return NULL;
}

// With so many experts cached (0: they are resident), some of which are read ahead where they are used as read.
static void check(const char *path, uint32_t resident_parts, uint32_t cached) {
  setun_error err = {SETUN_OK, ""};
  st_directory *d = NULL;
  st_placement *p = NULL;
  const st_placement_options options = {.backend = st_backend_find(NULL),
                                        .threads = 2,
                                        .context_size = st_context_size_of,
                                        .resident_parts = &resident_parts,
                                        .cached_experts = cached ? &cached : NULL,
                                        .prefetch = {ST_PREFETCH_ALWAYS, 1}};
  if (st_directory_open(path, &(st_open_options){0}, &d, &err)) fail_msg("%s", err.message);
  if (st_placement_load(d, &options, &p, &err)) fail_msg("%s", err.message);
  assert_non_null(p->streamer);
  atomic_bool running = true;
  job jobs[THREADS + 1];
  pthread_t threads[THREADS + 1];
  for (int i = 0; i <= THREADS; i++) {
    jobs[i] = (job){.model = p->model, .index = i, .running = &running, .streamer = p->streamer};
    if (i == THREADS) break;
    jobs[i].logits = st_malloc(p->model->h.n_vocab, sizeof(float));
    assert_int_equal(evaluate(&jobs[i], jobs[i].logits), SETUN_OK);
  }
  for (int i = 0; i <= THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? come_and_go : watch, &jobs[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&running, false);
  pthread_join(threads[THREADS], NULL);
  for (int i = 0; i <= THREADS; i++) {
    if (jobs[i].failed) fail_msg("%s, %u parts resident: thread %d", path, resident_parts, i);
    st_free(jobs[i].logits);
  }
  st_placement_free(p);
  st_directory_free(d);
}

static void sessions_come_and_go(void **state) {
  (void)state;
  check(GOLDEN "hf/llama3", 0, 0); // converted in each pass, the embedding's rows one by one
  check(GOLDEN "hf/mixtral", 2, 0);
  check(SETUN_SOURCE_DIR "/models/setun-tales-7m", 3, 0);
}

static void sessions_share_experts(void **state) {
  (void)state;
  char path[64];
  setun_error err = {SETUN_OK, ""};
  setun_synthesis_params s = setun_synthesis_params_default();
  check(GOLDEN "hf/mixtral", 2, 3); // one more than a token uses in a layer
  snprintf(path, sizeof path, "setun-shared-experts-%d.gguf", (int)getpid());
  s.shape = "tiny-moe";
  s.format = "t16";
  if (setun_synthesize(path, &s, &err)) fail_msg("%s", err.message);
  check(path, 2, 9); // of 16, used as read
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_come_and_go), cmocka_unit_test(sessions_share_experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
