// Windows and sinks of a context: text of any length in the memory of a window. The reference for what a token sees is
// a model of one layer, whose keys and values depend on nothing but a token and its position: there the logits are
// those of a session without a window that takes the sinks and the window's tokens as one text. In models of several
// layers results must be bit-identical however the text is split, and whatever was forgotten.
#include "models.h"

#include "api/api.h"

#include <math.h>
#include <unistd.h>

#define TALES SETUN_SOURCE_DIR "/models/setun-tales-7m"
enum { TEXT = 3400, STEPS = 6 };

// Under the thread sanitizer, where a token takes twenty times as long, less of what differs in its numbers only.
#if defined(__SANITIZE_THREAD__)
enum { WIDTHS = 2, CUTS = 1, TOKENS = 4000 };
#elif defined(__SANITIZE_ADDRESS__)
enum { WIDTHS = 4, CUTS = 3, TOKENS = 5000 };
#else
enum { WIDTHS = 4, CUTS = 3, TOKENS = 20000 };
#endif

static setun_token ids[TEXT + STEPS];

static void fill(size_t n_vocab) {
  for (size_t i = 0; i < TEXT + STEPS; i++) ids[i] = (setun_token)((i * i * 7 + i / 3 * 31 + i) % n_vocab);
}

static setun_session *session_of(const setun_model *m, const setun_session_params *params) {
  setun_session *s = NULL;
  EXPECT_OK(setun_session_new(m, params, &s, &err));
  return s;
}

// ---- what a token sees --------------------------------------------------------------------------------------------

static void check_seen(const setun_model *m, const setun_session_params *p, const float *logits, uint32_t n,
                       float tolerance) {
  setun_session_params plain = *p;
  setun_token seen[1024];
  uint32_t count = 0, window = p->window, sinks = p->sinks;
  for (uint32_t i = 0; i < n; i++) {
    if (i < sinks || i + window >= n) seen[count++] = ids[i];
  }
  plain.window = plain.sinks = 0;
  setun_session *s = session_of(m, &plain);
  eval(s, seen, count, NULL);
  const float *expected = setun_session_logits(s);
  float largest = 0, most = 0;
  for (size_t i = 0; i < setun_model_n_vocab(m); i++) {
    if (fabsf(expected[i]) > largest) largest = fabsf(expected[i]);
    if (fabsf(expected[i] - logits[i]) > most) most = fabsf(expected[i] - logits[i]);
  }
  if (!(most < largest * tolerance))
    fail_msg("%u tokens, window %u, %u sinks: %g of %g", n, window, sinks, most, largest);
  setun_session_free(s);
}

static void of_one_layer(void **state) {
  (void)state;
  // Activations of the tales model are rounded to int8, and a code may differ by one where a rotation's last bit does.
  const struct {
    const char *model;
    float tolerance;
    bool no_rope;
  } models[] = {{TALES, 2e-2f, false},
                {GOLDEN "hf/gpt-oss", 2e-4f, false},
                {GOLDEN "hf/gemma3", 2e-4f, false},
                {GOLDEN "hf/smollm3", 2e-4f, true}};
  const uint32_t widths[4][2] = {{70, 4}, {64, 64}, {130, 70}, {33, 0}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    setun_model *m = load(models[i].model, NULL);
    st_model *inner = (st_model *)m->model; // its first layer alone, without a window of its own
    uint32_t n_layer = inner->h.n_layer;
    inner->h.n_layer = 1;
    inner->h.sliding[0] = false;
    inner->h.no_rope[0] = models[i].no_rope;
    fill(setun_model_n_vocab(m));
    for (size_t k = 0; k < WIDTHS; k++) {
      setun_session_params p = {.size = sizeof p,
                                .threads = 2,
                                .n_batch = 60,
                                .window = widths[k][0],
                                .sinks = widths[k][1],
                                .kv_keys = SETUN_KV_F32,
                                .kv_values = SETUN_KV_F32};
      setun_session *s = session_of(m, &p);
      for (uint32_t n = 0; n < TEXT; n = setun_session_position(s)) {
        uint32_t next = n % 3 ? 1 : 53; // one token, and several
        eval(s, ids + n, next, NULL);
        if (n % 11 == 0 || n < 150) check_seen(m, &p, setun_session_logits(s), n + next, models[i].tolerance);
      }
      assert_true(setun_session_forgotten(s) > 0);
      setun_session_free(s);
    }
    inner->h.n_layer = n_layer; // all are freed
    setun_model_free(m);
  }
}

