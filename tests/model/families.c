// Whole models against the official implementation's numbers: all that tests/golden has references for.
#include "models.h"

#include <glob.h>
#include <math.h>
#include <unistd.h>

typedef struct {
  const float *hidden, *logits; // golden: [L+1, T, hidden], [T, vocab]
  size_t tokens, width, vocab;
  double worst_hidden, worst_logits;
  const float *layer0; // [T, hidden] the official implementation's in bf16; NULL: none
  double layer0_error; // sum of distances from it
  float *last;         // [T][vocab] computed
} comparison;

static bool on_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  comparison *c = user;
  const float *want = c->hidden + ((size_t)layer * c->tokens + position) * c->width;
  for (size_t i = 0; i < (size_t)n * c->width; i++) {
    double d = fabs((double)hidden[i] - (double)want[i]);
    if (!(d <= c->worst_hidden)) c->worst_hidden = d;
    if (layer == 1 && c->layer0) {
      c->layer0_error += fabs((double)hidden[i] - (double)c->layer0[(size_t)position * c->width + i]);
    }
  }
  return true;
}

static bool on_logits(uint32_t position, const float *logits, void *user) {
  comparison *c = user;
  const float *want = c->logits + (size_t)position * c->vocab;
  for (size_t i = 0; i < c->vocab; i++) {
    double d = fabs((double)logits[i] - (double)want[i]);
    if (!(d <= c->worst_logits)) c->worst_logits = d;
  }
  return true;
}

// A session of a context of that length; 0: the model's own.
static setun_session *session_within(const setun_model *m, uint32_t n_ctx) {
  setun_session_params p = setun_session_params_default();
  setun_session *s = NULL;
  setun_error err = {SETUN_OK, ""};
  p.kv_keys = p.kv_values = SETUN_KV_F32;
  p.threads = 2;
  p.n_ctx = n_ctx;
  if (setun_session_new(m, &p, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

// LongRoPE: the last rows of a text that is longer than the original context.
static void compare_long(const setun_model *m, const golden *g, size_t vocab) {
  size_t n, count;
  setun_token *ids = golden_ids(g, "long_input_ids", &n);
  float *want = golden_read(g, "long_logits", "F32", &count, NULL);
  setun_session *s = session_within(m, 0);
  double worst = 0;
  for (size_t row = count / vocab; row > 0; row--) { // of the last rows
    size_t end = n - row + 1, at = setun_session_position(s);
    eval(s, ids + at, end - at, NULL);
    const float *logits = setun_session_logits(s);
    for (size_t i = 0; i < vocab; i++) {
      double d = fabs((double)logits[i] - (double)want[(count / vocab - row) * vocab + i]);
      if (d > worst || isnan(d)) worst = d;
    }
  }
  print_message("%-24s logits %.1e\n", "  a long context", worst);
  assert_true(worst <= 1e-4);
  setun_session_free(s);
  st_free(want);
  st_free(ids);
}

// The share of steps, teacher-forced on the reference's ids, at which the likeliest token is the reference's.
static double greedy_share(const setun_model *m, const setun_token *ids, size_t n, const setun_token *greedy,
                           size_t steps, size_t vocab, uint32_t n_ctx) {
  setun_session *s = session_within(m, n_ctx);
  size_t same = 0;
  eval(s, ids, n, NULL);
  for (size_t i = 0; i < steps; i++) {
    same += likeliest(setun_session_logits(s), vocab) == greedy[i];
    if (i + 1 < steps) eval(s, greedy + i, 1, NULL);
  }
  setun_session_free(s);
  return (double)same / (double)steps;
}

// The official implementation's own mean distance between bf16 and float32, from golden.json.
static double own_error(const char *name) {
  char path[512];
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, GOLDEN "hf/%s/golden.json", name);
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_json *root;
  st_json_parse(text, length, path, &root, &err);
  if (!root) fail_msg("%s", err.message);
  double mean = st_json_number(st_json_find(st_json_find(root, "bf16_own_error"), "mean"));
  st_json_free(root);
  st_free(text);
  return mean;
}

static void compare(const char *path, const char *kind, const char *name, double hidden_bound, double logits_bound,
                    double greedy_bound) {
  char golden_path[512];
  snprintf(golden_path, sizeof golden_path, GOLDEN "%s/%s/golden.safetensors", kind, name);
  golden g = golden_open(golden_path);
  size_t n, steps, count;
  setun_token *ids = golden_ids(&g, "input_ids", &n), *greedy = golden_ids(&g, "greedy", &steps);
  comparison c = {.tokens = n};
  float *hidden = golden_read(&g, "hidden", "F32", &count, &c.width),
        *logits = golden_read(&g, "logits", "F32", &count, &c.vocab);
  c.hidden = hidden;
  float *layer0 =
      st_directory_find(g.directory, "layer0_bf16") ? golden_read(&g, "layer0_bf16", "F32", &count, NULL) : NULL;
  c.layer0 = layer0;
  c.logits = logits;
  setun_model *m = load(path, NULL);
  bool has_long = st_directory_find(g.directory, "long_logits") != NULL;
  uint32_t n_ctx = has_long ? (uint32_t)(n + steps) : 0; // the short factors hold
  setun_session *s = session_within(m, n_ctx);
  setun_eval_params p = {.size = sizeof p, .on_logits = on_logits, .on_hidden = on_hidden, .user = &c};
  eval(s, ids, n, &p);
  double same = greedy_share(m, ids, n, greedy, steps, c.vocab, n_ctx);
  if (has_long) compare_long(m, &g, c.vocab);
  print_message("%-24s hidden %.1e, logits %.1e, greedy %.3f\n", name, c.worst_hidden, c.worst_logits, same);
  assert_true(c.worst_hidden <= hidden_bound);
  assert_true(c.worst_logits <= logits_bound);
  assert_true(same >= greedy_bound);
  if (layer0) {
    double mean = c.layer0_error / (double)(n * c.width), own = own_error(name);
    print_message("%-24s layer 0 against bf16: mean %.2e, its own %.2e\n", name, mean, own);
    assert_true(own > 0 && mean <= 1.2 * own);
  }
  setun_session_free(s);
  setun_model_free(m);
  st_free(hidden);
  st_free(layer0);
  st_free(logits);
  st_free(ids);
  st_free(greedy);
  golden_close(&g);
}

// The reference of a kind and a name, and a model that must reproduce it.
static void compare_bounded(const char *path, const char *kind, const char *name) {
  // The last bit of a float may change BitNet's int8 roundings: only logits and tokens are compared, with a bound.
  bool bitnet = !strncmp(name, "bitnet", 6);
  compare(path, kind, name, bitnet ? INFINITY : 1e-4, bitnet ? 0.06 : 1e-4, bitnet ? 0.95 : 1);
}

// Calls `fn` with the name of each golden file of a pattern: the part that the asterisk matches.
static void each_file(const char *before, const char *behind, void (*fn)(const char *name)) {
  char pattern[512], name[256];
  glob_t found;
  snprintf(pattern, sizeof pattern, GOLDEN "%s*%s", before, behind);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const char *path = found.gl_pathv[i] + strlen(GOLDEN) + strlen(before);
    snprintf(name, sizeof name, "%.*s", (int)(strlen(path) - strlen(behind)), path);
    fn(name);
  }
  globfree(&found);
}

static void compare_hf(const char *name) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s", name);
  compare_bounded(path, "hf", name);
}

