// Attention of one token and of several: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Attention in float64 for one head.
static void attend_in_double(const st_attend *a, size_t head, const float *k, const float *v, double *out) {
  double *p = st_malloc(a->n_keys, sizeof *p), largest = a->sinks ? a->sinks[head] : -1e300, sum = 0;
  for (size_t j = 0; j < a->n_keys; j++) {
    p[j] = 0;
    for (size_t d = 0; d < a->head_dim; d++) p[j] += (double)a->q[head * a->q_stride + d] * k[j * a->head_dim + d];
    p[j] *= a->scale;
    largest = fmax(largest, p[j]);
  }
  for (size_t j = 0; j < a->n_keys; j++) sum += p[j] = exp(p[j] - largest);
  if (a->sinks) sum += exp(a->sinks[head] - largest);
  for (size_t d = 0; d < a->head_dim; d++) {
    out[d] = 0;
    for (size_t j = 0; j < a->n_keys; j++) out[d] += p[j] / sum * v[j * a->head_dim + d];
  }
  st_free(p);
}

enum { PAGES_MOST = 16 };

static setun_kv_type type_of(bool half) {
  return half ? SETUN_KV_F16 : SETUN_KV_F32;
}

// Values, or keys, in pages that follow one another backwards, with NaN where nothing is, and end at an unreadable page
// of memory; and what they mean, a row for each.
static guarded make_cache(size_t rows, size_t dim, bool keys, bool half, uint32_t *pages, float *meaning) {
  size_t n = (rows + ST_KEYS - 1) / ST_KEYS, bytes = st_kv_block_bytes(type_of(half), dim), width = half ? 2 : 4;
  uint8_t *row = st_malloc(dim, width);
  guarded g = guarded_alloc(n * bytes);
  memset(g.data, 0xFF, n * bytes);
  for (size_t i = 0; i < n; i++) pages[i] = (uint32_t)(n - 1 - i);
  for (size_t i = 0; i < rows; i++) {
    for (size_t d = 0; d < dim; d++) {
      float x = random_float() * 2;
      uint16_t h = st_f16_from_f32(x);
      memcpy(row + d * width, half ? (const void *)&h : &x, width);
      meaning[i * dim + d] = half ? st_f32_from_f16(h) : x;
    }
    st_kv_store(&(st_kv_place){type_of(half), keys, dim, i % ST_KEYS, g.data + pages[i / ST_KEYS] * bytes}, row);
  }
  st_free(row);
  return g;
}

// Runs it with junk behind the scratch, which must stay.
static void run_attend(const st_kernels *k, const st_attend *a, float *out) {
  size_t n = st_attend_scratch(st_attend_queries(a), a->head_dim);
  float *scratch = st_malloc(n + 16, sizeof *scratch);
  fill_guard(scratch, n + 16);
  st_attend_run(k, a, scratch, out);
  for (size_t i = 0; i < 16; i++) {
    if (scratch[n + i] != guard_value) FAIL("attend wrote outside of its scratch");
  }
  st_free(scratch);
}

static void check_attend(const st_kernels *k, const st_kernels *reference, size_t n_q, size_t dim, size_t keys,
                         bool half, bool sinks) {
  size_t stride = dim + 3, n = n_q * stride;
  float *q = st_malloc(n, sizeof *q), *mk = st_malloc(keys * dim, sizeof *mk), *mv = st_malloc(keys * dim, sizeof *mv);
  float sink[16];
  uint32_t pages[PAGES_MOST];
  double *expected = st_malloc(dim, sizeof *expected);
  random_floats(q, n, RANDOM), random_floats(sink, 16, RANDOM);
  guarded gk = make_cache(keys, dim, true, half, pages, mk), gv = make_cache(keys, dim, false, half, pages, mv);
  float *out = st_malloc(n + 32, sizeof *out), *other = st_malloc(n + 32, sizeof *other);
  st_attend a = {.q = q,
                 .n_q = n_q,
                 .q_stride = stride,
                 .head_dim = dim,
                 .k = gk.data,
                 .v = gv.data,
                 .page_bytes = st_kv_block_bytes(type_of(half), dim),
                 .pages = pages,
                 .keys = type_of(half),
                 .values = type_of(half),
                 .n_keys = keys,
                 .scale = 0.5f,
                 .sinks = sinks ? sink : NULL};
  fill_guard(out, n + 32), fill_guard(other, n + 32);
  run_attend(k, &a, out + 16);
  run_attend(reference, &a, other + 16);
  compare("attend", keys, out, other, n);
  for (size_t h = 0; h < n_q; h++) {
    attend_in_double(&a, h, mk, mv, expected);
    for (size_t d = 0; d < dim; d++) {
      within("attend", d, out[16 + h * stride + d], expected[d], 2 * ((double)(dim + keys) + 32) * 0x1p-23);
    }
  }
  guarded_free(&gk), guarded_free(&gv);
  st_free(q), st_free(mk), st_free(mv), st_free(expected), st_free(out), st_free(other);
}

