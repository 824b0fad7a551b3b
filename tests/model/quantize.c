// Calibrated quantization, interrupted and continued: the finished layers are there, the target is not, and the second
// call gives what an uninterrupted one gives, byte for byte, with less work. Layers of another model or text are not
// used.
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "placed.h"
#include "quantize/lapack.h"
#include "runtime/context.h"
#include "setun.h"

#include <unistd.h>

#define MODEL SETUN_TEST_DATA "/golden/gguf/llama3.gguf"

static char folder[] = "/tmp/setun-quantize-XXXXXX";

typedef struct {
  int calls;
  double until; // fraction after which it cancels
} counter;

static bool count(double fraction, void *user) {
  counter *c = user;
  c->calls++;
  return fraction <= c->until;
}

static const char *path_of(const char *name) {
  static char path[2][256];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

static void write_text(const char *name, const char *sentence) {
  FILE *f = fopen(path_of(name), "w");
  assert_non_null(f);
  for (int i = 0; i < 200; i++) fprintf(f, "%d. %s\n", i, sentence);
  assert_int_equal(fclose(f), 0);
}

static setun_status quantize(const char *target, const char *text, const char *scheme, counter *c, setun_error *err) {
  setun_quantize_params p = setun_quantize_params_default();
  char path[256];
  snprintf(path, sizeof path, "%s", path_of(text));
  p.scheme = scheme;
  p.calibration = path;
  p.windows = 4, p.window = 32;
  p.progress = count;
  p.user = c;
  return setun_quantize(MODEL, path_of(target), &p, err);
}

static bool is_there(const char *name) {
  return access(path_of(name), F_OK) == 0;
}

static void compare_files(const char *a, const char *b) {
  char *x, *y;
  size_t n, m;
  assert_int_equal(st_file_load(path_of(a), 1 << 30, &x, &n, NULL), SETUN_OK);
  assert_int_equal(st_file_load(path_of(b), 1 << 30, &y, &m, NULL), SETUN_OK);
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n);
  st_free(x);
  st_free(y);
}

static void test_continued(void **state) {
  (void)state;
  setun_error err;
  counter whole = {0, 2}, first = {0, 0.5}, second = {0, 2};
  write_text("a.txt", "A river ran past the mill, and the miller counted his sacks.");
  assert_int_equal(quantize("whole.gguf", "a.txt", "zp2-32", &whole, &err), SETUN_OK);
  assert_false(is_there("whole.gguf.layer-0"));
  assert_int_equal(quantize("cut.gguf", "a.txt", "zp2-32", &first, &err), SETUN_ERROR_CANCELED);
  assert_true(is_there("cut.gguf.layer-0"));
  assert_false(is_there("cut.gguf"));
  assert_int_equal(quantize("cut.gguf", "a.txt", "zp2-32", &second, &err), SETUN_OK);
  assert_false(is_there("cut.gguf.layer-0"));
  assert_true(second.calls < whole.calls);
  compare_files("whole.gguf", "cut.gguf");
}

// A layer that was made from another text, or that is damaged, is made again.
static void test_others(void **state) {
  (void)state;
  setun_error err;
  counter cut = {0, 0.5}, all = {0, 2}, again = {0, 2};
  write_text("b.txt", "Numbers of another kind: seven, eleven, thirteen.");
  assert_int_equal(quantize("other.gguf", "b.txt", "zp2-32", &cut, &err), SETUN_ERROR_CANCELED);
  assert_int_equal(quantize("other.gguf", "a.txt", "zp2-32", &all, &err), SETUN_OK);
  compare_files("whole.gguf", "other.gguf");
  cut.calls = 0;
  assert_int_equal(quantize("bad.gguf", "a.txt", "zp2-32", &cut, &err), SETUN_ERROR_CANCELED);
  FILE *f = fopen(path_of("bad.gguf.layer-0"), "r+");
  assert_non_null(f);
  fseek(f, 100, SEEK_SET);
  fputs("damage", f);
  fclose(f);
  assert_int_equal(quantize("bad.gguf", "a.txt", "zp2-32", &again, &err), SETUN_OK);
  compare_files("whole.gguf", "bad.gguf");
}

