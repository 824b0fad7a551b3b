// LoRA adapters that are loaded and freed while the model stays, against logits of merged weights computed by
// tools/make_model_references.py; and nothing computed with some adapters is reused with others.
#include "models.h"

#include <math.h>

#define NUMPY GOLDEN "numpy/"
#define MODEL GOLDEN "hf/llama3"

static const setun_adapter first_[] = {{NUMPY "adapter-first", 0.75f}};
static const setun_adapter whole_[] = {{NUMPY "adapter-first.gguf", 1}};
static const setun_adapter both_[] = {{NUMPY "adapter-first", 0.75f}, {NUMPY "adapter-second", -0.5f}};

enum { RANK = 5, BYTES = 1 << 20, MOST = 256 };

// The golden prompt and its logits, [n_ids, n_vocab].
typedef struct {
  setun_token *ids;
  size_t n_ids, n_vocab;
  float *first, *both;
} references;
static references want;

static int open_references(void **state) {
  (void)state;
  golden g = golden_open(NUMPY "adapters.safetensors");
  size_t count;
  want.ids = golden_ids(&g, "llama3.input_ids", &want.n_ids);
  want.first = golden_read(&g, "llama3.logits_first", "F32", &count, &want.n_vocab);
  want.both = golden_read(&g, "llama3.logits_both", "F32", &count, &want.n_vocab);
  golden_close(&g);
  return want.n_ids > 2 && want.n_ids < MOST ? 0 : -1;
}

static int close_references(void **state) {
  (void)state;
  st_free(want.ids);
  st_free(want.first);
  st_free(want.both);
  return 0;
}

static void good(setun_status s, const setun_error *err) {
  if (s != SETUN_OK) fail_msg("%s", err->message);
}

static setun_model *load_with(uint32_t rank, uint64_t bytes) {
  setun_model_params p = setun_model_params_default();
  setun_model *m = NULL;
  setun_error err;
  p.precise = true;
  p.adapter_rank = rank;
  p.adapter_bytes = bytes;
  good(setun_model_load(MODEL, &p, &m, &err), &err);
  return m;
}

static setun_adapters *load_adapters(const setun_model *m, const setun_adapter *list, size_t n) {
  setun_adapters *a = NULL;
  setun_error err;
  good(setun_adapters_load(m, list, n, &a, &err), &err);
  return a;
}

static void use(setun_session *s, const setun_adapters *a, float scale) {
  setun_error err;
  good(setun_session_use_adapters(s, a, scale, &err), &err);
}

static double distance(const float *a, const float *b) {
  double worst = 0;
  for (size_t i = 0; i < want.n_vocab; i++) worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
  return worst;
}

// The logits after the last token: those of the last row that was requested.
static void check_last(const float *logits, const float *wanted) {
  assert_non_null(logits);
  double worst = distance(logits, wanted + (want.n_ids - 1) * want.n_vocab);
  if (!(worst <= 1e-4)) fail_msg("logits differ by %g", worst);
}

// Bit-identical to a model without adapters.
static float *plain_logits(void) {
  setun_model *m = load(MODEL, NULL);
  setun_session *s = session(m, 0, 2);
  float *logits = st_malloc(want.n_vocab, sizeof *logits);
  eval(s, want.ids, want.n_ids, NULL);
  memcpy(logits, setun_session_logits(s), want.n_vocab * sizeof *logits);
  setun_session_free(s);
  setun_model_free(m);
  return logits;
}

