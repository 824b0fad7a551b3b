// Streamed weights: the same bits as with all of them resident, for every family and layout, whatever share is
// resident, for every number of threads, after passes that were stopped, and from several sessions at once; and clear
// errors.
#define _XOPEN_SOURCE 700 // truncate
#include "models.h"

#include "backend/backend.h"
#include "placement/placement.h"
#include "runtime/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 10 };

typedef struct opened {
  st_directory *directory;
  st_placement *placement;
  st_model *model; // its model
} opened;

static opened open_with(const char *path, st_placement_options options) {
  opened o = {0};
  setun_error err = {SETUN_OK, ""};
  options.backend = st_backend_find(NULL);
  options.threads = 2;
  options.context_size = st_context_size_of;
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s: %s", path, err.message);
  o.model = o.placement->model;
  return o;
}

static opened open_path(const char *path, const uint32_t *resident_parts, bool precise) {
  return open_with(path, (st_placement_options){.precise = precise, .resident_parts = resident_parts});
}

static void close_model(opened *o) {
  st_placement_free(o->placement);
  st_directory_free(o->directory);
}

static void fill_ids(setun_token *ids) {
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + 7) % 250;
}

// Logits after a prompt taken in batches of `n_batch` and three tokens more. Freed with st_free.
static float *run(const st_model *m, uint32_t n_batch, int threads) {
  setun_error err = {SETUN_OK, ""};
  setun_session_params p = {.size = sizeof p, .n_ctx = 64, .n_batch = n_batch, .threads = threads};
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
    fail_msg("%s: batches of %u, %d threads: other logits than from resident weights", path, n_batch, threads);
  }
  st_free(logits);
}

static void check_model(const char *path, bool precise) {
  opened resident = open_path(path, NULL, precise);
  assert_null(resident.placement->streamer);
  float *expected = run(resident.model, 0, 2);
  // Resident: nothing; the head; also some layers; all of them, so that only an embedding that is not the head is left.
  uint32_t n = resident.model->h.n_layer, parts = 2 * n + 1 + (resident.model->h.n_expert > 0); // experts are one
  uint32_t shares[] = {0, 1, n + 2, parts, parts + 1};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    opened o = open_path(path, &shares[i], precise);
    bool all = shares[i] >= parts + !resident.model->h.tied;
    assert_int_equal(o.placement->streamer == NULL, all);
    assert_int_equal(o.model->n_head > 0, !shares[i]);
    assert_int_equal(!o.model->token_embd.matrix, resident.model->h.tied ? !shares[i] : !all);
    check_run(path, o.model, i % 2 ? 3 : 0, i % 2 ? 1 : 2, expected);
    close_model(&o);
  }
  st_free(expected);
  close_model(&resident);
}

static void families(void **state) {
  (void)state;
  static const char *const names[] = {"hf/bitnet-auto",
                                      "hf/bitnet-latent",
                                      "hf/bitnet-div",
                                      "hf/llama3-tied-sharded",
                                      "hf/qwen3",
                                      "hf/gemma3",
                                      "hf/mixtral",
                                      "hf/gpt-oss",
                                      "gguf/gemma3-plain.gguf",
                                      "gguf/olmoe-plain.gguf",
                                      "gguf/gpt-oss.gguf",
                                      "gguf/qwen3-rot.gguf",
                                      "gguf/qwen3-rot-tied.gguf"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", names[i]);
    check_model(path, i % 2);
  }
}

// A copy of the tales model in a layout, made by the library, with an embedding, which is the head too, in a format.
// The caller removes it.
static void convert_tales_with(const char *layout, const char *embedding, char *path, size_t size) {
  setun_error err = {SETUN_OK, ""};
  setun_convert_params p = setun_convert_params_default();
  p.embedding = embedding;
  snprintf(path, size, "setun-streaming-%s-%d.gguf", layout, (int)getpid());
  p.to = layout;
  if (setun_convert(SETUN_SOURCE_DIR "/models/setun-tales-7m", path, &p, &err)) fail_msg("%s", err.message);
}

static void convert_tales(const char *layout, char *path, size_t size) {
  convert_tales_with(layout, NULL, path, size);
}

// Heads and embeddings in every format that they are written in, in several pieces.
static void heads(void **state) {
  (void)state;
  static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q6_k"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    uint32_t none = 0;
    convert_tales_with("t16", names[i], path, sizeof path);
    opened o = open_path(path, &none, false);
    assert_true(o.model->n_head > 2);
    close_model(&o);
    check_model(path, i % 2);
    unlink(path);
  }
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

// t16 is stored in the kernels' own order: nothing may be converted for it. (The head may be.)
static void direct(void **state) {
  (void)state;
  char path[512];
  uint32_t head = 1;
  convert_tales("t16", path, sizeof path);
  opened o = open_path(path, &head, false);
  assert_int_equal(o.model->n_head, 0);
  assert_true(o.placement->plan.ring > 0);
  assert_int_equal(o.placement->plan.packed, 0);
  close_model(&o);
  unlink(path);
}

