// DRY's sequence breakers as texts, with a real vocabulary: repetitions do not reach across them, however tokens cut
// them.
#include "setun.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"
#define LINE "Once upon a time there was a dog.\n"

// The number of tokens that DRY penalizes after two equal lines, with equal logits.
static size_t penalized(const setun_model *model, const char *breaker) {
  setun_error err;
  setun_token ids[64];
  size_t n, count, n_vocab = setun_model_n_vocab(model), low = 0;
  if (setun_tokenize(model, LINE LINE, strlen(LINE LINE), 0, ids, 64, &n, &err)) fail_msg("%s", err.message);
  assert_in_range(n, 10, 64);
  setun_sampler_params p = setun_sampler_params_default();
  p.dry_multiplier = 1, p.top_k = 0, p.top_p = 1, p.min_p = 0;
  setun_sampler *s = NULL;
  if (setun_sampler_new(&p, &s, &err)) fail_msg("%s", err.message);
  if (breaker && setun_sampler_add_breaker_text(s, model, breaker, strlen(breaker), &err)) fail_msg("%s", err.message);
  for (size_t i = 0; i < n; i++) assert_int_equal(setun_sampler_accept(s, ids[i], &err), SETUN_OK);
  float *logits = calloc(n_vocab, sizeof *logits);
  setun_candidate *c = malloc(n_vocab * sizeof *c);
  assert_true(logits && c);
  if (setun_sampler_probabilities(s, logits, n_vocab, c, n_vocab, &count, &err)) fail_msg("%s", err.message);
  assert_int_equal(count, n_vocab);
  for (size_t i = 0; i < count; i++) low += c[i].probability < 0.5 / (double)n_vocab;
  if (low) assert_int_equal(c[count - 1].id, ids[n / 2]); // the first token of the second line
  free(c);
  free(logits);
  setun_sampler_free(s);
  return low;
}

static void test_breakers(void **state) {
  (void)state;
  setun_error err;
  setun_model *model = NULL;
  setun_model_params p = setun_model_params_default();
  if (setun_model_load_vocabulary(MODEL, &p, &model, &err)) fail_msg("%s", err.message);
  assert_int_equal(penalized(model, NULL), 1);
  assert_int_equal(penalized(model, "xyz"), 1);
  assert_int_equal(penalized(model, "\n"), 0);
  assert_int_equal(penalized(model, "dog.\n"), 0);
  assert_int_equal(penalized(model, "there was"), 1); // enough repeats after it
  setun_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_breakers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
