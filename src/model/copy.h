// Copying a matrix's rows from their files to the device.
#ifndef SETUN_MODEL_COPY_H
#define SETUN_MODEL_COPY_H

#include "backend/backend.h"
#include "base/pool.h"
#include "source/weight.h"

// What is copied, and where to: a matrix of the weight's shape and of `format`, which is the weight's own or, for
// latent floats, that of the trits that they become.
typedef struct st_copy {
  const st_backend *backend;
  const st_device *device;
  const st_directory *directory;
  const st_weight *weight;
  const st_format *format;
  st_dmatrix *matrix;
} st_copy;

// Errors name the weight.
setun_status st_copy_matrix(const st_copy *copy, st_pool *pool, setun_error *err);

// About what one thread takes at most for matrices of up to `weights` weights.
uint64_t st_copy_bytes(uint64_t weights);

#endif
