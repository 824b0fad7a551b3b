// Writes float32 tensors, in any order, as a safetensors file that appears completely or not at all.
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
  const char *path;                                   // owned by the caller
  uint64_t start[TENSORS_MOST], floats[TENSORS_MOST]; // per tensor: its offset in the file, its size
} tensor_file;

// Begins a file next to `path` with its header; all sizes are known. False after a report, leaving nothing. After
// success end with tensor_commit or tensor_discard.
bool tensor_create(const char *path, const tensor_spec *specs, int n, tensor_file *file);
// Writes `n` floats of a tensor from its element `first` on. False after a report.
bool tensor_write(tensor_file *file, int tensor, uint64_t first, const float *values, size_t n);
// Renames the file to its path. False after a report; the file is then removed and the path unchanged.
bool tensor_commit(tensor_file *file);
// Removes what was written; does nothing after a commit.
void tensor_discard(tensor_file *file);

#endif
