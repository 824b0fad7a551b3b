// Sliding windows: prompts of one token less than the window, of the window, and of one more. The cache is checked
// against a computation without one: each token's logits from a session of its own that takes the whole text at once.
#include "models.h"

typedef struct {
  float *logits; // [n][vocab]
  size_t vocab;
} collected;

static bool on_logits(uint32_t position, const float *logits, void *user) {
  collected *c = user;
  memcpy(c->logits + position * c->vocab, logits, c->vocab * sizeof *logits);
  return true;
}

static void check(const char *name, uint32_t window) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s", name);
  setun_model *m = load(path, NULL);
  size_t vocab = setun_model_n_vocab(m);
  setun_token ids[128];
  for (int i = 0; i < 128; i++) ids[i] = (i * 53 + 7) % 300;
  for (uint32_t n = window - 1; n <= 3 * window + 1; n += n == window + 1 ? 2 * window : 1) {
    collected one = {st_malloc(n * vocab, sizeof(float)), vocab};
    setun_session *s = session(m, 1, 1);
    eval(s, ids, n, &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = on_logits, .user = &one});
    setun_session_free(s);
    for (uint32_t end = window - 2; end <= n; end++) {
      s = session(m, 0, 2);
      eval(s, ids, end, NULL);
      assert_memory_equal(setun_session_logits(s), one.logits + (end - 1) * vocab, vocab * sizeof(float));
      setun_session_free(s);
    }
    st_free(one.logits);
  }
  setun_model_free(m);
}

static void gemma3(void **state) {
  (void)state;
  check("gemma3", 16);
}

static void gpt_oss(void **state) {
  (void)state;
  check("gpt-oss", 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gemma3), cmocka_unit_test(gpt_oss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
