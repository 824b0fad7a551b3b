// Routers on numbers worked out by hand, and experts: a token alone and in a batch, by any number of threads, is the
// same.
#include "models.h"

#include "backend/backend.h"

#include <math.h>

typedef struct {
  float expert, weight;
} choice;

static void route(st_router router, bool renormalize, uint32_t used, const float *logits, choice *chosen) {
  const st_backend *b = st_backend_at(0);
  const st_queue_options options = {.threads = 1, .n_batch = 1};
  const st_route_args args = {4, used, router, renormalize};
  st_device *device;
  st_queue *queue;
  st_array *from, *to;
  assert_int_equal(b->device_new(&(st_device_options){0}, &device, NULL), SETUN_OK);
  assert_int_equal(b->queue_new(device, &options, &queue, NULL), SETUN_OK);
  assert_int_equal(b->array_new(queue, 1, 4, &from, NULL), SETUN_OK);
  assert_int_equal(b->array_new(queue, 1, 8, &to, NULL), SETUN_OK);
  assert_int_equal(b->write(queue, from, 0, 4, logits, NULL), SETUN_OK);
  b->route(queue, from, 1, &args, to);
  assert_int_equal(b->read(queue, to, 0, (size_t)2 * used, (float *)chosen, NULL), SETUN_OK);
  b->array_free(from);
  b->array_free(to);
  b->queue_free(queue);
  b->device_free(device);
}

static void expect(const choice *c, uint32_t expert, double weight) {
  assert_int_equal((int)c->expert, expert);
  assert_true(fabs(c->weight - weight) < 5e-5);
}

// e^2, e, 1, 1/e over their sum 11.4752 are 0.6439, 0.2369, 0.0871, 0.0321.
static void rules(void **state) {
  (void)state;
  const float logits[] = {2, 1, 0, -1}, shuffled[] = {-1, 1, 2, 0};
  choice c[4];
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
  route(ST_ROUTER_SIGMOID, false, 2, shuffled, c); // 1 / (1 + e^-x)
  expect(&c[0], 1, 0.7311);
  expect(&c[1], 2, 0.8808);
  route(ST_ROUTER_ALL, false, 4, shuffled, c);
  expect(&c[0], 0, 0.0321);
  expect(&c[3], 3, 0.0871);
}

static void ties_and_junk(void **state) {
  (void)state;
  const float equal[] = {1, 1, 1, 1}, nan[] = {NAN, NAN, 0, NAN}, far[] = {-INFINITY, 500, -500, -INFINITY};
  choice c[4];
  route(ST_ROUTER_ALL, true, 2, equal, c);
  expect(&c[0], 0, 0.5);
  expect(&c[1], 1, 0.5);
  route(ST_ROUTER_CHOSEN, false, 3, nan, c); // some three different experts
  for (int i = 0; i < 3; i++) assert_in_range((int)c[i].expert, 0, 3);
  assert_true(c[0].expert < c[1].expert && c[1].expert < c[2].expert);
  route(ST_ROUTER_ALL, true, 2, far, c);
  assert_int_equal((int)c[0].expert, 0);
  assert_int_equal((int)c[1].expert, 1);
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
