// Rounding: each weight becomes the nearest code, or what calibration found for it.
#include "base/memory.h"
#include "quant/fit.h"
#include "quantize/calibrate.h"

#include <stdatomic.h>
#include <string.h>

static const st_format *format_of(void *context, const char *name, st_shape shape) {
  (void)shape;
  return st_recipe_format(((st_rounding *)context)->recipe, name);
}

static bool origin(void *context, const char *name, char *text, size_t size) {
  return st_recipe_origin(((st_rounding *)context)->recipe, name, text, size);
}

typedef struct {
  const st_format *format;
  uint64_t rows, columns, row_bytes;
  const float *x;
  uint8_t *bytes;
  // of ternary formats, instead of `bytes`
  int8_t *trits;
  float *scales;
  atomic_bool failed;
} encode_job;

static void encode_part(void *context, int index, int threads) {
  const encode_job *j = context;
  size_t first, last;
  st_pool_share((size_t)j->rows, 1, index, threads, &first, &last);
  if (first == last) return;
  st_fit_rows(j->format, last - first, j->columns, j->x + first * j->columns, NULL, j->bytes + first * j->row_bytes);
}

static setun_status encode(void *context, const char *name, st_shape shape, const st_format *format, uint64_t row,
                           uint64_t count, const float *x, void *bytes, setun_error *err) {
  const st_rounding *r = context;
  bool found = false;
  setun_status s = SETUN_OK;
  if (r->calibrated) s = st_calibrated_rows(r->calibrated, name, row, count, bytes, &found, err);
  if (s != SETUN_OK || found) return s;
  encode_job j = {.format = format, .rows = count, .columns = shape.columns, .x = x, .bytes = bytes};
  j.row_bytes = st_format_row_bytes(format, shape.columns);
  st_pool_run(r->pool, encode_part, &j);
  return SETUN_OK;
}

static void ternary_part(void *context, int index, int threads) {
  encode_job *j = context;
  size_t first, last, per_row = (size_t)(j->columns / st_ternary_group(j->format, j->columns));
  st_pool_share((size_t)j->rows, 1, index, threads, &first, &last);
  st_magnitude *room = st_malloc((size_t)j->columns, sizeof *room);
  if (!room) atomic_store(&j->failed, true);
  for (size_t i = first; i < last && room; i++) {
    st_ternary_row(j->format, j->columns, j->x + i * j->columns, NULL, room, j->trits + i * j->columns,
                   j->scales + i * per_row);
  }
  st_free(room);
}

static setun_status ternary(void *context, const char *name, st_shape shape, const st_format *format, uint64_t row,
                            uint64_t count, const float *x, int8_t *trits, float *scales, setun_error *err) {
  st_rounding *r = context;
  bool found = false;
  setun_status s = SETUN_OK;
  if (r->calibrated) s = st_calibrated_trits(r->calibrated, name, row, count, trits, scales, &found, err);
  if (s != SETUN_OK || found) return s;
  encode_job j = {.format = format, .rows = count, .columns = shape.columns, .x = x, .trits = trits, .scales = scales};
  atomic_init(&j.failed, false);
  st_pool_run(r->pool, ternary_part, &j);
  if (atomic_load(&j.failed)) return st_fail_memory(err, name);
  st_ternary_loss_add(&r->loss, name, format, count, shape.columns, x, trits, scales);
  return SETUN_OK;
}

static setun_status judge(void *context, setun_error *err) {
  st_rounding *r = context;
  return st_ternary_loss_judge(&r->loss, r->force, r->log, err);
}

static setun_status chosen(void *context, setun_error *err) {
  return st_recipe_check(((const st_rounding *)context)->recipe, err);
}

st_quantizer st_rounding_quantizer(st_rounding *rounding) {
  return (st_quantizer){.context = rounding,
                        .format = format_of,
                        .origin = origin,
                        .chosen = chosen,
                        .encode = encode,
                        .ternary = ternary,
                        .judge = judge};
}
