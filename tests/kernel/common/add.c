// Sums of vectors, and conversion to half precision: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float input_a[MAX_N + 32], input_b[MAX_N + 32], out_a[MAX_N + 32], out_b[MAX_N + 32];

static void check_add_and_half(const st_kernels *k, const st_kernels *reference, size_t n) {
  random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  memcpy(out_a + 16, input_a, n * sizeof(float)), memcpy(out_b + 16, input_a, n * sizeof(float));
  k->add(out_a + 16, input_b, 0.7f, n);
  reference->add(out_b + 16, input_b, 0.7f, n);
  compare("add", n, out_a, out_b, n);
  uint16_t half[MAX_N + 64], expected[MAX_N + 64];
  for (size_t i = 0; i < n; i++) input_a[i] = ldexpf(input_a[i], (int)random_below(44) - 26);
  memset(half, 99, sizeof half), memset(expected, 99, sizeof expected);
  k->to_half(input_a, n, half + 32);
  for (size_t i = 0; i < n; i++) expected[32 + i] = st_f16_from_f32(input_a[i]);
  comparisons++;
  if (memcmp(half, expected, sizeof half)) FAIL("to_half of %zu", n);
}

static void check_adds(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_add_and_half(k, reference, n);
}

static void bench(const ceilings *b) {
  enum { N = 2560 };
  static float x[N], z[N];
  random_floats(x, N, RANDOM);
  BENCH("add 2560", N, b->k.add(z, x, 1, N));
}

const kernel_test test_add = {"add, to_half", check_adds, bench};
