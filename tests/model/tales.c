// setun-tales-7m, the model that ships here, against its reference; and what holds for any model: the same numbers for
// any number of threads, any batch, any instruction set, with a cache and without.
#define _POSIX_C_SOURCE 200809L // strtok_r
#include "golden.h"

#include "setun.h"

#include <math.h>

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define TALES GOLDEN "tales/"

static setun_model *load(const char *isa) {
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  setun_model_params p = setun_model_params_default();
  p.isa = isa;
  if (setun_model_load(MODEL, &p, &m, &err) != SETUN_OK) fail_msg("%s", err.message);
  return m;
}

static setun_session *session(const setun_model *m, uint32_t n_batch, int threads, setun_kv_type kv) {
  setun_error err = {SETUN_OK, ""};
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .n_batch = n_batch, .threads = threads, .kv_keys = kv, .kv_values = kv};
  if (setun_session_new(m, &p, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

// All logits [T, vocab] of a text, evaluated in pieces of `piece` tokens (0: at once); freed with st_free.
typedef struct {
  float *out;
  size_t vocab;
} sink;

static bool keep(uint32_t position, const float *logits, void *user) {
  sink *s = user;
  memcpy(s->out + position * s->vocab, logits, s->vocab * sizeof *logits);
  return true;
}

static float *all_logits(const setun_model *m, const setun_token *ids, size_t n, uint32_t n_batch, size_t piece,
                         int threads, setun_kv_type kv) {
  setun_error err = {SETUN_OK, ""};
  sink out = {.vocab = setun_model_n_vocab(m)};
  out.out = st_malloc(n * out.vocab, sizeof(float));
  setun_session *s = session(m, n_batch, threads, kv);
  setun_eval_params p = {.size = sizeof p, .on_logits = keep, .user = &out};
  for (size_t i = 0; i < n;) {
    size_t count = piece && piece < n - i ? piece : n - i;
    if (setun_session_eval(s, ids + i, count, &p, &err) != SETUN_OK) fail_msg("%s", err.message);
    i += count;
  }
  setun_session_free(s);
  return out.out;
}

static size_t likeliest(const float *logits, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

static double log_likelihood(const float *logits, size_t n, setun_token id) {
  double most = -INFINITY, sum = 0;
  for (size_t i = 0; i < n; i++) most = logits[i] > most ? logits[i] : most;
  for (size_t i = 0; i < n; i++) sum += exp(logits[i] - most);
  return logits[id] - most - log(sum);
}

// The perplexity of golden.json's text.
static double golden_perplexity(void) {
  char *text = NULL;
  size_t length = 0;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(TALES "golden.json", 1 << 24, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_json *root;
  st_json_parse(text, length, "golden.json", &root, &err);
  if (!root) fail_msg("%s", err.message);
  double p = st_json_number(st_json_find(st_json_at(st_json_find(root, "texts"), 0), "perplexity"));
  st_json_free(root);
  st_free(text);
  return p;
}

static void matches_reference(void **state) {
  (void)state;
  golden g = golden_open(TALES "golden.safetensors");
  size_t n, n_positions, n_top, n_logits, vocab;
  setun_token *ids = golden_ids(&g, "input_ids", &n), *positions = golden_ids(&g, "positions", &n_positions);
  setun_token *top = golden_ids(&g, "top", &n_top);
  float *want = golden_read(&g, "logits", "F32", &n_logits, &vocab);
  setun_model *m = load(NULL);
  float *got = all_logits(m, ids, n, 0, 0, 2, SETUN_KV_F32);
  double nll = 0, same = 0, difference = 0;
  for (size_t t = 0; t < n; t++) {
    same += likeliest(got + t * vocab, vocab) == (size_t)top[t];
    if (t + 1 < n) nll -= log_likelihood(got + t * vocab, vocab, ids[t + 1]);
  }
  for (size_t i = 0; i < n_positions; i++) {
    for (size_t v = 0; v < vocab; v++) difference += fabs(got[positions[i] * vocab + v] - want[i * vocab + v]);
  }
  double perplexity = exp(nll / (double)(n - 1)), reference = golden_perplexity();
  same /= (double)n;
  difference /= (double)n_logits;
  print_message("perplexity %.4f (%.4f), top token %.3f, mean difference %.3f\n", perplexity, reference, same,
                difference);
  assert_true(fabs(perplexity / reference - 1) < 0.002);
  assert_true(same >= 0.98);
  assert_true(difference < 0.06);
  setun_model_free(m);
  st_free(got);
  st_free(want);
  st_free(ids);
  st_free(positions);
  st_free(top);
  golden_close(&g);
}

static void same_in_any_split(void **state) {
  (void)state;
  golden g = golden_open(TALES "golden.safetensors");
  size_t n;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  n = 100;
  setun_model *m = load(NULL);
  size_t bytes = n * setun_model_n_vocab(m) * sizeof(float);
  float *want = all_logits(m, ids, n, 512, 0, 1, SETUN_KV_F16);
  const struct {
    uint32_t n_batch;
    size_t piece;
    int threads;
  } ways[] = {{512, 0, 2}, {7, 0, 1}, {7, 0, 2}, {1, 0, 1}, {1, 0, 2}, {512, 1, 2}, {512, 33, 3}, {16, 5, 4}};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    float *got = all_logits(m, ids, n, ways[i].n_batch, ways[i].piece, ways[i].threads, SETUN_KV_F16);
    assert_memory_equal(got, want, bytes);
    st_free(got);
  }
  setun_model_free(m);
  st_free(want);
  st_free(ids);
  golden_close(&g);
}

// Decoding with the cache against computing each prefix from its beginning.
static void cache_equals_recomputation(void **state) {
  (void)state;
  golden g = golden_open(TALES "golden.safetensors");
  setun_error err = {SETUN_OK, ""};
  size_t n;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  n = 40;
  setun_model *m = load(NULL);
  size_t vocab = setun_model_n_vocab(m);
  float *cached = all_logits(m, ids, n, 512, 1, 2, SETUN_KV_F16);
  for (size_t t = 0; t < n; t++) {
    setun_session *s = session(m, 0, 2, SETUN_KV_F16);
    if (setun_session_eval(s, ids, t + 1, NULL, &err) != SETUN_OK) fail_msg("%s", err.message);
    const float *a = setun_session_logits(s), *b = cached + t * vocab;
    double ab = 0, aa = 0, bb = 0;
    for (size_t v = 0; v < vocab; v++) ab += (double)a[v] * b[v], aa += (double)a[v] * a[v], bb += (double)b[v] * b[v];
    assert_true(ab / sqrt(aa * bb) > 0.9999);
    assert_int_equal(likeliest(a, vocab), likeliest(b, vocab));
    setun_session_free(s);
  }
  setun_model_free(m);
  st_free(cached);
  st_free(ids);
  golden_close(&g);
}

// Every instruction set that can run here prints the scalar one's ids.
static void same_on_every_isa(void **state) {
  (void)state;
  golden g = golden_open(TALES "golden.safetensors");
  size_t n;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  n = 64;
  setun_model *scalar = load("scalar");
  size_t vocab = setun_model_n_vocab(scalar);
  float *want = all_logits(scalar, ids, n, 0, 0, 2, SETUN_KV_F16);
  char names[256];
  snprintf(names, sizeof names, "%s", setun_isa_available());
  for (char *rest = names, *name; (name = strtok_r(rest, " ", &rest));) {
    setun_model *m = load(name);
    setun_model_info info = {.size = sizeof info};
    assert_int_equal(setun_model_get_info(m, &info, NULL), SETUN_OK);
    assert_string_equal(info.isa, name);
    float *got = all_logits(m, ids, n, 0, 0, 2, SETUN_KV_F16);
    for (size_t t = 0; t < n; t++) {
      assert_int_equal(likeliest(got + t * vocab, vocab), likeliest(want + t * vocab, vocab));
    }
    print_message("%s agrees\n", name);
    setun_model_free(m);
    st_free(got);
  }
  setun_model_free(scalar);
  st_free(want);
  st_free(ids);
  golden_close(&g);
}

// Truncating and continuing gives what a new session gives.
static void truncate_goes_back(void **state) {
  (void)state;
  golden g = golden_open(TALES "golden.safetensors");
  setun_error err = {SETUN_OK, ""};
  size_t n;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  setun_model *m = load(NULL);
  size_t vocab = setun_model_n_vocab(m);
  setun_session *a = session(m, 0, 2, SETUN_KV_F16), *b = session(m, 0, 1, SETUN_KV_F16);
  assert_int_equal(setun_session_eval(a, ids, 60, NULL, &err), SETUN_OK);
  assert_int_equal(setun_session_truncate(a, 61, &err), SETUN_ERROR_ARGUMENT);
  assert_int_equal(setun_session_truncate(a, 20, &err), SETUN_OK);
  assert_null(setun_session_logits(a));
  assert_int_equal(setun_session_eval(a, ids + 20, 5, NULL, &err), SETUN_OK);
  assert_int_equal(setun_session_eval(b, ids, 25, NULL, &err), SETUN_OK);
  assert_memory_equal(setun_session_logits(a), setun_session_logits(b), vocab * sizeof(float));
  setun_session_free(a);
  setun_session_free(b);
  setun_model_free(m);
  st_free(ids);
  golden_close(&g);
}

static void limits_are_errors(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  setun_model *m = load(NULL);
  setun_session *s = NULL;
  setun_session_params p = {.size = sizeof p, .n_ctx = 257};
  assert_int_equal(setun_session_new(m, &p, &s, &err), SETUN_ERROR_LIMIT);
  assert_non_null(strstr(err.message, "256"));
  assert_non_null(strstr(err.message, "257"));
  p.n_ctx = 8;
  assert_int_equal(setun_session_new(m, &p, &s, &err), SETUN_OK);
  setun_token ids[9] = {0, 5, 6, 7, 8, 9, 10, 11, 12};
  assert_int_equal(setun_session_eval(s, ids, 9, NULL, &err), SETUN_ERROR_LIMIT);
  assert_non_null(strstr(err.message, "9 tokens"));
  assert_int_equal(setun_session_position(s), 0);
  ids[1] = 4096;
  assert_int_equal(setun_session_eval(s, ids, 2, NULL, &err), SETUN_ERROR_ARGUMENT);
  ids[1] = -1;
  assert_int_equal(setun_session_eval(s, ids, 2, NULL, &err), SETUN_ERROR_ARGUMENT);
  setun_session_free(s);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matches_reference),          cmocka_unit_test(same_in_any_split),
      cmocka_unit_test(cache_equals_recomputation), cmocka_unit_test(same_on_every_isa),
      cmocka_unit_test(truncate_goes_back),         cmocka_unit_test(limits_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
