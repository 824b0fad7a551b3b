// Forked children: what an inherited session and model refuse there, that they can be freed, and that the parent
// continues with the right logits whatever the child did; with weights in memory, and streamed with io_uring and with
// pread.
#define _GNU_SOURCE
#include "models.h"

#include "backend/backend.h"
#include "base/memory.h"
#include "placement/placement.h"
#include "placement/streamer.h"
#include "runtime/session.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"

enum { TOKENS = 12, SECONDS = 60 };

static void fill_ids(setun_token *ids) {
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 53 + 7) % 250;
}

// In the child the first check that fails reports its line; nothing may wait forever.
static int failed_at;
#define EXPECT(condition) ((condition) || failed_at ? (void)0 : (void)(failed_at = __LINE__))

// Runs `child` in a forked process.
static void in_child(void (*child)(void *), void *user) {
  int status = 0;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    alarm(SECONDS);
    child(user);
    _exit(failed_at ? 1 + failed_at % 250 : 0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) fail_msg("the child was ended by signal %d", WTERMSIG(status));
  if (WEXITSTATUS(status)) fail_msg("the child failed at line %d (modulo 250)", WEXITSTATUS(status) - 1);
}

// ---- through setun.h ----------------------------------------------------------------------------------------------

typedef struct public_objects {
  setun_model *model;
  setun_session *session;
  setun_sampler *sampler;
} public_objects;

static void refuse_all(void *user) {
  public_objects *o = user;
  setun_error err = {SETUN_OK, ""};
  setun_token ids[TOKENS];
  setun_session *s = NULL;
  size_t n = 0;
  fill_ids(ids);
  EXPECT(setun_session_eval(o->session, ids, 1, NULL, &err) == SETUN_ERROR_STATE);
  EXPECT(err.code == SETUN_ERROR_STATE && strstr(err.message, "fork"));
  EXPECT(setun_session_truncate(o->session, 0, NULL) == SETUN_ERROR_STATE);
  EXPECT(setun_session_save(o->session, "setun-fork-session", NULL) == SETUN_ERROR_STATE);
  EXPECT(access("setun-fork-session", F_OK));
  EXPECT(setun_session_load(o->session, "setun-fork-session", NULL) == SETUN_ERROR_STATE);
  EXPECT(setun_session_new(o->model, NULL, &s, &err) == SETUN_ERROR_STATE && !s);
  setun_session_stop(o->session);
  // computed results are available, and text needs no threads
  EXPECT(setun_session_position(o->session) == TOKENS / 2);
  EXPECT(setun_session_logits(o->session) != NULL);
  EXPECT(setun_tokenize(o->model, "Once upon", 9, 0, ids, TOKENS, &n, NULL) == SETUN_OK && n);
  EXPECT(setun_sampler_sample(o->sampler, setun_session_logits(o->session), setun_model_n_vocab(o->model), ids, NULL) ==
         SETUN_OK);
}

static void refuse_and_free(void *user) {
  public_objects *o = user;
  refuse_all(user);
  setun_sampler_free(o->sampler);
  setun_session_free(o->session);
  setun_model_free(o->model);
}

static void only_free(void *user) {
  public_objects *o = user;
  setun_session_free(o->session);
  setun_model_free(o->model);
}

#ifndef __SANITIZE_THREAD__ // which allows no new threads in a child
// A child may have a model of its own beside the inherited one.
static void load_anew(void *user) {
  public_objects *o = user;
  setun_token ids[TOKENS];
  setun_model *m = NULL;
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .threads = 2};
  fill_ids(ids);
  EXPECT(setun_model_load(MODEL, NULL, &m, NULL) == SETUN_OK);
  EXPECT(m && setun_session_new(m, &p, &s, NULL) == SETUN_OK);
  EXPECT(s && setun_session_eval(s, ids, TOKENS / 2, NULL, NULL) == SETUN_OK);
  size_t bytes = setun_model_n_vocab(o->model) * sizeof(float);
  EXPECT(s && !memcmp(setun_session_logits(s), setun_session_logits(o->session), bytes));
  setun_session_free(s);
  setun_model_free(m);
}
#endif

