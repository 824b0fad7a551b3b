// What is drawn: the distribution over many draws, how often XTC applies, the same from the same seed; and how long a
// draw takes (printed only).
#define _POSIX_C_SOURCE 200809L
#include "sampler_data.h"

#include <time.h>

static void check_distribution(const json_t *one, uint64_t seed) {
  const char *name = json_string_value(json_object_get(one, "name"));
  const json_t *ids = json_object_get(one, "ids"), *probabilities = json_object_get(one, "probabilities");
  double draws = json_number_value(json_object_get(one, "draws")),
         bound = json_number_value(json_object_get(one, "bound"));
  size_t n, kinds = json_array_size(ids);
  float *logits = case_logits(one, &n);
  setun_sampler *s = case_sampler(one, seed);
  double *counts = calloc(n, sizeof *counts), statistic = 0, seen = 0;
  assert_non_null(counts);
  setun_error error;
  for (double i = 0; i < draws; i++) {
    setun_token id = -1;
    succeeds(setun_sampler_sample(s, logits, n, &id, &error), &error);
    assert_in_range(id, 0, n - 1);
    counts[id]++;
  }
  for (size_t i = 0; i < kinds; i++) {
    double want = draws * json_number_value(json_array_get(probabilities, i));
    double count = counts[json_integer_value(json_array_get(ids, i))];
    statistic += (count - want) * (count - want) / want;
    seen += count;
  }
  printf("%s, seed %llu: chi-square %.1f with %zu degrees of freedom, bound %.1f\n", name, (unsigned long long)seed,
         statistic, kinds - 1, bound);
  assert_true(seen == draws);
  assert_true(statistic < bound);
  setun_sampler_free(s);
  free(counts);
  free(logits);
}

static void test_distribution(void **state) {
  (void)state;
  json_t *data = sampler_data(), *one;
  size_t i;
  assert_true(json_array_size(json_object_get(data, "draws")) >= 8);
  json_array_foreach(json_object_get(data, "draws"), i, one) {
    check_distribution(one, 1);
    check_distribution(one, UINT64_MAX - i);
  }
  json_decref(data);
}

static setun_sampler *sampler_with(const setun_sampler_params *p) {
  setun_error error;
  setun_sampler *s = NULL;
  succeeds(setun_sampler_new(p, &s, &error), &error);
  return s;
}

// Of 2 tokens above the threshold XTC leaves out the likelier, so the draws show how often it applied.
static void test_xtc_probability(void **state) {
  (void)state;
  enum { DRAWS = 100000 };
  const float logits[] = {5, 5 - 0.5f}, chances[] = {0, 0.1f, 0.5f, 0.9f, 1};
  double first = 1 / (1 + exp(-0.5));
  for (size_t i = 0; i < sizeof chances / sizeof *chances; i++) {
    setun_sampler_params p = setun_sampler_params_default();
    p.temperature = 1, p.top_p = 1, p.min_p = 0, p.xtc_probability = chances[i], p.seed = 7 + i;
    setun_sampler *s = sampler_with(&p);
    double count = 0, want = DRAWS * first * (1 - (double)chances[i]);
    for (int k = 0; k < DRAWS; k++) {
      setun_token id = -1;
      assert_int_equal(setun_sampler_sample(s, logits, 2, &id, NULL), SETUN_OK);
      count += id == 0;
    }
    // 4.89 standard deviations: 1e-6 in both tails together
    double deviation = sqrt(want * (1 - want / DRAWS));
    printf("XTC %.1f: %.0f draws of the likelier token, expected %.0f +- %.0f\n", (double)chances[i], count, want,
           4.892 * deviation);
    assert_true(fabs(count - want) <= 4.892 * deviation);
    setun_sampler_free(s);
  }
}

static void fill(float *logits, size_t n, double spread) {
  uint64_t x = 1;
  for (size_t i = 0; i < n; i++) {
    double sum = 0; // of 12 uniform numbers: nearly normal
    for (int k = 0; k < 12; k++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      sum += (double)(x >> 11) * 0x1p-53;
    }
    logits[i] = (float)((sum - 6) * spread);
  }
}