static void sessions(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_session *s = session(m, 0, 2);
  float *plain = plain_logits();
  size_t n = want.n_ids;
  setun_adapters *first = load_adapters(m, first_, 1), *whole = load_adapters(m, whole_, 1),
                 *both = load_adapters(m, both_, 2), *nothing = load_adapters(m, NULL, 0);
  eval(s, want.ids, n - 1, NULL);
  eval(s, want.ids + n - 1, 1, NULL);
  assert_memory_equal(setun_session_logits(s), plain, want.n_vocab * sizeof *plain);
  const struct {
    const setun_adapters *adapters;
    float scale;
    const float *rows; // NULL: plain
  } turns[] = {{first, 1, want.first}, {both, 1, want.both}, {NULL, 1, NULL},    {whole, 0.75f, want.first},
               {whole, 0, NULL},       {both, 1, want.both}, {nothing, 1, NULL}, {first, 1, want.first}};
  for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
    // The tokens stay, and their keys and values are computed again.
    use(s, turns[i].adapters, turns[i].scale);
    assert_null(setun_session_logits(s));
    assert_int_equal(setun_session_position(s), n);
    assert_memory_equal(setun_session_tokens(s), want.ids, n * sizeof *want.ids);
    assert_int_equal(setun_session_truncate(s, (uint32_t)n - 1, NULL), SETUN_OK);
    eval(s, want.ids + n - 1, 1, NULL);
    if (turns[i].rows) {
      check_last(setun_session_logits(s), turns[i].rows);
      assert_true(distance(setun_session_logits(s), plain) > 1e-3);
    } else {
      assert_memory_equal(setun_session_logits(s), plain, want.n_vocab * sizeof *plain);
    }
  }
  setun_adapters_free(first); // the session goes on with them
  assert_int_equal(setun_session_truncate(s, 1, NULL), SETUN_OK);
  eval(s, want.ids + 1, n - 1, NULL);
  check_last(setun_session_logits(s), want.first);
  setun_session_free(s);
  setun_adapters_free(whole);
  setun_adapters_free(both);
  setun_adapters_free(nothing);
  setun_model_free(m);
  st_free(plain);
}

static setun_context *context_of(const setun_model *m, uint32_t n_batch) {
  setun_context_params p = setun_context_params_default();
  setun_context *c = NULL;
  setun_error err;
  p.kv_keys = p.kv_values = SETUN_KV_F32;
  p.n_ctx = MOST;
  p.n_batch = n_batch;
  p.n_logits = 2 * MOST;
  p.threads = 2;
  good(setun_context_new(m, &p, &c, &err), &err);
  return c;
}

static int add_with(setun_context *c, const setun_adapters *a, float scale) {
  setun_error err;
  int sequence = -1;
  good(setun_context_use_adapters(c, a, scale, &err), &err);
  good(setun_context_add(c, &sequence, &err), &err);
  return sequence;
}

// Sequences with several adapters in one call, in passes of many sizes: each gives what it gives alone.
static void contexts(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_adapters *first = load_adapters(m, first_, 1), *both = load_adapters(m, both_, 2);
  float *plain = plain_logits();
  for (uint32_t n_batch = 1; n_batch <= 64; n_batch = n_batch * 3 + 1) {
    setun_context *c = context_of(m, n_batch);
    setun_error err;
    int sequences[] = {add_with(c, first, 1), add_with(c, NULL, 1), add_with(c, both, 1), add_with(c, first, 1), -1};
    good(setun_context_fork(c, sequences[2], &sequences[4], &err), &err);
    const float *rows[] = {want.first, NULL, want.both, want.first, want.both};
    const size_t before[] = {0, 2, want.n_ids - 1, want.n_ids - 1, 1}; // tokens of an earlier call
    setun_batch_entry entries[5];
    for (int i = 0; i < 5; i++) {
      entries[i] = (setun_batch_entry){sequences[i], SETUN_LOGITS_NONE, want.ids, before[i]};
    }
    good(setun_context_eval(c, entries, 5, NULL, &err), &err);
    for (int i = 0; i < 5; i++) {
      entries[i] = (setun_batch_entry){sequences[i], i % 2 ? SETUN_LOGITS_LAST : SETUN_LOGITS_ALL, want.ids + before[i],
                                       want.n_ids - before[i]};
    }
    good(setun_context_eval(c, entries, 5, NULL, &err), &err);
    for (size_t i = 0; i < 5; i++) {
      const float *logits = setun_context_logits(c, i, i % 2 ? 0 : entries[i].n - 1);
      if (rows[i]) {
        check_last(logits, rows[i]);
      } else {
        assert_memory_equal(logits, plain, want.n_vocab * sizeof *plain);
      }
      for (size_t k = 0; i % 2 == 0 && k < entries[i].n; k++) {
        const float *row = rows[i] + (before[i] + k) * want.n_vocab;
        assert_true(distance(setun_context_logits(c, i, k), row) <= 1e-4);
      }
    }
    assert_memory_equal(setun_context_logits(c, 0, want.n_ids - 1), setun_context_logits(c, 3, 0),
                        want.n_vocab * sizeof *plain);
    setun_context_free(c);
  }
  setun_adapters_free(first);
  setun_adapters_free(both);
  setun_model_free(m);
  st_free(plain);
}

static uint32_t reused(setun_context *c, const setun_adapters *a, float scale, int *sequence) {
  setun_error err;
  uint32_t position = MOST;
  good(setun_context_use_adapters(c, a, scale, &err), &err);
  good(setun_context_reuse(c, want.ids, want.n_ids, sequence, &position, &err), &err);
  return position;
}

