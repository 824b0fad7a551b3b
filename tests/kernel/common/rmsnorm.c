// Norms, alone and with the preparation of an input: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float input_a[MAX_N + 32], input_b[MAX_N + 32], out_a[MAX_N + 32], out_b[MAX_N + 32];

static void check_norm(const st_kernels *k, const st_kernels *reference, size_t n) {
  random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  k->rmsnorm(input_a, input_b, n, 1e-5f, out_a + 16);
  reference->rmsnorm(input_a, input_b, n, 1e-5f, out_b + 16);
  compare("rmsnorm", n, out_a, out_b, n);
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += (double)input_a[i] * input_a[i];
  for (size_t i = 0; i < n; i++) {
    double y = input_a[i] / sqrt(squares / (double)n + 1e-5) * input_b[i];
    within("rmsnorm", i, out_a[16 + i], y, fabs(y) * ((double)n / 16 + 16) * 0x1p-24);
  }
  // A norm that is fused with the preparation of an input gives the same product with a matrix of ones as a separate
  // one.
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    st_input fused, apart;
    prepare(k, &apart, (st_activation)kind, out_a + 16, 1, n);
    prepare(k, &fused, (st_activation)kind, input_a, 1, n);
    k->prepare(&fused, input_a, n, input_b, 1e-5f, 0, 1);
    comparisons++;
    size_t padded = (n + 31) / 32 * 32 * (kind == ST_ACT_F32 ? 4 : 1);
    if (memcmp(fused.data, apart.data, padded)) FAIL("prepare %s with a norm, %zu columns", activation_names[kind], n);
    free_input(&fused), free_input(&apart);
  }
}

static void check_norms(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_norm(k, reference, n);
}

static void bench(const ceilings *b) {
  enum { N = 6912, HIDDEN = 2560 };
  static float x[N], y[N], z[N];
  random_floats(x, N, RANDOM), random_floats(y, N, RANDOM);
  BENCH("rmsnorm 2560", HIDDEN, b->k.rmsnorm(x, y, HIDDEN, 1e-5f, z));
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    st_input input = {.kind = (st_activation)kind, .tokens = 1, .columns = N};
    input.data = st_aligned_alloc(b->k.input_bytes(input.kind, 1, N));
    char what[64];
    snprintf(what, sizeof what, "prepare %s with norm, 6912", activation_names[kind]);
    BENCH(what, N, b->k.prepare(&input, x, N, y, 1e-5f, 0, 1));
    free_input(&input);
  }
}

const kernel_test test_rmsnorm = {"rmsnorm", check_norms, bench};
