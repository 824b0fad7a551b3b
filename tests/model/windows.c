// Sliding windows: texts of one token less than the window, of the window, of one more, of two and one more, and of
// three. The cache is checked against a computation without one: each token's logits from a session of its own that
// takes the whole text at once. Then what layers with a window release, and sequences that are truncated, saved and
// forked behind that.
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
  for (uint32_t n = window - 1; n <= 3 * window + 1; n += n == window + 1       ? window
                                                          : n == 2 * window + 1 ? window - 1
                                                                                : 1) {
    collected one = {st_malloc(n * vocab, sizeof(float)), vocab};
    for (uint32_t batch = 1; batch <= window + 1; batch += batch == 1 ? window - 1 : 1) {
      setun_session *s = session(m, batch, 1);
      eval(s, ids, n, &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = on_logits, .user = &one});
      setun_session_free(s);
      for (uint32_t end = window - 2; end <= n; end++) {
        s = session(m, 0, 2);
        eval(s, ids, end, NULL);
        assert_memory_equal(setun_session_logits(s), one.logits + (end - 1) * vocab, vocab * sizeof(float));
        setun_session_free(s);
      }
    }
    st_free(one.logits);
  }
  setun_model_free(m);
}

// Text in batches of one token, of a window and of one more, through pages that are released.
enum { TEXT = 450, STEPS = 8 };

static void fill(setun_token *ids, size_t n) {
  for (size_t i = 0; i < n; i++) ids[i] = (setun_token)((i * i * 7 + 31 + i) % 300);
}

static setun_context *context_of(const setun_model *m, uint32_t n_batch, uint32_t n_seq) {
  setun_context *c = NULL;
  setun_context_params p = {.size = sizeof p, .n_ctx = 512, .n_seq_max = n_seq, .n_batch = n_batch, .threads = 2};
  EXPECT_OK(setun_context_new(m, &p, &c, &err));
  return c;
}

static const float *go_on(setun_context *c, int sequence, const setun_token *ids, size_t n) {
  const setun_batch_entry e = {sequence, SETUN_LOGITS_LAST, ids, n};
  EXPECT_OK(setun_context_eval(c, &e, 1, NULL, &err));
  return setun_context_logits(c, 0, 0);
}

// The sequence goes on with ids[position ...): its logits are those of a session that takes the text at once.
static void check_steps(const setun_model *m, setun_context *c, int sequence, const setun_token *ids) {
  size_t bytes = setun_model_n_vocab(m) * sizeof(float);
  uint32_t position = setun_context_position(c, sequence);
  setun_session *alone = NULL;
  setun_session_params p = {.size = sizeof p, .n_ctx = 512, .threads = 1};
  EXPECT_OK(setun_session_new(m, &p, &alone, &err));
  assert_memory_equal(setun_context_tokens(c, sequence), ids, position * sizeof *ids);
  eval(alone, ids, position + 1, NULL);
  for (uint32_t i = 0; i < STEPS; i++) {
    assert_memory_equal(go_on(c, sequence, ids + position + i, 1), setun_session_logits(alone), bytes);
    assert_int_equal(setun_context_position(c, sequence), position + i + 1);
    eval(alone, ids + position + i + 1, 1, NULL);
  }
  setun_session_free(alone);
}

// Pages of layers with a window that a sequence of 512 has at most: those of positions that may begin anywhere in one.
static uint32_t pages_of_window(uint32_t window, uint32_t n_batch) {
  uint32_t most = 0;
  for (uint32_t begin = 0; begin < 64; begin++) {
    uint32_t pages = (begin + window - 1 + n_batch - 1) / 64 + 1;
    if (pages > most) most = pages;
  }
  return most < 8 ? most : 8;
}