static void mapped(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  convert_tales("t16", path, sizeof path);
  opened resident = open_path(path, NULL, false), o = {0};
  st_placement_options options = {
      .backend = st_backend_find(NULL), .threads = 2, .context_size = st_context_size_of, .mapped = true};
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s", err.message);
  o.model = o.placement->model;
  assert_true(o.placement->plan.resident < resident.placement->plan.resident);
  float *expected = run(resident.model, 0, 2);
  check_run(path, o.model, 0, 2, expected);
  st_free(expected);
  close_model(&o);
  close_model(&resident);
  unlink(path);
}

// ---- the logits of every token ------------------------------------------------------------------------------------

enum { PROMPT = 29 };

typedef struct collected {
  float *rows; // [PROMPT, n_vocab]
  size_t n_vocab;
  uint32_t n, stop_after;
} collected;

static bool collect(uint32_t position, const float *logits, void *user) {
  collected *c = user;
  assert_int_equal(position, c->n);
  memcpy(c->rows + c->n++ * c->n_vocab, logits, c->n_vocab * sizeof *logits);
  return c->n != c->stop_after;
}

// Of a prompt in batches; those of the last token must be the session's.
static void collect_all(const st_model *m, uint32_t n_batch, uint32_t stop_after, collected *c) {
  setun_error err = {SETUN_OK, ""};
  // With room for the logits of several tokens, or of one at a time: the same.
  setun_session_params p = {
      .size = sizeof p, .n_ctx = 64, .n_batch = n_batch, .threads = 2, .all_logits = n_batch != 5};
  setun_eval_params e = {.size = sizeof e, .on_logits = collect, .user = c};
  setun_token ids[PROMPT];
  st_session *s = NULL;
  for (int i = 0; i < PROMPT; i++) ids[i] = (i * 53 + 7) % 250;
  *c = (collected){.n_vocab = m->h.n_vocab, .stop_after = stop_after};
  c->rows = st_malloc(PROMPT * c->n_vocab, sizeof *c->rows);
  if (st_session_new(m, &p, &s, &err)) fail_msg("%s", err.message);
  setun_status status = st_session_eval(s, ids, PROMPT, &e, &err);
  assert_int_equal(status, stop_after ? SETUN_ERROR_CANCELED : SETUN_OK);
  if (!status) {
    assert_memory_equal(st_session_logits(s), c->rows + (PROMPT - 1) * c->n_vocab, c->n_vocab * sizeof *c->rows);
  }
  st_session_free(s);
}

static void all_logits(void **state) {
  (void)state;
  char path[512];
  convert_tales_with("t16", "q6_k", path, sizeof path);
  const char *paths[] = {path, GOLDEN "hf/llama3", GOLDEN "gguf/qwen3.gguf"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    uint32_t none = 0, batches[] = {0, 1, 5, 8, 20};
    opened resident = open_path(paths[i], NULL, false), o = open_path(paths[i], &none, false);
    collected expected, c;
    collect_all(resident.model, 0, 0, &expected);
    float *last = run(resident.model, 0, 2);
    for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
      collect_all(o.model, batches[k], 0, &c);
      assert_int_equal(c.n, PROMPT);
      assert_memory_equal(c.rows, expected.rows, PROMPT * c.n_vocab * sizeof *c.rows);
      st_free(c.rows);
      collect_all(o.model, batches[k], 1 + (uint32_t)k * 6, &c); // ended before all of them were seen
      assert_memory_equal(c.rows, expected.rows, c.n * c.n_vocab * sizeof *c.rows);
      st_free(c.rows);
      check_run(paths[i], o.model, batches[k], 2, last); // and the last one's alone
    }
    st_free(expected.rows);
    st_free(last);
    close_model(&o);
    close_model(&resident);
  }
  unlink(path);
}

// Adapters of the head, which is in pieces, and of the layers.
static void adapters(void **state) {
  (void)state;
  static const char *const model = GOLDEN "hf/llama3";
  const setun_adapter second = {GOLDEN "numpy/adapter-second", 0.5f};
  uint32_t none = 0;
  opened resident = open_with(model, (st_placement_options){.adapters = &second, .n_adapters = 1});
  opened plain = open_path(model, &none, false);
  opened o = open_with(model, (st_placement_options){.adapters = &second, .n_adapters = 1, .resident_parts = &none});
  float *expected = run(resident.model, 0, 2), *without = run(plain.model, 0, 2);
  assert_non_null(resident.model->lora->pairs[ST_LORA_HEAD].a);
  assert_true(o.model->n_head > 0);
  assert_memory_not_equal(expected, without, resident.model->h.n_vocab * sizeof *expected);
  check_run(model, o.model, 3, 2, expected);
  check_run(model, o.model, 0, 1, expected);
  st_free(expected);
  st_free(without);
  close_model(&o);
  close_model(&plain);
  close_model(&resident);
}

