// Rotary positions: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float input_a[MAX_N + 32], out_a[MAX_N + 32], out_b[MAX_N + 32];

static void check_rope(const st_kernels *k, const st_kernels *reference, size_t n, bool interleaved) {
  float cosine[MAX_N], sine[MAX_N];
  for (size_t i = 0; i < n / 2; i++) cosine[i] = cosf((float)i), sine[i] = sinf((float)i);
  random_floats(input_a, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  memcpy(out_a + 16, input_a, n * sizeof(float)), memcpy(out_b + 16, input_a, n * sizeof(float));
  k->rope(out_a + 16, cosine, sine, n, interleaved);
  reference->rope(out_b + 16, cosine, sine, n, interleaved);
  compare("rope", n, out_a, out_b, n);
  for (size_t i = 0; i < n / 2; i++) {
    size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + n / 2;
    double u = input_a[a], v = input_a[b];
    within("rope", a, out_a[16 + a], u * cosine[i] - v * sine[i], 4 * 0x1p-24);
    within("rope", b, out_a[16 + b], v * cosine[i] + u * sine[i], 4 * 0x1p-24);
  }
}

static void check_ropes(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) {
    if (2 * n > MAX_N) continue;
    check_rope(k, reference, 2 * n, true);
    check_rope(k, reference, 2 * n, false);
  }
}

static void bench(const ceilings *b) {
  enum { DIM = 128 };
  static float q[DIM], x[DIM], y[DIM];
  random_floats(q, DIM, RANDOM), random_floats(x, DIM, RANDOM), random_floats(y, DIM, RANDOM);
  BENCH("rope, one head of 128", DIM, b->k.rope(q, x, y, DIM, false));
}

const kernel_test test_rope = {"rope", check_ropes, bench};
