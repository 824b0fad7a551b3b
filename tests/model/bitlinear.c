// One BitNet matrix for given inputs, in integers: int8 codes, sums and outputs of the official implementation
// (tests/golden/hf/bitnet-*/layer0_q_proj.safetensors, whose weight_scale multiplies in all three), on every
// instruction set.
#define _POSIX_C_SOURCE 200809L // strtok_r
#include "golden.h"

#include "kernel/kernel.h"

#include <math.h>

static const int8_t *row_of(const int8_t *trits, size_t k, size_t row) {
  return trits + row * k;
}

// The packed group form of [64, 64] trits with one scale.
static st_matrix pack(const int8_t *trits, size_t rows, size_t columns, float *scales) {
  st_matrix m = {.form = ST_FORM_T16, .rows = rows, .columns = columns, .scales = scales};
  m.group_bytes = st_form_group_bytes(ST_FORM_T16, columns, 1);
  uint8_t *data = st_pages_alloc(rows / ST_GROUP * m.group_bytes, false);
  for (size_t r = 0; r < rows; r += ST_GROUP) {
    st_form_pack(ST_FORM_T16, st_format_get(ST_HF_U8), columns, 1, row_of(trits, columns, r), scales + r, ST_GROUP,
                 data + r / ST_GROUP * m.group_bytes);
  }
  m.data = data;
  return m;
}

static float ulp(float x) {
  return nextafterf(fabsf(x), INFINITY) - fabsf(x);
}

static void check(const st_kernels *k, const char *name) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s/layer0_q_proj.safetensors", name);
  golden g = golden_open(path);
  size_t n, columns, rows, n_scales;
  float *x = golden_read(&g, "x", "F32", &n, &columns), *x_scale = golden_read(&g, "x_scale", "F32", &n_scales, NULL);
  float *w_scale = golden_read(&g, "weight_scale", "F32", &n_scales, NULL), *y = golden_read(&g, "y", "F32", &n, &rows);
  int8_t *codes = golden_read(&g, "x_int8", "I8", &n, NULL), *trits = golden_read(&g, "trits", "I8", &n, NULL);
  int32_t *sums = golden_read(&g, "sums", "I32", &n, NULL);
  size_t tokens = n / rows;
  float scales[64];
  for (size_t r = 0; r < rows; r++) scales[r] = w_scale[0];
  st_matrix m = pack(trits, rows, columns, scales);
  st_input input = {.kind = ST_ACT_INT8_TOKEN, .tokens = tokens, .columns = columns};
  input.data = st_pages_alloc(k->input_bytes(ST_ACT_INT8_TOKEN, tokens, columns), false);
  k->prepare(&input, x, columns, NULL, 0, 0, tokens);
  float out[8 * 64];
  k->matmul[ST_FORM_T16][ST_ACT_INT8_TOKEN](&m, &input, 0, rows, out, rows);
  for (size_t t = 0; t < tokens; t++) {
    int8_t got[64];
    int32_t sum = 0;
    float s = k->quantize_token(x + t * columns, columns, got, &sum);
    assert_memory_equal(got, codes + t * columns, columns);
    assert_true(s == x_scale[t]);
    for (size_t r = 0; r < rows; r++) {
      int32_t dot = 0;
      for (size_t i = 0; i < columns; i++) dot += row_of(trits, columns, r)[i] * got[i];
      assert_int_equal(dot, sums[t * rows + r]);
      float want = y[t * rows + r];
      assert_true(fabsf(out[t * rows + r] - want) <= ulp(want) * 1.01f);
      // The kernel's sum, read back from its output.
      assert_int_equal(lroundf(out[t * rows + r] * s / scales[r]), dot);
    }
  }
  st_pages_free((void *)m.data, rows / ST_GROUP * m.group_bytes);
  st_pages_free(input.data, k->input_bytes(ST_ACT_INT8_TOKEN, tokens, columns));
  void *all[] = {x, x_scale, w_scale, y, codes, trits, sums};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) st_free(all[i]);
  golden_close(&g);
}

static void integers_match(void **state) {
  (void)state;
  char names[256];
  snprintf(names, sizeof names, "%s", st_kernels_available());
  for (char *rest = names, *name; (name = strtok_r(rest, " ", &rest));) {
    st_kernels k;
    setun_error err = {SETUN_OK, ""};
    if (st_kernels_get(name, &k, &err) != SETUN_OK) fail_msg("%s", err.message);
    check(&k, "bitnet-auto");
    check(&k, "bitnet-latent");
    check(&k, "bitnet-div");
    print_message("%s: codes, sums and outputs as published\n", name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(integers_match)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