// A GGUF file has the reference of its name, or of a name that this begins with: files in a rotated basis give what the
// original model gives.
static void compare_gguf(const char *name) {
  char path[512], reference[512], of[256];
  snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", name);
  snprintf(of, sizeof of, "%s", name);
  for (;;) {
    snprintf(reference, sizeof reference, GOLDEN "hf/%s/golden.safetensors", of);
    if (access(reference, R_OK) == 0) break;
    char *end = strrchr(of, '-');
    if (!end) fail_msg("%s: no reference", path);
    *end = 0;
  }
  print_message("%s, with the reference %s\n", path, of);
  compare_bounded(path, "hf", of);
}

// Families without numbers of an official implementation: tools/make_model_references.py made these.
static void compare_numpy(const char *name) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "numpy/%s", name);
  compare_bounded(path, "numpy", name);
}

static void hf(void **state) {
  (void)state;
  each_file("hf/", "/golden.safetensors", compare_hf);
}

static void gguf(void **state) {
  (void)state;
  each_file("gguf/", ".gguf", compare_gguf);
}

static void numpy(void **state) {
  (void)state;
  each_file("numpy/", "/golden.safetensors", compare_numpy);
}

// A session no longer than the original context takes LongRoPE's short factors.
static void numpy_minicpm_short(void **state) {
  (void)state;
  golden g = golden_open(GOLDEN "numpy/minicpm/golden.safetensors");
  size_t n, count;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  comparison c = {.tokens = n};
  float *logits = golden_read(&g, "logits_short", "F32", &count, &c.vocab);
  c.logits = logits;
  setun_model *m = load(GOLDEN "numpy/minicpm", NULL);
  setun_session *s = session_within(m, 32);
  eval(s, ids, n, &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = on_logits, .user = &c});
  assert_true(c.worst_logits <= 1e-4);
  setun_session_free(s);
  setun_model_free(m);
  st_free(logits);
  st_free(ids);
  golden_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(hf), cmocka_unit_test(gguf), cmocka_unit_test(numpy),
                                     cmocka_unit_test(numpy_minicpm_short)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
