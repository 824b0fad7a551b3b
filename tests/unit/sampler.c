// What each step of sampling keeps, and with which probabilities, against an independent computation of them.
#include "sampler_data.h"

enum { CASES = 600 }; // at least: a lost case must be noticed

static void check_case(const json_t *one) {
  const char *name = json_string_value(json_object_get(one, "name"));
  size_t n, count;
  float *logits = case_logits(one, &n);
  setun_sampler *s = case_sampler(one, 1);
  certain_draws(s, one, logits, n);
  setun_candidate *c = candidates_of(s, logits, n, &count);
  const json_t *ids = json_object_get(one, "ids"), *probabilities = json_object_get(one, "probabilities");
  size_t want = (size_t)json_integer_value(json_object_get(one, "count"));
  if (count != want) fail_msg("%s: %zu are kept, expected %zu", name, count, want);
  assert_true(json_array_size(ids) > 0 && json_array_size(ids) == json_array_size(probabilities));
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += c[i].probability;
  if (!(fabs(sum - 1) < 1e-12)) fail_msg("%s: probabilities add up to %.17g", name, sum);
  for (size_t i = 0; i < json_array_size(ids); i++) {
    int id = (int)json_integer_value(json_array_get(ids, i));
    double p = json_number_value(json_array_get(probabilities, i));
    if (c[i].id != id) fail_msg("%s: at %zu is token %d, expected %d", name, i, (int)c[i].id, id);
    if (!(fabs(c[i].probability - p) <= 1e-6 && fabs(c[i].probability - p) <= 1e-6 * p + 1e-15)) {
      fail_msg("%s: token %d has probability %.17g, expected %.17g", name, id, c[i].probability, p);
    }
  }
  setun_token drawn = -1;
  setun_error error;
  succeeds(setun_sampler_sample(s, logits, n, &drawn, &error), &error);
  size_t at = 0;
  while (at < count && c[at].id != drawn) at++;
  if (at == count) fail_msg("%s: token %d was drawn, which is not kept", name, (int)drawn);
  setun_sampler_free(s);
  free(c);
  free(logits);
}

static void test_vectors(void **state) {
  (void)state;
  json_t *data = sampler_data(), *one;
  const json_t *cases = json_object_get(data, "cases");
  assert_true(json_array_size(cases) >= CASES);
  size_t i;
  json_array_foreach(cases, i, one) {
    check_case(one);
  }
  printf("%zu cases\n", json_array_size(cases));
  json_decref(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