static void test_seed(void **state) {
  (void)state;
  enum { N = 1000, DRAWS = 200 };
  float logits[N];
  fill(logits, N, 1);
  setun_sampler_params p = setun_sampler_params_default();
  p.seed = 5, p.xtc_probability = 0.5f, p.repeat_penalty = 1.1f, p.dry_multiplier = 0.5f;
  setun_sampler *a = sampler_with(&p), *b = sampler_with(&p);
  p.seed = 6;
  setun_sampler *c = sampler_with(&p);
  setun_token first[DRAWS], id = -1;
  int differ = 0;
  for (int i = 0; i < DRAWS; i++) {
    size_t count;
    assert_int_equal(setun_sampler_sample(a, logits, N, &first[i], NULL), SETUN_OK);
    assert_int_equal(setun_sampler_probabilities(b, logits, N, NULL, 0, &count, NULL), SETUN_OK);
    assert_int_equal(setun_sampler_sample(b, logits, N, &id, NULL), SETUN_OK);
    assert_int_equal(id, first[i]);
    assert_int_equal(setun_sampler_sample(c, logits, N, &id, NULL), SETUN_OK);
    differ += id != first[i];
    assert_int_equal(setun_sampler_accept(a, first[i], NULL), SETUN_OK);
    assert_int_equal(setun_sampler_accept(b, first[i], NULL), SETUN_OK);
    assert_int_equal(setun_sampler_accept(c, first[i], NULL), SETUN_OK);
  }
  assert_true(differ > DRAWS / 2);
  setun_sampler_reset(a);
  for (int i = 0; i < DRAWS; i++) {
    assert_int_equal(setun_sampler_sample(a, logits, N, &id, NULL), SETUN_OK);
    assert_int_equal(id, first[i]);
    assert_int_equal(setun_sampler_accept(a, id, NULL), SETUN_OK);
  }
  setun_sampler_free(a);
  setun_sampler_free(b);
  setun_sampler_free(c);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_speed(const char *name, const setun_sampler_params *p, size_t n, int rounds, int text) {
  float *logits = malloc(n * sizeof *logits);
  assert_non_null(logits);
  fill(logits, n, 2.5);
  setun_sampler *s = sampler_with(p);
  setun_token id = 0;
  for (int i = 0; i < text; i++) {
    assert_int_equal(setun_sampler_accept(s, (setun_token)((uint32_t)i * 2654435761u % n % 3000), NULL), SETUN_OK);
  }
  double least = INFINITY;
  for (int i = 0; i < rounds; i++) {
    double start = seconds();
    assert_int_equal(setun_sampler_sample(s, logits, n, &id, NULL), SETUN_OK);
    double took = seconds() - start;
    if (took < least) least = took;
  }
  printf("%-28s %6zu logits: %8.1f us\n", name, n, 1e6 * least);
  setun_sampler_free(s);
  free(logits);
}

static void test_speed(void **state) {
  (void)state;
  const size_t sizes[] = {49152, 262144};
  for (size_t i = 0; i < 2; i++) {
    setun_sampler_params p = setun_sampler_params_default();
    print_speed("defaults", &p, sizes[i], 50, 0);
    p.temperature = 0;
    print_speed("greedy", &p, sizes[i], 50, 0);
    p = setun_sampler_params_default();
    p.repeat_penalty = 1.1f, p.penalty_last_n = -1, p.dry_multiplier = 0.8f;
    print_speed("penalties and DRY over 4096", &p, sizes[i], 20, 4096);
    p = setun_sampler_params_default();
    p.top_k = 0;
    print_speed("top-p without top-k", &p, sizes[i], 5, 0);
    p.top_p = 1, p.min_p = 0;
    print_speed("temperature alone", &p, sizes[i], 5, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_distribution), cmocka_unit_test(test_xtc_probability),
                                     cmocka_unit_test(test_seed), cmocka_unit_test(test_speed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
