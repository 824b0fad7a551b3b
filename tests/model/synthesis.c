// Synthetic models: every format of the same seed is the same model; the file and the model without a file are equal;
// and invalid parameters are refused.
#define _XOPEN_SOURCE 700 // mkstemp
#include "models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const ternary[] = {"i2_s",     "i2_s-arm", "i2_s-x4", "tq1_0",  "tq2_0",  "q2_0",
                                      "q2_0-128", "pq2_0",    "ptq1_0",  "iq1_bn", "iq2_bn", "t2",
                                      "t5",       "t16",      "f32",     "f16",    "bf16",   NULL};
static const char *const values[] = {"q8_0", "q6_k", "q5_0", "q5_1", "q4_0", "q4_1", NULL};

static setun_synthesis_params params_of(const char *shape, const char *format) {
  setun_synthesis_params p = setun_synthesis_params_default();
  p.shape = shape;
  p.format = format;
  p.threads = 2;
  return p;
}

static setun_model *make(const setun_synthesis_params *p) {
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  if (setun_model_load_synthetic(p, NULL, &m, &err) != SETUN_OK)
    fail_msg("%s, %s: %s", p->shape, p->format, err.message);
  return m;
}

enum { STEPS = 12 };
// Greedy ids after a fixed prompt; the last logits, which must be finite and not all equal, go to *logits.
static void follow(const setun_model *m, setun_token ids[STEPS], float *logits) {
  static const setun_token prompt[] = {510, 3, 77, 260, 17};
  size_t n_vocab = setun_model_n_vocab(m);
  setun_session *s = session(m, 8, 1);
  eval(s, prompt, sizeof prompt / sizeof *prompt, NULL);
  for (int i = 0; i < STEPS; i++) {
    const float *out = setun_session_logits(s);
    ids[i] = likeliest(out, n_vocab);
    float least = out[0];
    for (size_t k = 0; k < n_vocab; k++) {
      assert_true(isfinite(out[k]));
      if (out[k] < least) least = out[k];
    }
    assert_true(out[ids[i]] - least > 1 && out[ids[i]] < 1000);
    memcpy(logits, out, n_vocab * sizeof *logits);
    eval(s, &ids[i], 1, NULL);
  }
  setun_session_free(s);
}

static void formats(void **state) {
  (void)state;
  setun_token first[STEPS], ids[STEPS];
  float *logits = malloc(512 * sizeof *logits);
  assert_non_null(logits);
  for (const char *const *f = ternary; *f; f++) {
    setun_synthesis_params p = params_of("tiny", *f);
    setun_model *m = make(&p);
    follow(m, f == ternary ? first : ids, logits);
    if (f != ternary && memcmp(ids, first, sizeof first)) fail_msg("%s: another text than i2_s gives", *f);
    setun_model_free(m);
  }
  for (const char *const *f = values; *f; f++) {
    setun_synthesis_params p = params_of("tiny", *f);
    p.head = *f;
    setun_model *m = make(&p);
    follow(m, ids, logits);
    setun_model_free(m);
  }
  free(logits);
}

static void seeds(void **state) {
  (void)state;
  setun_synthesis_params p = params_of("tiny-moe", "t16");
  setun_token first[STEPS], ids[STEPS];
  float a[512], b[512];
  setun_model *m = make(&p);
  follow(m, first, a);
  setun_model_free(m);
  for (uint64_t seed = 0; seed < 2; seed++) {
    p.seed = seed;
    m = make(&p);
    follow(m, ids, b);
    assert_int_equal(!memcmp(a, b, sizeof a), !seed);
    setun_model_free(m);
  }
}

static char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s cannot be opened", path);
  assert_int_equal(fseek(f, 0, SEEK_END), 0);
  *n = (size_t)ftell(f);
  rewind(f);
  char *bytes = malloc(*n + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *n, f), *n);
  fclose(f);
  return bytes;
}

