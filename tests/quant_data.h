// A reader of the safetensors files that hold the vectors of the quantization tests. Fails the test on any surprise.
#ifndef SETUN_TESTS_QUANT_DATA_H
#define SETUN_TESTS_QUANT_DATA_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct vectors {
  uint8_t *file, *data;
  size_t size;
  json_t *header;
} vectors;

typedef struct vector {
  const void *data;
  size_t bytes, rows, columns; // a shape of one dimension has one row
} vector;

static inline void vectors_open(vectors *v, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/quant/%s", SETUN_TEST_DATA, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is missing", path);
  assert_int_equal(fseek(f, 0, SEEK_END), 0);
  v->size = (size_t)ftell(f);
  rewind(f);
  v->file = malloc(v->size);
  assert_non_null(v->file);
  assert_int_equal(fread(v->file, 1, v->size, f), v->size);
  fclose(f);
  uint64_t length;
  memcpy(&length, v->file, 8);
  assert_true(length < v->size - 8);
  v->header = json_loadb((const char *)v->file + 8, length, 0, NULL);
  assert_non_null(v->header);
  v->data = v->file + 8 + length;
}

static inline void vectors_close(vectors *v) {
  json_decref(v->header);
  free(v->file);
}

// What a case's key holds; fails if it is missing and `need`ed.
static inline vector vectors_get(const vectors *v, const char *name, const char *key, int need) {
  char full[256];
  snprintf(full, sizeof full, "%s.%s", name, key);
  json_t *entry = json_object_get(v->header, full);
  if (!entry) {
    if (need) fail_msg("no vector %s", full);
    return (vector){NULL, 0, 0, 0};
  }
  json_t *offsets = json_object_get(entry, "data_offsets"), *shape = json_object_get(entry, "shape");
  size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
  size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
  assert_true(begin <= end && v->data + end <= v->file + v->size);
  size_t dims = json_array_size(shape), rows = 1, columns = 1;
  for (size_t i = 0; i < dims; i++) {
    size_t n = (size_t)json_integer_value(json_array_get(shape, i));
    if (i + 1 == dims)
      columns = n;
    else
      rows *= n;
  }
  return (vector){v->data + begin, end - begin, rows, columns};
}

#endif