// ---- the same bits ------------------------------------------------------------------------------------------------

static const struct {
  const char *model;
  uint32_t window, sinks;
} cases[] = {{TALES, 100, 4}, {TALES, 64, 0}, {GOLDEN "hf/gpt-oss", 50, 66}, {GOLDEN "hf/gemma3", 9, 1}};

enum { MARKS = 5 };
static const uint32_t marks[MARKS] = {60, 171, 1025, 2048 + 300, TEXT};

// The logits after so many tokens each, evaluated up to `chunk` a call.
static void follow(setun_session *s, size_t n_vocab, uint32_t chunk, float *logits) {
  for (uint32_t i = 0, n = 0; i < MARKS; i++) {
    for (; n < marks[i]; n = setun_session_position(s)) {
      eval(s, ids + n, marks[i] - n < chunk ? marks[i] - n : chunk, NULL);
    }
    memcpy(logits + i * n_vocab, setun_session_logits(s), n_vocab * sizeof *logits);
  }
}

static void check_cuts(const setun_model *m, uint32_t window, uint32_t sinks, setun_kv_type kv) {
  size_t n_vocab = setun_model_n_vocab(m), bytes = n_vocab * sizeof(float);
  float *expected = malloc(MARKS * bytes), *found = malloc(MARKS * bytes);
  setun_session_params p = {
      .size = sizeof p, .threads = 1, .n_batch = 512, .window = window, .sinks = sinks, .kv_keys = kv, .kv_values = kv};
  setun_session *s = session_of(m, &p);
  follow(s, n_vocab, TEXT, expected);
  setun_session_free(s);
  const uint32_t batches[] = {window + 1, window, 7}, chunks[] = {200, TEXT, 61};
  for (size_t i = 0; i < CUTS; i++) {
    p.n_batch = batches[i];
    p.threads = i == 1 ? 1 : 2 + (int)i / 2;
    s = session_of(m, &p);
    follow(s, n_vocab, chunks[i], found);
    assert_memory_equal(found, expected, MARKS * bytes);
    setun_session_free(s);
  }
  // Until the first token leaves the window nothing differs from a session without one.
  p.n_ctx = window + sinks;
  p.window = p.sinks = 0;
  s = session_of(m, &p);
  eval(s, ids, window + sinks, NULL);
  memcpy(expected, setun_session_logits(s), bytes);
  setun_session_free(s);
  p.n_ctx = 0, p.window = window, p.sinks = sinks;
  s = session_of(m, &p);
  eval(s, ids, window + sinks, NULL);
  assert_memory_equal(setun_session_logits(s), expected, bytes);
  setun_session_free(s);
  free(expected);
  free(found);
}

static void the_same_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    setun_model *m = load(cases[i].model, NULL);
    fill(setun_model_n_vocab(m));
    check_cuts(m, cases[i].window, cases[i].sinks, SETUN_KV_F32);
    check_cuts(m, cases[i].window, cases[i].sinks, i % 2 ? SETUN_KV_Q8 : SETUN_KV_Q4);
    setun_model_free(m);
  }
}

// ---- sequences ----------------------------------------------------------------------------------------------------