// The same bytes from any number of threads, and the same model as without a file.
static void files(void **state) {
  (void)state;
  static const char *const formats_[] = {"i2_s", "t5", "q4_0", "tq1_0", NULL};
  char path[] = "/tmp/setun-synthesis-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  for (const char *const *f = formats_; *f; f++) {
    setun_error err = {SETUN_OK, ""};
    setun_synthesis_params p = params_of(f == formats_ ? "tiny-moe" : "tiny", *f);
    p.head = f == formats_ ? "bf16" : "q6_k";
    setun_token ids[STEPS], again[STEPS];
    float a[512], b[512];
    size_t n[2];
    char *bytes[2];
    for (int i = 0; i < 2; i++) {
      p.threads = 1 + 2 * i;
      if (setun_synthesize(path, &p, &err) != SETUN_OK) fail_msg("%s: %s", *f, err.message);
      bytes[i] = read_file(path, &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    setun_model *m = NULL, *made = make(&p);
    if (setun_model_load(path, NULL, &m, &err) != SETUN_OK) fail_msg("%s: %s", *f, err.message);
    follow(m, ids, a);
    follow(made, again, b);
    assert_memory_equal(ids, again, sizeof ids);
    assert_memory_equal(a, b, sizeof a);
    size_t count = 0;
    assert_int_equal(setun_tokenize(m, "the\nend \xC3\xA9", 10, 0, NULL, 0, &count, NULL), SETUN_OK);
    assert_int_equal(count, 9); // bytes, except "th"
    setun_model_free(m);
    setun_model_free(made);
    free(bytes[0]);
    free(bytes[1]);
  }
  unlink(path);
}

static void refused(const setun_synthesis_params *p, setun_status status, const char *mention) {
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  assert_int_equal(setun_synthesize("/dev/null/x.gguf", p, &err), status);
  if (!strstr(err.message, mention)) fail_msg("\"%s\" does not mention %s", err.message, mention);
  assert_int_equal(setun_model_load_synthetic(p, NULL, &m, &err), status);
  if (!strstr(err.message, mention)) fail_msg("\"%s\" does not mention %s", err.message, mention);
  assert_null(m);
  assert_int_equal(setun_model_load_synthetic(p, NULL, &m, NULL), status);
}

static bool cancel(double fraction, void *user) {
  (void)fraction, (void)user;
  return false;
}

static void arguments(void **state) {
  (void)state;
  setun_error err = {SETUN_OK, ""};
  setun_synthesis_params p = setun_synthesis_params_default();
  refused(NULL, SETUN_ERROR_ARGUMENT, "2b4t");
  refused(&p, SETUN_ERROR_ARGUMENT, "2b4t");
  p.shape = "9000b";
  refused(&p, SETUN_ERROR_ARGUMENT, "9000b");
  p.shape = "";
  refused(&p, SETUN_ERROR_ARGUMENT, "shape");
  p.shape = "tiny";
  for (const char *const *f = (const char *const[]){"q17", "", "hf-u8", "q3_k", "t5-zpm", "f8_e4m3", NULL}; *f; f++) {
    p.format = *f;
    refused(&p, SETUN_ERROR_ARGUMENT, "format");
    p.format = "i2_s", p.head = *f;
    refused(&p, SETUN_ERROR_ARGUMENT, "head");
    p.head = NULL;
  }
  p.threads = -1;
  refused(&p, SETUN_ERROR_ARGUMENT, "-1");
  p.threads = 1025;
  refused(&p, SETUN_ERROR_ARGUMENT, "1025");
  p.threads = 1;
  assert_int_equal(setun_synthesize("/dev/null/x.gguf", &p, &err), SETUN_ERROR_IO);
  assert_non_null(strstr(err.message, "/dev/null/x.gguf"));
  char path[] = "/tmp/setun-synthesis-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  unlink(path);
  p.progress = cancel;
  assert_int_equal(setun_synthesize(path, &p, &err), SETUN_ERROR_CANCELED);
  assert_int_not_equal(access(path, F_OK), 0);
}

static void shapes(void **state) {
  (void)state;
  size_t n = 0;
  bool found = false;
  for (const char *name; (name = setun_choice_name(SETUN_CHOICE_SHAPE, n)); n++) found = found || !strcmp(name, "2b4t");
  assert_true(found);
  assert_null(setun_choice_name(SETUN_CHOICE_SHAPE, n + 1));
  assert_null(setun_choice_name(SETUN_CHOICE_SHAPE, SIZE_MAX));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(seeds), cmocka_unit_test(files),
                                     cmocka_unit_test(arguments), cmocka_unit_test(shapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
