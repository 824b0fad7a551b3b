// Lists of a run's arrays.
#include "model/run_arrays.h"

setun_status st_run_arrays_new(const st_run *r, const st_run_array *list, size_t n, setun_error *err) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    if (list[i].tokens) s = r->model->backend->array_new(r->queue, list[i].tokens, list[i].width, list[i].array, err);
  }
  return s;
}

void st_run_arrays_free(const st_run *r, const st_run_array *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (*list[i].array) r->model->backend->array_free(*list[i].array);
  }
}
