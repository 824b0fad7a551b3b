// Encoders against the gguf package's, 8-bit floats and gpt-oss's MXFP4 against their definitions, the canonical form's
// helpers against formulas in NumPy, and what the table of formats answers. Vectors: tools/make_quant_vectors.py.
#define _DEFAULT_SOURCE
#include "base/bytes.h"
#include "guard.h"
#include "quant/canonical.h"
#include "quant/fit.h"
#include "quant_data.h"

#include <math.h>

static vectors data, peers, ggml;

static float at(vector v, size_t i) {
  return st_load_f32((const uint8_t *)v.data + 4 * i);
}

static void encode_all(const st_format *f, st_shape shape, const uint8_t *floats, uint8_t *out) {
  float *aligned = malloc(shape.rows * shape.columns * 4);
  memcpy(aligned, floats, shape.rows * shape.columns * 4);
  for (uint64_t row = 0; row < shape.rows;) {
    st_strip s = st_format_locate(f, shape, row, 5);
    f->ops->encode(f, shape, &s, aligned + row * shape.columns, out + s.offset);
    row += s.count;
  }
  free(aligned);
}

// Bit-identical to what the gguf package writes.
static void test_encode(void **state) {
  (void)state;
  vector x = vectors_get(&data, "encode", "values", 1);
  int seen = 0;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    vector want = vectors_get(&data, "encode", f->name, 0);
    if (!want.data) continue;
    seen++;
    guarded out = guard_new(NULL, want.bytes);
    encode_all(f, (st_shape){x.rows, x.columns}, x.data, out.data);
    for (size_t b = 0; b < want.bytes; b++)
      if (out.data[b] != ((const uint8_t *)want.data)[b])
        fail_msg("%s: byte %zu (row %zu) is %02x, expected %02x", f->name, b, b * x.rows / want.bytes, out.data[b],
                 ((const uint8_t *)want.data)[b]);
    guard_free(&out);
  }
  assert_true(seen > 0);
  guarded same = guard_new(NULL, x.bytes);
  encode_all(st_format_get(ST_F32), (st_shape){x.rows, x.columns}, x.data, same.data);
  assert_memory_equal(same.data, x.data, x.bytes);
  guard_free(&same);
}

static double squared_error(const st_format *f, st_shape shape, const uint8_t *bytes, vector want) {
  st_strip all = st_format_locate(f, shape, 0, shape.rows);
  float *out = malloc(shape.rows * shape.columns * sizeof *out);
  f->ops->decode(f, shape, &all, bytes, out);
  double sum = 0;
  for (size_t i = 0; i < shape.rows * shape.columns; i++) sum += pow((double)out[i] - (double)at(want, i), 2);
  free(out);
  return sum;
}

static vector bare(const vectors *v, const char *key) {
  json_t *offsets = json_object_get(json_object_get(v->header, key), "data_offsets");
  assert_non_null(offsets);
  return (vector){.data = v->data + json_integer_value(json_array_get(offsets, 0))};
}

// Q6_K leaves the choice of scales open: the squared error is at most that of ik_llama.cpp's quantizer.
static void test_q6_k(void **state) {
  (void)state;
  const st_format *f = st_format_get(ST_Q6_K);
  st_shape shape = {20, 256};
  vector x = bare(&peers, "latent"), theirs = vectors_get(&peers, "q6_k", "bytes", 1);
  uint8_t ours[20 * 210];
  assert_int_equal(theirs.bytes, sizeof ours);
  encode_all(f, shape, x.data, ours);
  double mine = squared_error(f, shape, ours, x), peer = squared_error(f, shape, theirs.data, x);
  if (mine > peer) fail_msg("squared error %g, the peer's %g", mine, peer);
  // All zero, and a block beyond what half precision can scale down to.
  float zeros[256] = {0}, out[256];
  uint8_t block[210];
  shape.rows = 1;
  st_strip one = st_format_locate(f, shape, 0, 1);
  for (int tiny = 0; tiny < 2; tiny++) {
    zeros[7] = tiny ? 1e-30f : 0;
    f->ops->encode(f, shape, &one, zeros, block);
    f->ops->decode(f, shape, &one, block, out);
    for (int i = 0; i < 256; i++) assert_true(out[i] == 0);
  }
}

