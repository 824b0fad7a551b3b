// Blocks times Hadamard matrices: checks and bench.
#include "common/harness.h"

#include <math.h>
#include <string.h>

enum { BLOCKS = 11, MOST = 2048 }; // blocks up to 1024, and numbers

static float input[MOST + 32], before[MOST], after[MOST], out_a[MOST + 32], out_b[MOST + 32];

// Number i of the matrix times a block, whose magnitude is at most the sum of all magnitudes.
static double row_in_double(const float *x, const float *signs, size_t block, size_t i, double *sum) {
  double y = 0;
  *sum = 0;
  for (size_t j = 0; j < block; j++) {
    double v = (double)x[j] * (signs ? (double)signs[j] : 1.0);
    y += __builtin_popcountll(i & j) % 2 ? -v : v;
    *sum += fabs(v);
  }
  *sum /= sqrt((double)block);
  return y / sqrt((double)block);
}

static void check_block(const st_kernels *k, const st_kernels *reference, size_t n, size_t block, bool signs) {
  const float *first = signs ? before : NULL, *last = signs ? after : NULL;
  random_floats(input, n, RANDOM);
  for (size_t i = 0; i < n; i++) before[i] = random_below(2) ? 1 : -1, after[i] = random_below(2) ? 1 : -1;
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  k->hadamard(input, first, last, n, block, out_a + 16);
  memcpy(out_b + 16, input, n * sizeof(float)); // in place
  reference->hadamard(out_b + 16, first, last, n, block, out_b + 16);
  compare("hadamard", n, out_a, out_b, n);
  for (size_t i = 0; i < n; i++) {
    size_t at = i / block * block;
    double sum, y = row_in_double(input + at, signs ? before + at : NULL, block, i - at, &sum);
    within("hadamard", i, out_a[16 + i], signs ? y * (double)after[i] : y, (sum + 1e-30) * 16 * 0x1p-24);
  }
}

static void check_hadamard(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0; i < BLOCKS; i++) {
    size_t block = (size_t)1 << i, most = MOST / block, times = 1 + (round + i) % (most < 5 ? most : 5);
    check_block(k, reference, block * times, block, (round + i) % 2);
    check_block(k, reference, block, block, (round + i) % 2 == 0);
  }
}

static void bench(const ceilings *b) {
  enum { N = 5120 };
  static float x[N], y[N], signs[N];
  random_floats(x, N, RANDOM);
  for (size_t i = 0; i < N; i++) signs[i] = i % 3 ? 1 : -1;
  BENCH("hadamard 5120, blocks of 1024", N, b->k.hadamard(x, signs, NULL, N, 1024, y));
  BENCH("hadamard, one head of 128", 128, b->k.hadamard(x, NULL, NULL, 128, 128, y));
}

const kernel_test test_hadamard = {"hadamard", check_hadamard, bench};
