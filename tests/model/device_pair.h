// What tests of devices share: a device beside the CPU's scalar table, with the same arrays and matrices on both.
#ifndef SETUN_TESTS_MODEL_DEVICE_PAIR_H
#define SETUN_TESTS_MODEL_DEVICE_PAIR_H

#include "models.h"
#include "rounds.h"

#include "backend/backend.h"
#include "base/memory.h"
#include "base/random.h"
#include "quant/rows.h"

#include <math.h>

static const st_backend *gpu;
static timed_rounds rounds;

// Whether there is a device other than the CPU, whose backend is then `gpu`; false after a line that says so.
static inline bool find_gpu(void) {
  st_device_facts facts;
  gpu = st_backend_at(1);
  if (gpu && gpu->device_at(0, &facts) && !facts.problem[0]) return true;
  printf("skipped: only the CPU was found; builds with sanitizers have no other device\n");
  return false;
}

static inline uint32_t below(st_random *r, uint32_t n) {
  return (uint32_t)(st_random_u64(r) % n);
}

static inline float unit(st_random *r) {
  return (float)st_random_unit(r) * 2 - 1;
}

static inline void need(setun_status s, const setun_error *err) {
  if (s != SETUN_OK) fail_msg("%s", err->message);
}

// The warnings of devices that are opened with `log_line`.
static char logged[4096];
static inline void log_line(setun_log_level level, const char *message, void *user) {
  (void)user;
  if (level == SETUN_LOG_WARNING) strncat(logged, message, sizeof logged - strlen(logged) - 1);
}

// Two backends with the same arrays: the device, and the CPU's scalar table.
typedef struct pair {
  const st_backend *b[2];
  st_device *device[2];
  st_queue *queue[2];
} pair;

static inline void open_devices(pair *p) {
  setun_error err;
  p->b[0] = gpu, p->b[1] = st_backend_at(0);
  for (int i = 0; i < 2; i++) {
    const st_device_options options = {.isa = "scalar"};
    need(p->b[i]->device_new(&options, &p->device[i], &err), &err);
  }
}

static inline void open_queues(pair *p) {
  setun_error err;
  for (int i = 0; i < 2; i++) {
    const st_queue_options options = {.threads = 1, .n_batch = 80};
    need(p->b[i]->queue_new(p->device[i], &options, &p->queue[i], &err), &err);
  }
}

static inline void close_pair(pair *p) {
  for (int i = 0; i < 2; i++) {
    p->b[i]->queue_free(p->queue[i]);
    p->b[i]->device_free(p->device[i]);
  }
}

static inline void new_array(const pair *p, st_array *a[2], size_t tokens, size_t width, const float *values) {
  setun_error err;
  for (int i = 0; i < 2; i++) {
    need(p->b[i]->array_new(p->queue[i], tokens, width, &a[i], &err), &err);
    need(p->b[i]->write(p->queue[i], a[i], 0, tokens * width, values, &err), &err);
  }
}

static inline void free_array(const pair *p, st_array *a[2]) {
  for (int i = 0; i < 2; i++) p->b[i]->array_free(a[i]);
}

static inline void new_vector(const pair *p, st_dvector *v[2], const float *values, size_t n) {
  setun_error err;
  for (int i = 0; i < 2; i++) need(p->b[i]->vector_new(p->device[i], values, n, &v[i], &err), &err);
}

static inline void free_vector(const pair *p, st_dvector *v[2]) {
  for (int i = 0; i < 2; i++) p->b[i]->vector_free(v[i]);
}

