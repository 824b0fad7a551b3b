// Copying a matrix's rows from their files to the device.
#ifndef SETUN_PLACEMENT_COPY_H
#define SETUN_PLACEMENT_COPY_H

#include "base/pool.h"
#include "model/supply.h"
#include "source/weight.h"

// A copy's source and target: a matrix of the weight's shape and of `format`, the weight's own or, for latent floats,
// that of the trits they become.
typedef struct st_copy {
  const st_backend *backend;
  const st_device *device;
  const st_directory *directory;
  const st_weight *weight;
  const st_format *format;
  st_dmatrix *matrix;
} st_copy;

// Creates the matrix that a weight is copied to.
st_matrix_desc st_copy_desc(const st_weight *weight, const st_format *format, st_precision precision,
                            st_ownership ownership);

// Errors name the weight.
setun_status st_copy_matrix(const st_copy *copy, st_pool *pool, setun_error *err);

// Copies single rows of a matrix on request into a small matrix of the same format, identical to those in the whole
// one. `copy->matrix` is not used; everything else that it points to, except the weight, must outlive the object. One
// thread at a time. Freed with st_row_copy_free, which accepts NULL.
typedef struct st_row_copy st_row_copy;
setun_status st_row_copy_new(const st_copy *copy, st_device *device, st_precision precision, st_row_copy **rows,
                             setun_error *err);
void st_row_copy_free(st_row_copy *rows);
// Copies rows ids[0] to ids[n - 1], at most ST_SUPPLY_ROWS, to rows 0 to n - 1 of *matrix.
setun_status st_row_copy_read(st_row_copy *rows, const int32_t *ids, uint32_t n, const st_dmatrix **matrix,
                              setun_error *err);
// The approximate memory that it takes.
uint64_t st_row_copy_bytes(const st_backend *backend, const st_device *device, const st_weight *weight,
                           const st_format *format, st_precision precision);

// The memory that one thread of st_copy_matrix takes; the copy's directory and matrix are not used.
uint64_t st_copy_bytes(const st_copy *copy);

#endif
