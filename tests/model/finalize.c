// Matrices that were finalized on the CPU: other bytes, the same products and rows as with the scalar table, which
// changes none; matrices with a code that five to a byte cannot hold stay as they are. Memory that finalizing frees is
// not in use.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/random.h"
#include "kernel/kernel.h"

enum { TOKENS = 5 };

static const st_backend *cpu;

// [TOKENS][rows] products with the tokens `x`, followed by the matrix's rows; the matrix's bytes.
static uint64_t compute(const char *isa, int threads, const st_format *ternary, st_shape shape, const int8_t *trits,
                        const float *scales, const float *x, float *out) {
  st_device *device;
  st_queue *queue;
  st_dmatrix *w, *inputs;
  st_array *in, *products, *rows;
  st_pool *pool;
  const st_matrix_desc weights = {.format = ternary, .shape = shape, .precision = ST_PRECISION_INT8};
  const st_matrix_desc floats = {.format = st_format_get(ST_F32), .shape = {TOKENS, shape.columns}};
  const int32_t ids[TOKENS] = {0, 1, 2, 3, 4};
  assert_int_equal(cpu->device_new(&(st_device_options){.isa = isa}, &device, NULL), SETUN_OK);
  assert_int_equal(st_pool_new(NULL, threads, &pool, NULL), SETUN_OK);
  assert_int_equal(cpu->matrix_new(device, &weights, &w, NULL), SETUN_OK);
  assert_int_equal(cpu->matrix_new(device, &floats, &inputs, NULL), SETUN_OK);
  assert_true(cpu->supports(device, &weights, ST_OP_LINEAR) && cpu->supports(device, &floats, ST_OP_EMBED));
  cpu->matrix_write(w, &(st_matrix_rows){.count = shape.rows, .data = trits, .scales = scales}, NULL);
  cpu->matrix_write(inputs, &(st_matrix_rows){.count = TOKENS, .data = x}, NULL);
  assert_int_equal(cpu->matrix_finalize(device, w, pool, NULL), SETUN_OK);
  assert_int_equal(cpu->matrix_finalize(device, inputs, pool, NULL), SETUN_OK);
  assert_int_equal(cpu->queue_new(device, &(st_queue_options){threads, TOKENS}, &queue, NULL), SETUN_OK);
  assert_int_equal(cpu->array_new(queue, TOKENS, shape.columns, &in, NULL), SETUN_OK);
  assert_int_equal(cpu->array_new(queue, TOKENS, shape.rows, &products, NULL), SETUN_OK);
  assert_int_equal(cpu->array_new(queue, 1, shape.columns, &rows, NULL), SETUN_OK);
  cpu->embed(queue, inputs, ids, TOKENS, 1, in, 0);
  cpu->linear(queue, in, 0, TOKENS, NULL, 0, &(st_linear_out){.matrix = w, .dst = products}, 1);
  cpu->finish(queue, NULL);
  cpu->read(queue, products, 0, TOKENS * shape.rows, out, NULL);
  out += TOKENS * shape.rows;
  for (int32_t row = 0; row < (int32_t)shape.rows; row++, out += shape.columns) {
    cpu->embed(queue, w, &row, 1, 1, rows, 0);
    cpu->read(queue, rows, 0, shape.columns, out, NULL);
  }
  uint64_t bytes = cpu->matrix_bytes(w);
  cpu->array_free(in);
  cpu->array_free(products);
  cpu->array_free(rows);
  cpu->queue_free(queue);
  cpu->matrix_free(w);
  cpu->matrix_free(inputs);
  st_pool_free(pool);
  cpu->device_free(device);
  return bytes;
}

