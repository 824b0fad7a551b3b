// Lists of a run's arrays: each part of the forward pass lists its own once, and allocates and frees them by the list.
#ifndef SETUN_MODEL_RUN_ARRAYS_H
#define SETUN_MODEL_RUN_ARRAYS_H

#include "model/forward.h"

// `array` becomes an array of `tokens` x `width` floats; tokens 0: it is not needed.
typedef struct st_run_array {
  st_array **array;
  size_t tokens, width;
} st_run_array;

// On failure some of them may be allocated: they are freed in any case.
setun_status st_run_arrays_new(const st_run *r, const st_run_array *list, size_t n, setun_error *err);
// Frees those that are not NULL; sizes are not used.
void st_run_arrays_free(const st_run *r, const st_run_array *list, size_t n);

#endif
