// GPTQ and SparseGPT, see compensate.h.
#include "quantize/compensate.h"

#include "base/float16.h"
#include "base/memory.h"
#include "quant/fit.h"
#include "quant/s24.h"
#include "quantize/ternary.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ---- sums of inputs -----------------------------------------------------------------------------------------------

setun_status st_hessian_new(st_hessian *h, uint32_t n, setun_error *err) {
  size_t all;
  *h = (st_hessian){.n = n};
  h->sums = st_mul_size(n, n, &all) ? st_calloc(all, sizeof *h->sums) : NULL;
  return h->sums ? SETUN_OK : st_fail_memory(err, "the sums of a matrix's inputs");
}

void st_hessian_free(st_hessian *h) {
  st_free(h->sums);
  *h = (st_hessian){0};
}

// Rows here are Fortran's columns, and the upper triangle its lower one.
void st_hessian_add(st_hessian *h, const st_lapack *l, const float *inputs, uint32_t tokens) {
  const int n = (int)h->n, k = (int)tokens;
  const float one = 1;
  l->ssyrk("L", "N", &n, &k, &one, inputs, &n, &one, h->sums, &n);
  h->tokens += tokens;
}

static float sum_at(const st_hessian *h, uint32_t i, uint32_t j) {
  return i < j ? h->sums[(size_t)i * h->n + j] : h->sums[(size_t)j * h->n + i];
}

// ---- the factor ---------------------------------------------------------------------------------------------------

typedef struct {
  float size;
  uint32_t column;
} ranked;

static int by_size(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->size != y->size) return x->size > y->size ? -1 : 1;
  return x->column < y->column ? -1 : 1;
}

static setun_status order_columns(const st_hessian *h, bool ordered, st_compensation *c, setun_error *err) {
  ranked *list = st_malloc(h->n, sizeof *list);
  if (!list) return st_fail_memory(err, "the order of a matrix's columns");
  for (uint32_t i = 0; i < h->n; i++) list[i] = (ranked){sum_at(h, i, i), i};
  if (ordered) qsort(list, h->n, sizeof *list, by_size);
  for (uint32_t i = 0; i < h->n; i++) c->order[i] = list[i].column;
  st_free(list);
  return SETUN_OK;
}

// The sums in the columns' order, their diagonal raised by `damping` so that they have an inverse. An input that is
// always 0 counts as independent of the others.
static void fill(const st_hessian *h, st_compensation *c, float damping) {
  uint32_t n = h->n;
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t j = i; j < n; j++) c->factor[(size_t)i * n + j] = sum_at(h, c->order[i], c->order[j]);
    float *diagonal = &c->factor[(size_t)i * n + i];
    *diagonal = *diagonal > 0 ? *diagonal + damping : damping;
  }
}

// False: not positive definite.
static bool factorize(const st_lapack *l, st_compensation *c) {
  const int n = (int)c->n;
  int info = 0;
  l->spotrf("L", &n, c->factor, &n, &info);
  if (!info) l->spotri("L", &n, c->factor, &n, &info);
  if (!info) l->spotrf("L", &n, c->factor, &n, &info);
  for (uint32_t i = 0; i < c->n && !info; i++) {
    float d = c->factor[(size_t)i * c->n + i];
    if (!(d > 0) || !isfinite(d)) info = 1;
  }
  return !info;
}

setun_status st_compensation_new(const st_hessian *h, const st_lapack *l, bool ordered, st_compensation *c,
                                 setun_error *err) {
  size_t n = h->n;
  double sum = 0;
  *c = (st_compensation){.n = h->n};
  c->order = st_malloc(n, sizeof *c->order);
  c->importance = st_malloc(n, sizeof *c->importance);
  c->factor = st_malloc(n * n, sizeof *c->factor);
  if (!c->order || !c->importance || !c->factor) return st_fail_memory(err, "the inverse of a matrix's inputs");
  for (uint32_t i = 0; i < n; i++) sum += (double)(c->importance[i] = sum_at(h, i, i));
  if (!isfinite(sum)) return st_fail(err, SETUN_ERROR_FORMAT, "expected finite inputs, found an infinity or NaN");
  double mean = sum > 0 ? sum / (double)n : 1;
  for (uint32_t i = 0; i < n; i++) c->importance[i] = (float)((double)c->importance[i] / mean) + 1e-6f;
  setun_status s = order_columns(h, ordered, c, err);
  for (double damping = 0.01; s == SETUN_OK && damping <= 1; damping *= 10) {
    fill(h, c, (float)(damping * mean));
    if (factorize(l, c)) return SETUN_OK;
  }
  return s != SETUN_OK ? s : st_fail(err, SETUN_ERROR_FORMAT, "the sums of its inputs' products have no inverse");
}

