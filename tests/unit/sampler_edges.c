// Edge cases of sampling: steps that are off, refusals and their messages, the windows of the text, and the state after
// a failure.
#include "sampler_data.h"

enum { N = 100 };

static setun_sampler_params all_off(void) {
  setun_sampler_params p = setun_sampler_params_default();
  p.top_k = 0, p.top_p = 1, p.min_p = 0, p.temperature = 1;
  return p;
}

static setun_sampler *sampler_with(const setun_sampler_params *p) {
  setun_error error;
  setun_sampler *s = NULL;
  succeeds(setun_sampler_new(p, &s, &error), &error);
  return s;
}

static void fill(float *logits) {
  uint32_t x = 12345;
  for (int i = 0; i < N; i++) {
    x = x * 1664525u + 1013904223u;
    logits[i] = (float)(x >> 8) * 0x1p-22f - 2;
  }
}

static void accept(setun_sampler *s, const setun_token *ids, size_t n) {
  setun_error error;
  for (size_t i = 0; i < n; i++) succeeds(setun_sampler_accept(s, ids[i], &error), &error);
}

// Both keep the same tokens with bit-identical probabilities, and draw the same.
static void assert_same(setun_sampler *a, setun_sampler *b, const float *logits) {
  size_t n_a, n_b;
  setun_candidate *x = candidates_of(a, logits, N, &n_a), *y = candidates_of(b, logits, N, &n_b);
  assert_int_equal(n_a, n_b);
  for (size_t i = 0; i < n_a; i++) {
    assert_int_equal(x[i].id, y[i].id);
    assert_true(x[i].probability == y[i].probability);
  }
  for (int i = 0; i < 50; i++) {
    setun_token u = -1, v = -2;
    assert_int_equal(setun_sampler_sample(a, logits, N, &u, NULL), SETUN_OK);
    assert_int_equal(setun_sampler_sample(b, logits, N, &v, NULL), SETUN_OK);
    assert_int_equal(u, v);
  }
  free(x);
  free(y);
}

static const setun_token text[] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 5, 5, 5, 1, 2, 3};

// `off` differs from `plain` only in what a step that is off would use.
static void check_no_op(setun_sampler_params plain, setun_sampler_params off) {
  float logits[N];
  fill(logits);
  setun_sampler *a = sampler_with(&plain), *b = sampler_with(&off);
  accept(b, text, sizeof text / sizeof *text);
  assert_same(a, b, logits);
  setun_sampler_free(a);
  setun_sampler_free(b);
}

static void test_no_ops(void **state) {
  (void)state;
  setun_sampler_params bases[] = {all_off(), setun_sampler_params_default()};
  for (size_t i = 0; i < 2; i++) {
    setun_sampler_params base = bases[i], p = base;
    check_no_op(base, p);
    p.repeat_penalty = 1.5f, p.presence_penalty = 2, p.frequency_penalty = 1, p.penalty_last_n = 0;
    check_no_op(base, p);
    p = base, p.penalty_last_n = -1;
    check_no_op(base, p);
    p = base, p.dry_base = 3, p.dry_allowed_length = 1, p.dry_penalty_last_n = 5;
    check_no_op(base, p);
    p = base, p.dry_multiplier = 2, p.dry_penalty_last_n = 0;
    check_no_op(base, p);
    p = base, p.xtc_threshold = 0;
    check_no_op(base, p);
    p = base, p.dynatemp_exponent = 3;
    check_no_op(base, p);
  }
  setun_sampler_params p = all_off();
  p.top_k = N; // all that there are
  check_no_op(all_off(), p);
}

// With every step off the probabilities are the softmax of all logits.
static void test_plain_softmax(void **state) {
  (void)state;
  float logits[N];
  fill(logits);
  setun_sampler_params p = all_off();
  setun_sampler *s = sampler_with(&p);
  size_t count;
  setun_candidate *c = candidates_of(s, logits, N, &count);
  assert_int_equal(count, N);
  double sum = 0;
  for (int i = 0; i < N; i++) sum += exp((double)logits[i]);
  for (int i = 0; i < N; i++) {
    double want = exp((double)logits[c[i].id]) / sum;
    assert_true(fabs(c[i].probability - want) < 1e-14);
    if (i) assert_true(c[i].probability <= c[i - 1].probability);
  }
  free(c);
  setun_sampler_free(s);
}

