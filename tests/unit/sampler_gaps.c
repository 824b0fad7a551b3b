// Tokens without text are never drawn: a sampler that excludes them does what one does whose logits are -inf there.
#include "sampler_data.h"
#include "tokenizer/tokenizer.h"

enum { N = 300, DRAWS = 200 };

static const st_token_gap items[] = {{0, 1}, {7, 8}, {40, 110}, {250, 400}}; // the last goes beyond the logits
static st_token_gaps gaps = {.items = (st_token_gap *)items, .count = 4};

static bool in_gap(size_t id) {
  for (size_t i = 0; i < gaps.count; i++) {
    if (id >= items[i].begin && id < items[i].end) return true;
  }
  return false;
}

static st_sampler *new_sampler(const setun_sampler_params *p) {
  setun_error error;
  st_sampler *s = NULL;
  succeeds(st_sampler_new(p, &s, &error), &error);
  for (setun_token id = 0; id < 256; id += 3) succeeds(st_sampler_accept(s, id, &error), &error);
  for (setun_token id = 5; id < N; id += 25)
    succeeds(st_sampler_add_bias(s, id, in_gap((size_t)id) ? 1e6f : 1, &error), &error);
  return s;
}

static void compare(const setun_sampler_params *p) {
  float logits[N], expected[N];
  setun_error error;
  uint32_t x = 1;
  for (size_t i = 0; i < N; i++) {
    x = x * 1664525u + 1013904223u;
    logits[i] = (float)(x >> 8) * 0x1p-21f;
    expected[i] = in_gap(i) ? -INFINITY : logits[i];
    if (i == 50) logits[i] = NAN; // nothing is read in a gap
  }
  st_sampler *a = new_sampler(p), *b = new_sampler(p);
  succeeds(st_sampler_exclude(a, &gaps, &error), &error);
  setun_candidate u[N], v[N];
  size_t n_u, n_v;
  succeeds(st_sampler_probabilities(a, logits, N, u, N, &n_u, &error), &error);
  succeeds(st_sampler_probabilities(b, expected, N, v, N, &n_v, &error), &error);
  assert_int_equal(n_u, n_v);
  for (size_t i = 0; i < n_u; i++) {
    assert_int_equal(u[i].id, v[i].id);
    assert_true(u[i].probability == v[i].probability);
    assert_false(in_gap((size_t)u[i].id));
  }
  for (int i = 0; i < DRAWS; i++) {
    setun_token drawn = -1, wanted = -2;
    succeeds(st_sampler_sample(a, logits, N, &drawn, &error), &error);
    succeeds(st_sampler_sample(b, expected, N, &wanted, &error), &error);
    assert_int_equal(drawn, wanted);
  }
  st_sampler_free(a);
  st_sampler_free(b);
}

static void test_all_samplers(void **unused) {
  (void)unused;
  setun_sampler_params off = st_sampler_params_default(), p;
  off.top_k = 0, off.top_p = 1, off.min_p = 0, off.temperature = 2;
  compare(&off);
  p = off, p.temperature = 0, compare(&p);
  p = off, p.top_k = 5, compare(&p);
  p = off, p.top_p = 0.7f, compare(&p);
  p = off, p.min_p = 0.1f, compare(&p);
  p = off, p.typical_p = 0.5f, compare(&p);
  p = off, p.xtc_probability = 1, p.xtc_threshold = 0.01f, compare(&p);
  p = off, p.dynatemp_range = 1, compare(&p);
  p = off, p.repeat_penalty = 1.3f, p.penalty_last_n = -1, p.presence_penalty = 0.5f, compare(&p);
  p = off, p.dry_multiplier = 1, compare(&p);
}

static void test_nothing_left(void **unused) {
  (void)unused;
  setun_error error;
  float logits[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  setun_token id = -5;
  st_sampler *s = NULL;
  succeeds(st_sampler_new(NULL, &s, &error), &error);
  succeeds(st_sampler_exclude(s, &(st_token_gaps){.items = (st_token_gap[]){{0, 8}}, .count = 1}, &error), &error);
  assert_int_equal(st_sampler_sample(s, logits, 8, &id, &error), SETUN_ERROR_FORMAT);
  assert_int_equal(id, -5);
  st_sampler_free(s);
}

// A vocabulary with missing ids.
static void test_finding(void **unused) {
  (void)unused;
  static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":5,\"d\":9},\"merges\":[]}}";
  static const st_token_gap wanted[] = {{2, 5}, {6, 9}, {10, 16}};
  setun_error error;
  st_tokenizer *t = NULL;
  st_token_gaps found = {0};
  succeeds(st_tokenizer_from_json(json, strlen(json), "test", &t, &error), &error);
  succeeds(st_token_gaps_find(t, 16, &found, &error), &error);
  assert_int_equal(found.count, 3);
  assert_memory_equal(found.items, wanted, sizeof wanted);
  st_token_gaps_free(&found);
  succeeds(st_token_gaps_find(t, 2, &found, &error), &error);
  assert_int_equal(found.count, 0);
  st_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_samplers), cmocka_unit_test(test_nothing_left),
                                     cmocka_unit_test(test_finding)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