void st_compensation_free(st_compensation *c) {
  st_free(c->order);
  st_free(c->importance);
  st_free(c->factor);
  *c = (st_compensation){0};
}

// ---- integers with zero points ------------------------------------------------------------------------------------

static float clamped(float code, float most) {
  return !(code > 0) ? 0 : code < most ? code : most;
}

// Distributes the error of column i over the columns after it.
static void spread(const st_compensation *c, uint32_t i, float miss, float *work) {
  const float *u = c->factor + (size_t)i * c->n;
  float error = miss / u[i];
  for (uint32_t j = i + 1; j < c->n; j++) work[j] -= error * u[j];
}

void st_compensate_row(const st_compensation *c, const st_group_scales *s, const float *row, float *work,
                       uint8_t *codes) {
  for (uint32_t i = 0; i < c->n; i++) work[i] = row[c->order[i]];
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t column = c->order[i], g = column / s->group;
    float d = s->d[g], zero = (float)s->zero[g];
    float code = clamped(rintf(d != 0 ? work[i] / d : 0) + zero, (float)s->most);
    codes[column] = (uint8_t)code;
    spread(c, i, work[i] - (code - zero) * d, work);
  }
}

// A thread's memory for one row.
typedef struct {
  float *work, *d;
  int *zero;
  uint8_t *codes;
  st_magnitude *sizes;
} row_room;

static void zero_points(const st_compensation *c, const st_format *f, const float *row, const row_room *room,
                        uint8_t *bytes) {
  uint32_t groups = c->n / f->block;
  st_group_scales s = {room->d, room->zero, f->block, (1 << st_zp_bits(f)) - 1};
  for (uint32_t g = 0; g < groups; g++) {
    uint16_t half =
        st_fit_zero_point(row + g * f->block, c->importance + g * f->block, (int)f->block, s.most, 0, &room->zero[g]);
    room->d[g] = st_f32_from_f16(half);
  }
  st_compensate_row(c, &s, row, room->work, room->codes);
  for (uint32_t g = 0; g < groups; g++, bytes += f->block_bytes) {
    st_zp_store(f, st_f16_from_f32(room->d[g]), room->zero[g], room->codes + g * f->block, bytes);
  }
}

// ---- trits --------------------------------------------------------------------------------------------------------

// Integers from 0 to 2 with a zero point of 1.
static void trits(const st_compensation *c, const st_format *f, const float *row, const row_room *room,
                  uint8_t *bytes) {
  uint32_t group = (uint32_t)st_ternary_group(f, c->n), groups = c->n / group;
  const st_group_scales s = {room->d, room->zero, group, 2};
  st_ternary_row(f, c->n, row, c->importance, room->sizes, (int8_t *)room->codes, room->d);
  for (uint32_t g = 0; g < groups; g++) room->zero[g] = 1;
  st_compensate_row(c, &s, row, room->work, room->codes);
  memcpy(bytes, room->d, groups * sizeof *room->d);
  bytes += groups * sizeof *room->d;
  for (uint32_t i = 0; i < c->n; i++) bytes[i] = (uint8_t)(room->codes[i] - 1);
}

// ---- two of four --------------------------------------------------------------------------------------------------

// The two of four columns whose removal would change most: by their squares over the inverse's diagonal.
static void keep_two(const st_compensation *c, uint32_t i, const float *work, bool kept[4]) {
  float missed[4];
  for (uint32_t j = 0; j < 4; j++) {
    float u = c->factor[(size_t)(i + j) * c->n + i + j];
    missed[j] = work[i + j] * work[i + j] / (u * u);
  }
  unsigned nibble = st_s24_choose(missed);
  for (unsigned j = 0; j < 4; j++) kept[j] = j == (nibble & 3) || j == nibble >> 2;
}