// ---- passes that end early, or run at once ------------------------------------------------------------------------

static bool stop_at(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  (void)position, (void)n, (void)hidden;
  return layer != *(const uint32_t *)user;
}

// Passes that end within a layer leave no data that a later one could take for its own.
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
    setun_eval_params p = {.size = sizeof p, .on_hidden = stop_at, .user = &layer};
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
  collected all;
} worker;

// Passes with the head once, not at all and several times.
static void *work(void *context) {
  worker *w = context;
  w->logits = run(w->model, 5, 1);
  collect_all(w->model, 20, 0, &w->all);
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
  collected all;
  float *expected = run(o.model, 0, 2);
  collect_all(o.model, 0, 0, &all);
  for (int i = 0; i < 3; i++) {
    workers[i] = (worker){.model = o.model};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
    assert_memory_equal(workers[i].logits, expected, o.model->h.n_vocab * sizeof *expected);
    assert_memory_equal(workers[i].all.rows, all.rows, PROMPT * all.n_vocab * sizeof *all.rows);
    st_free(workers[i].logits);
    st_free(workers[i].all.rows);
  }
  st_free(all.rows);
  st_free(expected);
  close_model(&o);
  unlink(path);
}

static void shrink(const char *path) {
  assert_int_equal(truncate(path, 1 << 20), 0);
}

// In place, with the same number of bytes.
static void overwrite(const char *path) {
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); // times of changes have the resolution of a clock's tick
  int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, "other weights", 13, 1 << 20), 13);
  close(fd);
}

// The same with the time of writing reset.
static void overwrite_unseen(const char *path) {
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  overwrite(path);
  assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
}

// Another file in its place, or none: the open file is unchanged.
static void replace(const char *path) {
  char other[600];
  snprintf(other, sizeof other, "%s.other", path);
  FILE *f = fopen(other, "wb");
  assert_non_null(f);
  assert_int_equal(fputs("other weights", f) < 0, 0);
  fclose(f);
  assert_int_equal(rename(other, path), 0);
}

