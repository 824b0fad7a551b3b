// Weights in several tensors against those of other libraries, tests/quant/packed: GPTQ and compressed-tensors. Whole
// and row by row, as floats; and those that become a format's blocks as these too, by the columns' order.
#include "base/memory.h"
#include "source/weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static st_directory *open_file(const char *folder, const char *name) {
  char path[1024];
  setun_error err;
  st_directory *d;
  snprintf(path, sizeof path, "%s/quant/packed/%s/%s.safetensors", SETUN_TEST_DATA, folder, name);
  if (st_directory_open(path, NULL, &d, &err) != SETUN_OK) fail_msg("%s", err.message);
  return d;
}

static st_weight find(const st_directory *d, const char *module) {
  setun_error err;
  bool found = false;
  st_weight w;
  if (st_weight_find(d, module, (st_shape){0, 0}, &found, &w, &err) != SETUN_OK)
    fail_msg("%s: %s", module, err.message);
  if (!found) fail_msg("%s was not found", module);
  return w;
}

static float *read_all(const st_directory *d, const st_weight *w, uint64_t step) {
  setun_error err;
  st_row_reader r;
  float *x = malloc(w->shape.rows * w->shape.columns * sizeof *x);
  assert_non_null(x);
  if (st_row_reader_open(d, w, &r, &err) != SETUN_OK) fail_msg("%s", err.message);
  for (uint64_t row = 0; row < w->shape.rows; row += step) {
    uint64_t n = w->shape.rows - row < step ? w->shape.rows - row : step;
    if (st_read_floats(&r, row, n, x + row * w->shape.columns, &err) != SETUN_OK) fail_msg("%s", err.message);
  }
  st_row_reader_close(&r);
  return x;
}

static void compare(const st_weight *w, const float *x, const float *want, const char *how) {
  for (uint64_t i = 0; i < w->shape.rows * w->shape.columns; i++) {
    if (x[i] == want[i]) continue;
    fail_msg("%s, %s: row %llu, column %llu is %g, expected %g", w->name, how,
             (unsigned long long)(i / w->shape.columns), (unsigned long long)(i % w->shape.columns), (double)x[i],
             (double)want[i]);
  }
}

// Decoding the blocks gives the same weights, in the reader's order.
static void check_blocks(const st_directory *d, const st_weight *w, const float *want) {
  const st_format *f = w->format;
  uint64_t k = w->shape.columns, bytes = st_format_row_bytes(f, k);
  setun_error err;
  st_row_reader r;
  if (st_row_reader_open(d, w, &r, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_int_equal(r.order != NULL, w->packed.ordered);
  uint8_t *blocks = malloc(w->shape.rows * bytes);
  float *x = malloc(k * sizeof *x);
  if (st_read_bytes(&r, 0, w->shape.rows, blocks, &err) != SETUN_OK) fail_msg("%s", err.message);
  for (uint64_t row = 0; row < w->shape.rows; row++) {
    st_strip one = {.count = 1, .bytes = bytes};
    f->ops->decode(f, (st_shape){1, k}, &one, blocks + row * bytes, x);
    for (uint64_t i = 0; i < k; i++) assert_true(x[i] == want[row * k + (r.order ? r.order[i] : i)]);
  }
  free(x);
  free(blocks);
  st_row_reader_close(&r);
}

// Returns whether the weight keeps its integers.
static bool check(const st_directory *d, const char *module, const st_directory *e, const char *expected) {
  st_weight w = find(d, module), want = find(e, expected);
  assert_int_equal(w.shape.rows, want.shape.rows);
  assert_int_equal(w.shape.columns, want.shape.columns);
  float *values = read_all(e, &want, want.shape.rows), *x = read_all(d, &w, w.shape.rows);
  compare(&w, x, values, "whole");
  free(x);
  for (uint64_t step = 1; step < 8; step += 2) {
    x = read_all(d, &w, step);
    compare(&w, x, values, "by rows");
    free(x);
  }
  bool kept = w.format->ops->zero_points;
  if (kept) check_blocks(d, &w, values);
  free(values);
  return kept;
}

static void check_folder(const char *folder, const char *const suffixes[], size_t cases, size_t kept_least) {
  st_directory *d = open_file(folder, "input"), *e = open_file(folder, "expected");
  size_t seen = 0, kept = 0;
  for (size_t i = 0; i < e->n_tensors; i++) {
    char module[256], expected[256], data[300];
    const char *name = e->tensors[i].name;
    size_t n = strlen(name), end = strlen(".weight");
    if (n < end || strcmp(name + n - end, ".weight")) continue;
    snprintf(expected, sizeof expected, "%s_f32", name);
    if (!st_directory_find(e, expected)) snprintf(expected, sizeof expected, "%.*s", (int)(n - end), name);
    for (size_t j = 0; suffixes[j]; j++) {
      snprintf(module, sizeof module, "%.*s%s", (int)(n - end), name, suffixes[j]);
      snprintf(data, sizeof data, "%s.qweight", module);
      if (*suffixes[j] && !st_directory_find(d, data)) continue; // only one of the two
      kept += check(d, module, e, expected);
      seen++;
    }
  }
  assert_int_equal(seen, cases);
  assert_true(kept >= kept_least);
  st_directory_free(d);
  st_directory_free(e);
}

static void gptq(void **state) {
  (void)state;
  check_folder("gptq", (const char *const[]){"_v1", "_v2", NULL}, 53, 51);
}

static void compressed_tensors(void **state) {
  (void)state;
  static const char *const plain[] = {"", NULL};
  check_folder("pack-quantized", plain, 20, 16);
  check_folder("marlin-24", plain, 7, 7);
  check_folder("sparse-24-bitmask", plain, 5, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gptq), cmocka_unit_test(compressed_tensors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
