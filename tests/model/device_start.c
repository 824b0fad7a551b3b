// What a device's check at start does with wrong results, and devices that are lost.
#include "device_pair.h"

// A lost device is an error that says so, from then on.
static void lost(void **state) {
  enum { AFTER = 200, MOST = 400 };
  (void)state;
  const st_device_options options = {.isa = "scalar", .lose_after = AFTER};
  const st_queue_options queue = {.threads = 1, .n_batch = 1};
  st_device *d;
  st_queue *q;
  st_array *x;
  setun_error err;
  float number = 1;
  setun_status s = SETUN_OK;
  need(gpu->device_new(&options, &d, &err), &err);
  need(gpu->queue_new(d, &queue, &q, &err), &err);
  need(gpu->array_new(q, 1, 1, &x, &err), &err);
  int before = 0;
  for (; before < MOST && s == SETUN_OK; before++) s = gpu->write(q, x, 0, 1, &number, &err);
  assert_in_range(before, 1, AFTER);
  for (int again = 0; again < 2; again++) {
    assert_int_equal(s, SETUN_ERROR_IO);
    assert_non_null(strstr(err.message, "the device is lost"));
    s = gpu->read(q, x, 0, 1, &number, &err);
  }
  gpu->array_free(x);
  gpu->queue_free(q);
  gpu->device_free(d);
}

// ---- the check at start -------------------------------------------------------------------------------------------

static st_device *distrusting(const char *what, setun_status expected, setun_error *err) {
  const st_log log = {log_line, NULL};
  const st_device_options options = {.isa = "scalar", .log = &log, .distrusted = what};
  st_device *d = NULL;
  logged[0] = 0;
  setun_status s = gpu->device_new(&options, &d, err);
  if (s != expected) fail_msg("%s: %s", what, s == SETUN_OK ? "expected an error" : err->message);
  return d;
}

// Asks a device about a matrix of such a form, and whether it is taken.
static st_matrix_info asked(st_device *d, bool half, bool int8, setun_status expected, setun_error *err) {
  st_matrix_desc desc = {.shape = {16, 64}, .precision = int8 ? ST_PRECISION_INT8 : ST_PRECISION_FLOAT};
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    bool wanted = int8   ? st_format_is_ternary(f) && f->scales == ST_SCALE_OUTER
                  : half ? st_format_is_float(f) && f->block_bytes == 2 && f->ops->exponent == 0x7C00
                         : st_format_is_float(f) && f->block_bytes == 4;
    if (wanted) desc.format = f;
  }
  st_dmatrix *m = NULL;
  st_matrix_info info = gpu->matrix_info(d, &desc);
  assert_int_equal(gpu->matrix_new(d, &desc, &m, err), expected);
  if (m) gpu->matrix_free(m);
  return info;
}

static void wrong_results(void **state) {
  (void)state;
  setun_error err;
  distrusting("rows", SETUN_ERROR_UNSUPPORTED, &err);
  assert_non_null(strstr(err.message, "cannot be used: its results for rows differ from the CPU's"));
  distrusting("choices", SETUN_ERROR_UNSUPPORTED, &err); // of experts, by any mixture
  assert_non_null(strstr(err.message, "its results for choices differ from the CPU's"));
  st_device *d = distrusting("half-precision weights", SETUN_OK, &err);
  assert_int_equal(asked(d, true, false, SETUN_OK, &err).own, 16 * 64 * 4); // float32 instead
  assert_non_null(strstr(logged, "products of half-precision weights are wrong"));
  gpu->device_free(d);
  d = distrusting("q8_0", SETUN_OK, &err);
  const st_matrix_desc q8 = {.format = st_format_get(ST_Q8_0), .shape = {16, 64}};
  assert_int_equal(gpu->matrix_info(d, &q8).own, 16 * 64 * 4);
  assert_non_null(strstr(logged, "products of q8_0 weights are wrong; these are stored as float32"));
  gpu->device_free(d);
  d = distrusting("float32 weights", SETUN_OK, &err);
  asked(d, false, false, SETUN_ERROR_UNSUPPORTED, &err);
  assert_non_null(strstr(err.message, "its products of float32 weights differ from the CPU's"));
  gpu->device_free(d);
  static const struct {
    const char *what, *said;
  } avoided[] = {{"tails", "inputs prepared at the end of products are wrong"},
                 {"dots", "its instructions for products of bytes give wrong results"}};
  for (size_t i = 0; i < sizeof avoided / sizeof *avoided; i++) {
    d = distrusting(avoided[i].what, SETUN_OK, &err);
    asked(d, false, true, SETUN_OK, &err);
    assert_non_null(strstr(logged, avoided[i].said));
    gpu->device_free(d);
  }
  d = distrusting("1.6-bit weights", SETUN_OK, &err);
  assert_int_equal(asked(d, false, true, SETUN_OK, &err).own, 16 * 64 / 4); // 2 bits instead
  gpu->device_free(d);
}

int main(void) {
  if (!find_gpu()) return 77;
  const struct CMUnitTest tests[] = {cmocka_unit_test(lost), cmocka_unit_test(wrong_results)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
