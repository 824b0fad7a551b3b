// Directories of real containers against tests/golden/directories.json, which the packages gguf and safetensors wrote:
// every tensor with its dtype, shape and values, every key with its value; and where tensors lie in shards.
#include "base/file.h"
#include "base/memory.h"
#include "source/weight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "directories.h"

static double number(const st_json *value) {
  assert_true(st_json_is_number(value));
  return st_json_number(value);
}

static void check_values(const st_directory *d, const st_tensor *t, const st_json *expected) {
  setun_error err;
  bool found = false;
  st_weight w;
  st_row_reader r;
  if (st_weight_find(d, t->name, (st_shape){0, 0}, &found, &w, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_true(found && w.data == t && !w.latent);
  assert_int_equal(st_row_reader_open(d, &w, &r, &err), SETUN_OK);
  size_t n = (size_t)st_tensor_elements(t);
  float *x = st_malloc(n, sizeof *x);
  assert_non_null(x);
  if (st_read_floats(&r, 0, w.shape.rows, x, &err) != SETUN_OK) fail_msg("%s", err.message);
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i];
  assert_true(fabs(sum - number(st_json_find(expected, "sum"))) <= 1e-9 * (1 + fabs(sum)));
  const st_json *values = st_json_find(expected, "values");
  for (size_t i = 0; i < st_json_size(values); i++) {
    const st_json *pair = st_json_at(values, i);
    assert_true(x[(size_t)number(st_json_at(pair, 0))] == (float)number(st_json_at(pair, 1)));
  }
  st_free(x);
  st_row_reader_close(&r);
}

static void check_tensor(const st_directory *d, const char *name, const st_json *expected) {
  const st_tensor *t = st_directory_find(d, name);
  if (!t) fail_msg("%s: no such tensor", name);
  const char *dtype = st_json_string(st_json_find(expected, "dtype"));
  const st_json *shape = st_json_find(expected, "shape");
  // GGUF's types are spelled as the formats are.
  if (d->container != ST_GGUF) assert_string_equal(t->dtype, dtype);
  size_t n = st_json_size(shape);
  assert_int_equal(t->n_dims, n);
  for (size_t i = 0; i < n; i++) assert_int_equal(t->dims[n - 1 - i], (uint64_t)number(st_json_at(shape, i)));
  for (size_t i = n; i < 4; i++) assert_int_equal(t->dims[i], 1);
  assert_true(t->offset + t->bytes <= d->parts[t->part].size);
  // Where a module's weight is packed or latent, source_weight.c looks; here each tensor is taken as it is.
  if (d->config && st_json_find(d->config, "quantization_config")) return;
  if (st_json_find(expected, "values")) check_values(d, t, expected);
}

static void check_value(const st_meta *item, const st_json *expected) {
  if (st_json_is_string(expected)) {
    assert_int_equal(item->type, ST_META_STRING);
    assert_int_equal(item->as.text.length, st_json_length(expected));
    assert_memory_equal(item->as.text.data, st_json_string(expected), item->as.text.length);
  } else if (st_json_is_bool(expected)) {
    assert_int_equal(item->type, ST_META_BOOL);
    assert_int_equal(item->as.u, st_json_is(expected, ST_JSON_TRUE));
  } else if (item->type == ST_META_F32 || item->type == ST_META_F64) {
    assert_true(item->as.f == number(expected));
  } else {
    assert_true((double)item->as.i == number(expected));
  }
}

static void check_array(const st_meta *item, const st_json *expected) {
  assert_int_equal(item->type, ST_META_ARRAY);
  assert_int_equal(item->count, (uint64_t)number(st_json_find(expected, "count")));
  const st_json *first = st_json_find(expected, "first");
  for (size_t i = 0; i < st_json_size(first); i++) {
    const st_json *e = st_json_at(first, i);
    if (item->element == ST_META_STRING) {
      assert_int_equal(item->as.texts[i].length, st_json_length(e));
      assert_memory_equal(item->as.texts[i].data, st_json_string(e), st_json_length(e));
    } else {
      assert_true(st_meta_number(item, i) == number(e));
    }
  }
}

static void check_directory(const char *name) {
  st_directory *d = open_golden(name);
  const st_json *expected = st_json_find(golden, name), *tensors = st_json_find(expected, "tensors");
  assert_non_null(tensors);
  assert_int_equal(d->n_tensors, st_json_members(tensors));
  for (size_t i = 0; i < st_json_members(tensors); i++) {
    check_tensor(d, st_json_member_at(tensors, i)->key, &st_json_member_at(tensors, i)->value);
  }
  const st_json *keys = st_json_find(expected, "keys");
  assert_int_equal(d->metadata.count, st_json_members(keys));
  for (size_t i = 0; i < st_json_members(keys); i++) {
    const char *key = st_json_member_at(keys, i)->key;
    const st_json *value = &st_json_member_at(keys, i)->value;
    const st_meta *item = st_metadata_find(&d->metadata, key);
    if (!item) fail_msg("%s: no such key", key);
    if (st_json_is_object(value))
      check_array(item, value);
    else
      check_value(item, value);
  }
  assert_null(st_directory_find(d, "no such tensor"));
  st_directory_free(d);
}

static void gguf_files(void **state) {
  (void)state;
  check_directory("gguf/qwen3.gguf");
  check_directory("gguf/mixtral.gguf");
}

static void hugging_face_directories(void **state) {
  (void)state;
  check_directory("hf/llama3-tied-sharded");
  check_directory("hf/bitnet-auto");
  check_directory("hf/bitnet-div");
  check_directory("hf/bitnet-latent");
}

static void shards(void **state) {
  (void)state;
  st_directory *d = open_golden("hf/llama3-tied-sharded");
  assert_int_equal(d->n_parts, 7);
  assert_int_equal(d->container, ST_HUGGINGFACE);
  assert_non_null(d->config);
  assert_non_null(d->generation_config);
  const st_tensor *t = st_directory_find(d, "model.layers.1.mlp.up_proj.weight");
  assert_non_null(t);
  assert_non_null(strstr(d->parts[t->part].path, "model-00004-of-00007.safetensors"));
  st_directory_free(d);
}

// Every value type of the small GGUF file that make_badfiles.py writes, against what it says there.
static void metadata(void **state) {
  (void)state;
  setun_error err;
  st_directory *d = NULL;
  assert_int_equal(st_directory_open(SETUN_TEST_DATA "/badfiles/files/good.gguf", NULL, &d, &err), SETUN_OK);
  const st_metadata *m = &d->metadata;
  uint32_t u = 7;
  assert_int_equal(st_metadata_u32(m, "a.u8", 0, 255, &u, &err), SETUN_OK);
  assert_int_equal(u, 255);
  assert_int_equal(st_metadata_u32(m, "absent", 0, 255, &u, &err), SETUN_OK);
  assert_int_equal(u, 255);
  assert_int_equal(st_metadata_u32(m, "a.u16", 0, 1000, &u, &err), SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "a.u16: expected an integer from 0 to 1000, found 65535");
  assert_int_equal(st_metadata_u32(m, "a.i32", 0, 10, &u, &err), SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "a.i32: expected an integer from 0 to 10, found -3");
  assert_int_equal(st_metadata_u32(m, "a.f32", 0, 10, &u, &err), SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "a.f32: expected an integer, found f32");
  assert_int_equal(u, 255);
  uint64_t wide = 0;
  assert_int_equal(st_metadata_u64(m, "a.u64", 0, UINT64_MAX, &wide, &err), SETUN_OK);
  assert_true(wide == (uint64_t)1 << 63);
  float f = 0;
  assert_int_equal(st_metadata_f32(m, "a.f64", &f, &err), SETUN_OK);
  assert_true(f == 2.5f);
  assert_int_equal(st_metadata_f32(m, "a.i64", &f, &err), SETUN_OK);
  assert_true(f == -4);
  assert_int_equal(st_metadata_f32(m, "a.texts", &f, &err), SETUN_ERROR_FORMAT);
  assert_string_equal(err.message, "a.texts: expected a number, found an array of string");
  bool b = false;
  assert_int_equal(st_metadata_bool(m, "a.bool", &b, &err), SETUN_OK);
  assert_true(b);
  assert_int_equal(st_metadata_bool(m, "a.u8", &b, &err), SETUN_ERROR_FORMAT);
  st_text text = {0};
  assert_int_equal(st_metadata_text(m, "general.architecture", &text, &err), SETUN_OK);
  assert_true(text.length == 5 && !memcmp(text.data, "llama", 5));
  assert_int_equal(st_metadata_text(m, "a.i8", &text, &err), SETUN_ERROR_FORMAT);
  static const char *const printed[][2] = {{"a.i8", "-1"},
                                           {"a.i16", "-2"},
                                           {"a.u64", "9223372036854775808"},
                                           {"a.f32", "1.5"},
                                           {"a.bool", "true"},
                                           {"a.texts", "[\"one\", \"\"]"},
                                           {"a.numbers", "[-1, 0, 1]"},
                                           {"a.empty", "[]"},
                                           {"general.architecture", "\"llama\""}};
  for (size_t i = 0; i < sizeof printed / sizeof *printed; i++) {
    st_buffer out = {0};
    assert_int_equal(st_meta_print(st_metadata_find(m, printed[i][0]), &out, &err), SETUN_OK);
    assert_string_equal(out.data, printed[i][1]);
    st_buffer_free(&out);
  }
  st_directory_free(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gguf_files),
      cmocka_unit_test(hugging_face_directories),
      cmocka_unit_test(shards),
      cmocka_unit_test(metadata),
  };
  return cmocka_run_group_tests(tests, load_golden, free_golden);
}