// The squared error of `rows` rows, each square times its column's importance.
static double lost(const st_format *f, st_shape shape, const float *x, const float *importance, const uint8_t *bytes) {
  st_strip all = st_format_locate(f, shape, 0, shape.rows);
  float *out = malloc(shape.rows * shape.columns * sizeof *out);
  f->ops->decode(f, shape, &all, bytes, out);
  double sum = 0;
  for (size_t i = 0; i < shape.rows * shape.columns; i++) {
    sum += pow((double)out[i] - (double)x[i], 2) * (importance ? (double)importance[i % shape.columns] : 1);
  }
  free(out);
  return sum;
}

// The error with searched scales is at most that of ggml's own quantizer, in all kinds of weights.
static void test_fit(void **state) {
  (void)state;
  static const char *const names[] = {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q6_k", "q4_k", "q2_k"};
  enum { ROWS = 24, COLUMNS = 512, KIND = 6 };
  const float *x = bare(&ggml, "weights").data, *importance = bare(&ggml, "importance").data;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const st_format *f = st_format_by_name(names[i]);
    uint8_t *bytes = malloc(COLUMNS / f->block * f->block_bytes);
    for (int important = 0; important < 2; important++) {
      char key[32];
      snprintf(key, sizeof key, "%s.%s", names[i], important ? "important" : "plain");
      const float *peer = bare(&ggml, key).data;
      for (size_t row = 0; row < ROWS; row += KIND) {
        double ours = 0, other = 0;
        for (size_t r = row; r < row + KIND; r++) {
          const float *w = important ? importance : NULL;
          st_fit_rows(f, 1, COLUMNS, x + r * COLUMNS, w, bytes);
          ours += lost(f, (st_shape){1, COLUMNS}, x + r * COLUMNS, w, bytes), other += (double)peer[r];
        }
        if (ours > other * (1 + 1e-6)) fail_msg("%s, rows from %zu on: lost %g, ggml %g", key, row, ours, other);
      }
    }
    free(bytes);
  }
}

// Rows with one scale: at most 1% more error than with the best of the scales that NumPy tried.
static void test_rows(void **state) {
  (void)state;
  const st_format *f = st_format_get(ST_INT8);
  vector x = vectors_get(&data, "fit.int8-row", "weights", 1), least = vectors_get(&data, "fit.int8-row", "least", 1);
  const st_shape one = {1, x.columns};
  uint8_t bytes[2 + 576];
  float row[576];
  assert_int_equal(x.columns, 576);
  for (size_t r = 0; r < x.rows; r++) {
    memcpy(row, (const uint8_t *)x.data + r * sizeof row, sizeof row);
    encode_all(f, one, (const uint8_t *)row, bytes);
    double ours = lost(f, one, row, NULL, bytes), best = (double)at(least, r);
    if (ours > 1.01 * best) fail_msg("row %zu: lost %g, the best scale loses %g", r, ours, best);
  }
  for (int bad = 0; bad < 2; bad++) {
    uint8_t rows[2 * 34] = {0};
    rows[34 * bad + 1] = 0x7C; // an infinity
    assert_int_equal(st_format_check_scales(f, 32, rows, sizeof rows), 34 * bad);
  }
}

// NAME.bytes u8 and NAME.values f32 [rows, K], of each format that has them.
static void check_decode(const vectors *file) {
  int seen = 0;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    vector bytes = vectors_get(file, f->name, "bytes", 0);
    if (!bytes.data) continue;
    vector want = vectors_get(file, f->name, "values", 1);
    st_shape shape = {want.rows, want.columns};
    st_strip all = st_format_locate(f, shape, 0, shape.rows);
    assert_int_equal(all.bytes, bytes.bytes);
    float *out = malloc(want.bytes);
    f->ops->decode(f, shape, &all, bytes.data, out);
    for (size_t b = 0; b < want.rows * want.columns; b++)
      assert_true(isnan(out[b]) ? isnan(at(want, b)) : st_float_bits(out[b]) == st_float_bits(at(want, b)));
    free(out);
    seen++;
  }
  assert_true(seen > 0);
}

