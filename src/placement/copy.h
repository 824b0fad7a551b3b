// Copying a matrix's rows from their files to the device.
#ifndef SETUN_PLACEMENT_COPY_H
#define SETUN_PLACEMENT_COPY_H

#include "base/pool.h"
#include "model/supply.h"
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

// The matrix that a weight is copied to.
st_matrix_desc st_copy_desc(const st_weight *weight, const st_format *format, st_precision precision,
                            st_ownership ownership);

// Errors name the weight.
setun_status st_copy_matrix(const st_copy *copy, st_pool *pool, setun_error *err);

// Single rows of a matrix, copied when they are asked for into a small matrix of the same format: as they would stand
// in the whole one. `copy->matrix` is not used; what the rest of it points to must outlive the rows, the weight
// excepted. One thread at a time. Freed with st_row_copy_free, which accepts NULL.
typedef struct st_row_copy st_row_copy;
setun_status st_row_copy_new(const st_copy *copy, st_device *device, st_precision precision, st_row_copy **rows,
                             setun_error *err);
void st_row_copy_free(st_row_copy *rows);
// Rows ids[0] to ids[n - 1], at most ST_SUPPLY_ROWS of them, become rows 0 to n - 1 of *matrix.
setun_status st_row_copy_read(st_row_copy *rows, const int32_t *ids, uint32_t n, const st_dmatrix **matrix,
                              setun_error *err);
// About what all of that takes.
uint64_t st_row_copy_bytes(const st_backend *backend, const st_device *device, const st_weight *weight,
                           const st_format *format, st_precision precision);

// What one thread of st_copy_matrix takes while it copies; the copy's directory and matrix are not looked at.
uint64_t st_copy_bytes(const st_copy *copy);

#endif