// Several tokens at once, with a window or 0, give the bits of each alone with the keys that it sees, and the scalar
// function's.
static void check_attend_tokens(const st_kernels *k, const st_kernels *reference, size_t tokens, size_t n_q, size_t dim,
                                size_t keys, size_t window) {
  size_t stride = n_q * dim + 5, n = tokens * stride, all = keys + tokens - 1;
  uint32_t pages[PAGES_MOST];
  float *q = st_malloc(n, sizeof *q), *meaning = st_malloc(all * dim, sizeof *meaning), sinks[16];
  float *out = st_malloc(n + 32, sizeof *out), *other = st_malloc(n + 32, sizeof *other);
  random_floats(q, n, RANDOM), random_floats(sinks, 16, RANDOM);
  bool half = keys % 4 != 0;
  guarded gk = make_cache(all, dim, true, half, pages, meaning), gv = make_cache(all, dim, false, half, pages, meaning);
  fill_guard(out, n + 32), fill_guard(other, n + 32);
  st_attend a = {.q = q,
                 .n_q = n_q,
                 .q_stride = dim,
                 .n_tokens = tokens,
                 .token_stride = stride,
                 .head_dim = dim,
                 .k = gk.data,
                 .v = gv.data,
                 .page_bytes = st_kv_block_bytes(type_of(half), dim),
                 .pages = pages,
                 .keys = type_of(half),
                 .values = type_of(half),
                 .n_keys = keys,
                 .window = window,
                 .scale = 0.3f,
                 .sinks = keys % 3 ? NULL : sinks};
  run_attend(k, &a, out + 16);
  run_attend(reference, &a, other + 16);
  compare("attend, several tokens", tokens, out, other, n);
  a.n_tokens = 1;
  for (size_t t = 0; t < tokens; t++) {
    a.n_keys = keys + t, a.q = q + t * stride;
    run_attend(k, &a, other + 16 + t * stride);
  }
  compare("attend, several tokens one by one", tokens, out, other, n);
  guarded_free(&gk), guarded_free(&gv);
  st_free(q), st_free(meaning), st_free(out), st_free(other);
}

static void check_attends(const st_kernels *k, const st_kernels *reference, size_t round) {
  static const size_t dims[] = {16, 64, 100, 128, 7, 256, 80}, heads[] = {1, 3, 5, 4, 2, 8, 16};
  static const size_t keys[] = {1, 63, 64, 65, 70, 129, 200};
  for (size_t i = 0; i < 7; i++) {
    size_t n = round ? 1 + random_below(i ? 70 : 600) : keys[i];
    check_attend(k, reference, heads[random_below(7)], dims[i], n, random_below(2), random_below(4) == 0);
  }
  if (!round) check_attend(k, reference, 2, 300, 20, true, false);
}

static void check_attends_tokens(const st_kernels *k, const st_kernels *reference, size_t round) {
  static const size_t dims[] = {16, 64, 100, 128, 7, 256, 80}, heads[] = {1, 3, 5, 4, 2, 8, 16};
  static const size_t windows[] = {0, 3, 1, 33, 200, 16};
  for (size_t i = 0; i < 6; i++) {
    size_t n = i ? 1 + random_below(70) : round ? 1 + random_below(900) : 505;
    check_attend_tokens(k, reference, 1 + random_below(17), heads[random_below(7)], dims[random_below(7)], n,
                        windows[i]);
  }
}

static void bench(const ceilings *b) {
  enum { KEYS = 2000, HEADS = 4, DIM = 128, TOKENS = 8, SEEN = 256, PAGES = (KEYS + ST_KEYS - 1) / ST_KEYS };
  static float q[HEADS * DIM], out[HEADS * DIM];
  static uint16_t k[PAGES * ST_KEYS * DIM], v[PAGES * ST_KEYS * DIM];
  uint32_t pages[PAGES];
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) k[i] = st_f16_from_f32(random_float()), v[i] = k[i];
  for (uint32_t i = 0; i < PAGES; i++) pages[i] = i;
  random_floats(q, HEADS * DIM, RANDOM);
  st_attend a = {.q = q,
                 .n_q = HEADS,
                 .q_stride = DIM,
                 .head_dim = DIM,
                 .k = (const uint8_t *)k,
                 .v = (const uint8_t *)v,
                 .page_bytes = ST_KEYS * DIM * sizeof *k,
                 .pages = pages,
                 .n_keys = KEYS,
                 .scale = 0.1f};
  float *scratch = st_malloc(st_attend_scratch(TOKENS * HEADS, DIM), sizeof *scratch);
  BENCH("attend, 4 heads of 128, 2000 keys", 2.0 * HEADS * KEYS * DIM, st_attend_run(&b->k, &a, scratch, out));
  static float qs[TOKENS * HEADS * DIM], outs[TOKENS * HEADS * DIM];
  random_floats(qs, TOKENS * HEADS * DIM, RANDOM);
  a.q = qs, a.n_tokens = TOKENS, a.token_stride = HEADS * DIM, a.n_keys = SEEN;
  BENCH("attend, 8 tokens, 4 of 128, 256 keys", 2.0 * TOKENS * HEADS * SEEN * DIM,
        st_attend_run(&b->k, &a, scratch, outs));
  st_free(scratch);
}

const kernel_test test_attend = {"attend", check_attends, bench};
const kernel_test test_attend_tokens = {"attend tokens", check_attends_tokens, NULL};