static void test_decode(void **state) {
  (void)state;
  vectors affine;
  vectors_open(&affine, "affine.safetensors");
  check_decode(&data);
  check_decode(&affine);
  vectors_close(&affine);
}

static void test_gpt_oss(void **state) {
  (void)state;
  const st_format *f = st_format_get(ST_MXFP4);
  vector pairs = vectors_get(&data, "gpt-oss", "pairs", 1), scales = vectors_get(&data, "gpt-oss", "scales", 1);
  vector want = vectors_get(&data, "gpt-oss", "values", 1);
  st_shape shape = {1, 32};
  st_strip one = st_format_locate(f, shape, 0, 1);
  for (size_t i = 0; i < pairs.rows; i++) {
    uint8_t block[17];
    float out[32];
    f->ops->hf_blocks->join(((const uint8_t *)scales.data)[i], (const uint8_t *)pairs.data + 16 * i, block);
    f->ops->decode(f, shape, &one, block, out);
    for (size_t k = 0; k < 32; k++) assert_true(out[k] == at(want, 32 * i + k));
  }
}

// The scales of 4-bit floats, which ggml's functions of the same names define for every byte.
static void test_fp4_scales(void **state) {
  (void)state;
  const st_format *nv = st_format_get(ST_NVFP4), *mx = st_format_get(ST_MXFP4);
  for (int byte = 0; byte < 256; byte++) {
    uint8_t block[36] = {(uint8_t)byte, 0, 0, 0, 0x22}, other[17] = {(uint8_t)byte, 0x22}; // weights 0 and 8, or 16: 1
    float out[64];
    int exponent = byte >> 3 & 15, mantissa = byte & 7;
    float want = exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa, -9);
    if (byte == 0x7F) want = 0;
    st_strip one = st_format_locate(nv, (st_shape){1, 64}, 0, 1);
    nv->ops->decode(nv, (st_shape){1, 64}, &one, block, out);
    assert_true(out[0] == want && out[8] == want && out[1] == 0);
    one = st_format_locate(mx, (st_shape){1, 32}, 0, 1);
    mx->ops->decode(mx, (st_shape){1, 32}, &one, other, out);
    assert_true(out[0] == ldexpf(1, byte - 127) && out[16] == out[0] && out[1] == 0);
    assert_int_equal(st_format_check_scales(nv, nv->block, block, sizeof block), -1);
    assert_int_equal(st_format_check_scales(mx, mx->block, other, sizeof other), byte == 255 ? 0 : -1);
  }
}

// Value formats by strips, the bytes ending at an unreadable page.
static void test_strips(void **state) {
  (void)state;
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (!f->ops->decode) continue;
    st_shape shape = {7, 3 * f->block};
    uint64_t size;
    assert_int_equal(st_format_size(f, shape, &size, NULL), SETUN_OK);
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 37 + i / 256);
    float *whole = malloc(7 * shape.columns * sizeof *whole);
    st_strip all = st_format_locate(f, shape, 0, 99);
    assert_true(all.count == 7 && all.bytes == size && all.offset == 0);
    f->ops->decode(f, shape, &all, bytes, whole);
    for (uint64_t row = 0; row < 7; row++) {
      st_strip s = st_format_locate(f, shape, row, 2);
      guarded in = guard_new(bytes + s.offset, s.bytes), out = guard_new(NULL, s.count * shape.columns * 4);
      f->ops->decode(f, shape, &s, in.data, (float *)(void *)out.data);
      assert_memory_equal(out.data, whole + row * shape.columns, s.count * shape.columns * 4);
      guard_free(&in);
      guard_free(&out);
    }
    free(bytes);
    free(whole);
  }
}

