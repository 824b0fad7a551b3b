// Malformed files: each of tests/badfiles must give exactly the kind of error that its table says, in one line, without
// taking memory that the file only claims; each good counterpart must open. Then every truncation and every changed
// byte of small good files: whatever happens, it is an error or a directory.
#define _GNU_SOURCE
#include "base/file.h"
#include "base/memory.h"
#include "source/weight.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const status_names[] = {"ok",       "MEMORY", "IO",       "FORMAT", "UNSUPPORTED",
                                           "ARGUMENT", "LIMIT",  "CANCELED", "STATE"};

// Finds and reads all of one weight.
static setun_status read_weight(const st_directory *d, const json_t *read, setun_error *err) {
  st_shape shape = {(uint64_t)json_number_value(json_object_get(read, "rows")),
                    (uint64_t)json_number_value(json_object_get(read, "columns"))};
  bool found = false;
  st_weight w;
  st_row_reader reader;
  setun_status s = st_weight_find(d, json_string_value(json_object_get(read, "module")), shape, &found, &w, err);
  if (s != SETUN_OK) return s;
  assert_true(found);
  if ((s = st_row_reader_open(d, &w, &reader, err)) != SETUN_OK) return s;
  float *x = st_malloc((size_t)(w.shape.rows * w.shape.columns), sizeof *x);
  assert_non_null(x);
  s = st_read_floats(&reader, 0, w.shape.rows, x, err);
  st_free(x);
  st_row_reader_close(&reader);
  return s;
}

static bool one_line(const char *message) {
  size_t n = strlen(message);
  if (!n) return false;
  for (size_t i = 0; i < n; i++) {
    if ((unsigned char)message[i] < 0x20) return false;
  }
  return true;
}

static bool has_notice(const st_directory *d, const char *words) {
  for (size_t i = 0; i < d->notices->count; i++) {
    if (strstr(d->notices->lines[i], words)) return true;
  }
  return false;
}

// True when the case is as its table says; otherwise prints what is not.
static bool run_case(const json_t *c) {
  const char *path = json_string_value(json_object_get(c, "path"));
  const char *expected = json_string_value(json_object_get(c, "status"));
  const char *notice = json_string_value(json_object_get(c, "notice"));
  st_open_options options = {.assume = json_string_value(json_object_get(c, "assume"))};
  char *full = st_path_join(SETUN_TEST_DATA "/badfiles/files", path);
  setun_error err = {0};
  st_directory *d = NULL;
  bool ok = true;
  setun_status s = st_directory_open(full, &options, &d, &err);
  const json_t *read = json_object_get(c, "read");
  if (read && s != SETUN_OK) {
    print_message("%s: did not open: %s\n", path, err.message);
    ok = false;
  }
  if (s == SETUN_OK && read) s = read_weight(d, read, &err);
  if (strcmp(status_names[s], expected)) {
    print_message("%s: expected %s, found %s: %s\n", path, expected, status_names[s], err.message);
    ok = false;
  }
  if (s != SETUN_OK && (err.code != s || !one_line(err.message))) {
    print_message("%s: code %d, status %d, message: %s\n", path, err.code, s, err.message);
    ok = false;
  }
  const json_t *words = json_object_get(c, "words");
  for (size_t i = 0; i < json_array_size(words); i++) {
    const char *word = json_string_value(json_array_get(words, i));
    if (strstr(err.message, word)) continue;
    print_message("%s: expected \"%s\" in: %s\n", path, word, err.message);
    ok = false;
  }
  if (notice && d && !has_notice(d, notice)) {
    print_message("%s: no notice says \"%s\"\n", path, notice);
    ok = false;
  }
  // The same without an error to fill.
  st_directory *again = NULL;
  if ((st_directory_open(full, &options, &again, NULL) == SETUN_OK) != (d != NULL)) ok = false;
  st_directory_free(again);
  st_directory_free(d);
  st_free(full);
  return ok;
}

// Leaves 64 MiB of address space beyond what there is. Sanitizers need theirs, and so does valgrind
// (tools/memcheck.sh).
static void limit_memory(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  unsigned long pages = 0;
  if (getenv("SETUN_UNLIMITED")) return;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f) return;
  if (fscanf(f, "%lu", &pages) == 1) {
    struct rlimit limit = {pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64 << 20), RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
  }
  fclose(f);
#endif
}

static void every_bad_file(void **state) {
  (void)state;
  char *text;
  size_t length;
  json_error_t where;
  assert_int_equal(st_file_load(SETUN_TEST_DATA "/badfiles/expected.json", 1 << 24, &text, &length, NULL), SETUN_OK);
  json_t *cases = json_loadb(text, length, JSON_DECODE_INT_AS_REAL, &where);
  st_free(text);
  assert_non_null(cases);
  assert_true(json_array_size(cases) > 150);
  limit_memory();
  size_t failed = 0;
  for (size_t i = 0; i < json_array_size(cases); i++) failed += !run_case(json_array_get(cases, i));
  json_decref(cases);
  assert_int_equal(failed, 0);
}

