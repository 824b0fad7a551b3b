// The causal convolution and the delta rule: checks and bench.
#include "common/harness.h"

#include "kernel/recurrent.h"

#include <math.h>
#include <string.h>

enum { ROWS_MOST = 130, COLUMNS_MOST = 200, TAPS = 4, CHANNELS = 1024 };

static float from[ROWS_MOST * COLUMNS_MOST], to[2][ROWS_MOST * COLUMNS_MOST + 32], out_a[CHANNELS + 32],
    out_b[CHANNELS + 32], q[ROWS_MOST], k[ROWS_MOST], v[COLUMNS_MOST], taps[TAPS * CHANNELS], rows[TAPS][CHANNELS];

static void check_convolve(const st_kernels *t, const st_kernels *reference, size_t n) {
  st_convolution c = {.taps = taps, .stride = CHANNELS};
  random_floats(taps, TAPS * CHANNELS, RANDOM);
  for (int j = 0; j < TAPS; j++) {
    random_floats(rows[j], CHANNELS, RANDOM);
    c.rows[j] = rows[j];
  }
  for (c.n_taps = 1; c.n_taps <= TAPS; c.n_taps++) {
    fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
    t->convolve(&c, n, out_a + 16);
    reference->convolve(&c, n, out_b + 16);
    compare("convolve", n, out_a, out_b, n);
    for (size_t i = 0; i < n; i++) {
      double sum = 0, all = 0;
      for (size_t j = 0; j < c.n_taps; j++) {
        double x = (double)rows[j][i] * (double)taps[j * CHANNELS + i];
        sum += x, all += fabs(x);
      }
      double y = sum / (1 + exp(-sum));
      within("convolve", i, out_a[16 + i], y, (all * 8 + fabs(y) * (3 * fabs(sum) + 12)) * 0x1p-24);
    }
  }
}

// In float64, straight from the definition: S' = decay S + k (beta (v - (decay S)^T k))^T, out = S'^T q.
static void within_delta(const st_delta *d, const float *state, const float *out) {
  for (size_t c = 0; c < d->columns; c++) {
    double old = 0, all = 0, y = 0, seen = 0;
    for (size_t i = 0; i < d->rows; i++) {
      double s = (double)d->decay * (double)d->from[i * d->stride + c];
      old += s * (double)d->k[i], all += fabs(s * (double)d->k[i]);
    }
    double change = (double)d->beta * ((double)d->v[c] - old), largest = fabs((double)d->v[c]) + all;
    double error = largest * ((double)d->rows + 8) * 0x1p-24;
    for (size_t i = 0; i < d->rows; i++) {
      double s = (double)d->decay * (double)d->from[i * d->stride + c] + (double)d->k[i] * change;
      within("delta: state", i, state[i * d->stride + c], s,
             error * fabs((double)d->k[i]) + (fabs(s) + largest) * 0x1p-22);
      y += s * (double)d->q[i];
      seen += (fabs(s) + error + largest) * fabs((double)d->q[i]);
    }
    within("delta", c, out[c], y, seen * ((double)d->rows + 16) * 0x1p-22);
  }
}

static void check_delta(const st_kernels *t, const st_kernels *reference, size_t n_rows, size_t columns) {
  st_delta d = {.q = q, .k = k, .v = v, .decay = 0.75f, .beta = 0.6f, .rows = n_rows, .columns = columns};
  size_t n;
  d.stride = columns + 3;
  n = n_rows * d.stride;
  random_floats(q, n_rows, RANDOM), random_floats(k, n_rows, RANDOM), random_floats(v, columns, RANDOM);
  for (size_t i = 0; i < n_rows; i++) q[i] *= 0.1f, k[i] *= 0.1f;
  random_floats(from, n, RANDOM);
  d.from = from;
  for (int i = 0; i < 2; i++) fill_guard(to[i], n + 32);
  fill_guard(out_a, columns + 32), fill_guard(out_b, columns + 32);
  d.to = to[0] + 16, d.out = out_a + 16;
  t->delta(&d);
  d.to = to[1] + 16, d.out = out_b + 16;
  reference->delta(&d);
  compare("delta", columns, out_a, out_b, columns);
  compare("delta: state", columns, to[0], to[1], n);
  within_delta(&d, to[0] + 16, out_a + 16);
  memcpy(to[1] + 16, from, n * sizeof *from); // in place; columns between rows stay
  for (size_t i = 0; i < n_rows; i++)
    memcpy(to[0] + 16 + i * d.stride + columns, from + i * d.stride + columns, 3 * sizeof *from);
  d.from = d.to;
  t->delta(&d);
  compare("delta in place", columns, to[0], to[1], n);
}

static void check(const st_kernels *t, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) {
    if (n <= CHANNELS) check_convolve(t, reference, n);
    if (n <= COLUMNS_MOST - 3) check_delta(t, reference, 1 + n * 7 % (ROWS_MOST - 1), n);
  }
}

static void bench(const ceilings *b) {
  enum { N = 128 };
  st_delta d = {.q = q, .k = k, .v = v, .decay = 1, .beta = 0.5f, .rows = N, .columns = N, .stride = N, .out = out_a};
  d.from = d.to = to[0];
  memset(to[0], 0, sizeof to[0]);
  random_floats(q, N, RANDOM), random_floats(k, N, RANDOM), random_floats(v, N, RANDOM);
  for (size_t i = 0; i < N; i++) k[i] *= 0.05f;
  BENCH("delta 128 x 128", N * N, b->k.delta(&d));
}

const kernel_test test_recurrent = {"recurrent", check, bench};
