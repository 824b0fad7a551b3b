// Copying weights to the device, the threads sharing each matrix's rows.
#include "model/load.h"

#include "base/memory.h"

#include <stdatomic.h>
#include <stdio.h>

// Reads a vector of `n` floats, adding one to each where the file stores norms that way.
setun_status st_read_vector(st_loader *l, const st_weight *w, bool plus_one, float **out) {
  size_t n = (size_t)w->shape.columns;
  float *values = st_malloc(n, sizeof *values);
  if (!values) return st_fail_memory(l->err, w->name);
  st_row_reader r;
  setun_status s = st_row_reader_open(l->d, w, &r, l->err);
  if (s == SETUN_OK) {
    s = st_read_floats(&r, 0, 1, values, l->err);
    st_row_reader_close(&r);
  }
  for (size_t i = 0; i < n && plus_one; i++) values[i] += 1;
  if (s == SETUN_OK) {
    *out = values;
    l->m->n_params += n;
  } else {
    st_free(values);
  }
  return s;
}

setun_status st_place_floats(st_loader *l, const float *values, size_t n, st_dvector **out) {
  setun_status s = l->m->backend->vector_new(l->m->device, values, n, out, l->err);
  if (s == SETUN_OK) l->m->weight_bytes += n * sizeof(float);
  return s;
}

setun_status st_place_vector(st_loader *l, const st_weight *w, bool plus_one, st_dvector **out) {
  float *values = NULL;
  setun_status s = st_read_vector(l, w, plus_one, &values);
  if (s == SETUN_OK) s = st_place_floats(l, values, (size_t)w->shape.columns, out);
  if (s == SETUN_OK) l->m->bytes_per_token += w->shape.columns * sizeof(float);
  st_free(values);
  return s;
}

// The copying of one matrix, shared by the threads: each takes runs of rows until none is left.
typedef struct {
  st_loader *l;
  const st_weight *w;
  const st_format *format;
  st_rows kind;
  bool strips; // whole groups of 16 rows go as the file's bytes, what is left of them as `kind`
  st_dmatrix *matrix;
  uint64_t run; // rows taken at once, a multiple of 16
  atomic_ullong next;
  atomic_bool failed;
  setun_error error; // of the first thread that failed
} copy_job;

static size_t scales_a_row(const copy_job *j) {
  if (j->kind != ST_ROWS_TRITS) return 0;
  return j->format->scales == ST_SCALE_BLOCK ? (size_t)st_format_row_scales(j->format, j->w->shape.columns) : 1;
}

static size_t row_bytes(const copy_job *j) {
  size_t columns = (size_t)j->w->shape.columns;
  if (j->kind == ST_ROWS_TRITS) return columns;
  if (j->kind == ST_ROWS_FLOAT) return columns * sizeof(float);
  return (size_t)st_format_row_bytes(j->format, j->w->shape.columns);
}

static setun_status copy_strips(copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, float *scales,
                                setun_error *err) {
  while (n) {
    st_strip strip;
    const void *bytes;
    setun_status s = st_read_strip(r, row, n, &strip, &bytes, scales, err);
    if (s != SETUN_OK) return s;
    j->l->m->backend->matrix_write_strip(j->matrix, row, j->w->stored, &strip, bytes, scales);
    row += strip.count;
    n -= strip.count;
  }
  return SETUN_OK;
}

static setun_status copy_run(copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, void *rows, float *scales,
                             setun_error *err) {
  setun_status s;
  if (j->strips && n >= 16) {
    uint64_t whole = n / 16 * 16;
    s = copy_strips(j, r, row, whole, scales, err);
    row += whole;
    n -= whole;
    if (s != SETUN_OK || !n) return s;
  }
  if (j->kind == ST_ROWS_TRITS) {
    s = st_read_trits(r, row, n, rows, scales, err);
  } else if (j->kind == ST_ROWS_BYTES) {
    s = st_read_bytes(r, row, n, rows, err);
  } else {
    s = st_read_floats(r, row, n, rows, err);
  }
  if (s == SETUN_OK) j->l->m->backend->matrix_write(j->matrix, row, n, rows, scales);
  return s;
}

