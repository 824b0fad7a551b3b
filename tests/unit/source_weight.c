// Weights of several tensors, and ternary ones, against tests/golden/directories.json: trits and scales of packed and
// latent Hugging Face checkpoints, whole and row by row; experts of a stack; scales beside a tensor; errors of readers.
#define _GNU_SOURCE
#include "base/file.h"
#include "base/memory.h"
#include "source/weight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "directories.h"

static st_weight find(const st_directory *d, const char *module, st_shape shape) {
  setun_error err;
  bool found = false;
  st_weight w;
  if (st_weight_find(d, module, shape, &found, &w, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_true(found);
  return w;
}

static double member(const st_json *object, const char *key) {
  const st_json *value = st_json_find(object, key);
  assert_true(st_json_is_number(value));
  return st_json_number(value);
}

static void check_trit_rows(const st_json *rows, const int8_t *trits, size_t k) {
  for (size_t i = 0; i < st_json_size(rows); i++) {
    const st_json *pair = st_json_at(rows, i), *row = st_json_at(pair, 1);
    size_t r = (size_t)st_json_number(st_json_at(pair, 0));
    assert_int_equal(st_json_size(row), k);
    for (size_t c = 0; c < k; c++) assert_int_equal(trits[r * k + c], (int)st_json_number(st_json_at(row, c)));
  }
}

// All trits, then the same as floats in pieces of 1, 2, ... rows.
static void check_weight(const st_directory *d, const char *module, const st_json *expected) {
  const st_json *dims = st_json_find(expected, "shape");
  st_shape shape = {(uint64_t)st_json_number(st_json_at(dims, 0)), (uint64_t)st_json_number(st_json_at(dims, 1))};
  st_weight w = find(d, module, shape);
  assert_true(st_weight_is_ternary(&w));
  setun_error err;
  st_row_reader r;
  if (st_row_reader_open(d, &w, &r, &err) != SETUN_OK) fail_msg("%s", err.message);
  size_t rows = (size_t)shape.rows, k = (size_t)shape.columns;
  int8_t *trits = st_malloc(rows * k, 1);
  float *scales = st_malloc(rows, sizeof *scales), *x = st_malloc(rows * k, sizeof *x);
  assert_true(trits && scales && x);
  assert_int_equal(st_read_trits(&r, 0, rows, trits, scales, &err), SETUN_OK);
  float scale = (float)member(expected, "scale");
  long sum = 0, nonzero = 0;
  for (size_t i = 0; i < rows * k; i++) sum += trits[i], nonzero += trits[i] != 0;
  assert_int_equal(sum, (long)member(expected, "sum"));
  assert_int_equal(nonzero, (long)member(expected, "nonzero"));
  check_trit_rows(st_json_find(expected, "rows"), trits, k);
  // The mean of latent floats is a sum whose order is not prescribed: its last place may differ.
  float tolerance = w.latent ? 2e-7f * scale : 0;
  for (size_t i = 0; i < rows; i++) assert_true(fabsf(scales[i] - scale) <= tolerance);
  for (size_t row = 0, n = 1; row < rows; row += n, n++) {
    if (n > rows - row) n = rows - row;
    assert_int_equal(st_read_floats(&r, row, n, x + row * k, &err), SETUN_OK);
  }
  for (size_t i = 0; i < rows * k; i++) assert_true(x[i] == (float)trits[i] * scales[i / k]);
  st_free(trits);
  st_free(scales);
  st_free(x);
  st_row_reader_close(&r);
}

static void check_directory(const char *name, size_t least, bool divides) {
  st_directory *d = open_golden(name);
  const st_json *weights = st_json_find(st_json_find(golden, name), "weights");
  assert_int_equal(st_json_members(weights), least);
  for (size_t i = 0; i < st_json_members(weights); i++) {
    const char *module = st_json_member_at(weights, i)->key;
    check_weight(d, module, &st_json_member_at(weights, i)->value);
    assert_int_equal(find(d, module, (st_shape){0, 0}).scale_divides, divides);
  }
  // The embedding is never ternary.
  st_weight w = find(d, "model.embed_tokens", (st_shape){320, 64});
  assert_false(st_weight_is_ternary(&w));
  st_directory_free(d);
}

static void hugging_face_ternary(void **state) {
  (void)state;
  check_directory("hf/bitnet-auto", 21, false);
  check_directory("hf/bitnet-div", 21, true);
  check_directory("hf/bitnet-latent", 21, false);
}

static void latent_measured_once(void **state) {
  (void)state;
  st_directory *d = open_path("golden/hf/bitnet-latent");
  st_weight w = find(d, "model.layers.0.mlp.down_proj", (st_shape){64, 160});
  setun_error err;
  assert_true(w.latent && w.latent_scale == 0);
  assert_int_equal(st_weight_measure(d, &w, &err), SETUN_OK);
  st_row_reader r;
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  assert_true(r.n_scales == 1 && r.scales[0] == w.latent_scale && w.latent_scale > 0);
  st_row_reader_close(&r);
  st_directory_free(d);
}

// Experts of a stack are the slices of the whole tensor.
static void experts(void **state) {
  (void)state;
  enum { EXPERTS = 4, ROWS = 160, K = 64 };
  st_directory *d = open_path("golden/gguf/mixtral.gguf");
  static float all[EXPERTS * ROWS * K], one[ROWS * K];
  setun_error err;
  st_row_reader r;
  st_weight w = find(d, "blk.0.ffn_gate_exps", (st_shape){0, 0});
  assert_int_equal(w.shape.rows, EXPERTS * ROWS);
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  assert_int_equal(st_read_floats(&r, 0, EXPERTS * ROWS, all, &err), SETUN_OK);
  st_row_reader_close(&r);
  for (uint64_t e = 0; e < EXPERTS; e++) {
    bool found = false;
    assert_int_equal(st_weight_find_expert(d, "blk.0.ffn_gate_exps", (st_shape){ROWS, K}, EXPERTS, e, &found, &w, &err),
                     SETUN_OK);
    assert_true(found);
    assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
    assert_int_equal(st_read_floats(&r, 0, ROWS, one, &err), SETUN_OK);
    assert_memory_equal(one, all + e * ROWS * K, sizeof one);
    assert_int_equal(st_read_bytes(&r, 3, 5, one, &err), SETUN_OK);
    assert_memory_equal(one, all + (e * ROWS + 3) * K, 5 * K * sizeof *one);
    assert_int_equal(st_read_floats(&r, ROWS - 1, 2, one, &err), SETUN_ERROR_ARGUMENT);
    st_row_reader_close(&r);
  }
  bool found = true;
  assert_int_equal(st_weight_find_expert(d, "blk.0.ffn_gate_exps", (st_shape){ROWS, K}, 5, 0, &found, &w, &err),
                   SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "blk.0.ffn_gate_exps.weight: expected the shape [5, 160, 64], found [4, 160, 64]");
  assert_int_equal(st_weight_find(d, "blk.9.attn_q", (st_shape){64, 64}, &found, &w, &err), SETUN_OK);
  assert_false(found);
  st_directory_free(d);
}

// Two rows of t2 that pack to 0x64, [-1, 0, 1, 0], with the scales 1 and 2 beside them.
static void scale_beside(void **state) {
  (void)state;
  st_directory *d = open_path("badfiles/files/good-scale.gguf");
  st_weight w = find(d, "m", (st_shape){2, 4});
  st_row_reader r;
  setun_error err;
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  static const float expected[] = {-1, 0, 1, 0, -2, 0, 2, 0};
  static const int8_t trits[] = {-1, 0, 1, 0};
  float x[8], scales[2];
  int8_t t[8];
  assert_int_equal(st_read_floats(&r, 0, 2, x, &err), SETUN_OK);
  for (int i = 0; i < 8; i++) assert_true(x[i] == expected[i]);
  assert_int_equal(st_read_trits(&r, 1, 1, t, scales, &err), SETUN_OK);
  assert_memory_equal(t, trits, 4);
  assert_true(scales[0] == 2);
  st_row_reader_close(&r);
  st_directory_free(d);
}

// Scales of a stack: one an expert, one a row of each, or one for all. The stored values count from 0.
static void scales_of_experts(void **state) {
  (void)state;
  static const struct {
    const char *path;
    float scales[6]; // of the six rows
  } cases[] = {{"badfiles/files/good-scale-expert.gguf", {1, 1, 2, 2, 3, 3}},
               {"badfiles/files/good-scale-row.gguf", {1, 2, 3, 4, 5, 6}},
               {"badfiles/files/good-scale-one.gguf", {2, 2, 2, 2, 2, 2}}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    st_directory *d = open_path(cases[c].path);
    for (uint64_t e = 0; e < 3; e++) {
      bool found = false;
      st_weight w;
      st_row_reader r;
      setun_error err;
      float x[4];
      assert_int_equal(st_weight_find_expert(d, "m", (st_shape){2, 2}, 3, e, &found, &w, &err), SETUN_OK);
      assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
      assert_int_equal(st_read_floats(&r, 0, 2, x, &err), SETUN_OK);
      for (uint64_t i = 0; i < 4; i++) assert_true(x[i] == (float)(4 * e + i) * cases[c].scales[2 * e + i / 2]);
      assert_int_equal(st_read_bytes(&r, 0, 2, x, &err), SETUN_ERROR_UNSUPPORTED);
      st_row_reader_close(&r);
    }
    st_directory_free(d);
  }
}

// The scales of rows that are copied unchanged are checked too.
static void bytes_with_bad_scale(void **state) {
  (void)state;
  st_directory *d = open_path("badfiles/files/scale-q8_0-nan.gguf");
  st_weight w = find(d, "m", (st_shape){1, 32});
  st_row_reader r;
  setun_error err;
  char bytes[34];
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  assert_int_equal(st_read_bytes(&r, 0, 1, bytes, &err), SETUN_ERROR_FORMAT);
  assert_non_null(strstr(err.message, "m.weight: expected finite scales"));
  st_row_reader_close(&r);
  st_directory_free(d);
}

// A file that shrinks after it was opened gives an error that names the tensor.
static void shrinking_file(void **state) {
  (void)state;
  char *bytes, path[] = "shrinking-XXXXXX";
  size_t n;
  setun_error err;
  st_directory *d = NULL;
  assert_int_equal(st_file_load(SETUN_TEST_DATA "/badfiles/files/good.gguf", 1 << 20, &bytes, &n, &err), SETUN_OK);
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, bytes, n), n);
  assert_int_equal(st_directory_open(path, NULL, &d, &err), SETUN_OK);
  assert_int_equal(ftruncate(fd, (off_t)n - 8), 0);
  st_weight w = find(d, "b", (st_shape){2, 4});
  st_row_reader r;
  float x[8];
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  assert_int_equal(st_read_floats(&r, 0, 2, x, &err), SETUN_ERROR_IO);
  assert_non_null(strstr(err.message, "b: "));
  assert_non_null(strstr(err.message, "ends early: expected 32 bytes"));
  st_row_reader_close(&r);
  st_directory_free(d);
  close(fd);
  unlink(path);
  st_free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hugging_face_ternary),
      cmocka_unit_test(latent_measured_once),
      cmocka_unit_test(experts),
      cmocka_unit_test(scale_beside),
      cmocka_unit_test(scales_of_experts),
      cmocka_unit_test(bytes_with_bad_scale),
      cmocka_unit_test(shrinking_file),
  };
  return cmocka_run_group_tests(tests, load_golden, free_golden);
}