// Beginnings are reused only by sequences with the same adapters and scale, dropped or not.
static void reuse(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_adapters *first = load_adapters(m, first_, 1), *same = load_adapters(m, first_, 1);
  setun_context *c = context_of(m, 0);
  setun_error err;
  for (int dropped = 0; dropped < 2; dropped++) {
    int made = add_with(c, first, 1), other = -1, again = -1;
    const setun_batch_entry entry = {made, SETUN_LOGITS_NONE, want.ids, want.n_ids - 1};
    good(setun_context_eval(c, &entry, 1, NULL, &err), &err);
    if (dropped) good(setun_context_drop(c, made, &err), &err);
    assert_int_equal(reused(c, NULL, 1, &other), 0);
    good(setun_context_drop(c, other, &err), &err);
    assert_int_equal(reused(c, first, 0.5f, &other), 0);
    good(setun_context_drop(c, other, &err), &err);
    assert_int_equal(reused(c, same, 1, &again), want.n_ids - 1);
    const setun_batch_entry rest = {again, SETUN_LOGITS_LAST, want.ids + want.n_ids - 1, 1};
    good(setun_context_eval(c, &rest, 1, NULL, &err), &err);
    check_last(setun_context_logits(c, 0, 0), want.first);
    if (!dropped) good(setun_context_drop(c, made, &err), &err);
    good(setun_context_truncate(c, again, 0, &err), &err);
    good(setun_context_drop(c, again, &err), &err);
  }
  setun_context_free(c);
  setun_adapters_free(first);
  setun_adapters_free(same);
  setun_model_free(m);
}

static void expect(setun_status s, const setun_error *err, setun_status status, const char *message) {
  assert_int_equal(s, status);
  if (!strstr(err->message, message)) fail_msg("expected \"%s\" in \"%s\"", message, err->message);
}

static void saved_sessions(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_adapters *first = load_adapters(m, first_, 1);
  setun_session *s = session(m, 0, 2);
  setun_error err;
  size_t length = 0;
  use(s, first, 1);
  eval(s, want.ids, want.n_ids - 1, NULL);
  good(setun_session_save_memory(s, NULL, 0, &length, &err), &err);
  char *bytes = st_malloc(length, 1);
  good(setun_session_save_memory(s, bytes, length, &length, &err), &err);
  use(s, NULL, 1);
  expect(setun_session_load_memory(s, bytes, length, &err), &err, SETUN_ERROR_ARGUMENT, "other adapters");
  use(s, first, 0.5f);
  expect(setun_session_load_memory(s, bytes, length, &err), &err, SETUN_ERROR_ARGUMENT, "other adapters");
  use(s, first, 1);
  good(setun_session_load_memory(s, bytes, length, &err), &err);
  eval(s, want.ids + want.n_ids - 1, 1, NULL);
  check_last(setun_session_logits(s), want.first);
  // The same as a model that was loaded with them.
  setun_model_params p = setun_model_params_default();
  setun_model *with = NULL;
  p.precise = true;
  p.adapters = first_, p.n_adapters = 1;
  good(setun_model_load(MODEL, &p, &with, &err), &err);
  setun_session *t = session(with, 0, 2);
  good(setun_session_load_memory(t, bytes, length, &err), &err);
  eval(t, want.ids + want.n_ids - 1, 1, NULL);
  assert_memory_equal(setun_session_logits(s), setun_session_logits(t), want.n_vocab * sizeof(float));
  st_free(bytes);
  setun_session_free(t);
  setun_model_free(with);
  setun_session_free(s);
  setun_adapters_free(first);
  setun_model_free(m);
}

typedef struct {
  setun_session *session;
  setun_error err;
  setun_status status;
} attempt;

static bool use_within(double fraction, void *user) {
  (void)fraction;
  attempt *a = user;
  a->status = setun_session_use_adapters(a->session, NULL, 1, &a->err);
  return true;
}

