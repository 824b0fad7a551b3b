// GPTQ against NumPy's (tools/make_gptq_vectors.py): the same codes for the same inputs, scales and zero points; and
// with Setun's own scales products that miss less than rounding does, in all compensated formats. And the scales of
// trits against the best of all that NumPy tries.
#define _DEFAULT_SOURCE
#include "base/bytes.h"
#include "quant/fit.h"
#include "quant_data.h"
#include "quantize/compensate.h"
#include "quantize/ternary.h"

#include <math.h>

enum { GROUP = 32, MOST = 96, SKIPPED = 77 };

static vectors data;
static st_lapack lapack;
static st_pool *pool;

static float *floats_of(vector v) {
  float *x = malloc(v.bytes);
  memcpy(x, v.data, v.bytes);
  return x;
}

static st_hessian sums_of(const char *name) {
  vector v = vectors_get(&data, name, "inputs", 1);
  st_hessian h;
  setun_error err;
  float *x = floats_of(v);
  assert_int_equal(st_hessian_new(&h, (uint32_t)v.columns, &err), SETUN_OK);
  st_hessian_add(&h, &lapack, x, 100);
  st_hessian_add(&h, &lapack, x + 100 * v.columns, (uint32_t)v.rows - 100);
  free(x);
  return h;
}

static void test_codes(void **state) {
  (void)state;
  static const char *const names[] = {"zp2", "zp3", "zp4", "zp8", "ternary"};
  for (size_t i = 0; i < 5; i++) {
    const int most = i < 4 ? (1 << (names[i][2] - '0')) - 1 : 2;
    vector w = vectors_get(&data, names[i], "weights", 1), d = vectors_get(&data, names[i], "d", 1);
    vector zero = vectors_get(&data, names[i], "zero", 1), want = vectors_get(&data, names[i], "codes", 1);
    st_hessian h = sums_of(names[i]);
    st_compensation c;
    setun_error err;
    assert_int_equal(st_compensation_new(&h, &lapack, true, &c, &err), SETUN_OK);
    float *x = floats_of(w), *scales = floats_of(d), work[MOST];
    for (size_t row = 0; row < w.rows; row++) {
      int zeros[MOST / GROUP];
      uint8_t codes[MOST];
      for (size_t g = 0; g < d.columns; g++) zeros[g] = ((const uint8_t *)zero.data)[row * d.columns + g];
      const st_group_scales s = {scales + row * d.columns, zeros, GROUP, most};
      st_compensate_row(&c, &s, x + row * w.columns, work, codes);
      for (size_t k = 0; k < w.columns; k++) {
        int expected = ((const uint8_t *)want.data)[row * w.columns + k];
        if (codes[k] != expected)
          fail_msg("%s: row %zu column %zu is %d, expected %d", names[i], row, k, codes[k], expected);
      }
    }
    free(x);
    free(scales);
    st_compensation_free(&c);
    st_hessian_free(&h);
  }
}

static void test_scales(void **state) {
  (void)state;
  vector w = vectors_get(&data, "scales", "weights", 1), d = vectors_get(&data, "scales", "d", 1);
  vector importance = vectors_get(&data, "scales", "importance", 1);
  float *x = floats_of(w), *want = floats_of(d), *weights = floats_of(importance);
  st_magnitude room[MOST];
  for (size_t row = 0; row < w.rows; row++) {
    const float *each = x + row * w.columns;
    float found[2] = {st_ternary_scale(each, NULL, w.columns, room),
                      st_ternary_scale(each, weights + row * w.columns, w.columns, room)};
    for (size_t i = 0; i < 2; i++) {
      float expected = want[2 * row + i];
      if (!(fabsf(found[i] - expected) <= 1e-6f * expected))
        fail_msg("row %zu: %.9g, expected %.9g", row, (double)found[i], (double)expected);
    }
  }
  free(x);
  free(want);
  free(weights);
}

// The floats that a matrix's codes mean.
static void decode(const st_format *f, vector w, const uint8_t *bytes, float *out) {
  st_strip all = {.count = w.rows, .bytes = w.rows * st_codes_bytes(f, w.columns)};
  if (!st_format_is_ternary(f)) {
    f->ops->decode(f, (st_shape){w.rows, w.columns}, &all, bytes, out);
    return;
  }
  for (size_t row = 0; row < w.rows; row++, bytes += w.columns + 4) {
    for (size_t k = 0; k < w.columns; k++) *out++ = st_load_f32(bytes) * (float)(int8_t)bytes[4 + k];
  }
}