// A block's scale is chosen when its columns are reached, from their compensated values.
static void two_of_four(const st_compensation *c, const st_format *f, const float *row, const row_room *room,
                        uint8_t *bytes) {
  bool kept[4] = {false};
  float d = 0;
  memcpy(room->work, row, c->n * sizeof *row);
  for (uint32_t i = 0; i < c->n; i++) {
    if (i % f->block == 0) d = st_s24_scale(f, room->work + i, c->importance + i);
    if (i % 4 == 0) keep_two(c, i, room->work, kept);
    float value = 0;
    room->codes[i] = kept[i % 4] ? st_s24_code(f, room->work[i], d, &value) : 0;
    spread(c, i, room->work[i] - value, room->work);
    if ((i + 1) % f->block) continue;
    st_s24_store(f, d, room->codes + i + 1 - f->block, bytes);
    bytes += f->block_bytes;
  }
}

// ---- matrices -----------------------------------------------------------------------------------------------------

bool st_is_ordered(const st_format *f) {
  return f->ops->zero_points || st_format_is_ternary(f);
}

static bool is_compensated(const st_format *f) {
  return st_is_ordered(f) || f->ops->invalid;
}

uint64_t st_codes_bytes(const st_format *f, uint64_t columns) {
  if (!st_format_is_ternary(f)) return st_format_row_bytes(f, columns);
  return columns / st_ternary_group(f, columns) * sizeof(float) + columns;
}

typedef struct {
  const st_compensation *c;
  const st_format *format;
  uint64_t rows, row_bytes;
  const float *weights;
  uint8_t *bytes;
  atomic_bool failed;
} job;

static void round_trits(const job *j, const row_room *room, const float *weights, uint8_t *bytes) {
  size_t scales = (size_t)j->row_bytes - j->c->n;
  st_ternary_row(j->format, j->c->n, weights, NULL, room->sizes, (int8_t *)bytes + scales, room->d);
  memcpy(bytes, room->d, scales);
}

static void code_row(const job *j, const row_room *room, uint64_t row) {
  const float *weights = j->weights + row * j->c->n;
  uint8_t *bytes = j->bytes + row * j->row_bytes;
  if (!j->c->factor && st_format_is_ternary(j->format))
    round_trits(j, room, weights, bytes);
  else if (!j->c->factor || !is_compensated(j->format))
    st_fit_rows(j->format, 1, j->c->n, weights, j->c->importance, bytes);
  else if (st_format_is_ternary(j->format))
    trits(j->c, j->format, weights, room, bytes);
  else if (st_is_ordered(j->format))
    zero_points(j->c, j->format, weights, room, bytes);
  else
    two_of_four(j->c, j->format, weights, room, bytes);
}

static void code_part(void *context, int index, int threads) {
  job *j = context;
  size_t n = j->c->n, first, last;
  row_room room = {st_malloc(n, sizeof *room.work), st_malloc(n, sizeof *room.d), st_malloc(n, sizeof *room.zero),
                   st_malloc(n, 1), st_malloc(n, sizeof *room.sizes)};
  bool ok = room.work && room.d && room.zero && room.codes && room.sizes;
  if (!ok) atomic_store(&j->failed, true);
  st_pool_share((size_t)j->rows, 1, index, threads, &first, &last);
  for (size_t row = first; row < last && ok; row++) code_row(j, &room, row);
  st_free(room.work);
  st_free(room.d);
  st_free(room.zero);
  st_free(room.codes);
  st_free(room.sizes);
}

setun_status st_compensate(const st_compensation *c, const st_format *format, uint64_t rows, const float *weights,
                           st_pool *pool, uint8_t *bytes, setun_error *err) {
  job j = {.c = c, .format = format, .rows = rows, .weights = weights, .bytes = bytes};
  j.row_bytes = st_codes_bytes(format, c->n);
  atomic_init(&j.failed, false);
  st_pool_run(pool, code_part, &j);
  return atomic_load(&j.failed) ? st_fail_memory(err, "a row's codes") : SETUN_OK;
}
