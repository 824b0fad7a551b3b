// Long contexts: the maximum length of a context changes no bit; and a session's file goes from a context of one length
// to one of another.
#define _XOPEN_SOURCE 700 // mkstemp
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 650, STEPS = 20, N_VOCAB = 512 };

static setun_session *session_of(const setun_model *m, uint32_t n_ctx, setun_kv_type kv) {
  setun_error err = {SETUN_OK, ""};
  setun_session *s = NULL;
  setun_session_params p = setun_session_params_default();
  p.kv_keys = p.kv_values = kv;
  p.n_ctx = n_ctx;
  p.n_batch = 128;
  p.threads = 2;
  if (setun_session_new(m, &p, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

static void saved_to(setun_session *from, setun_session *to) {
  setun_error err = {SETUN_OK, ""};
  char path[] = "/tmp/setun-contexts-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  unlink(path); // a file that is not a session is not replaced
  if (setun_session_save(from, path, &err) != SETUN_OK) fail_msg("%s", err.message);
  if (setun_session_load(to, path, &err) != SETUN_OK) fail_msg("%s", err.message);
  unlink(path);
}

// The logits of each step after the prompt.
static void follow(setun_session *s, const setun_token *ids, float *logits) {
  for (size_t i = 0; i < STEPS; i++) {
    eval(s, ids + PROMPT + i, 1, NULL);
    memcpy(logits + i * N_VOCAB, setun_session_logits(s), N_VOCAB * sizeof *logits);
  }
}

static void check(const setun_model *m, setun_kv_type kv) {
  static const uint32_t contexts[] = {PROMPT + STEPS, 1200, 4096};
  enum { N = sizeof contexts / sizeof *contexts };
  float *expected = calloc(STEPS * N_VOCAB, sizeof *expected), *found = calloc(STEPS * N_VOCAB, sizeof *found);
  setun_token ids[PROMPT + STEPS];
  setun_session *sessions[N];
  assert_true(expected && found);
  for (size_t i = 0; i < PROMPT + STEPS; i++) ids[i] = (setun_token)(i * i * 7 % N_VOCAB);
  for (size_t i = 0; i < N; i++) sessions[i] = session_of(m, contexts[i], kv);
  eval(sessions[0], ids, PROMPT, NULL);
  for (size_t i = 1; i < N; i++) saved_to(sessions[i - 1], sessions[i]);
  follow(sessions[0], ids, expected);
  for (size_t i = 1; i < N; i++) {
    follow(sessions[i], ids, found);
    assert_memory_equal(found, expected, STEPS * N_VOCAB * sizeof *found);
    setun_session_free(sessions[i]);
    // Not from a file, but computed where it stands.
    sessions[i] = session_of(m, contexts[i], kv);
    eval(sessions[i], ids, PROMPT, NULL);
    follow(sessions[i], ids, found);
    assert_memory_equal(found, expected, STEPS * N_VOCAB * sizeof *found);
  }
  for (size_t i = 0; i < N; i++) setun_session_free(sessions[i]);
  free(expected);
  free(found);
}

static void contexts(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  setun_synthesis_params p = setun_synthesis_params_default();
  setun_model *m = NULL;
  p.shape = "tiny";
  p.format = "i2_s";
  p.threads = 2;
  if (setun_model_load_synthetic(&p, NULL, &m, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_int_equal(setun_model_n_vocab(m), N_VOCAB);
  check(m, SETUN_KV_F16);
  check(m, SETUN_KV_F32);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(contexts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
