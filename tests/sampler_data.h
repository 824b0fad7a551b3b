// The cases of tests/sampler/vectors.json, which tools/make_sampler_vectors.py computes. Fails the test on any
// surprise.
#ifndef SETUN_TESTS_SAMPLER_DATA_H
#define SETUN_TESTS_SAMPLER_DATA_H

#include "runtime/sampler.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline json_t *sampler_data(void) {
  json_error_t error;
  json_t *data = json_load_file(SETUN_TEST_DATA "/sampler/vectors.json", JSON_REJECT_DUPLICATES, &error);
  if (!data) fail_msg("%s: %s", SETUN_TEST_DATA "/sampler/vectors.json", error.text);
  return data;
}

static inline void succeeds(setun_status status, const setun_error *error) {
  if (status != SETUN_OK) fail_msg("%s", error->message);
}

static inline float number(const json_t *value) {
  if (json_is_string(value) && !strcmp(json_string_value(value), "-inf")) return -INFINITY;
  assert_true(json_is_number(value));
  return (float)json_number_value(value);
}

// The case's logits, which the caller frees.
static inline float *case_logits(const json_t *one, size_t *n) {
  const json_t *list = json_object_get(one, "logits"), *g = json_object_get(one, "generated");
  *n = list ? json_array_size(list) : (size_t)json_integer_value(json_object_get(g, "n"));
  assert_true(*n > 0);
  float *logits = malloc(*n * sizeof *logits);
  assert_non_null(logits);
  for (size_t i = 0; i < *n; i++) {
    if (list) {
      logits[i] = number(json_array_get(list, i));
    } else {
      uint64_t factor = (uint64_t)json_integer_value(json_object_get(g, "factor"));
      uint64_t modulus = (uint64_t)json_integer_value(json_object_get(g, "modulus"));
      logits[i] = (float)((double)(i * factor % modulus) / 16 - json_number_value(json_object_get(g, "less")));
    }
  }
  return logits;
}

// Each parameter by its name; one that the case does not have keeps its default.
static inline setun_sampler_params case_params(const json_t *one) {
  setun_sampler_params p = setun_sampler_params_default();
  const struct {
    const char *name;
    float *real;
    int32_t *integer;
  } fields[] = {
      {"penalty_last_n", NULL, &p.penalty_last_n},
      {"repeat_penalty", &p.repeat_penalty, NULL},
      {"presence_penalty", &p.presence_penalty, NULL},
      {"frequency_penalty", &p.frequency_penalty, NULL},
      {"dry_multiplier", &p.dry_multiplier, NULL},
      {"dry_base", &p.dry_base, NULL},
      {"dry_allowed_length", NULL, &p.dry_allowed_length},
      {"dry_penalty_last_n", NULL, &p.dry_penalty_last_n},
      {"top_k", NULL, &p.top_k},
      {"typical_p", &p.typical_p, NULL},
      {"top_p", &p.top_p, NULL},
      {"min_p", &p.min_p, NULL},
      {"xtc_probability", &p.xtc_probability, NULL},
      {"xtc_threshold", &p.xtc_threshold, NULL},
      {"temperature", &p.temperature, NULL},
      {"dynatemp_range", &p.dynatemp_range, NULL},
      {"dynatemp_exponent", &p.dynatemp_exponent, NULL},
      {"top_n_sigma", &p.top_n_sigma, NULL},
      {"mirostat", NULL, &p.mirostat},
      {"mirostat_tau", &p.mirostat_tau, NULL},
      {"mirostat_eta", &p.mirostat_eta, NULL},
  };
  const json_t *params = json_object_get(one, "params");
  size_t used = 0;
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const json_t *value = json_object_get(params, fields[i].name);
    if (!value) continue;
    used++;
    if (fields[i].real) {
      *fields[i].real = number(value);
    } else {
      assert_true(json_is_integer(value));
      *fields[i].integer = (int32_t)json_integer_value(value);
    }
  }
  const json_t *order = json_object_get(params, "order");
  if (order) {
    setun_error error;
    p.order.n = 0;
    if (*json_string_value(order)) {
      succeeds(setun_sampler_order_parse(json_string_value(order), &p.order, &error), &error);
    }
    used++;
  }
  assert_int_equal(used, json_object_size(params));
  return p;
}

static inline void case_piece(const void *user, setun_token id, const char **bytes, size_t *length) {
  const json_t *piece = json_array_get(user, (size_t)id);
  assert_true(json_is_string(piece));
  *bytes = json_string_value(piece);
  *length = json_string_length(piece);
}

// Draws that have no surprise: one token alone is possible.
static inline void certain_draws(setun_sampler *s, const json_t *one, const float *logits, size_t n) {
  float *alone = malloc(n * sizeof *alone);
  setun_error error;
  assert_non_null(alone);
  for (size_t i = 0; i < n; i++) alone[i] = i ? -INFINITY : logits[i];
  for (json_int_t i = json_integer_value(json_object_get(one, "certain")); i > 0; i--) {
    setun_token id = -1;
    succeeds(setun_sampler_sample(s, alone, n, &id, &error), &error);
    assert_int_equal(id, 0);
  }
  free(alone);
}

// A sampler with the case's parameters, biases, breakers and text.
static inline setun_sampler *case_sampler(const json_t *one, uint64_t seed) {
  setun_error error;
  setun_sampler *s = NULL;
  setun_sampler_params p = case_params(one);
  p.seed = seed;
  succeeds(setun_sampler_new(&p, &s, &error), &error);
  size_t i;
  json_t *value;
  json_array_foreach(json_object_get(one, "bias"), i, value) {
    setun_token id = (setun_token)json_integer_value(json_array_get(value, 0));
    succeeds(setun_sampler_add_bias(s, id, number(json_array_get(value, 1)), &error), &error);
  }
  json_array_foreach(json_object_get(one, "breakers"), i, value) {
    setun_token ids[64];
    size_t n = json_array_size(value);
    assert_true(n <= 64);
    for (size_t j = 0; j < n; j++) ids[j] = (setun_token)json_integer_value(json_array_get(value, j));
    succeeds(setun_sampler_add_breaker(s, ids, n, &error), &error);
  }
  json_array_foreach(json_object_get(one, "breaker_texts"), i, value) {
    st_sampler *inner = (st_sampler *)(void *)s; // no model is at hand, only its tokens' texts
    succeeds(st_sampler_add_breaker_text(inner, case_piece, json_object_get(one, "pieces"), json_string_value(value),
                                         json_string_length(value), &error),
             &error);
  }
  json_array_foreach(json_object_get(one, "text"), i, value) {
    succeeds(setun_sampler_accept(s, (setun_token)json_integer_value(value), &error), &error);
  }
  return s;
}

// All candidates, which the caller frees.
static inline setun_candidate *candidates_of(setun_sampler *s, const float *logits, size_t n, size_t *count) {
  setun_error error;
  setun_candidate *c = malloc(n * sizeof *c);
  assert_non_null(c);
  succeeds(setun_sampler_probabilities(s, logits, n, c, n, count, &error), &error);
  assert_true(*count >= 1 && *count <= n);
  return c;
}

#endif