static setun_context *context_of(const setun_model *m, uint32_t n_batch, uint32_t window, uint32_t sinks) {
  setun_context *c = NULL;
  setun_context_params p = {
      .size = sizeof p, .n_seq_max = 2, .n_batch = n_batch, .threads = 2, .window = window, .sinks = sinks};
  EXPECT_OK(setun_context_new(m, &p, &c, &err));
  return c;
}

static const float *go_on(setun_context *c, int sequence, const setun_token *text, size_t n) {
  const setun_batch_entry e = {sequence, SETUN_LOGITS_LAST, text, n};
  EXPECT_OK(setun_context_eval(c, &e, 1, NULL, &err));
  return setun_context_logits(c, 0, 0);
}

// Both continue with ids[n ...).
static void compare(const setun_model *m, setun_context *a, int i, setun_context *b, int k, uint32_t n) {
  size_t bytes = setun_model_n_vocab(m) * sizeof(float);
  float *expected = malloc(bytes);
  for (uint32_t step = 0; step < STEPS; step++) {
    memcpy(expected, go_on(a, i, ids + n + step, 1), bytes);
    assert_memory_equal(go_on(b, k, ids + n + step, 1), expected, bytes);
  }
  free(expected);
}

static void check_sequences(const setun_model *m, uint32_t window, uint32_t sinks, uint32_t n) {
  setun_context *a = context_of(m, 40, window, sinks), *b = context_of(m, 64, window, sinks);
  int i = -1, k = -1, copy = -1;
  setun_error e = {SETUN_OK, ""};
  EXPECT_OK(setun_context_add(a, &i, &err));
  EXPECT_OK(setun_context_add(b, &k, &err));
  go_on(a, i, ids, n);
  go_on(b, k, ids, n);
  uint32_t forgotten = setun_context_forgotten(a, i);
  assert_int_equal(setun_context_position(a, i), n);
  assert_memory_equal(setun_context_tokens(a, i), ids, (forgotten ? sinks : n) * sizeof *ids);
  assert_memory_equal(setun_context_tokens(a, i) + sinks, ids + sinks + forgotten, (n - forgotten - sinks) * 4);
  // A fork; its steps are then truncated.
  EXPECT_OK(setun_context_fork(a, i, &copy, &err));
  go_on(a, copy, ids, 70);
  EXPECT_OK(setun_context_drop(a, copy, &err));
  go_on(a, i, ids + 5, 3);
  EXPECT_OK(setun_context_truncate(a, i, n, &err));
  compare(m, a, i, b, k, n);
  // Through memory.
  size_t length = 0;
  EXPECT_OK(setun_context_save_memory(a, i, NULL, 0, &length, &err));
  char *bytes = malloc(length);
  EXPECT_OK(setun_context_save_memory(a, i, bytes, length, &length, &err));
  EXPECT_OK(setun_context_truncate(b, k, 0, &err));
  EXPECT_OK(setun_context_load_memory(b, k, bytes, length, &err));
  assert_int_equal(setun_context_forgotten(b, k), setun_context_forgotten(a, i));
  assert_int_equal(setun_context_position(b, k), n + STEPS);
  compare(m, a, i, b, k, n / 2); // anything
  setun_context *other = context_of(m, 64, window + 1, sinks);
  char expected[64];
  snprintf(expected, sizeof expected, "expected a window of %u tokens%s", window + 1, sinks ? " and " : ", found a ");
  EXPECT_OK(setun_context_add(other, &copy, &err));
  assert_int_equal(setun_context_load_memory(other, copy, bytes, length, &e), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(e.message, expected));
  free(bytes);
  setun_context_free(other);
  // To a position that needs forgotten tokens; to the sinks; to a position that can be computed again.
  setun_status middle = setun_context_truncate(a, i, n / 2, &e);
  assert_int_equal(middle, forgotten ? SETUN_ERROR_ARGUMENT : SETUN_OK);
  if (forgotten) EXPECT_OK(setun_context_truncate(a, i, sinks, &err));
  uint32_t left = forgotten ? sinks : n / 2;
  assert_int_equal(setun_context_position(a, i), left);
  assert_int_equal(setun_context_forgotten(a, i), 0);
  EXPECT_OK(setun_context_truncate(b, k, 0, &err));
  if (left) go_on(b, k, ids, left);
  compare(m, a, i, b, k, left);
  setun_context_free(a);
  setun_context_free(b);
}