// A file that changes while it is used: an error that names it, whether it is streamed or mapped; with a NULL `reason`
// there is no error.
static void check_changing(bool map, void (*change)(const char *path), const char *reason) {
  setun_token ids[TOKENS];
  uint32_t none = 0;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  st_session *s = NULL;
  opened o = {0};
  st_placement_options options = {.backend = st_backend_find(NULL),
                                  .threads = 1,
                                  .context_size = st_context_size_of,
                                  .resident_parts = map ? NULL : &none,
                                  .mapped = map};
  fill_ids(ids);
  convert_tales("t16", path, sizeof path);
  if (st_directory_open(path, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s", err.message);
  o.model = o.placement->model;
  if (st_session_new(o.model, NULL, &s, &err)) fail_msg("%s", err.message);
  assert_int_equal(st_session_eval(s, ids, 3, NULL, &err), SETUN_OK);
  change(path);
  setun_status status = SETUN_OK;
  for (int i = 0; i < 3 && !status; i++) status = st_session_eval(s, ids, 3, NULL, &err); // one pass may be read ahead
  assert_int_equal(status, reason ? SETUN_ERROR_IO : SETUN_OK);
  if (reason && !strstr(err.message, path)) fail_msg("the file's name is missing: %s", err.message);
  if (reason && !strstr(err.message, reason)) fail_msg("expected '%s': %s", reason, err.message);
  st_session_free(s);
  close_model(&o);
  unlink(path);
}

static void changing(void **state) {
  (void)state;
  check_changing(false, shrink, "");
  check_changing(true, shrink, "found 1048576");
  check_changing(false, overwrite, "modified while in use");
  check_changing(true, overwrite, "modified while in use");
  check_changing(false, overwrite_unseen, "changed while in use");
  check_changing(true, overwrite_unseen, "changed while in use");
  check_changing(false, replace, NULL);
  check_changing(true, replace, NULL);
}

// A budget below the least is refused before anything is read, with the least in the message; the least itself does.
static void budgets(void **state) {
  (void)state;
  char path[512];
  setun_error err = {SETUN_OK, ""};
  setun_plan plan = {.size = sizeof plan};
  convert_tales("t16", path, sizeof path);
  setun_session_params session = {.size = sizeof session, .n_ctx = 64, .n_batch = 8, .threads = 1};
  setun_model_params p = setun_model_params_default();
  p.session = &session;
  p.threads = 1;
  p.memory = 1 << 20;
  assert_int_equal(setun_model_plan(path, &p, &plan, &err), SETUN_ERROR_MEMORY);
  assert_non_null(strstr(err.message, "at least"));
  assert_true(plan.least > p.memory);
  p.memory = plan.least + (4 << 20); // the process has grown a little
  if (setun_model_plan(path, &p, &plan, &err)) fail_msg("%s", err.message);
  assert_true(plan.total <= p.memory);
  setun_model *m = NULL;
  if (setun_model_load(path, &p, &m, &err)) fail_msg("%s", err.message);
  setun_model_free(m);
  unlink(path);
}

// Where hardly any memory is available, the budget is close to 0, which would mean unlimited.
static void default_budgets(void **state) {
  (void)state;
  const uint64_t mib = 1 << 20;
  assert_int_equal(st_default_budget(10 * mib, 0), 10 * mib);
  assert_int_equal(st_default_budget(10 * mib, 16 * mib), 10 * mib);
  assert_int_equal(st_default_budget(10 * mib, 32 * mib), 25 * mib);
  assert_int_equal(st_default_budget(10 * mib, 3200 * mib), 3094 * mib);
}

// Each larger resident share streams less and gives the same results.
static void any_share(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; tied++) {
    char path[512] = GOLDEN "hf/llama3";
    if (tied) convert_tales_with("t16", "q6_k", path, sizeof path);
    opened resident = open_path(path, NULL, false);
    float *expected = run(resident.model, 0, 2);
    uint64_t streamed = UINT64_MAX;
    uint32_t last = 2 * resident.model->h.n_layer + 2;
    for (uint32_t share = 0; share <= last; share++) {
      opened o = open_path(path, &share, false);
      const st_memory_plan *p = &o.placement->plan;
      assert_true(p->streamed <= streamed);
      assert_int_equal(p->streamed == 0, share >= last - 1);
      assert_true(p->resident <= resident.placement->plan.resident &&
                  (p->resident == resident.placement->plan.resident) == !o.placement->streamer);
      streamed = p->streamed;
      check_run(path, o.model, 0, 1 + (int)share % 3, expected);
      close_model(&o);
    }
    st_free(expected);
    close_model(&resident);
    if (tied) unlink(path);
  }
}

// Tokens of several sequences: a pass reads what it reads for one token, head included, and gives each sequence what it
// gets alone.
static void sequences(void **state) {
  (void)state;
  enum { N = 6 };
  char path[512];
  uint32_t none = 0;
  setun_token ids[TOKENS];
  setun_error err = {SETUN_OK, ""};
  setun_batch_entry entries[N];
  uint64_t one = 0, several = 0; // bytes
  convert_tales_with("t16", "q6_k", path, sizeof path);
  fill_ids(ids);
  opened o = open_path(path, &none, false);
  setun_context_params p = {.size = sizeof p, .n_ctx = 64, .n_seq_max = N, .threads = 2};
  for (int i = 0; i < N; i++) entries[i] = (setun_batch_entry){i, SETUN_LOGITS_LAST, ids + i, i % 2 ? 1 : TOKENS - N};
  float *alone = st_malloc(N * o.model->h.n_vocab, sizeof *alone);
  size_t bytes = o.model->h.n_vocab * sizeof *alone;
  for (int all = 0; all < 2; all++) {
    st_context *c = NULL;
    int sequence = -1;
    if (st_context_new(o.model, &p, "context", &c, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < N; i++) assert_int_equal(st_context_add(c, &sequence, NULL), SETUN_OK);
    for (int i = 0; i < (all ? 1 : N); i++) {
      uint64_t before = st_streamer_get_stats(o.placement->streamer).read.bytes;
      if (st_context_eval(c, entries + i, all ? N : 1, NULL, &err)) fail_msg("%s", err.message);
      uint64_t count = st_streamer_get_stats(o.placement->streamer).read.bytes - before;
      if (all) several = count;
      if (!all) one = count;
      if (!all) memcpy((char *)alone + (size_t)i * bytes, st_context_logits(c, 0, 0), bytes);
    }
    for (int i = 0; all && i < N; i++) {
      assert_memory_equal(st_context_logits(c, (size_t)i, 0), (char *)alone + (size_t)i * bytes, bytes);
    }
    st_context_free(c);
  }
  assert_true(one > 0 && several < one + one / 2); // embedding rows are read one by one
  st_free(alone);
  close_model(&o);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(families),  cmocka_unit_test(layouts),    cmocka_unit_test(direct),
      cmocka_unit_test(mapped),    cmocka_unit_test(stopped),    cmocka_unit_test(several_sessions),
      cmocka_unit_test(changing),  cmocka_unit_test(budgets),    cmocka_unit_test(default_budgets),
      cmocka_unit_test(heads),     cmocka_unit_test(all_logits), cmocka_unit_test(adapters),
      cmocka_unit_test(any_share), cmocka_unit_test(sequences)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
