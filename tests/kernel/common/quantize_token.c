// Int8 codes of a token: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float input_a[MAX_N + 32];

static void check_quantize(const st_kernels *k, const st_kernels *reference, size_t n, mode how) {
  int8_t codes[MAX_N + 64], expected[MAX_N + 64];
  int32_t sum, expected_sum;
  random_floats(input_a, n, how);
  if (how == RANDOM && n > 3 && n % 5 == 0) input_a[n / 2] = n % 2 ? NAN : INFINITY;
  memset(codes, 77, sizeof codes), memset(expected, 77, sizeof expected);
  float s = k->quantize_token(input_a, n, codes + 32, &sum);
  float t = reference->quantize_token(input_a, n, expected + 32, &expected_sum);
  comparisons++;
  if (!same(s, t) || sum != expected_sum || memcmp(codes, expected, sizeof codes)) FAIL("quantize_token of %zu", n);
  float most = 0;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(input_a[i])); // fmaxf passes over NaN
  if (s != 127.0f * (1.0f / fmaxf(most, 1e-5f))) FAIL("quantize_token of %zu: s %.9g", n, (double)s);
  for (size_t i = 0; i < n; i++) {
    float v = rintf(input_a[i] * s);
    if (codes[32 + i] != (v == v ? (int)v : 0)) FAIL("quantize_token of %zu: [%zu] %d", n, i, codes[32 + i]);
  }
}

static void check_quantizes(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) {
    for (int how = 0; how < MODES; how++) check_quantize(k, reference, n, (mode)how);
  }
}

static void bench(const ceilings *b) {
  enum { N = 6912 };
  static float x[N];
  static int8_t codes[N];
  int32_t sum;
  random_floats(x, N, RANDOM);
  BENCH("quantize_token 6912", N, b->k.quantize_token(x, N, codes, &sum));
}

const kernel_test test_quantize_token = {"quantize_token", check_quantizes, bench};