// At temperature 0 only biases, penalties and DRY matter.
static void test_greedy(void **state) {
  (void)state;
  float logits[N];
  fill(logits);
  logits[40] = logits[17] = logits[90] = 50;
  setun_sampler_params p = all_off();
  p.temperature = 0, p.top_k = 5, p.typical_p = 0.1f, p.top_p = 0.1f, p.min_p = 0.9f, p.xtc_probability = 1,
  p.xtc_threshold = 0, p.dynatemp_range = 5, p.repeat_penalty = 1.1f;
  setun_sampler *s = sampler_with(&p);
  const setun_token order[] = {17, 40, 90};
  for (int i = 0; i < 3; i++) {
    setun_token id = -1;
    size_t count;
    setun_candidate c;
    assert_int_equal(setun_sampler_probabilities(s, logits, N, &c, 1, &count, NULL), SETUN_OK);
    assert_true(count == 1 && c.id == order[i] && c.probability == 1);
    assert_int_equal(setun_sampler_sample(s, logits, N, &id, NULL), SETUN_OK);
    assert_int_equal(id, order[i]); // of equal ones the lowest id; each is then penalized
    accept(s, &id, 1);
  }
  setun_sampler_free(s);
}

static void refuses(setun_sampler *s, const float *logits, size_t n, setun_status code, const char *words) {
  setun_error error;
  setun_token id = -5;
  size_t count = 77;
  assert_int_equal(setun_sampler_sample(s, logits, n, &id, &error), code);
  assert_int_equal(id, -5);
  if (!strstr(error.message, words)) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
  assert_int_equal(setun_sampler_sample(s, logits, n, &id, NULL), code);
  assert_int_equal(setun_sampler_probabilities(s, logits, n, NULL, 0, &count, &error), code);
  assert_int_equal(count, 77);
  assert_non_null(strstr(error.message, words));
}

// An invalid logit is found anywhere, whatever is kept, also under a bias or penalty.
static void test_bad_logits(void **state) {
  (void)state;
  float logits[N];
  const float bad[] = {NAN, INFINITY, -NAN};
  for (int kind = 0; kind < 6; kind++) {
    setun_sampler_params p = kind & 1 ? all_off() : setun_sampler_params_default();
    if (kind & 2) p.top_k = 1, p.repeat_penalty = 1.5f, p.dry_multiplier = 1;
    if (kind & 4) p.temperature = 0;
    setun_sampler *s = sampler_with(&p), *fresh = sampler_with(&p);
    const setun_token repeats[] = {50, 7, 50, 7, 50, 7};
    accept(s, repeats, 6);
    accept(fresh, repeats, 6);
    if (kind & 2) {
      assert_int_equal(setun_sampler_add_bias(s, 99, -INFINITY, NULL), SETUN_OK);
      assert_int_equal(setun_sampler_add_bias(fresh, 99, -INFINITY, NULL), SETUN_OK);
    }
    for (int i = 0; i < N; i++) {
      char words[48];
      fill(logits);
      logits[0] = 300;
      logits[i] = bad[i % 3];
      snprintf(words, sizeof words, "token %d:", i);
      refuses(s, logits, N, SETUN_ERROR_FORMAT, words);
    }
    fill(logits);
    assert_same(s, fresh, logits); // the failures changed nothing
    setun_sampler_free(s);
    setun_sampler_free(fresh);
  }
}

static void test_no_candidate(void **state) {
  (void)state;
  setun_sampler_params p = all_off();
  setun_sampler *s = sampler_with(&p);
  float logits[N];
  for (int i = 0; i < N; i++) logits[i] = -INFINITY;
  refuses(s, logits, N, SETUN_ERROR_FORMAT, "at least one above -inf");
  refuses(s, logits, 0, SETUN_ERROR_FORMAT, "at least one above -inf");
  logits[3] = 1;
  assert_int_equal(setun_sampler_add_bias(s, 3, -INFINITY, NULL), SETUN_OK);
  refuses(s, logits, N, SETUN_ERROR_FORMAT, "at least one above -inf");
  setun_sampler_free(s);
}