static void check_release(const setun_model *m, uint32_t window, uint32_t n_slide, uint32_t n_batch) {
  setun_token ids[TEXT + 2 * STEPS];
  uint32_t n_full = info_of(m).n_layer - n_slide, each = pages_of_window(window, n_batch);
  setun_context *c = context_of(m, n_batch, 1);
  int sequence = -1;
  fill(ids, TEXT + 2 * STEPS);
  EXPECT_OK(setun_context_add(c, &sequence, &err));
  assert_int_equal(info_of_context(c).pages, 8 * n_full + each * n_slide);
  go_on(c, sequence, ids, TEXT);
  assert_true(info_of_context(c).pages_used <= 8 * n_full + each * n_slide);
  check_steps(m, c, sequence, ids);
  uint32_t last = TEXT + STEPS - 1, seen = last / 64 - (last - window + 1) / 64 + 1;
  assert_int_equal(info_of_context(c).pages_used, 8 * n_full + seen * n_slide);
  // To a position that is kept, to one that is not, and to one that had already been computed again.
  for (uint32_t n = TEXT + STEPS, next; n; n = next) {
    next = n > TEXT ? TEXT - 1 : n > 300 ? 300 : n > 100 ? 100 : n > window ? window : n > 1 ? 1 : 0;
    EXPECT_OK(setun_context_truncate(c, sequence, next, &err));
    assert_int_equal(setun_context_position(c, sequence), next);
    check_steps(m, c, sequence, ids);
    EXPECT_OK(setun_context_truncate(c, sequence, next, &err));
  }
  setun_context_free(c);
}

// Saved after pages were released, and after a truncation whose tokens are not computed again yet; loaded with another
// batch.
static void check_saved(const setun_model *m, uint32_t n_batch) {
  setun_token ids[TEXT + 2 * STEPS];
  size_t length[2];
  fill(ids, TEXT + 2 * STEPS);
  for (int truncated = 0; truncated < 2; truncated++) {
    setun_context *c = context_of(m, n_batch, 1), *d = context_of(m, 7, 1);
    int from = -1, to = -1;
    EXPECT_OK(setun_context_add(c, &from, &err));
    EXPECT_OK(setun_context_add(d, &to, &err));
    go_on(c, from, ids, TEXT);
    if (truncated) EXPECT_OK(setun_context_truncate(c, from, 200, &err));
    EXPECT_OK(setun_context_save_memory(c, from, NULL, 0, &length[truncated], &err));
    char *bytes = malloc(length[truncated]);
    EXPECT_OK(setun_context_save_memory(c, from, bytes, length[truncated], &length[truncated], &err));
    EXPECT_OK(setun_context_load_memory(d, to, bytes, length[truncated], &err));
    check_steps(m, d, to, ids);
    check_steps(m, c, from, ids);
    free(bytes);
    setun_context_free(c);
    setun_context_free(d);
  }
  assert_true(length[1] < length[0]); // of tokens without keys and values
}

// Forks release pages independently; one is truncated to a position whose pages only the other has.
static void check_forks(const setun_model *m, uint32_t n_batch) {
  setun_token ids[TEXT + 2 * STEPS];
  setun_context *c = context_of(m, n_batch, 3);
  int a = -1, b = -1, d = -1;
  uint32_t position = 0;
  fill(ids, TEXT + 2 * STEPS);
  EXPECT_OK(setun_context_add(c, &a, &err));
  go_on(c, a, ids, 250);
  EXPECT_OK(setun_context_fork(c, a, &b, &err));
  go_on(c, a, ids + 250, TEXT - 250);
  check_steps(m, c, b, ids);
  check_steps(m, c, a, ids);
  EXPECT_OK(setun_context_truncate(c, a, 250, &err));
  EXPECT_OK(setun_context_fork(c, a, &d, &err)); // of a position that is not computed yet
  check_steps(m, c, a, ids);
  check_steps(m, c, d, ids);
  check_steps(m, c, b, ids);
  // Released pages are not found again; all that a sequence still has are.
  EXPECT_OK(setun_context_drop(c, d, &err));
  EXPECT_OK(setun_context_reuse(c, ids, 100, &d, &position, &err));
  assert_int_equal(position, 0);
  EXPECT_OK(setun_context_drop(c, d, &err));
  uint32_t most = setun_context_position(c, b);
  EXPECT_OK(setun_context_reuse(c, ids, TEXT, &d, &position, &err));
  assert_int_equal(position, most);
  check_steps(m, c, d, ids);
  setun_context_free(c);
}

static void check_all(const char *name, uint32_t window, uint32_t n_slide) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s", name);
  const uint32_t batches[] = {1, window, window + 1, 100, 512};
  check(name, window);
  setun_model *m = load(path, NULL);
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
    check_release(m, window, n_slide, batches[i]);
    check_saved(m, batches[i]);
    check_forks(m, batches[i]);
  }
  setun_model_free(m);
}

static void gemma3(void **state) {
  (void)state;
  check_all("gemma3", 16, 6);
}

static void gpt_oss(void **state) {
  (void)state;
  check_all("gpt-oss", 8, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gemma3), cmocka_unit_test(gpt_oss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
