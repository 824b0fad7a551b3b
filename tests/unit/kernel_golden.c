// Blocks of the value formats that the kernels keep compact, with the values that the gguf package computed: a packed
// row reads as those values, and products are within what rounding activations explains, in every table.
#define _DEFAULT_SOURCE
#include "base/bytes.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernel/layout.h"
#include "quant_data.h"

#include <math.h>

enum { BLOCKS = 2, MOST_COLUMNS = 512 }; // blocks side by side in a row

static vectors data;

static float at(vector v, size_t i) {
  return st_load_f32((const uint8_t *)v.data + 4 * i);
}

static void check_rows(const st_kernels *k, const st_matrix *m, vector values, const char *name) {
  float out[MOST_COLUMNS];
  for (size_t r = 0; r < m->rows; r++) {
    k->row[m->form](m, r, out);
    for (size_t i = 0; i < m->columns; i++) {
      if (out[i] != at(values, r * m->columns + i)) {
        fail_msg("%s: %s: row %zu column %zu is %.9g, expected %.9g", k->name, name, r, i, (double)out[i],
                 (double)at(values, r * m->columns + i));
      }
    }
  }
}

// How far a product may be from the exact one: half a step of the codes of each 32 activations (twice the rounding of
// float32 for good measure) times their weights, and float32's own rounding, also of d * code and a minimum that
// cancel.
static void check_one(const st_matrix *m, st_activation kind, vector values, size_t r, const float *x, float got,
                      const char *name) {
  double sum = 0, bound = 1e-37, largest = 0, all = 0;
  for (size_t first = 0; first < m->columns; first += 32) {
    double most = 0, weights = 0;
    for (size_t i = first; i < first + 32; i++) {
      double w = at(values, r * m->columns + i);
      sum += w * (double)x[i];
      weights += fabs(w), most = fmax(most, fabs((double)x[i]));
      largest = fmax(largest, fabs(w)), all += fabs((double)x[i]);
    }
    if (kind == ST_ACT_INT8_BLOCK) bound += 0.501 * most / 127 * weights;
  }
  bound += 1e-5 * largest * all;
  if (largest * all < 1e37 && !(fabs((double)got - sum) <= bound)) {
    fail_msg("%s: row %zu of kind %d is %.9g, expected %.9g +- %.3g", name, r, (int)kind, (double)got, sum, bound);
  }
}

static void check_products(const st_kernels *k, const st_matrix *m, vector values, const char *name) {
  enum { TOKENS = 3 };
  float x[TOKENS * MOST_COLUMNS], *out = malloc(TOKENS * m->rows * sizeof *out);
  st_random random;
  st_random_seed(&random, 7);
  for (size_t i = 0; i < TOKENS * m->columns; i++) {
    x[i] = (float)(st_random_unit(&random) * 2 - 1) * (st_random_unit(&random) < 0.01 ? 50 : 1);
  }
  static const st_activation kinds[] = {ST_ACT_F32, ST_ACT_INT8_BLOCK};
  for (size_t i = 0; i < 2; i++) {
    st_input input = {.kind = kinds[i], .tokens = TOKENS, .columns = m->columns};
    input.data = st_aligned_alloc(k->input_bytes(input.kind, TOKENS, m->columns));
    k->prepare(&input, x, m->columns, NULL, 0, 0, TOKENS);
    k->matmul[m->form][kinds[i]](m, &input, 0, m->rows, out, m->rows);
    for (size_t j = 0; j < TOKENS * m->rows; j++) {
      check_one(m, kinds[i], values, j % m->rows, x + j / m->rows * m->columns, out[j], name);
    }
    st_free(input.data);
  }
  free(out);
}

static void check_format(const st_kernels *k, const char *name) {
  const st_format *f = st_format_by_name(name);
  char key[32];
  for (size_t i = 0; i <= strlen(name); i++) key[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 32 : name[i]);
  vector bytes = vectors_get(&data, key, "bytes", 1), values = vectors_get(&data, key, "values", 1);
  st_matrix m = {.form = st_form_of(f), .rows = bytes.rows / BLOCKS, .columns = BLOCKS * f->block};
  assert_true(m.form != ST_FORM_F32 && m.rows >= 16);
  size_t groups = (m.rows + ST_GROUP - 1) / ST_GROUP, row_bytes = BLOCKS * f->block_bytes;
  m.group_bytes = st_form_group_bytes(m.form, m.columns, 0);
  uint8_t *packed = st_aligned_alloc(groups * m.group_bytes);
  for (size_t g = 0; g < groups; g++) {
    size_t count = m.rows - g * ST_GROUP < ST_GROUP ? m.rows - g * ST_GROUP : ST_GROUP;
    const uint8_t *rows = (const uint8_t *)bytes.data + g * ST_GROUP * row_bytes;
    st_form_pack(m.form, f, m.columns, 0, rows, NULL, count, packed + g * m.group_bytes);
  }
  m.data = packed;
  check_rows(k, &m, values, name);
  check_products(k, &m, values, name);
  st_free(packed);
}

static void test_formats(void **state) {
  (void)state;
  static const char *const names[] = {"q4_0", "q4_1", "q5_0", "q5_1",  "q8_0",   "q2_k",  "q3_k",
                                      "q4_k", "q5_k", "q6_k", "mxfp4", "iq4_nl", "iq4_xs"};
  char tables[128], *table = tables;
  snprintf(tables, sizeof tables, "%s", st_kernels_available());
  while (*table) {
    size_t n = strcspn(table, " ");
    bool last = !table[n];
    table[n] = 0;
    st_kernels k;
    setun_error err;
    assert_int_equal(st_kernels_get(table, &k, &err), SETUN_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_format(&k, names[i]);
    table += last ? n : n + 1;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats)};
  vectors_open(&data, "gguf-blocks.safetensors");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vectors_close(&data);
  return failed;
}