static void resident(void **state) {
  (void)state;
  void (*const children[])(void *) = {refuse_all, refuse_and_free, only_free,
#ifndef __SANITIZE_THREAD__
                                      load_anew
#endif
  };
  setun_token ids[TOKENS];
  fill_ids(ids);
  public_objects o = {.model = NULL};
  setun_session_params p = {.size = sizeof p, .threads = 3};
  assert_int_equal(setun_model_load(MODEL, NULL, &o.model, NULL), SETUN_OK);
  assert_int_equal(setun_sampler_new(NULL, &o.sampler, NULL), SETUN_OK);
  setun_session *other = NULL;
  assert_int_equal(setun_session_new(o.model, &p, &other, NULL), SETUN_OK);
  eval(other, ids, TOKENS / 2, NULL);
  eval(other, ids + TOKENS / 2, TOKENS / 2, NULL);
  for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
    assert_int_equal(setun_session_new(o.model, &p, &o.session, NULL), SETUN_OK);
    eval(o.session, ids, TOKENS / 2, NULL);
    in_child(children[i], &o);
    eval(o.session, ids + TOKENS / 2, TOKENS / 2, NULL);
    assert_memory_equal(setun_session_logits(o.session), setun_session_logits(other),
                        setun_model_n_vocab(o.model) * sizeof(float));
    setun_session_free(o.session);
  }
  setun_session_free(other);
  setun_sampler_free(o.sampler);
  setun_model_free(o.model);
}

// ---- streamed -----------------------------------------------------------------------------------------------------

typedef struct streamed {
  st_directory *directory;
  st_placement *placement;
  st_session *session;
} streamed;

static void refuse_streamed(void *user) {
  streamed *o = user;
  setun_token ids[TOKENS];
  fill_ids(ids);
  EXPECT(st_session_eval(o->session, ids, 1, NULL, NULL) == SETUN_ERROR_STATE);
}

static void free_streamed(void *user) {
  streamed *o = user;
  st_session_free(o->session);
  st_placement_free(o->placement);
  st_directory_free(o->directory);
}

static void refuse_and_free_streamed(void *user) {
  refuse_streamed(user);
  free_streamed(user);
}

static void eval_streamed(streamed *o, const setun_token *ids, size_t n) {
  setun_error err = {SETUN_OK, ""};
  if (st_session_eval(o->session, ids, n, NULL, &err) != SETUN_OK) fail_msg("%s", err.message);
}

// When a pass ends, reads for the next one have begun: they are in flight while the child lives.
static void stream_with(const char *how) {
  void (*const children[])(void *) = {refuse_streamed, free_streamed, refuse_and_free_streamed};
  setun_error err = {SETUN_OK, ""};
  setun_session_params p = {.size = sizeof p, .threads = 2};
  setun_token ids[TOKENS];
  uint32_t none = 0;
  float *expected = NULL;
  fill_ids(ids);
  st_placement_options options = {
      .backend = st_backend_find(NULL), .threads = 2, .context_size = st_context_size_of, .resident_parts = &none};
  for (size_t i = 0; i <= sizeof children / sizeof *children; i++) {
    streamed o = {0};
    if (st_directory_open(MODEL, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
    if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s", err.message);
    if (st_session_new(o.placement->model, &p, &o.session, &err)) fail_msg("%s", err.message);
    assert_non_null(strstr(st_streamer_get_stats(o.placement->streamer).read.how, how));
    size_t bytes = o.placement->model->h.n_vocab * sizeof(float);
    eval_streamed(&o, ids, TOKENS / 2);
    if (expected) in_child(children[i - 1], &o);
    for (int t = TOKENS / 2; t < TOKENS; t++) eval_streamed(&o, ids + t, 1);
    if (expected) {
      assert_memory_equal(st_session_logits(o.session), expected, bytes);
    } else {
      expected = st_malloc(bytes, 1);
      memcpy(expected, st_session_logits(o.session), bytes);
    }
    free_streamed(&o);
  }
  st_free(expected);
}

// Whether rings can be made here at all: the build may have none, and the system may refuse them.
static bool has_rings(void) {
  setun_error err = {SETUN_OK, ""};
  uint32_t none = 0;
  streamed o = {0};
  st_placement_options options = {
      .backend = st_backend_find(NULL), .threads = 1, .context_size = st_context_size_of, .resident_parts = &none};
  if (st_directory_open(MODEL, &(st_open_options){0}, &o.directory, &err)) fail_msg("%s", err.message);
  if (st_placement_load(o.directory, &options, &o.placement, &err)) fail_msg("%s", err.message);
  bool rings = strstr(st_streamer_get_stats(o.placement->streamer).read.how, "io_uring") != NULL;
  free_streamed(&o);
  return rings;
}

static void streamed_by_io_uring(void **state) {
  (void)state;
  if (!has_rings()) skip();
  stream_with("io_uring");
}

#ifdef __linux__
// As in many containers: io_uring_setup is refused from here on.
static bool refuse_rings(void) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static bool refuse_rings(void) {
  return true; // there are none
}
#endif

// The filter stays: last.
static void streamed_by_pread(void **state) {
  (void)state;
  if (!refuse_rings()) skip();
  stream_with("pread");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(resident), cmocka_unit_test(streamed_by_io_uring),
                                     cmocka_unit_test(streamed_by_pread)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