static void test_absmean(void **state) {
  (void)state;
  vector w = vectors_get(&data, "absmean", "weights", 1), trits = vectors_get(&data, "absmean", "trits", 1);
  vector want = vectors_get(&data, "absmean", "mean", 1);
  st_absmean mean = {0, 0};
  float row[129];
  int8_t got[129];
  for (size_t r = 0; r < w.rows; r++) {
    memcpy(row, (const uint8_t *)w.data + r * sizeof row, sizeof row);
    st_absmean_add(&mean, row, 129);
  }
  assert_true(st_absmean_result(&mean) == at(want, 0));
  for (size_t r = 0; r < w.rows; r++) {
    memcpy(row, (const uint8_t *)w.data + r * sizeof row, sizeof row);
    st_absmean_trits(row, 129, at(want, 0), got);
    assert_memory_equal(got, (const int8_t *)trits.data + r * 129, 129);
  }
  // Ties to even: half the mean is 0; one and a half is 2, clipped to 1. A mean below 1e-5 counts as 1e-5.
  const float ties[8] = {0.5f, -0.5f, 1.5f, -1.5f, 0.50001f, -0.50001f, 100, 0};
  const int8_t tie_trits[8] = {0, 0, 1, -1, 1, -1, 1, 0};
  st_absmean_trits(ties, 8, 1, got);
  assert_memory_equal(got, tie_trits, 8);
  const float small[3] = {4e-6f, 6e-6f, -6e-6f};
  const int8_t small_trits[3] = {0, 1, -1};
  st_absmean_trits(small, 3, 1e-9f, got);
  assert_memory_equal(got, small_trits, 3);
  assert_true(st_absmean_result(&(st_absmean){0, 0}) == 0);
}

static st_grain scan(const float *weights, uint64_t rows, uint64_t columns) {
  st_ternary_scan s;
  st_ternary_scan_begin(&s, columns);
  for (uint64_t r = 0; r < rows; r++)
    if (!st_ternary_scan_rows(&s, weights + r * columns, 1)) break;
  return st_ternary_scan_result(&s);
}

static void test_recognize(void **state) {
  (void)state;
  enum { K = 512 };
  static float w[2 * K];
  for (int i = 0; i < 2 * K; i++) w[i] = (float)(i * 7 % 3 - 1) * 0.25f;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_TENSOR);
  for (int i = K; i < 2 * K; i++) w[i] *= 3;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_ROW);
  for (int i = 256; i < 512; i++) w[i] *= 3;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_256);
  for (int i = 128; i < 256; i++) w[i] *= 5;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_128);
  w[130] = nextafterf(0.25f * 5, 2);
  assert_int_equal(scan(w, 2, K), ST_GRAIN_NONE);
  // Groups must be whole; groups of zeros agree with any scale; NaN and infinity are not scales.
  for (int i = 0; i < 2 * K; i++) w[i] = i < 129 ? 0 : 2;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_TENSOR);
  w[0] = 1;
  assert_int_equal(scan(w, 1, 192), ST_GRAIN_NONE);
  w[0] = NAN;
  assert_int_equal(scan(w, 2, K), ST_GRAIN_NONE);
  w[0] = INFINITY;
  assert_int_equal(scan(w, 1, 1), ST_GRAIN_NONE);
  const float split[5] = {0, -0.5f, 0.5f, -0.0f, 0.5f}, zero[2] = {0, -0.0f};
  const int8_t want[5] = {0, -1, 1, 0, 1};
  int8_t trits[5];
  float scale;
  assert_true(st_ternary_split(split, 5, trits, &scale));
  assert_memory_equal(trits, want, 5);
  assert_true(scale == 0.5f);
  assert_true(st_ternary_split(zero, 2, trits, &scale) && scale == 0 && trits[0] == 0);
  assert_false(st_ternary_split((float[]){1, 2}, 2, trits, &scale));
}

