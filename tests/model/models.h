// Loading models and running sessions in tests: any failure ends the test with the library's message.
#ifndef SETUN_TESTS_MODELS_H
#define SETUN_TESTS_MODELS_H

#include "golden.h"

#include "setun.h"

// A call that names its error `&err`.
#define EXPECT_OK(call)                                                                                                \
  do {                                                                                                                 \
    setun_error err = {SETUN_OK, ""};                                                                                  \
    if ((call) != SETUN_OK) fail_msg("%s", err.message);                                                               \
  } while (0)

static inline setun_token likeliest(const float *logits, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return (setun_token)best;
}

static inline setun_model *load(const char *path, const char *isa) {
  setun_model *m = NULL;
  setun_model_params p = setun_model_params_default();
  p.precise = true;
  p.isa = isa;
  EXPECT_OK(setun_model_load(path, &p, &m, &err));
  return m;
}

static inline setun_session *session(const setun_model *m, uint32_t n_batch, int threads) {
  setun_session *s = NULL;
  setun_session_params p = setun_session_params_default();
  p.kv_keys = p.kv_values = SETUN_KV_F32;
  p.n_batch = n_batch;
  p.threads = threads;
  EXPECT_OK(setun_session_new(m, &p, &s, &err));
  return s;
}

static inline setun_model_info info_of(const setun_model *m) {
  setun_model_info info = {.size = sizeof info};
  EXPECT_OK(setun_model_get_info(m, &info, &err));
  return info;
}

static inline setun_context_info info_of_context(const setun_context *c) {
  setun_context_info info = {.size = sizeof info};
  EXPECT_OK(setun_context_get_info(c, &info, &err));
  return info;
}

static inline void eval(setun_session *s, const setun_token *ids, size_t n, const setun_eval_params *p) {
  EXPECT_OK(setun_session_eval(s, ids, n, p, &err));
}

#endif