// ---- truncations and changed bytes --------------------------------------------------------------------------------

// Opens the bytes as a file and reads every tensor that can be read. Returns the status of opening.
static setun_status open_bytes(const char *path, int fd, const char *bytes, size_t n) {
  assert_int_equal(pwrite(fd, bytes, n, 0), n);
  assert_int_equal(ftruncate(fd, (off_t)n), 0);
  setun_error err = {0};
  st_directory *d = NULL;
  setun_status s = st_directory_open(path, NULL, &d, &err);
  if (s != SETUN_OK) {
    assert_int_equal(err.code, s);
    assert_true(one_line(err.message));
    return s;
  }
  for (size_t i = 0; i < d->n_tensors; i++) {
    st_weight w;
    st_row_reader reader;
    bool found = false;
    float x[64];
    if (st_weight_find(d, d->tensors[i].name, (st_shape){0, 0}, &found, &w, &err) != SETUN_OK) continue;
    assert_true(found);
    if (w.shape.columns > 64 || st_row_reader_open(d, &w, &reader, &err) != SETUN_OK) continue;
    for (uint64_t row = 0; row < w.shape.rows; row++) st_read_floats(&reader, row, 1, x, &err);
    st_row_reader_close(&reader);
  }
  for (size_t i = 0; i < d->metadata.count; i++) {
    st_buffer b = {0};
    assert_int_equal(st_meta_print(&d->metadata.items[i], &b, &err), SETUN_OK);
    st_buffer_free(&b);
  }
  st_directory_free(d);
  return SETUN_OK;
}

static void hurt(const char *name, bool must_fail_when_cut) {
  char *source = st_path_join(SETUN_TEST_DATA "/badfiles/files", name), *bytes;
  char path[] = "badfiles-XXXXXX";
  size_t n;
  assert_int_equal(st_file_load(source, 1 << 20, &bytes, &n, NULL), SETUN_OK);
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(open_bytes(path, fd, bytes, n), SETUN_OK);
  for (size_t cut = 0; cut < n; cut++) {
    setun_status s = open_bytes(path, fd, bytes, cut);
    if (must_fail_when_cut) assert_int_not_equal(s, SETUN_OK);
  }
  static const unsigned char masks[] = {0xFF, 0x80, 0x01, 0x10};
  for (size_t i = 0; i < n; i++) {
    for (size_t m = 0; m < sizeof masks; m++) {
      bytes[i] = (char)((unsigned char)bytes[i] ^ masks[m]);
      open_bytes(path, fd, bytes, n);
      bytes[i] = (char)((unsigned char)bytes[i] ^ masks[m]);
    }
  }
  close(fd);
  unlink(path);
  st_free(bytes);
  st_free(source);
}

static void truncated_and_changed(void **state) {
  (void)state;
  hurt("good.gguf", true);
  hurt("good-v2.gguf", true);
  hurt("good-alignment-1.gguf", true);
  hurt("good-scale.gguf", true);
  hurt("type-42-64.gguf", false); // ends in padding
  hurt("good.safetensors", true);
  hurt("good-dtypes.safetensors", true);
}

// A configuration of an implausible size is not loaded.
static void large_config(void **state) {
  (void)state;
  char directory[] = "badconfig-XXXXXX", path[64];
  assert_non_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/config.json", directory);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(ftruncate(fileno(f), (off_t)1 << 33), 0);
  fclose(f);
  setun_error err;
  st_directory *d = NULL;
  assert_int_equal(st_directory_open(directory, NULL, &d, &err), SETUN_ERROR_LIMIT);
  assert_non_null(strstr(err.message, "config.json"));
  assert_non_null(strstr(err.message, "8589934592"));
  unlink(path);
  rmdir(directory);
}

// A huge sparse file whose header claims a string as long as the file: refused by the header's bound, not read.
static void huge_sparse_header(void **state) {
  (void)state;
  char path[] = "badsparse-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  static const unsigned char start[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                        1,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}; // a key of 2^32 bytes
  assert_int_equal(write(fd, start, sizeof start), sizeof start);
  assert_int_equal(ftruncate(fd, (off_t)1 << 34), 0);
  close(fd);
  setun_error err;
  st_directory *d = NULL;
  assert_int_equal(st_directory_open(path, NULL, &d, &err), SETUN_ERROR_LIMIT);
  assert_non_null(strstr(err.message, "4294967296"));
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_bad_file),
      cmocka_unit_test(truncated_and_changed),
      cmocka_unit_test(large_config),
      cmocka_unit_test(huge_sparse_header),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