static void test_scales(void **state) {
  (void)state;
  const st_format *tq = st_format_get(ST_TQ2_0), *iq1 = st_format_get(ST_IQ1_BN), *iq2 = st_format_get(ST_IQ2_BN);
  assert_true(st_scale_fits(tq, 0.125f) && st_scale_fits(tq, 0) && st_scale_fits(tq, 0x1p-24f));
  assert_false(st_scale_fits(tq, 0.1f) || st_scale_fits(tq, 1e6f) || st_scale_fits(tq, NAN) ||
               st_scale_fits(tq, INFINITY) || st_scale_fits(tq, 0x1p-26f));
  assert_false(st_scale_fits(iq1, 0.1f));
  assert_true(st_scale_fits(iq2, 0.1f) && st_scale_fits(st_format_get(ST_T2), 0.1f) &&
              st_scale_fits(st_format_get(ST_I2_S), 0.1f));
  assert_false(st_scale_fits(iq2, INFINITY));
  assert_true(st_scale_rounded(tq, 0.1f) == 0x1.998p-4f && st_scale_rounded(iq2, 0.1f) == 0.1f);
  const int8_t trits[6] = {1, 0, 0, 0, -1, 1};
  float merged;
  assert_true(st_scales_merge((float[]){2, 0, 2}, 3, trits, 2, &merged) && merged == 2);
  assert_false(st_scales_merge((float[]){2, 3, 2}, 3, trits, 2, &merged)); // also where the trits are all zero
  assert_false(st_scales_merge((float[]){2, 0, 0}, 3, trits, 2, &merged));
  assert_true(st_scales_merge((float[]){0, 0, 0}, 3, trits, 2, &merged) && merged == 0);
}

static void expect_error(setun_status got, setun_status want, const setun_error *err, const char *text) {
  assert_int_equal(got, want);
  assert_int_equal(err->code, want);
  if (!strstr(err->message, text)) fail_msg("\"%s\" lacks \"%s\"", err->message, text);
}