static float *logits_of(const char *name, const uint32_t *resident_parts, size_t *n_vocab) {
  const st_placement_options options = {.backend = st_backend_find(NULL),
                                        .threads = 2,
                                        .context_size = st_context_size_of,
                                        .resident_parts = resident_parts};
  const setun_session_params params = setun_session_params_default();
  placed p = place(path_of(name), &options, &params);
  assert_int_equal(p.placement->streamer != NULL, resident_parts != NULL);
  float *out = placed_logits(&p);
  *n_vocab = p.n_vocab;
  placed_free(&p);
  return out;
}

// GPTQ's tensors, 2:4 blocks and rows of one scale, read for each pass, compute what they compute when they are
// resident.
static void test_streamed(void **state) {
  (void)state;
  static const struct {
    const char *target, *scheme, *ends;
  } cases[] = {{"gptq", "zp4-32", NULL},
               {"sparse.gguf", "2:4-int4-32", NULL},
               {"float.gguf", "2:4-fp4-32", NULL},
               {"rows.gguf", "q8_0", "int8-row"}};
  const uint32_t none = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    setun_quantize_params p = setun_quantize_params_default();
    setun_error err;
    p.scheme = cases[i].scheme;
    p.embedding = p.head = cases[i].ends;
    if (setun_quantize(MODEL, path_of(cases[i].target), &p, &err) != SETUN_OK) fail_msg("%s", err.message);
    size_t n_vocab;
    float *resident = logits_of(cases[i].target, NULL, &n_vocab);
    float *streamed = logits_of(cases[i].target, &none, &n_vocab);
    assert_memory_equal(resident, streamed, PLACED_LOGITS * n_vocab * sizeof *resident);
    st_free(resident);
    st_free(streamed);
  }
}

static void refused(const char *text, const char *scheme, const char *what) {
  setun_error err;
  counter c = {0, 2};
  assert_int_not_equal(quantize("none.gguf", text, scheme, &c, &err), SETUN_OK);
  if (!strstr(err.message, what)) fail_msg("%s: expected \"%s\", found \"%s\"", scheme, what, err.message);
  assert_false(is_there("none.gguf"));
}

static void test_refused(void **state) {
  (void)state;
  FILE *f = fopen(path_of("short.txt"), "w");
  assert_non_null(f);
  fputs("Too short.", f);
  fclose(f);
  refused("short.txt", "zp2-32", "short.txt: too short for calibration");
  refused("a.txt", "zp2-128", "zp2-128 takes rows of a multiple of 128 weights, these have 64");
  refused("missing.txt", "zp2-32", "missing.txt");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_continued), cmocka_unit_test(test_others),
                                     cmocka_unit_test(test_streamed), cmocka_unit_test(test_refused)};
  setun_error err;
  st_lapack lapack;
  if (st_lapack_load(&lapack, &err) != SETUN_OK) {
    puts(err.message);
    return 77;
  }
  if (!mkdtemp(folder)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  static const char *const made[] = {"a.txt",
                                     "b.txt",
                                     "short.txt",
                                     "whole.gguf",
                                     "cut.gguf",
                                     "other.gguf",
                                     "bad.gguf",
                                     "none.gguf.layer-0",
                                     "none.gguf",
                                     "cut.gguf.layer-0",
                                     "bad.gguf.layer-0",
                                     "sparse.gguf",
                                     "float.gguf",
                                     "rows.gguf",
                                     "gptq/config.json",
                                     "gptq/model.safetensors",
                                     "gptq/tokenizer.json",
                                     "gptq/tokenizer_config.json"};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) remove(path_of(made[i]));
  remove(path_of("gptq"));
  rmdir(folder);
  return failed;
}