static void test_bias(void **state) {
  (void)state;
  setun_error error;
  float logits[N];
  fill(logits);
  setun_sampler *s = sampler_with(NULL);
  assert_int_equal(setun_sampler_add_bias(s, -1, 1, &error), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "-1"));
  assert_int_equal(setun_sampler_add_bias(s, 1, NAN, &error), SETUN_ERROR_ARGUMENT);
  assert_int_equal(setun_sampler_add_bias(s, 1, INFINITY, &error), SETUN_ERROR_ARGUMENT);
  assert_int_equal(setun_sampler_add_bias(s, 99, 0, &error), SETUN_OK);
  setun_token id;
  assert_int_equal(setun_sampler_sample(s, logits, N, &id, &error), SETUN_OK);
  assert_int_equal(setun_sampler_add_bias(s, 100, 0, &error), SETUN_OK);
  refuses(s, logits, N, SETUN_ERROR_ARGUMENT, "token 100");
  setun_sampler_free(s);
}

static void test_text(void **state) {
  (void)state;
  setun_error error;
  setun_sampler *s = sampler_with(NULL);
  assert_int_equal(setun_sampler_accept(s, -1, &error), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "-1"));
  setun_token ids[65] = {0};
  assert_int_equal(setun_sampler_add_breaker(s, ids, 0, &error), SETUN_ERROR_ARGUMENT);
  assert_int_equal(setun_sampler_add_breaker(s, ids, 65, &error), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "65"));
  assert_int_equal(setun_sampler_add_breaker(s, ids, 64, &error), SETUN_OK);
  ids[1] = -4;
  assert_int_equal(setun_sampler_add_breaker(s, ids, 2, &error), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "-4"));
  st_sampler *inner = (st_sampler *)(void *)s;
  assert_int_equal(st_sampler_add_breaker_text(inner, case_piece, NULL, "", 0, &error), SETUN_ERROR_ARGUMENT);
  assert_int_equal(st_sampler_add_breaker_text(inner, case_piece, NULL, (char *)ids, 257, &error),
                   SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "257"));
  setun_sampler_free(s);
  setun_sampler_free(NULL);
}

// A sampler that saw a long text acts as one that saw only the part in its windows; ids without a logit are harmless.
static void test_windows(void **state) {
  (void)state;
  enum { LONG = 3000 };
  float logits[N];
  fill(logits);
  const int32_t windows[][2] = {{64, 30}, {3, 90}, {0, 40}, {50, 0}, {1, 1}, {100, 100}};
  for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
    setun_sampler_params p = all_off();
    p.repeat_penalty = 1.2f, p.frequency_penalty = 0.1f, p.dry_multiplier = 1;
    p.penalty_last_n = windows[k][0], p.dry_penalty_last_n = windows[k][1];
    setun_sampler *s = sampler_with(&p), *fresh = sampler_with(&p);
    setun_token all[LONG];
    uint32_t x = 99;
    for (int i = 0; i < LONG; i++) {
      x = x * 1664525u + 1013904223u;
      all[i] = (x >> 16) % 50 ? (setun_token)(x >> 20) % 6 : (setun_token)(x >> 1);
      accept(s, &all[i], 1);
      if (i % 97 == 0 || i == LONG - 1) {
        size_t last = i < 100 ? (size_t)i + 1 : 100;
        setun_sampler_reset(fresh);
        accept(fresh, all + i + 1 - last, last);
        size_t count;
        setun_candidate *c = candidates_of(s, logits, N, &count), *d = candidates_of(fresh, logits, N, &count);
        for (size_t j = 0; j < count; j++) assert_true(c[j].id == d[j].id && c[j].probability == d[j].probability);
        free(c);
        free(d);
      }
    }
    setun_sampler_free(s);
    setun_sampler_free(fresh);
  }
}

