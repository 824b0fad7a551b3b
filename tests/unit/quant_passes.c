// Calibration of a layer in several passes, which have room for the sums of some of its inputs each, makes the same
// codes as one pass for all.
#define _DEFAULT_SOURCE
#include "api/api.h"
#include "base/file.h"
#include "base/memory.h"
#include "quantize/calibrate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WINDOWS = 6, WINDOW = 64, SKIPPED = 77 };

static st_placement_options options;
static int passes; // reports of progress

static bool count(double fraction, void *user) {
  (void)fraction, (void)user;
  passes++;
  return true;
}

static st_calibrated *calibrate(const st_directory *d, st_recipe *recipe, const char *target, uint64_t sums) {
  int32_t ids[WINDOWS * WINDOW];
  for (int i = 0; i < WINDOWS * WINDOW; i++) ids[i] = 1 + i * i % 191;
  const st_calibration o = {.recipe = recipe,
                            .ids = ids,
                            .n_windows = WINDOWS,
                            .window = WINDOW,
                            .placement = options,
                            .target = target,
                            .sums = sums,
                            .force = true};
  st_calibrated *made = NULL;
  setun_error err = {0};
  passes = 0;
  if (st_calibrate(d, &o, &made, &err) != SETUN_OK) {
    if (strstr(err.message, "LAPACK")) printf("skipped: %s\n", err.message), exit(SKIPPED);
    fail_msg("%s", err.message);
  }
  return made;
}

static void test_passes(void **state) {
  (void)state;
  static const char *const names[] = {"qwen2-moe", "mixtral"};
  for (size_t i = 0; i < 2; i++) {
    char path[512], one[] = "one-XXXXXX", some[] = "some-XXXXXX";
    st_recipe recipe = {0};
    st_directory *d = NULL;
    snprintf(path, sizeof path, "%s/golden/gguf/%s.gguf", SETUN_TEST_DATA, names[i]);
    assert_int_equal(st_directory_open(path, NULL, &d, NULL), SETUN_OK);
    assert_int_equal(st_recipe_named("ternary", &recipe, NULL), SETUN_OK);
    close(mkstemp(one)), close(mkstemp(some));
    st_calibrated *whole = calibrate(d, &recipe, one, 0);
    int once = passes;
    st_calibrated *parts = calibrate(d, &recipe, some, 3 * 64 * 64 * sizeof(float));
    assert_true(passes > 2 * once);
    st_calibrated_free(whole, false), st_calibrated_free(parts, false);
    for (int layer = 0;; layer++) { // the layers' files have all codes
      char a[64], b[64];
      char *x, *y;
      size_t n, m;
      snprintf(a, sizeof a, "%s.layer-%d", one, layer), snprintf(b, sizeof b, "%s.layer-%d", some, layer);
      if (access(a, F_OK)) {
        assert_true(layer > 1);
        break;
      }
      assert_int_equal(st_file_load(a, 1 << 24, &x, &n, NULL), SETUN_OK);
      assert_int_equal(st_file_load(b, 1 << 24, &y, &m, NULL), SETUN_OK);
      assert_int_equal(n, m);
      assert_memory_equal(x, y, n);
      st_free(x), st_free(y);
      remove(a), remove(b);
    }
    remove(one), remove(some);
    st_directory_free(d);
    st_recipe_free(&recipe);
  }
}

int main(void) {
  const setun_model_params plain = setun_model_params_default();
  options = st_placement_options_of(&plain, NULL);
  options.progress = count;
  return cmocka_run_group_tests((const struct CMUnitTest[]){cmocka_unit_test(test_passes)}, NULL, NULL);
}