static void round_rows(const st_format *f, vector w, const float *x, uint8_t *out) {
  st_magnitude room[MOST];
  if (!st_format_is_ternary(f)) {
    st_fit_rows(f, w.rows, w.columns, x, NULL, out);
    return;
  }
  for (size_t row = 0; row < w.rows; row++, x += w.columns, out += w.columns + 4) {
    float d;
    st_ternary_row(f, w.columns, x, NULL, room, (int8_t *)out + 4, &d);
    st_store_f32(out, d);
  }
}

// The square of what products with the inputs miss.
static double missed(const char *name, const st_format *f, const float *weights, const uint8_t *bytes) {
  vector in = vectors_get(&data, name, "inputs", 1), w = vectors_get(&data, name, "weights", 1);
  float *q = malloc(w.bytes);
  decode(f, w, bytes, q);
  double sum = 0;
  for (size_t t = 0; t < in.rows; t++) {
    for (size_t r = 0; r < w.rows; r++) {
      double miss = 0;
      for (size_t k = 0; k < w.columns; k++) {
        double x = (double)st_load_f32((const uint8_t *)in.data + 4 * (t * w.columns + k));
        miss += x * (double)(weights[r * w.columns + k] - q[r * w.columns + k]);
      }
      sum += miss * miss;
    }
  }
  free(q);
  return sum;
}

static void test_formats(void **state) {
  (void)state;
  static const char *const names[] = {"zp2-32",      "zp3-32",     "zp4-32", "zp8-32",
                                      "2:4-int4-32", "2:4-fp4-32", "q4_0",   "t5"};
  const char *name = "zp4";
  vector w = vectors_get(&data, name, "weights", 1);
  float *x = floats_of(w);
  st_hessian h = sums_of(name);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const st_format *f = st_format_by_name(names[i]);
    size_t n = w.rows * st_codes_bytes(f, w.columns);
    uint8_t *bytes = malloc(n), *rounded = malloc(n);
    st_compensation c;
    setun_error err;
    assert_int_equal(st_compensation_new(&h, &lapack, st_is_ordered(f), &c, &err), SETUN_OK);
    assert_int_equal(st_compensate(&c, f, w.rows, x, pool, bytes, &err), SETUN_OK);
    assert_int_equal(st_format_check_scales(f, w.columns, bytes, n), -1);
    round_rows(f, w, x, rounded);
    double ours = missed(name, f, x, bytes), plain = missed(name, f, x, rounded);
    if (!(ours < 0.75 * plain)) fail_msg("%s: missed %g, rounding misses %g", names[i], ours, plain);
    st_compensation_free(&c);
    free(bytes);
    free(rounded);
  }
  st_hessian_free(&h);
  free(x);
}

// Inputs that are always 0, and all of them: the weights are rounded. Inputs that are not finite are refused.
static void test_inputs(void **state) {
  (void)state;
  enum { N = 32 };
  const st_format *f = st_format_by_name("zp4-32");
  float inputs[2 * N] = {0}, weights[N], out[N];
  uint8_t bytes[19];
  st_strip one = {.count = 1, .bytes = sizeof bytes};
  for (int k = 0; k < N; k++) weights[k] = (float)(k - 12) / 16;
  for (int round = 0; round < 3; round++) {
    st_hessian h;
    st_compensation c;
    setun_error err;
    if (round == 1) inputs[3] = 2, inputs[N + 5] = 1;
    if (round == 2) inputs[7] = NAN;
    assert_int_equal(st_hessian_new(&h, N, &err), SETUN_OK);
    st_hessian_add(&h, &lapack, inputs, 2);
    setun_status s = st_compensation_new(&h, &lapack, true, &c, &err);
    assert_int_equal(s, round == 2 ? SETUN_ERROR_FORMAT : SETUN_OK);
    if (s == SETUN_OK) {
      assert_int_equal(st_compensate(&c, f, 1, weights, pool, bytes, &err), SETUN_OK);
      f->ops->decode(f, (st_shape){1, N}, &one, bytes, out);
      for (int k = 0; k < N; k++) assert_true(round ? isfinite(out[k]) : fabsf(out[k] - weights[k]) < 0.1f);
    }
    st_compensation_free(&c);
    st_hessian_free(&h);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_scales),
                                     cmocka_unit_test(test_formats), cmocka_unit_test(test_inputs)};
  setun_error err;
  if (st_lapack_load(&lapack, &err) != SETUN_OK) {
    puts(err.message);
    return SKIPPED;
  }
  vectors_open(&data, "gptq.safetensors");
  if (st_pool_new(NULL, 2, &pool, &err) != SETUN_OK) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  st_pool_free(pool);
  vectors_close(&data);
  return failed;
}