// Fewer are written than exist; the input is unchanged.
static void test_capacity(void **state) {
  (void)state;
  float logits[N], copy[N];
  fill(logits);
  memcpy(copy, logits, sizeof copy);
  setun_sampler_params p = all_off();
  setun_sampler *s = sampler_with(&p);
  assert_int_equal(setun_sampler_add_bias(s, 4, 2, NULL), SETUN_OK);
  size_t count, few = 0;
  setun_candidate *c = candidates_of(s, logits, N, &count), some[8];
  memset(some, 0x55, sizeof some);
  assert_int_equal(setun_sampler_probabilities(s, logits, N, some, 7, &few, NULL), SETUN_OK);
  assert_int_equal(few, count);
  for (int i = 0; i < 7; i++) assert_true(some[i].id == c[i].id && some[i].probability == c[i].probability);
  assert_int_equal(some[7].id, 0x55555555);
  assert_memory_equal(logits, copy, sizeof copy);
  free(c);
  setun_sampler_free(s);
}

typedef struct bad_value {
  size_t offset;
  const char *name;
  float values[4]; // up to a 0 after the first
} bad_value;

#define BAD(field, ...)                                                                                                \
  {                                                                                                                    \
    offsetof(setun_sampler_params, field), #field, {                                                                   \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

static void refuses_params(const setun_sampler_params *p, const char *name) {
  setun_error error = {0};
  setun_sampler *s = NULL;
  assert_int_equal(setun_sampler_new(p, &s, &error), SETUN_ERROR_ARGUMENT);
  assert_null(s);
  if (strncmp(error.message, name, strlen(name)) != 0) fail_msg("\"%s\" does not name %s", error.message, name);
}

static void test_params(void **state) {
  (void)state;
  const bad_value reals[] = {
      BAD(repeat_penalty, 0, -1, NAN, INFINITY),
      BAD(presence_penalty, NAN, INFINITY, -INFINITY),
      BAD(frequency_penalty, NAN, INFINITY),
      BAD(dry_multiplier, -1, NAN, INFINITY),
      BAD(dry_base, 0.5f, NAN, INFINITY),
      BAD(typical_p, -0.1f, 1.1f, NAN),
      BAD(top_p, -0.1f, 1.1f, NAN),
      BAD(min_p, -0.1f, 1.1f, NAN),
      BAD(xtc_probability, -0.1f, 1.1f, NAN),
      BAD(xtc_threshold, -0.1f, 1.1f, NAN),
      BAD(temperature, -1, NAN, INFINITY),
      BAD(dynatemp_range, -1, NAN, INFINITY),
      BAD(dynatemp_exponent, -1, NAN, INFINITY),
  };
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
    for (int k = 0; k < 4 && (k == 0 || reals[i].values[k] != 0); k++) {
      setun_sampler_params p = setun_sampler_params_default();
      memcpy((char *)&p + reals[i].offset, &reals[i].values[k], sizeof(float));
      refuses_params(&p, reals[i].name);
    }
  }
  setun_sampler_params p = setun_sampler_params_default();
  p.top_k = -1;
  refuses_params(&p, "top_k");
  p = setun_sampler_params_default(), p.penalty_last_n = -2;
  refuses_params(&p, "penalty_last_n");
  p = setun_sampler_params_default(), p.dry_penalty_last_n = -2;
  refuses_params(&p, "dry_penalty_last_n");
  p = setun_sampler_params_default(), p.dry_allowed_length = 0;
  refuses_params(&p, "dry_allowed_length");
}