// The first n numbers of both differ by no more than `allowed`, relative to the largest, and `least`. The largest.
static inline double expect_within(const pair *p, st_array *a[2], size_t n, double allowed, double least,
                                   const char *what) {
  float *x = malloc(2 * n * sizeof *x), *y = x + n;
  setun_error err;
  double off = 0, largest = 0;
  assert_non_null(x);
  for (int i = 0; i < 2; i++) need(p->b[i]->read(p->queue[i], a[i], 0, n, i ? y : x, &err), &err);
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)x[i] - y[i]);
    if (d > off || isnan(d)) off = d;
    if (fabs((double)y[i]) > largest) largest = fabs((double)y[i]);
  }
  free(x);
  if (!(off <= allowed * largest + least)) {
    fail_msg("%s: off by %.3g of %.3g (seed %llu, round %llu)", what, off, largest, (unsigned long long)rounds.seed,
             (unsigned long long)rounds.round);
  }
  return largest;
}

static inline double expect_near(const pair *p, st_array *a[2], size_t n, double allowed, const char *what) {
  return expect_within(p, a, n, allowed, 0, what);
}

typedef struct product {
  st_matrix_desc desc;
  uint32_t n, first, count; // tokens, the first of them, outputs
  bool normed, biased, borrowed;
} product;

// Rows of a format that is only read: any bytes, but finite scales that no one dominates.
static inline void make_bytes(st_random *r, const st_format *f, uint8_t *bytes, size_t n) {
  const st_value_block *v = f->ops->value;
  for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)st_random_u64(r);
  for (size_t i = 0; i < n && !v; i++) bytes[i] &= 0xBF;
  for (size_t at = 0; v && at < n; at += f->block_bytes) {
    for (uint32_t k = 0; k < v->n_scales; k++) {
      uint8_t *scale = bytes + at + v->scale_at[k];
      f->ops->bfloat ? st_store_u16(scale, st_bf16_from_f32(unit(r))) : st_store_f16(scale, unit(r));
    }
    if (v->e8m0) bytes[at] = (uint8_t)(112 + below(r, 20));
  }
}

// Fills a matrix with trits and scales, or numbers in its format.
static inline void fill(const pair *p, st_random *r, const product *t, st_dmatrix *m[2], void *codes) {
  const st_format *f = t->desc.format;
  size_t n = (size_t)t->desc.shape.rows * (size_t)t->desc.shape.columns;
  float *numbers = calloc(n + 1, sizeof *numbers);
  char *stored = calloc(n + 1, sizeof(float));
  setun_error err;
  assert_non_null(numbers);
  assert_non_null(stored);
  bool ternary = st_format_is_ternary(f);
  for (size_t i = 0; i < n; i++) {
    if (ternary) stored[i] = (char)((int)below(r, 3) - 1), numbers[i] = (float)(1 + below(r, 255)) / 256;
    if (!ternary) numbers[i] = unit(r);
  }
  const st_strip all = st_format_locate(f, t->desc.shape, 0, t->desc.shape.rows);
  if (!ternary) {
    if (f->ops->encode)
      f->ops->encode(f, t->desc.shape, &all, numbers, stored);
    else
      make_bytes(r, f, (uint8_t *)stored, (size_t)all.bytes);
    f->ops->decode(f, t->desc.shape, &all, stored, numbers);
  }
  for (int i = 0; i < 2; i++) {
    st_matrix_desc desc = t->desc;
    desc.ownership = i == 0 && t->borrowed ? ST_BORROWED : ST_OWNED;
    st_rows rows = p->b[i]->matrix_info(p->device[i], &desc).rows;
    const st_matrix_rows data = {.count = desc.shape.rows,
                                 .data = rows == ST_ROWS_FLOAT ? (void *)numbers : (void *)stored,
                                 .scales = ternary ? numbers : NULL};
    need(p->b[i]->matrix_new(p->device[i], &desc, &m[i], &err), &err);
    if (desc.ownership == ST_BORROWED) p->b[i]->matrix_borrow(m[i], codes);
    need(p->b[i]->matrix_write(m[i], &data, &err), &err);
    if (desc.ownership == ST_OWNED) need(p->b[i]->matrix_finalize(p->device[i], m[i], NULL, &err), &err);
  }
  free(numbers);
  free(stored);
}

#endif
