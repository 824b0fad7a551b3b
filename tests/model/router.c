// Routers on numbers worked out by hand, and experts: a token alone and in a batch, by any number of threads, is the
// same.
#include "models.h"

#include "model/moe.h"

#include <math.h>

static void route(st_router router, bool renormalize, uint32_t used, const float *logits, st_choice *chosen) {
  static st_hparams h; // large
  float scratch[4];
  h.n_expert = 4;
  h.n_expert_used = used;
  h.router = router;
  h.router_renormalize = renormalize;
  st_route(&h, logits, scratch, chosen);
}

static void expect(const st_choice *c, uint32_t expert, double weight) {
  assert_int_equal(c->expert, expert);
  assert_true(fabs(c->weight - weight) < 5e-5);
}

// e^2, e, 1, 1/e over their sum 11.4752 are 0.6439, 0.2369, 0.0871, 0.0321.
static void rules(void **state) {
  (void)state;
  const float logits[] = {2, 1, 0, -1}, shuffled[] = {-1, 1, 2, 0};
  st_choice c[4];
  route(ST_ROUTER_ALL, false, 2, logits, c);
  expect(&c[0], 0, 0.6439);
  expect(&c[1], 1, 0.2369);
  route(ST_ROUTER_ALL, true, 2, logits, c);
  expect(&c[0], 0, 0.7311);
  expect(&c[1], 1, 0.2689);
  route(ST_ROUTER_CHOSEN, false, 2, logits, c);
  expect(&c[0], 0, 0.7311);
  expect(&c[1], 1, 0.2689);
  route(ST_ROUTER_ALL, false, 2, shuffled, c); // listed by number, not by weight
  expect(&c[0], 1, 0.2369);
  expect(&c[1], 2, 0.6439);
  route(ST_ROUTER_ALL, false, 4, shuffled, c);
  expect(&c[0], 0, 0.0321);
  expect(&c[3], 3, 0.0871);
}

static void ties_and_junk(void **state) {
  (void)state;
  const float equal[] = {1, 1, 1, 1}, nan[] = {NAN, NAN, 0, NAN}, far[] = {-INFINITY, 500, -500, -INFINITY};
  st_choice c[4];
  route(ST_ROUTER_ALL, true, 2, equal, c);
  expect(&c[0], 0, 0.5);
  expect(&c[1], 1, 0.5);
  route(ST_ROUTER_CHOSEN, false, 3, nan, c); // some three different experts
  for (int i = 0; i < 3; i++) assert_in_range(c[i].expert, 0, 3);
  assert_true(c[0].expert < c[1].expert && c[1].expert < c[2].expert);
  route(ST_ROUTER_ALL, true, 2, far, c);
  assert_int_equal(c[0].expert, 0);
  assert_int_equal(c[1].expert, 1);
  assert_true(c[1].weight == 1);
}

// The logits after the last of `n` tokens, taken `n_batch` at a time.
static void logits_of(const setun_model *m, const setun_token *ids, size_t n, uint32_t n_batch, int threads,
                      float *out) {
  setun_session *s = session(m, n_batch, threads);
  eval(s, ids, n, NULL);
  memcpy(out, setun_session_logits(s), setun_model_n_vocab(m) * sizeof *out);
  setun_session_free(s);
}

static void batches_agree(void **state) {
  (void)state;
  const char *names[] = {"olmoe", "qwen2-moe", "qwen3-moe", "mixtral", "gpt-oss"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "hf/%s", names[i]);
    setun_model *m = load(path, NULL);
    setun_token ids[33];
    for (int t = 0; t < 33; t++) ids[t] = (t * 37 + 11) % 300;
    float whole[512], other[512];
    size_t bytes = setun_model_n_vocab(m) * sizeof *whole;
    assert_true(bytes <= sizeof whole);
    logits_of(m, ids, 33, 0, 1, whole);
    const uint32_t batches[] = {1, 2, 7, 32};
    for (size_t k = 0; k < 4; k++) {
      logits_of(m, ids, 33, batches[k], 1 + (int)k, other);
      assert_memory_equal(whole, other, bytes);
    }
    setun_model_free(m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules),
      cmocka_unit_test(ties_and_junk),
      cmocka_unit_test(batches_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
