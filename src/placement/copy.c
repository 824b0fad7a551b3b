// Copying a matrix's rows to the device, the threads sharing them.
#include "placement/copy.h"

#include "base/memory.h"

#include <stdatomic.h>

enum { RUN_BYTES = 1 << 20 };

// Shared by the threads: each takes runs of rows until none is left.
typedef struct {
  const st_copy *c;
  const st_weight *w;
  const st_format *format;
  st_rows kind;
  bool strips;  // whole groups of 16 rows go as the file's bytes, what is left of them as `kind`
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

static setun_status read_rows(const copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, void *rows, float *scales,
                              setun_error *err) {
  if (j->kind == ST_ROWS_TRITS) return st_read_trits(r, row, n, rows, scales, err);
  if (j->kind == ST_ROWS_BYTES) return st_read_bytes(r, row, n, rows, err);
  return st_read_floats(r, row, n, rows, err);
}

static setun_status copy_strips(copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, float *scales,
                                setun_error *err) {
  while (n) {
    st_strip strip;
    const void *bytes;
    setun_status s = st_read_strip(r, row, n, &strip, &bytes, scales, err);
    if (s != SETUN_OK) return s;
    j->c->backend->matrix_write_strip(j->c->matrix, row, j->w->stored, &strip, bytes, scales);
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
  s = read_rows(j, r, row, n, rows, scales, err);
  if (s == SETUN_OK) j->c->backend->matrix_write(j->c->matrix, row, n, rows, scales);
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
  setun_status s = rows && (scales || !n_scales) ? st_row_reader_open(j->c->directory, j->w, &reader, &error)
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

static copy_job job_of(const st_copy *c) {
  copy_job j = {.c = c, .w = c->weight, .format = c->format, .kind = c->backend->rows_wanted(c->device, c->format)};
  uint64_t rows = c->weight->shape.rows;
  j.strips = st_weight_has_strips(j.w) && j.w->first_row % 16 == 0 && c->backend->takes_strips &&
             c->backend->takes_strips(c->device, c->format, j.w->stored);
  j.run = RUN_BYTES / (row_bytes(&j) + 1) / 16 * 16;
  if (j.run > rows) j.run = (rows + 15) / 16 * 16;
  if (j.run < 16) j.run = 16;
  return j;
}

setun_status st_copy_matrix(const st_copy *c, st_pool *pool, setun_error *err) {
  copy_job j = job_of(c);
  atomic_init(&j.next, 0);
  atomic_init(&j.failed, false);
  st_pool_run(pool, copy_part, &j);
  if (!atomic_load(&j.failed)) return SETUN_OK;
  if (err) *err = j.error;
  return j.error.code;
}

// ---- single rows --------------------------------------------------------------------------------------------------

struct st_row_copy {
  const st_backend *backend;
  st_weight weight;
  copy_job job; // what the rows look like
  st_row_reader reader;
  st_dmatrix *matrix; // [ST_SUPPLY_ROWS, columns]
  void *codes;
  size_t codes_bytes;
  char *rows;
  float *scales;
};

setun_status st_row_copy_new(const st_copy *c, st_device *device, st_precision precision, st_row_copy **rows,
                             setun_error *err) {
  const st_backend *b = c->backend;
  st_row_copy *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, c->weight->name);
  st_shape shape = {ST_SUPPLY_ROWS, c->weight->shape.columns};
  r->backend = b;
  r->weight = *c->weight;
  r->job = (copy_job){.w = &r->weight, .format = c->format, .kind = b->rows_wanted(device, c->format)};
  r->codes_bytes = (size_t)b->matrix_size(device, c->format, shape, precision).codes;
  r->codes = st_pages_alloc(r->codes_bytes, false);
  r->rows = st_malloc(ST_SUPPLY_ROWS, row_bytes(&r->job));
  size_t n_scales = scales_a_row(&r->job);
  if (n_scales) r->scales = st_malloc(ST_SUPPLY_ROWS * n_scales, sizeof *r->scales);
  bool whole = r->codes && r->rows && (r->scales || !n_scales);
  setun_status s = whole ? SETUN_OK : st_fail_memory(err, c->weight->name);
  if (s == SETUN_OK) s = b->matrix_new_lent(device, c->format, shape, precision, &r->matrix, err);
  if (s == SETUN_OK) s = st_row_reader_open(c->directory, &r->weight, &r->reader, err);
  if (s != SETUN_OK) {
    st_row_copy_free(r);
    return s;
  }
  b->matrix_lend(r->matrix, r->codes);
  *rows = r;
  return SETUN_OK;
}

void st_row_copy_free(st_row_copy *r) {
  if (!r) return;
  st_row_reader_close(&r->reader);
  if (r->matrix) r->backend->matrix_free(r->matrix);
  st_pages_free(r->codes, r->codes_bytes);
  st_free(r->rows);
  st_free(r->scales);
  st_free(r);
}

setun_status st_row_copy_read(st_row_copy *r, const int32_t *ids, uint32_t n, const st_dmatrix **matrix,
                              setun_error *err) {
  size_t bytes = row_bytes(&r->job), n_scales = scales_a_row(&r->job);
  for (uint32_t i = 0; i < n; i++) {
    float *scales = r->scales ? r->scales + i * n_scales : NULL;
    setun_status s = read_rows(&r->job, &r->reader, (uint64_t)ids[i], 1, r->rows + i * bytes, scales, err);
    if (s != SETUN_OK) return s;
  }
  r->backend->matrix_write(r->matrix, 0, n, r->rows, r->scales);
  *matrix = r->matrix;
  return SETUN_OK;
}

uint64_t st_row_copy_bytes(const st_backend *b, const st_device *device, const st_weight *w, const st_format *format,
                           st_precision precision) {
  uint64_t floats = w->shape.columns * sizeof(float), scales = w->scale ? w->shape.rows * sizeof(float) : 0;
  return b->matrix_size(device, format, (st_shape){ST_SUPPLY_ROWS, w->shape.columns}, precision).codes + scales +
         (ST_SUPPLY_ROWS + 32) * floats;
}

static st_reading reading_of(const copy_job *j) {
  if (j->strips) return ST_READ_STRIPS;
  if (j->kind == ST_ROWS_TRITS) return ST_READ_TRITS;
  return j->kind == ST_ROWS_BYTES ? ST_READ_BYTES : ST_READ_FLOATS;
}

uint64_t st_copy_bytes(const st_copy *c) {
  copy_job j = job_of(c);
  uint64_t scales = j.run * scales_a_row(&j) * sizeof(float);
  uint64_t rows = (j.strips ? 15 : j.run) * row_bytes(&j); // in strips only those of the last group
  return rows + scales + st_row_reader_bytes(c->weight, j.run, reading_of(&j));
}
