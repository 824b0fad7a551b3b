// The writers of GGUF and safetensors without a conversion: the readers find every byte that they write, and a refused
// output leaves no file.
#include "base/memory.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3 };
static const uint8_t bytes[N][16] = {{1, 2, 3}, {4, 5, 6, 7, 8, 9, 10, 11}, {12, 13, 14, 15}};
static const size_t sizes[N] = {3, 8, 4};
static size_t shortened; // index + 1 of a tensor that loses its last byte; 0: none

static setun_status write_tensor(void *user, size_t index, st_output *out, setun_error *err) {
  (void)user;
  return st_output_write(out, bytes[index], sizes[index] - (shortened == index + 1), err);
}

static void make(st_output_tensor t[N], const char *middle) {
  t[0] = (st_output_tensor){.name = "ids", .dtype = "I8", .n_dims = 1, .dims = {3, 1, 1, 1}, .bytes = 3};
  t[1] = (st_output_tensor){.name = "matrix", .n_dims = 2, .dims = {2, 2, 1, 1}, .bytes = 8};
  t[2] = (st_output_tensor){.name = "vector", .n_dims = 1, .dims = {1, 1, 1, 1}, .bytes = 4};
  t[1].format = st_format_by_name(middle);
  t[2].format = st_format_of_floats();
}

static void check_file(const char *path, const char *middle) {
  setun_error err;
  st_directory *d = NULL;
  st_output_tensor t[N];
  make(t, middle);
  if (st_directory_open(path, NULL, &d, &err) != SETUN_OK) fail_msg("%s", err.message);
  assert_int_equal(d->n_tensors, N);
  for (size_t i = 0; i < N; i++) {
    uint8_t found[16];
    const st_tensor *f = st_directory_find(d, t[i].name);
    assert_non_null(f);
    assert_ptr_equal(f->format, t[i].format);
    assert_int_equal(f->bytes, sizes[i]);
    assert_memory_equal(f->dims, t[i].dims, sizeof f->dims);
    assert_int_equal(st_file_read(&d->parts[0], f->offset, found, sizes[i], &err), SETUN_OK);
    assert_memory_equal(found, bytes[i], sizes[i]);
  }
  st_directory_free(d);
}

static void test_gguf(void **state) {
  (void)state;
  static const char path[] = "format_writers.gguf";
  const st_output_source source = {.write = write_tensor};
  setun_error err;
  for (uint64_t alignment = ST_GGUF_USUAL; alignment <= ST_GGUF_BLOCKS; alignment *= ST_GGUF_BLOCKS / ST_GGUF_USUAL) {
    st_keys keys = {0};
    st_output_tensor t[N];
    make(t, "f16");
    st_gguf_layout_keys(&keys, alignment, "f16", false, t, N);
    if (st_gguf_write(path, &keys, t, N, alignment, &source, &err) != SETUN_OK) fail_msg("%s", err.message);
    assert_int_equal(t[2].offset, 2 * alignment);
    check_file(path, "f16");
    st_keys_free(&keys);
    unlink(path);
  }
}

static void test_safetensors(void **state) {
  (void)state;
  static const char path[] = "format_writers.safetensors";
  const st_output_source source = {.write = write_tensor};
  setun_error err;
  st_output_tensor t[N];
  make(t, "bf16");
  if (st_safetensors_write(path, t, N, &source, &err) != SETUN_OK) fail_msg("%s", err.message);
  // the order of use would put 2-byte numbers at 3: wide ones first
  assert_int_equal(t[2].offset, 0);
  assert_int_equal(t[1].offset, 4);
  assert_int_equal(t[0].offset, 12);
  check_file(path, "bf16");
  unlink(path);
}

static void test_refused(void **state) {
  (void)state;
  const st_output_source source = {.write = write_tensor};
  st_keys keys = {0};
  st_output_tensor t[N];
  setun_error err;
  static const char path[] = "format_writers.refused";
  make(t, "hf-u8");
  assert_int_equal(st_gguf_write(path, &keys, t, N, ST_GGUF_USUAL, &source, &err), SETUN_ERROR_UNSUPPORTED);
  assert_string_equal(err.message, "matrix: GGUF has no type for hf-u8");
  make(t, "q4_0");
  assert_int_equal(st_safetensors_write(path, t, N, &source, &err), SETUN_ERROR_UNSUPPORTED);
  assert_string_equal(err.message, "matrix: safetensors has no type for q4_0");
  make(t, "f16");
  shortened = 2;
  assert_int_equal(st_gguf_write(path, &keys, t, N, ST_GGUF_USUAL, &source, &err), SETUN_ERROR_STATE);
  assert_string_equal(err.message, "matrix: planned 8 bytes, wrote 7");
  assert_int_equal(st_safetensors_write(path, t, N, &source, &err), SETUN_ERROR_STATE);
  shortened = 0;
  t[1].bytes = UINT64_MAX;
  assert_int_equal(st_gguf_write(path, &keys, t, N, ST_GGUF_USUAL, &source, &err), SETUN_ERROR_LIMIT);
  assert_int_equal(st_safetensors_write(path, t, N, &source, &err), SETUN_ERROR_LIMIT);
  assert_int_equal(access(path, F_OK), -1);
  st_keys_free(&keys);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gguf), cmocka_unit_test(test_safetensors),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
