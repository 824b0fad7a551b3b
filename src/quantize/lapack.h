// The three functions of BLAS and LAPACK that calibration needs. The system's library is loaded when they are first
// needed, not when the program starts: it takes tens of megabytes and starts threads.
#ifndef SETUN_QUANTIZE_LAPACK_H
#define SETUN_QUANTIZE_LAPACK_H

#include "base/error.h"

typedef struct st_lapack {
  // As in Fortran: matrices column by column.
  void (*ssyrk)(const char *uplo, const char *trans, const int *n, const int *k, const float *alpha, const float *a,
                const int *lda, const float *beta, float *c, const int *ldc);
  void (*spotrf)(const char *uplo, const int *n, float *a, const int *lda, int *info);
  void (*spotri)(const char *uplo, const int *n, float *a, const int *lda, int *info);
} st_lapack;

// Fails if the system has no such library; the message lists the names that were tried. It stays loaded, with its
// threads.
setun_status st_lapack_load(st_lapack *lapack, setun_error *err);

#endif
