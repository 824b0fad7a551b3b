// Copying a matrix's rows to the device with several threads.
#include "placement/copy.h"

#include "base/memory.h"

#include <stdatomic.h>

enum { RUN_BYTES = 1 << 20 };

// Shared by the threads; each takes runs of rows until none are left.
typedef struct {
  const st_copy *c;
  const st_weight *w;
  const st_format *format;
  st_rows kind;
  uint64_t unit; // granularity of rows on the device
  bool strips;   // whole units are copied as the file's bytes, the remainder as `kind`
  uint64_t run;  // rows taken at once, a multiple of `unit`
  atomic_ullong next;
  atomic_bool failed;
  setun_error error; // the error of the first thread that failed
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
    const st_matrix_rows rows = {.row = row, .count = strip.count, .data = bytes, .strip = &strip, .scales = scales};
    s = j->c->backend->matrix_write(j->c->matrix, &rows, err);
    if (s != SETUN_OK) return s;
    row += strip.count;
    n -= strip.count;
  }
  return SETUN_OK;
}

static setun_status copy_run(copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, void *rows, float *scales,
                             setun_error *err) {
  setun_status s;
  if (j->strips && n >= j->unit) {
    uint64_t whole = n / j->unit * j->unit;
    s = copy_strips(j, r, row, whole, scales, err);
    row += whole;
    n -= whole;
    if (s != SETUN_OK || !n) return s;
  }
  s = read_rows(j, r, row, n, rows, scales, err);
  const st_matrix_rows written = {.row = row, .count = n, .data = rows, .scales = scales};
  return s == SETUN_OK ? j->c->backend->matrix_write(j->c->matrix, &written, err) : s;
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

st_matrix_desc st_copy_desc(const st_weight *w, const st_format *format, st_precision precision,
                            st_ownership ownership) {
  return (st_matrix_desc){.format = format,
                          .shape = w->shape,
                          .stored = st_weight_has_strips(w) ? w->stored : (st_shape){0, 0},
                          .precision = precision,
                          .ownership = ownership};
}

// The form of writes depends on neither precision nor ownership.
static copy_job job_of(const st_copy *c) {
  st_matrix_desc desc = st_copy_desc(c->weight, c->format, ST_PRECISION_FLOAT, ST_OWNED);
  st_matrix_info info = c->backend->matrix_info(c->device, &desc);
  copy_job j = {.c = c, .w = c->weight, .format = c->format, .kind = info.rows, .unit = info.row_unit};
  uint64_t rows = c->weight->shape.rows;
  j.strips = info.strips && j.w->first_row % j.unit == 0;
  j.run = RUN_BYTES / (row_bytes(&j) + 1) / j.unit * j.unit;
  if (j.run > rows) j.run = (rows + j.unit - 1) / j.unit * j.unit;
  if (j.run < j.unit) j.run = j.unit;
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
  copy_job job; // the form of the rows
  st_row_reader reader;
  st_dmatrix *matrix; // [ST_SUPPLY_ROWS, columns]
  void *codes;
  size_t codes_bytes;
  char *rows;
  float *scales;
};

static st_matrix_desc rows_desc(const st_weight *w, const st_format *format, st_precision precision) {
  return (st_matrix_desc){
      .format = format, .shape = {ST_SUPPLY_ROWS, w->shape.columns}, .precision = precision, .ownership = ST_BORROWED};
}

setun_status st_row_copy_new(const st_copy *c, st_device *device, st_precision precision, st_row_copy **rows,
                             setun_error *err) {
  const st_backend *b = c->backend;
  st_row_copy *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, c->weight->name);
  const st_matrix_desc desc = rows_desc(c->weight, c->format, precision);
  st_matrix_info info = b->matrix_info(device, &desc);
  r->backend = b;
  r->weight = *c->weight;
  r->job = (copy_job){.w = &r->weight, .format = c->format, .kind = info.rows, .unit = info.row_unit};
  r->codes_bytes = (size_t)info.codes;
  r->codes = st_pages_alloc(r->codes_bytes, false);
  r->rows = st_malloc(ST_SUPPLY_ROWS, row_bytes(&r->job));
  size_t n_scales = scales_a_row(&r->job);
  if (n_scales) r->scales = st_malloc(ST_SUPPLY_ROWS * n_scales, sizeof *r->scales);
  bool whole = r->codes && r->rows && (r->scales || !n_scales);
  setun_status s = whole ? SETUN_OK : st_fail_memory(err, c->weight->name);
  if (s == SETUN_OK) s = b->matrix_new(device, &desc, &r->matrix, err);
  if (s == SETUN_OK) s = st_row_reader_open(c->directory, &r->weight, &r->reader, err);
  if (s != SETUN_OK) {
    st_row_copy_free(r);
    return s;
  }
  b->matrix_borrow(r->matrix, r->codes);
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
  *matrix = r->matrix;
  return r->backend->matrix_write(r->matrix, &(st_matrix_rows){.count = n, .data = r->rows, .scales = r->scales}, err);
}

uint64_t st_row_copy_bytes(const st_backend *b, const st_device *device, const st_weight *w, const st_format *format,
                           st_precision precision) {
  uint64_t floats = w->shape.columns * sizeof(float), scales = w->scale ? w->shape.rows * sizeof(float) : 0;
  const st_matrix_desc desc = rows_desc(w, format, precision);
  return b->matrix_info(device, &desc).codes + scales + (ST_SUPPLY_ROWS + 32) * floats;
}

static st_reading reading_of(const copy_job *j) {
  if (j->strips) return ST_READ_STRIPS;
  if (j->kind == ST_ROWS_TRITS) return ST_READ_TRITS;
  return j->kind == ST_ROWS_BYTES ? ST_READ_BYTES : ST_READ_FLOATS;
}

uint64_t st_copy_bytes(const st_copy *c) {
  copy_job j = job_of(c);
  uint64_t scales = j.run * scales_a_row(&j) * sizeof(float);
  uint64_t rows = (j.strips ? j.unit - 1 : j.run) * row_bytes(&j); // with strips, only the last unit's
  return rows + scales + st_row_reader_bytes(c->weight, j.run, reading_of(&j));
}