static void test_table(void **state) {
  (void)state;
  setun_error err;
  uint64_t size = 77;
  const st_format *q4 = st_format_get(ST_Q4_0), *i2 = st_format_get(ST_I2_S);
  assert_ptr_equal(st_format_by_name("q2_0-128"), st_format_get(ST_Q2_0_128));
  assert_null(st_format_by_name("Q4_0"));
  assert_null(st_format_get(ST_FORMAT_COUNT));
  assert_null(st_format_by_gguf_type(4));
  assert_ptr_equal(st_format_by_gguf_type(36), i2);
  assert_ptr_equal(st_format_next_reading(i2), st_format_get(ST_I2_S_ARM));
  assert_ptr_equal(st_format_next_reading(st_format_get(ST_I2_S_ARM)), st_format_get(ST_I2_S_X4));
  assert_null(st_format_next_reading(st_format_get(ST_I2_S_X4)));
  assert_null(st_format_next_reading(st_format_get(ST_HF_U8)));
  assert_ptr_equal(st_format_next_reading(st_format_by_gguf_type(42)), st_format_get(ST_Q2_0_128));
  expect_error(st_format_size(q4, (st_shape){3, 100}, &size, &err), SETUN_ERROR_FORMAT, &err, "multiple of 32");
  expect_error(st_format_size(q4, (st_shape){0, 32}, &size, &err), SETUN_ERROR_FORMAT, &err, "empty");
  expect_error(st_format_size(i2, (st_shape){1, 96}, &size, &err), SETUN_ERROR_FORMAT, &err, "groups of 128");
  expect_error(st_format_size(st_format_get(ST_I2_S_X4), (st_shape){6, 96}, &size, &err), SETUN_ERROR_FORMAT, &err,
               "multiple of 4 rows");
  assert_int_equal(size, 77);
  // Sizes whose product overflows, in every format.
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    const st_shape large = {UINT64_MAX - 3, f->block * (UINT64_C(1) << 30)};
    expect_error(st_format_size(f, large, &size, &err), SETUN_ERROR_FORMAT, &err, "too large");
    if (f->block == 1)
      expect_error(st_format_size(f, (st_shape){UINT64_C(1) << 40, UINT64_MAX - 3}, &size, &err), SETUN_ERROR_FORMAT,
                   &err, "too large");
  }
  assert_int_equal(st_format_writable(i2, (st_shape){4, 256}, &err), SETUN_OK);
  expect_error(st_format_writable(i2, (st_shape){4, 96}, &err), SETUN_ERROR_UNSUPPORTED, &err, "t2, t5 and t16");
  expect_error(st_format_writable(st_format_get(ST_T5_ZPM), (st_shape){4, 96}, &err), SETUN_ERROR_UNSUPPORTED, &err,
               "not written");
  expect_error(st_format_writable(st_format_get(ST_Q5_K), (st_shape){4, 256}, &err), SETUN_ERROR_UNSUPPORTED, &err,
               "not written");
  // Published sizes: a 2560 x 6912 matrix of the 2B-4T file, a 4096 x 11008 expert in base 3, the two readings of [256,
  // 4] in type 42.
  assert_int_equal(st_format_size(i2, (st_shape){2560, 6912}, &size, NULL), SETUN_OK);
  assert_int_equal(size, 2560 * 6912 / 4 + 32);
  uint64_t gate, down;
  assert_int_equal(st_format_size(st_format_get(ST_T5), (st_shape){11008, 4096}, &gate, NULL), SETUN_OK);
  assert_int_equal(st_format_size(st_format_get(ST_T5), (st_shape){4096, 11008}, &down, NULL), SETUN_OK);
  assert_int_equal(2 * gate + down, 27072512);
  assert_int_equal(st_format_size(st_format_get(ST_Q2_0), (st_shape){4, 256}, &gate, NULL), SETUN_OK);
  assert_int_equal(st_format_size(st_format_get(ST_Q2_0_128), (st_shape){4, 256}, &down, NULL), SETUN_OK);
  assert_true(gate == 288 && down == 272);
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(st_gguf_type_name(21), "IQ3_S");
  assert_string_equal(st_gguf_type_name(12), "q4_k");
  assert_string_equal(st_gguf_type_name(335), "IQ2_BN_R4");
  assert_null(st_gguf_type_name(77777));
  assert_non_null(strstr(st_gguf_type_hint(335), "interleaved"));
  assert_non_null(strstr(st_gguf_type_hint(77777), "unknown type"));
  assert_non_null(strstr(st_gguf_type_rivals(142), "IQ2_TN"));
  assert_non_null(strstr(st_gguf_type_rivals(42), "TL2"));
  assert_null(st_gguf_type_rivals(2));
  assert_string_equal(st_gguf_type_name(38), "TL1");
  assert_non_null(strstr(st_gguf_type_hint(0x53540099), "newer"));
  assert_string_equal(st_gguf_type_hint(8), "read");
  for (uint32_t type = 0; type < 1000; type++) assert_non_null(st_gguf_type_hint(type));
}

int main(void) {
  vectors_open(&data, "values.safetensors");
  vectors_open(&peers, "peers.safetensors");
  vectors_open(&ggml, "ggml.safetensors");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_encode),     cmocka_unit_test(test_q6_k),   cmocka_unit_test(test_fit),
      cmocka_unit_test(test_rows),       cmocka_unit_test(test_decode), cmocka_unit_test(test_gpt_oss),
      cmocka_unit_test(test_fp4_scales), cmocka_unit_test(test_strips), cmocka_unit_test(test_absmean),
      cmocka_unit_test(test_recognize),  cmocka_unit_test(test_scales), cmocka_unit_test(test_table),
      cmocka_unit_test(test_names)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vectors_close(&data);
  vectors_close(&peers);
  vectors_close(&ggml);
  return failed;
}
