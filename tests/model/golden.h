// Reading golden files: tensors of a safetensors file, through the library's own directory.
#ifndef SETUN_TESTS_GOLDEN_H
#define SETUN_TESTS_GOLDEN_H

#include "base/memory.h"
#include "format/directory.h"
#include "setun.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka needs the headers above first
#include <setjmp.h>
#include <cmocka.h>

#define GOLDEN SETUN_TEST_DATA "/golden/"

typedef struct golden {
  st_directory *directory;
} golden;

static inline golden golden_open(const char *path) {
  golden g = {0};
  setun_error err = {SETUN_OK, ""};
  if (st_directory_open(path, &(st_open_options){0}, &g.directory, &err) != SETUN_OK) fail_msg("%s", err.message);
  return g;
}

static inline void golden_close(golden *g) { st_directory_free(g->directory); }

// The tensor's bytes; its number of elements and its row length go to *n and *width. Freed with st_free.
static inline void *golden_read(const golden *g, const char *name, const char *dtype, size_t *n, size_t *width) {
  const st_tensor *t = st_directory_find(g->directory, name);
  if (!t) fail_msg("%s: no tensor %s", g->directory->path, name);
  assert_string_equal(t->dtype, dtype);
  void *bytes = st_malloc(t->bytes, 1);
  setun_error err = {SETUN_OK, ""};
  if (st_file_read(&g->directory->parts[t->part], t->offset, bytes, t->bytes, &err)) fail_msg("%s", err.message);
  *n = (size_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
  if (width) *width = (size_t)t->dims[0];
  return bytes;
}

// An I64 tensor as token ids.
static inline setun_token *golden_ids(const golden *g, const char *name, size_t *n) {
  int64_t *wide = golden_read(g, name, "I64", n, NULL);
  setun_token *ids = st_malloc(*n, sizeof *ids);
  for (size_t i = 0; i < *n; i++) ids[i] = (setun_token)wide[i];
  st_free(wide);
  return ids;
}

#endif