// Names of steps, and invalid orders.
static void test_order(void **state) {
  (void)state;
  setun_error error;
  setun_sampler_order order = {0};
  const char *same[] = {"penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
                        "penalties;dry;top-n-sigma;top-k;typ-p;top-p;min-p;xtc;temp",
                        "PENALTIES;Dry;topnsigma;topk;typical;nucleus;minp;XTC;Temperature"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    succeeds(setun_sampler_order_parse(same[i], &order, &error), &error);
    assert_int_equal(order.n, 9);
    for (int j = 0; j < 9; j++) assert_int_equal(order.steps[j], j);
  }
  assert_string_equal(setun_sampler_step_name(SETUN_STEP_TYPICAL), "typ_p");
  assert_null(setun_sampler_step_name((setun_sampler_step)9));
  const struct {
    const char *text, *words;
  } wrong[] = {{"", "found ''"},           {"top_k;", "found ''"},
               {"top_k;;dry", "found ''"}, {"infill", "'infill'"},
               {"top__k", "'top__k'"},     {"top_", "'top_'"},
               {"temps", "'temps'"},       {"dry;temp;temperature", "temperature again"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(setun_sampler_order_parse(wrong[i].text, &order, &error), SETUN_ERROR_ARGUMENT);
    if (!strstr(error.message, wrong[i].words)) fail_msg("\"%s\" does not say \"%s\"", error.message, wrong[i].words);
    assert_int_equal(order.n, 9); // untouched
  }
  setun_sampler *s = NULL;
  setun_sampler_params p = setun_sampler_params_default();
  p.order.steps[3] = 9;
  assert_int_equal(setun_sampler_new(&p, &s, &error), SETUN_ERROR_ARGUMENT);
  p.order.steps[3] = 4;
  assert_int_equal(setun_sampler_new(&p, &s, &error), SETUN_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "typ_p again"));
  p.order.n = 10;
  assert_int_equal(setun_sampler_new(&p, &s, &error), SETUN_ERROR_ARGUMENT);
  p = setun_sampler_params_default(), p.mirostat = 3;
  assert_int_equal(setun_sampler_new(&p, &s, &error), SETUN_ERROR_ARGUMENT);
  p.mirostat = -1;
  assert_int_equal(setun_sampler_new(&p, &s, &error), SETUN_ERROR_ARGUMENT);
}

// Mirostat 2 over many draws: what is kept follows from the surprise of what was drawn before, as its definition says.
static void test_mirostat_adapts(void **state) {
  (void)state;
  float logits[N];
  fill(logits);
  double p[N], sum = 0, mu = 2 * 1.5, surprises = 0;
  for (int i = 0; i < N; i++) sum += p[i] = exp((double)logits[i]);
  setun_sampler_params params = all_off();
  params.mirostat = 2, params.mirostat_tau = 1.5f, params.mirostat_eta = 0.25f, params.seed = 7;
  setun_sampler *s = sampler_with(&params);
  setun_token first[100];
  for (int draw = 0; draw < 100; draw++) {
    size_t count, want = 0;
    double kept = 0;
    for (int i = 0; i < N; i++) {
      if (-log2(p[i] / sum) > mu) continue;
      want++;
      kept += p[i];
    }
    setun_candidate *c = candidates_of(s, logits, N, &count);
    assert_int_equal(count, want ? want : 1);
    free(c);
    assert_int_equal(setun_sampler_sample(s, logits, N, &first[draw], NULL), SETUN_OK);
    double surprise = want ? -log2(p[first[draw]] / kept) : 0;
    mu -= 0.25 * (surprise - 1.5);
    surprises += surprise;
  }
  assert_true(fabs(surprises / 100 - 1.5) < 0.15); // the target is met
  setun_sampler_reset(s);
  for (int draw = 0; draw < 100; draw++) {
    setun_token id = -1;
    assert_int_equal(setun_sampler_sample(s, logits, N, &id, NULL), SETUN_OK);
    assert_int_equal(id, first[draw]);
  }
  setun_sampler_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_ops),        cmocka_unit_test(test_order),    cmocka_unit_test(test_mirostat_adapts),
      cmocka_unit_test(test_plain_softmax), cmocka_unit_test(test_greedy),   cmocka_unit_test(test_bad_logits),
      cmocka_unit_test(test_no_candidate),  cmocka_unit_test(test_bias),     cmocka_unit_test(test_text),
      cmocka_unit_test(test_windows),       cmocka_unit_test(test_capacity), cmocka_unit_test(test_params),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
