// Gates: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float input_a[MAX_N + 32], input_b[MAX_N + 32], out_a[MAX_N + 32], out_b[MAX_N + 32];

static double glu_in_double(st_glu kind, double g, double u) {
  switch (kind) {
  case ST_GLU_RELU2: return (g > 0 ? g * g : 0) * u;
  case ST_GLU_GELU_TANH: return g / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) * u;
  case ST_GLU_GPT_OSS: g = fmin(g, 7), u = fmax(-7, fmin(u, 7)); return (u + 1) * g / (1 + exp(-1.702 * g));
  case ST_GLU_SIGMOID: return u / (1 + exp(-g));
  default: return g / (1 + exp(-g)) * u;
  }
}

static void check_glu(const st_kernels *k, const st_kernels *reference, size_t n) {
  for (int kind = ST_GLU_SILU; kind <= ST_GLU_SIGMOID; kind++) {
    random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
    for (size_t i = 0; i < n; i++) input_a[i] *= (float)(1 << i % 8), input_b[i] *= 10;
    fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
    k->glu((st_glu)kind, input_a, input_b, n, out_a + 16);
    reference->glu((st_glu)kind, input_a, input_b, n, out_b + 16);
    compare("glu", n, out_a, out_b, n);
    for (size_t i = 0; i < n; i++) {
      // The exponential's argument is rounded: the relative error of its result is the argument times 2^-24.
      double y = glu_in_double((st_glu)kind, input_a[i], input_b[i]), z = fabs((double)input_a[i]);
      if (kind == ST_GLU_GELU_TANH) z = 1.6 * (z + 0.045 * z * z * z);
      if (fabs(y) > 1e-30) within("glu", i, out_a[16 + i], y, fabs(y) * (3 * z + 12) * 0x1p-24);
    }
    memcpy(out_b + 16, input_a, n * sizeof(float)); // in place
    k->glu((st_glu)kind, out_b + 16, input_b, n, out_b + 16);
    compare("glu in place", n, out_a, out_b, n);
    const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-40f, -200, 200, 88.5f, -88.5f, -103.9f};
    size_t m = sizeof odd / sizeof *odd;
    for (size_t i = 0; i < m; i++) input_b[i] = 1;
    fill_guard(out_a, m + 32), fill_guard(out_b, m + 32);
    k->glu((st_glu)kind, odd, input_b, m, out_a + 16);
    reference->glu((st_glu)kind, odd, input_b, m, out_b + 16);
    compare("glu of odd values", m, out_a, out_b, m);
  }
}

static void check_glus(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_glu(k, reference, n);
}

static void bench(const ceilings *b) {
  enum { N = 6912 };
  static float x[N], y[N], z[N];
  random_floats(x, N, RANDOM), random_floats(y, N, RANDOM);
  BENCH("glu relu2 6912", N, b->k.glu(ST_GLU_RELU2, x, y, N, z));
  BENCH("glu silu 6912", N, b->k.glu(ST_GLU_SILU, x, y, N, z));
}

const kernel_test test_glu = {"glu", check_glus, bench};
