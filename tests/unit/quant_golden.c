// Every GGUF block type that is read, bit for bit against values that the gguf package and ggml's own code computed.
#include "base/float16.h"
#include "quant/quant.h"
#include "quant_data.h"

#include <ctype.h>

static vectors data;

// The number of types in the golden file that Setun reads: a row that is lost from formats.def must fail here.
enum { TYPES = 20 };

static int same(float a, float b) {
  return a == b || st_float_bits(a) == st_float_bits(b) || (a != a && b != b);
}

static void check_type(const st_format *f, const char *type) {
  vector bytes = vectors_get(&data, type, "bytes", 1), values = vectors_get(&data, type, "values", 1);
  assert_int_equal(values.columns % f->block, 0);
  st_shape shape = {values.rows, values.columns};
  uint64_t size;
  assert_int_equal(st_format_size(f, shape, &size, NULL), SETUN_OK);
  assert_int_equal(size, bytes.bytes);
  st_strip strip = st_format_locate(f, shape, 0, shape.rows);
  size_t n = values.rows * values.columns;
  float *out = malloc(n * sizeof *out);
  if (st_format_is_ternary(f)) {
    int8_t *trits = malloc(n);
    float *scales = malloc(values.rows * sizeof *scales);
    f->ops->unpack(f, shape, &strip, bytes.data, trits, scales);
    for (size_t i = 0; i < n; i++) out[i] = (float)trits[i] * scales[i / f->block];
    free(trits);
    free(scales);
  } else {
    f->ops->decode(f, shape, &strip, bytes.data, out);
  }
  for (size_t i = 0; i < n; i++) {
    float want;
    memcpy(&want, (const char *)values.data + 4 * i, 4);
    if (!same(out[i], want))
      fail_msg("%s: block %zu, weight %zu is %a, expected %a", type, i / values.columns, i % values.columns,
               (double)out[i], (double)want);
  }
  free(out);
}

static void test_golden(void **state) {
  (void)state;
  int seen = 0;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    char type[32] = "", key[48];
    for (size_t i = 0; f->name[i] && i < sizeof type - 1; i++) type[i] = (char)toupper((unsigned char)f->name[i]);
    snprintf(key, sizeof key, "%s.bytes", type);
    if (f->gguf_type < 0 || !json_object_get(data.header, key)) continue;
    check_type(f, type);
    seen++;
  }
  assert_int_equal(seen, TYPES);
}

int main(void) {
  vectors_open(&data, "gguf-blocks.safetensors");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vectors_close(&data);
  return failed;
}
