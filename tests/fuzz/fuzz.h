// What the fuzz targets of containers share: bytes as a file, and everything that can be read from a directory.
#ifndef SETUN_TESTS_FUZZ_H
#define SETUN_TESTS_FUZZ_H

#include "base/memory.h"
#include "source/weight.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What must hold of every directory; breaking it is a finding.
static void fuzz_check(const st_directory *d) {
  for (size_t i = 0; i < d->n_tensors; i++) {
    const st_tensor *t = &d->tensors[i];
    if (t->part >= d->n_parts || t->offset > d->parts[t->part].size || t->bytes > d->parts[t->part].size - t->offset ||
        t->n_dims < 1 || t->n_dims > 4 || !st_tensor_elements(t) || st_directory_find(d, t->name) != t) {
      abort();
    }
  }
}

static void fuzz_read(const st_directory *d, const char *module, st_shape shape) {
  enum { MOST = 1 << 16 };
  st_weight w;
  st_row_reader r;
  setun_error err;
  bool found = false;
  if (st_weight_find(d, module, shape, &found, &w, &err) != SETUN_OK || !found) return;
  if (w.shape.columns > MOST || st_row_reader_open(d, &w, &r, &err) != SETUN_OK) return;
  float *x = st_malloc((size_t)w.shape.columns, sizeof *x), *scales = st_malloc((size_t)w.shape.columns, sizeof *x);
  int8_t *trits = st_malloc((size_t)w.shape.columns, 1);
  if (!x || !scales || !trits) abort();
  for (uint64_t row = 0; row < w.shape.rows && row < 64; row++) {
    st_read_floats(&r, row, 1, x, &err);
    if (st_weight_is_ternary(&w)) st_read_trits(&r, row, 1, trits, scales, &err);
  }
  if (w.shape.rows > 1) st_read_floats(&r, w.shape.rows - 1, 1, x, &err);
  st_free(x);
  st_free(scales);
  st_free(trits);
  st_row_reader_close(&r);
}

// Opens `path` and reads what is there, each tensor by its name and as a module's weight.
static inline void fuzz_open(const char *path) {
  setun_error err;
  st_directory *d = NULL;
  if (st_directory_open(path, NULL, &d, &err) != SETUN_OK) {
    if (!err.message[0] || strchr(err.message, '\n')) abort();
    return;
  }
  fuzz_check(d);
  for (size_t i = 0; i < d->n_tensors && i < 64; i++) {
    char name[512];
    fuzz_read(d, d->tensors[i].name, (st_shape){0, 0});
    snprintf(name, sizeof name, "%s", d->tensors[i].name);
    char *weight = strstr(name, ".weight");
    if (weight) *weight = '\0';
    fuzz_read(d, name, (st_shape){0, 0});
  }
  for (size_t i = 0; i < d->metadata.count; i++) {
    st_buffer b = {0};
    st_meta_print(&d->metadata.items[i], &b, &err);
    st_buffer_free(&b);
  }
  st_directory_free(d);
}

// Writes a file, replacing an existing one.
static inline void fuzz_write(const char *path, const void *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  close(fd);
}

static char fuzz_made[32]; // the folder, once it is made

static int fuzz_remove(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(path);
}
static void fuzz_clean(void) {
  nftw(fuzz_made, fuzz_remove, 8, FTW_DEPTH | FTW_PHYS);
}

// A folder of this process's own, made at the first call, in memory if the system has such a place; it stays after a
// finding.
static inline const char *fuzz_folder(void) {
  if (fuzz_made[0]) return fuzz_made;
  strcpy(fuzz_made, "/dev/shm/setun-fuzz-XXXXXX");
  if (!mkdtemp(fuzz_made)) strcpy(fuzz_made, "/tmp/setun-fuzz-XXXXXX");
  if (strstr(fuzz_made, "XXXXXX") && !mkdtemp(fuzz_made)) abort();
  if (atexit(fuzz_clean)) abort();
  return fuzz_made;
}

// Opens the bytes as one file of that name.
static inline void fuzz_file(const char *name, const uint8_t *data, size_t size) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
  fuzz_write(path, data, size);
  fuzz_open(path);
}

#endif