static void check(const st_format *f, st_shape shape, int threads, bool code3, st_random *r) {
  size_t n = (size_t)(shape.rows * shape.columns), results = TOKENS * (size_t)shape.rows + n;
  int8_t *trits = calloc(n, 1);
  size_t n_scales = (size_t)shape.rows * (f->scales == ST_SCALE_BLOCK ? (size_t)shape.columns / f->block : 1);
  float *scales = calloc(n_scales, sizeof *scales), *x = calloc(TOKENS * (size_t)shape.columns, sizeof *x);
  float *want = calloc(results, sizeof *want), *found = calloc(results, sizeof *found);
  assert_true(trits && scales && x && want && found);
  for (size_t i = 0; i < n; i++) trits[i] = (int8_t)(st_random_u64(r) % 3) - 1;
  for (size_t i = 0; f->id == ST_STQ1_0 && i < n; i++) { // of four 16 apart one is zero
    trits[i] = i % 64 / 16 == i % 4 ? 0 : st_random_u64(r) % 2 ? 1 : -1;
  }
  for (size_t i = 0; i < n_scales; i++) scales[i] = (float)st_random_unit(r);
  for (size_t i = 0; i < TOKENS * shape.columns; i++) x[i] = (float)st_random_unit(r) - 0.5f;
  if (code3) trits[st_random_u64(r) % n] = 2;
  uint64_t scalar = compute("scalar", 1, f, shape, trits, scales, x, want);
  uint64_t best = compute(NULL, threads, f, shape, trits, scales, x, found);
  assert_memory_equal(want, found, results * sizeof *want);
  st_kernels k;
  assert_int_equal(st_kernels_get(NULL, &k, NULL), SETUN_OK);
  size_t columns = (size_t)shape.columns, groups = ((size_t)shape.rows + 15) / 16;
  st_form form = st_form_of(f), finalized = form;
  for (int dense = 0; dense < ST_FORM_COUNT && !code3; dense++) {
    if (k.faster[dense] && st_form_is_denser((st_form)dense, f)) finalized = (st_form)dense;
  }
  size_t saved = st_form_group_bytes(form, columns, f->block) - st_form_group_bytes(finalized, columns, f->block);
  assert_int_equal(scalar - best, groups * saved);
  free(trits);
  free(scales);
  free(x);
  free(want);
  free(found);
}

static void same_results(void **state) {
  (void)state;
  static const st_shape shapes[] = {{1, 1}, {16, 20}, {17, 33}, {100, 256}, {333, 64}, {48, 1280}, {7, 2560}};
  st_random r;
  st_random_seed(&r, 3);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (int threads = 1; threads <= 4; threads++) {
      check(st_format_get(ST_HF_U8), shapes[i], threads, false, &r);
      check(st_format_get(ST_HF_U8), shapes[i], threads, true, &r);
    }
  }
  for (int threads = 1; threads <= 3; threads++) {
    for (int code3 = 0; code3 < 2; code3++) {
      check(st_format_get(ST_TQ1_0), (st_shape){100, 256}, threads, code3, &r);
      check(st_format_get(ST_TQ2_0), (st_shape){33, 1280}, threads, code3, &r);
      check(st_format_get(ST_STQ1_0), (st_shape){33, 1280}, threads, code3, &r);
      check(st_format_get(ST_Q2_0), (st_shape){33, 1280}, threads, code3, &r); // blocks of 64: stays
    }
  }
}

static size_t resident(void) {
  unsigned long size, pages;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%lu %lu", &size, &pages), 2);
  fclose(f);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// Memory that finalizing frees is returned to the system if the next matrix is too large for it.
static void memory_is_as_planned(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__
  print_message("skipped: the thread sanitizer's own memory is several times the matrices'\n");
  skip();
#endif
  enum { MATRICES = 4, ROWS = 4096, COLUMNS = 40000 };
  const st_format *ternary = st_format_get(ST_HF_U8);
  const st_shape shape = {ROWS, COLUMNS};
  int8_t *trits = calloc(ST_GROUP, COLUMNS);
  float scales[ST_GROUP] = {0};
  st_dmatrix *w[MATRICES + 1];
  st_device *device;
  st_pool *pool;
  assert_non_null(trits);
  assert_int_equal(cpu->device_new(&(st_device_options){.isa = NULL}, &device, NULL), SETUN_OK);
  assert_int_equal(st_pool_new(NULL, 2, &pool, NULL), SETUN_OK);
  const st_matrix_desc desc = {.format = ternary, .shape = shape, .precision = ST_PRECISION_INT8};
  st_matrix_info size = cpu->matrix_info(device, &desc);
  size_t before = resident();
  for (size_t i = 0; i < MATRICES; i++) {
    assert_int_equal(cpu->matrix_new(device, &desc, &w[i], NULL), SETUN_OK);
    for (uint64_t row = 0; row < ROWS; row += ST_GROUP) {
      const st_matrix_rows rows = {.row = row, .count = ST_GROUP, .data = trits, .scales = scales};
      assert_int_equal(cpu->matrix_write(w[i], &rows, NULL), SETUN_OK);
    }
    assert_int_equal(cpu->matrix_finalize(device, w[i], pool, NULL), SETUN_OK);
  }
  assert_int_equal(cpu->matrix_new(device, &desc, &w[MATRICES], NULL), SETUN_OK);
  double planned = MATRICES * (double)(size.own + size.beside), taken = (double)(resident() - before);
  print_message("%.1f MB taken, %.1f planned\n", taken * 1e-6, planned * 1e-6);
  assert_true(taken > 0.95 * planned && taken < 1.05 * planned);
  for (size_t i = 0; i <= MATRICES; i++) cpu->matrix_free(w[i]);
  st_pool_free(pool);
  cpu->device_free(device);
  free(trits);
}

int main(void) {
  cpu = st_backend_find("cpu");
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_results), cmocka_unit_test(memory_is_as_planned)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