static void refused(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES), *other = load_with(3, 1 << 16), *none = load(MODEL, NULL), *v = NULL;
  setun_adapters *a = NULL, *first = load_adapters(m, first_, 1);
  setun_session *s = session(m, 0, 2), *t = session(other, 0, 2);
  setun_error err;
  expect(setun_adapters_load(none, first_, 1, &a, &err), &err, SETUN_ERROR_LIMIT, "adapter_rank");
  expect(setun_adapters_load(other, both_, 2, &a, &err), &err, SETUN_ERROR_LIMIT, "at most 3 together");
  expect(setun_session_use_adapters(t, first, 1, &err), &err, SETUN_ERROR_ARGUMENT, "another model");
  expect(setun_session_use_adapters(s, first, NAN, &err), &err, SETUN_ERROR_ARGUMENT, "finite");
  expect(setun_adapters_load(m, &(setun_adapter){MODEL, 1}, 1, &a, &err), &err, SETUN_ERROR_IO, "adapter_config.json");
  good(setun_model_load_vocabulary(MODEL, NULL, &v, &err), &err);
  expect(setun_adapters_load(v, first_, 1, &a, &err), &err, SETUN_ERROR_STATE, "only a vocabulary");
  assert_null(a);
  attempt within = {.session = s};
  eval(s, want.ids, 3,
       &(setun_eval_params){.size = sizeof(setun_eval_params), .progress = use_within, .user = &within});
  expect(within.status, &within.err, SETUN_ERROR_STATE, "a running pass");
  setun_model_params p = setun_model_params_default();
  p.adapter_rank = 4;
  expect(setun_model_load(MODEL, &p, &v, &err), &err, SETUN_ERROR_ARGUMENT, "adapter_bytes");
  setun_session_free(s);
  setun_session_free(t);
  setun_adapters_free(first);
  setun_model_free(m);
  setun_model_free(other);
  setun_model_free(none);
  setun_model_free(v);
}

// A text whose beginning was forgotten cannot be computed again with other adapters.
static void forgotten(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_adapters *first = load_adapters(m, first_, 1), *same = load_adapters(m, first_, 1);
  setun_session_params p = setun_session_params_default();
  setun_session *s = NULL;
  setun_error err;
  p.window = 32, p.sinks = 4, p.n_batch = 8;
  good(setun_session_new(m, &p, &s, &err), &err);
  use(s, first, 1);
  while (!setun_session_forgotten(s) && setun_session_position(s) < 4096) eval(s, want.ids, want.n_ids, NULL);
  uint32_t position = setun_session_position(s);
  assert_true(setun_session_forgotten(s) > 0);
  expect(setun_session_use_adapters(s, NULL, 1, &err), &err, SETUN_ERROR_STATE, "were forgotten");
  use(s, same, 1);
  eval(s, want.ids, want.n_ids, NULL);
  assert_int_equal(setun_session_position(s), position + want.n_ids);
  assert_int_equal(setun_session_truncate(s, 0, &err), SETUN_OK);
  use(s, NULL, 1);
  use(s, first, 1);
  eval(s, want.ids, want.n_ids, NULL);
  assert_non_null(setun_session_logits(s));
  setun_session_free(s);
  setun_adapters_free(first);
  setun_adapters_free(same);
  setun_model_free(m);
}

// Bytes are counted, returned when adapters are freed, and part of the plan.
static void memory(void **state) {
  (void)state;
  setun_model *m = load_with(RANK, BYTES);
  setun_adapters *a = load_adapters(m, both_, 2), *b = NULL;
  uint64_t bytes = setun_adapters_bytes(a);
  setun_error err;
  setun_plan plan = {.size = sizeof plan}, with = {.size = sizeof with};
  assert_true(bytes > 0 && bytes < BYTES);
  setun_adapters_free(a);
  setun_model_free(m);
  m = load_with(RANK, bytes);
  for (int i = 0; i < 20; i++) {
    a = load_adapters(m, both_, 2);
    expect(setun_adapters_load(m, first_, 1, &b, &err), &err, SETUN_ERROR_MEMORY, "adapter_bytes");
    setun_adapters_free(a);
  }
  setun_model_free(m);
  setun_model_params p = setun_model_params_default();
  good(setun_model_plan(MODEL, &p, &plan, &err), &err);
  p.adapter_rank = RANK, p.adapter_bytes = (uint64_t)64 << 20;
  good(setun_model_plan(MODEL, &p, &with, &err), &err);
  assert_int_equal(with.vectors, plan.vectors + p.adapter_bytes);
  assert_true(with.work > plan.work);
  assert_true(with.least >= plan.least + p.adapter_bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sessions),       cmocka_unit_test(contexts), cmocka_unit_test(reuse),
      cmocka_unit_test(saved_sessions), cmocka_unit_test(refused),  cmocka_unit_test(memory),
      cmocka_unit_test(forgotten),
  };
  return cmocka_run_group_tests(tests, open_references, close_references);
}
