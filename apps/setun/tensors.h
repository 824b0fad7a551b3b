// Writes float32 tensors as a safetensors file, in any order, that appears whole or not at all.
#ifndef SETUN_APP_TENSORS_H
#define SETUN_APP_TENSORS_H

#include "setun.h"

typedef struct tensor_spec {
  const char *name;
  int n_dims;
  uint64_t dims[4]; // slowest first
} tensor_spec;

enum { TENSORS_MOST = 2 };

typedef struct tensor_file {
  setun_output *output;                               // NULL: closed
  const char *path;                                   // the caller's
  uint64_t start[TENSORS_MOST], floats[TENSORS_MOST]; // of each tensor: its offset in the file, its size
} tensor_file;

// Begins a file beside `path` with its header, all sizes known. False after a report; nothing is left then. After
// success one of tensor_commit and tensor_discard ends it.
bool tensor_create(const char *path, const tensor_spec *specs, int n, tensor_file *file);
// Writes `n` floats of a tensor from its element `first` on. False after a report.
bool tensor_write(tensor_file *file, int tensor, uint64_t first, const float *values, size_t n);
// Renames the file to its path. False after a report; the file is gone then, and the path as it was.
bool tensor_commit(tensor_file *file);
// Removes what was written; nothing after a commit.
void tensor_discard(tensor_file *file);

#endif