static void copy_part(void *context, int index, int threads) {
  copy_job *j = context;
  (void)index, (void)threads;
  setun_error error = {SETUN_OK, ""};
  size_t n_scales = scales_a_row(j);
  void *rows = st_malloc((size_t)j->run, row_bytes(j));
  float *scales = n_scales ? st_malloc((size_t)j->run * n_scales, sizeof *scales) : NULL;
  st_row_reader reader;
  setun_status s = rows && (scales || !n_scales) ? st_row_reader_open(j->l->d, j->w, &reader, &error)
                                                 : st_fail_memory(&error, j->w->name);
  if (s == SETUN_OK) {
    while (s == SETUN_OK && !atomic_load(&j->failed)) {
      uint64_t row = atomic_fetch_add(&j->next, j->run);
      if (row >= j->w->shape.rows) break;
      uint64_t left = j->w->shape.rows - row;
      s = copy_run(j, &reader, row, left < j->run ? left : j->run, rows, scales, &error);
    }
    st_row_reader_close(&reader);
  }
  if (s != SETUN_OK && !atomic_exchange(&j->failed, true)) j->error = error;
  st_free(rows);
  st_free(scales);
}

static setun_status report(st_loader *l, const st_weight *w) {
  l->bytes_done += w->data->bytes / w->stored.rows * w->shape.rows; // of a stack, one expert's
  double fraction = l->bytes_total ? (double)l->bytes_done / (double)l->bytes_total : 1;
  if (l->o->progress && !l->o->progress(fraction < 1 ? fraction : 1, l->o->user)) {
    return st_fail(l->err, SETUN_ERROR_CANCELED, "loading was canceled");
  }
  return SETUN_OK;
}

setun_status st_place_matrix(st_loader *l, const st_weight *w, bool exact, st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  enum { RUN_BYTES = 1 << 20 };
  // Latent floats are ternary by the time they are read.
  copy_job j = {.l = l, .w = w, .format = w->latent ? st_format_get(ST_HF_U8) : w->format};
  st_precision precision = l->o->precise || exact ? ST_PRECISION_FLOAT : ST_PRECISION_FAST;
  if (l->m->h.int8 && !exact && st_format_is_ternary(j.format)) precision = ST_PRECISION_INT8;
  bool quantized = j.format->block > 1 || st_format_is_ternary(j.format);
  if (precision == ST_PRECISION_FAST && quantized) l->m->fast = true;
  setun_status s = b->matrix_new(l->m->device, j.format, w->shape, precision, &j.matrix, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, "%s", w->name);
  j.kind = b->rows_wanted(l->m->device, j.format);
  j.strips = st_weight_has_strips(w) && w->first_row % 16 == 0 && b->takes_strips &&
             b->takes_strips(l->m->device, j.format, w->stored);
  j.run = RUN_BYTES / (row_bytes(&j) + 1) / 16 * 16;
  if (j.run > w->shape.rows) j.run = (w->shape.rows + 15) / 16 * 16;
  if (j.run < 16) j.run = 16;
  atomic_init(&j.next, 0);
  atomic_init(&j.failed, false);
  st_pool_run(l->pool, copy_part, &j);
  if (atomic_load(&j.failed)) {
    if (l->err) *l->err = j.error;
    b->matrix_free(j.matrix);
    return j.error.code;
  }
  *out = j.matrix;
  l->m->n_params += w->shape.rows * w->shape.columns;
  l->m->weight_bytes += b->matrix_bytes(j.matrix);
  return report(l, w);
}

// A vector that belongs to a module; nothing when there is none.
static setun_status place_beside(st_loader *l, const char *module, const char *what, uint64_t n, st_dvector **out) {
  char name[ST_NAME_SIZE + 24];
  st_weight w;
  bool found = false;
  snprintf(name, sizeof name, "%s.%s", module, what);
  if (!st_directory_find(l->d, name)) return SETUN_OK;
  setun_status s = st_weight_find(l->d, name, (st_shape){1, n}, &found, &w, l->err);
  if (s != SETUN_OK || !found) return s;
  st_mark_used(l, &w);
  return st_place_vector(l, &w, false, out);
}

setun_status st_place_linear(st_loader *l, const char *module, const st_weight *w, bool exact, st_linear *out) {
  setun_status s = st_place_matrix(l, w, exact, &out->matrix);
  if (s == SETUN_OK) s = place_beside(l, module, "bias", w->shape.rows, &out->bias);
  if (s == SETUN_OK) s = place_beside(l, module, "rms_norm.weight", w->shape.columns, &out->norm);
  out->columns = (uint32_t)w->shape.columns;
  if (out->norm && out->columns > l->m->max_normed_columns) l->m->max_normed_columns = out->columns;
  return s;
}