static void sequences(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    setun_model *m = load(cases[i].model, NULL);
    fill(setun_model_n_vocab(m));
    check_sequences(m, cases[i].window, cases[i].sinks, 600);
    check_sequences(m, cases[i].window, cases[i].sinks, 2500);
    check_sequences(m, cases[i].window, cases[i].sinks, 3300);
    setun_model_free(m);
  }
}

// ---- memory -------------------------------------------------------------------------------------------------------

static size_t resident_pages(void) {
  size_t all = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%zu %zu", &all, &resident) != 2) fail_msg("/proc/self/statm cannot be read");
  fclose(f);
  return resident;
}

static void constant_memory(void **state) {
  (void)state;
  enum { WARM = 3000, WINDOW = 96, SINKS = 4, BATCH = 32 };
  setun_model *m = load(TALES, NULL);
  setun_context *c = context_of(m, BATCH, WINDOW, SINKS);
  setun_context_info info = {.size = sizeof info}, before;
  int sequence = -1;
  size_t pages = 0;
  EXPECT_OK(setun_context_add(c, &sequence, &err));
  EXPECT_OK(setun_context_get_info(c, &info, &err));
  before = info;
  assert_int_equal(info.n_ctx, UINT32_MAX);
  setun_token id = 1;
  for (uint32_t n = 0; n < TOKENS; n++) {
    const float *logits = go_on(c, sequence, &id, 1);
    id = n % 7 ? likeliest(logits, setun_model_n_vocab(m)) : (setun_token)(n % setun_model_n_vocab(m));
    if (n == WARM) pages = resident_pages();
    EXPECT_OK(setun_context_get_info(c, &info, &err));
    assert_true(info.pages_used <= info_of(m).n_layer * 4u); // the sinks', and those of 96 positions
  }
  size_t after = resident_pages();
  if (after > pages + 64) fail_msg("%zu pages of memory after %d tokens, %zu after %d", pages, WARM, after, TOKENS);
  assert_int_equal(info.pages, before.pages);
  assert_int_equal(setun_context_position(c, sequence), TOKENS);
  setun_context_free(c);
  setun_model_free(m);
}

// ---- refusals -----------------------------------------------------------------------------------------------------

static void refused(const setun_model *m, uint32_t window, uint32_t sinks, uint32_t n_ctx, const char *message) {
  setun_error e = {SETUN_OK, ""};
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .window = window, .sinks = sinks, .n_ctx = n_ctx};
  assert_int_not_equal(setun_session_new(m, &p, &s, &e), SETUN_OK);
  if (!strstr(e.message, message)) fail_msg("%s", e.message);
}

static void refusals(void **state) {
  (void)state;
  setun_model *m = load(TALES, NULL);
  refused(m, 0, 100, 100, "sinks: expected fewer than the context's 100 tokens, found 100");
  refused(m, 64, 4, 100, "n_ctx: expected 0 with a window");
  refused(m, 64, 513, 0, "sinks: expected at most 512 tokens, found 513");
  refused(m, info_of(m).n_ctx_train, 1, 0, "window and sinks: expected at most");
  setun_model_free(m);
  // Moved keys would differ from what the model's norms after RoPE give for their new positions.
  m = load(GOLDEN "hf/hunyuan", NULL);
  refused(m, 64, 4, 0, "after RoPE");
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_one_layer), cmocka_unit_test(the_same_bits),
                                     cmocka_unit_test(sequences), cmocka_unit_test(constant_memory),
                                     cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
