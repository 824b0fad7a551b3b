// Attention over pages of the KV cache, in every format: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/attend.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMATS = SETUN_KV_Q4 + 1 };

// The keys that are visible: `keys` of them before the first token's own.
typedef struct {
  size_t tokens, n_q, dim, keys, window;
  setun_kv_type k, v;
  bool sinks;
} scene;

// ---- contents of pages --------------------------------------------------------------------------------------------

// A position as it is saved: its numbers, and the scale, 0 where these are not codes.
static float decode(setun_kv_type type, bool keys, size_t dim, const uint8_t *row, float *out) {
  const st_kv_format *f = st_kv_format_of(type);
  uint32_t bits = keys ? f->key_bits : f->value_bits, low = bits < 8 ? 4 : 8;
  uint16_t half;
  if (type == SETUN_KV_F32) {
    memcpy(out, row, 4 * dim);
    return 0;
  }
  for (size_t d = 0; d < dim && type == SETUN_KV_F16; d++) {
    memcpy(&half, row + 2 * d, 2);
    out[d] = st_f32_from_f16(half);
  }
  if (type == SETUN_KV_F16) return 0;
  memcpy(&half, row, 2);
  float scale = st_f32_from_f16(half);
  for (size_t d = 0; d < dim; d++) {
    const uint8_t *codes = row + 2 + d / 32 * 4 * bits;
    int byte = codes[low == 8 ? d % 32 : d % 16], code = low == 8 ? byte : d % 32 < 16 ? byte & 15 : byte >> 4;
    if (bits > low) code += (codes[4 * low + d % 8] >> d % 32 / 8 * 2 & 3) << low;
    out[d] = (float)(code - (1 << (bits - 1))) * scale;
  }
  return scale;
}

// Rows of a Hadamard matrix, one by one.
static void rotate_in_double(const double *x, size_t dim, double *out) {
  size_t n = 1;
  while (dim % (2 * n) == 0) n *= 2;
  for (size_t i = 0; i < dim; i++) {
    out[i] = 0;
    for (size_t j = 0; j < n; j++) {
      out[i] += (__builtin_popcountll(i % n & j) % 2 ? -1.0 : 1.0) * x[i / n * n + j];
    }
    out[i] /= sqrt((double)n);
  }
}

typedef struct {
  guarded memory; // pages of two KV heads, of which the second is used, with NaN in all unused places
  uint32_t *pages;
  size_t page_bytes, keys_bytes, values_bytes;
  float *k, *v;    // the positions' values, a row each
  float *v_scales; // of the positions, where values are codes
} cache;

static st_kv_place place_in(const cache *c, const scene *s, bool keys, size_t head, size_t at) {
  size_t block = c->pages[at / ST_KEYS] * c->page_bytes + head * (c->keys_bytes + c->values_bytes);
  return (st_kv_place){.type = keys ? s->k : s->v,
                       .keys = keys,
                       .head_dim = s->dim,
                       .at = at % ST_KEYS,
                       .block = c->memory.data + block + (keys ? 0 : c->keys_bytes)};
}

// Writes a position; its value then differs from the original by at most half a step of the codes, or where it lies
// beyond the codes: by as much as the furthest code may be exceeded, and a step on the side that has one code fewer.
// Scales are rounded to half precision. Returns the scale.
static float put(const st_kernels *reference, const cache *c, const scene *s, bool keys, size_t at, float *meaning) {
  size_t dim = s->dim, bytes = st_kv_row_bytes(keys ? s->k : s->v, keys, dim);
  float *x = st_malloc(dim, sizeof *x);
  double *exact = st_malloc(dim, sizeof *exact), *given = st_malloc(dim, sizeof *given);
  uint8_t *row = st_malloc(bytes, 1), *again = st_malloc(bytes, 1);
  float size = ldexpf(2, -(int)random_below(3));
  for (size_t d = 0; d < dim; d++)
    x[d] = random_float() * size * (random_below(64) ? 1 : 5), exact[d] = given[d] = (double)x[d];
  st_kv_place p = place_in(c, s, keys, 1, at), other = place_in(c, s, keys, 0, at);
  const st_kv_format *f = st_kv_format_of(p.type);
  if (f->rotated) rotate_in_double(given, dim, exact);
  st_kv_write(reference, &p, x);
  st_kv_load(&p, row);
  float scale = decode(p.type, keys, dim, row, meaning);
  uint32_t bits = keys ? f->key_bits : f->value_bits;
  for (size_t d = 0; d < dim; d++) {
    double most = fabs(exact[d]), half = ldexp(1, (int)bits - 1), step = fabs((double)scale);
    double beyond = bits < 8 ? 1.376 : 1.0 + 0x1p-11; // of the furthest code
    double steps = most <= (half - 1) * step ? 0.51 : half * beyond - (half - 1) + 0.01;
    within("a stored number", d, meaning[d], exact[d], bits < 16 ? step * steps + 1e-6 : most * 0x1p-11 + 1e-7);
  }
  st_kv_store(&other, row);
  st_kv_load(&other, again);
  comparisons++;
  if (memcmp(row, again, bytes)) FAIL("a row of %s is not what was stored", f->name);
  memset(row, 0xFF, bytes);
  st_kv_store(&other, row); // NaN again
  st_free(x), st_free(exact), st_free(given), st_free(row), st_free(again);
  return scale;
}

static cache make_cache(const st_kernels *reference, const scene *s) {
  size_t all = s->keys + s->tokens, n = (all + ST_KEYS - 1) / ST_KEYS;
  cache c = {.pages = st_malloc(n, sizeof *c.pages),
             .keys_bytes = st_kv_block_bytes(s->k, true, s->dim),
             .values_bytes = st_kv_block_bytes(s->v, false, s->dim),
             .k = st_malloc(all * s->dim, sizeof *c.k),
             .v = st_malloc(all * s->dim, sizeof *c.v),
             .v_scales = st_malloc(all, sizeof *c.v_scales)};
  c.page_bytes = 2 * (c.keys_bytes + c.values_bytes);
  c.memory = guarded_alloc(n * c.page_bytes);
  memset(c.memory.data, 0xFF, n * c.page_bytes);
  for (size_t i = 0; i < n; i++) c.pages[i] = (uint32_t)i;
  for (size_t i = n; i > 1; i--) { // in any order
    size_t j = random_below((uint32_t)i);
    uint32_t page = c.pages[i - 1];
    c.pages[i - 1] = c.pages[j], c.pages[j] = page;
  }
  for (size_t i = 0; i < all; i++) {
    put(reference, &c, s, true, i, c.k + i * s->dim);
    c.v_scales[i] = put(reference, &c, s, false, i, c.v + i * s->dim);
  }
  return c;
}

static void free_cache(cache *c) {
  guarded_free(&c->memory);
  st_free(c->pages), st_free(c->k), st_free(c->v), st_free(c->v_scales);
}

// ---- float64 ------------------------------------------------------------------------------------------------------

// The numbers that a query's scores are products of. Returns the error of each where it becomes a code: half a unit,
// of which the largest has 8,000 at least, or 127 where codes are bytes.
static double query_in_double(const st_attend *a, const float *q, double *out) {
  size_t dim = a->head_dim;
  float *row = st_malloc(dim, sizeof *row);
  double *exact = st_malloc(dim, sizeof *exact), largest = 0;
  for (size_t d = 0; d < dim; d++) out[d] = (double)q[d] * (double)a->scale, row[d] = q[d] * a->scale;
  if (st_kv_format_of(a->keys)->rotated) {
    rotate_in_double(out, dim, exact);
    st_ref_hadamard(row, NULL, NULL, dim, dim & (~dim + 1), row);
    for (size_t d = 0; d < dim; d++) within("rotation", d, row[d], exact[d], 0x1p-20), out[d] = (double)row[d];
  }
  for (size_t d = 0; d < dim; d++) largest = fmax(largest, fabs(out[d]));
  st_free(row), st_free(exact);
  return st_kv_is_codes(a->keys) ? largest / (st_kv_format_of(a->keys)->code_bits == 8 ? 253 : 16000) : 0;
}

// The scores of a query for the keys [first, last). Returns their largest error: a score is a sum of `dim`
// products, each rounded once more than it is added.
static double scores_in_double(const st_attend *a, const cache *c, const float *query, size_t first, size_t last,
                               double *scores) {
  double *q = st_malloc(a->head_dim, sizeof *q), most = 0;
  double off = query_in_double(a, query, q);
  for (size_t j = first; j < last; j++) {
    double s = 0, error = 0;
    for (size_t d = 0; d < a->head_dim; d++) {
      double k = (double)c->k[j * a->head_dim + d];
      s += q[d] * k, error += fabs(q[d] * k) * ((double)a->head_dim + 16) * 0x1p-24 + off * fabs(k);
    }
    scores[j - first] = s, most = fmax(most, error);
  }
  st_free(q);
  return most;
}

// The error of column d of the values where the factors p of the keys [first, last) become codes: half a unit, of
// which a block's largest factor, times its key's scale, has 32,767, or 127 where codes are bytes.
static double factors_error(const cache *c, uint32_t bits, size_t dim, size_t d, size_t first, size_t last,
                            const double *p) {
  double error = 0;
  for (size_t j = first / ST_KEYS * ST_KEYS; j < last; j += ST_KEYS) {
    double largest = 0, codes = 0;
    for (size_t i = j; i < j + ST_KEYS; i++) {
      if (i < first || i >= last || c->v_scales[i] == 0) continue;
      largest = fmax(largest, p[i - first] * fabs((double)c->v_scales[i]));
      codes += fabs((double)c->v[i * dim + d] / (double)c->v_scales[i]);
    }
    error += largest * codes * 0.51 / (bits == 8 ? 127 : 32767);
  }
  return error;
}

// One query. Bounds: e^x is within 2 units in the last place, sums of n numbers within n, and merging parts adds a few.
// An error e of the scores changes a value's share by a factor of at most e^(2e).
static void check_query(const st_attend *a, const cache *c, size_t token, size_t head, const float *out) {
  size_t last = a->n_keys + token, first = a->window && last > a->window ? last - a->window : 0, dim = a->head_dim;
  double *p = st_malloc(last - first, sizeof *p), sum = 0;
  double largest = a->sinks ? (double)a->sinks[head] : -1e300;
  bool rotated = st_kv_format_of(a->values)->rotated;
  double error = scores_in_double(a, c, a->q + token * a->token_stride + head * a->q_stride, first, last, p);
  for (size_t j = 0; j < last - first; j++) largest = fmax(largest, p[j]);
  for (size_t j = 0; j < last - first; j++) sum += p[j] = exp(p[j] - largest);
  if (a->sinks) sum += exp((double)a->sinks[head] - largest);
  for (size_t j = 0; j < last - first; j++) p[j] /= sum;
  double *x = st_calloc(dim, sizeof *x), *turned = st_malloc(dim, sizeof *turned), all = 0;
  for (size_t d = 0; d < dim; d++) {
    double magnitude = 0;
    for (size_t j = first; j < last; j++) {
      double y = p[j - first] * (double)c->v[j * dim + d];
      x[d] += y, magnitude += fabs(y);
    }
    turned[d] = magnitude * (expm1(2 * error) + ((double)(last - first) + 64) * 0x1p-23) + 1e-30;
    turned[d] += factors_error(c, st_kv_format_of(a->values)->code_bits, dim, d, first, last, p);
    all += turned[d];
    if (!rotated) within("attend", d, out[d], x[d], turned[d]);
  }
  if (rotated) { // each number is made of all, of which it has 1 / sqrt(n) at most
    rotate_in_double(x, dim, turned);
    for (size_t d = 0; d < dim; d++) within("attend, rotated back", d, out[d], turned[d], all);
  }
  st_free(x), st_free(turned), st_free(p);
}

// ---- checks -------------------------------------------------------------------------------------------------------

// With junk after the scratch, which must stay.
static void run(const st_kernels *k, const st_attend *a, float *out) {
  size_t bytes = st_attend_scratch(a->keys, st_attend_queries(a), a->head_dim);
  uint8_t *scratch = st_aligned_alloc(bytes + 64);
  memset(scratch, 0x7F, bytes + 64);
  st_attend_run(k, a, scratch, out);
  for (size_t i = 0; i < 64; i++) {
    if (scratch[bytes + i] != 0x7F) FAIL("attend wrote outside of its scratch");
  }
  st_free(scratch);
}

// Parts by themselves, the last one first and a head at a time, as threads might, then merged.
static void run_parts(const st_kernels *k, const st_attend *all, float *out) {
  st_key_range parts = st_attend_parts(all);
  size_t n = parts.last - parts.first, each = all->head_dim + 2, tokens = all->n_tokens ? all->n_tokens : 1;
  float *sums = st_malloc(n * tokens * each, sizeof *sums);
  for (size_t head = 0; head < all->n_q; head++) {
    st_attend a = *all;
    a.q += head * a.q_stride, a.n_q = 1;
    if (a.sinks) a.sinks += head;
    void *scratch = st_aligned_alloc(st_attend_scratch(a.keys, tokens, a.head_dim));
    st_attend_memory m = st_attend_memory_of(&a, scratch);
    const st_attend_codes *queries = st_attend_prepare(k, &a, &m);
    for (size_t i = n; i-- > 0;) {
      float *to = sums + i * tokens * each;
      const st_attend_part part = {.index = parts.first + i,
                                   .queries = queries,
                                   .scores = m.scores,
                                   .out = to,
                                   .state = to + tokens * a.head_dim};
      k->attend(&a, &part);
    }
    for (size_t i = 0; i < n; i++) {
      float *from = sums + i * tokens * each;
      st_attend_merge(&a, parts.first + i, from, from + tokens * a.head_dim, sums, sums + tokens * a.head_dim);
    }
    st_attend_finish(k, &a, sums, sums + tokens * a.head_dim, out + head * a.q_stride);
    st_free(scratch);
  }
  st_free(sums);
}

// The scalar function's bits; those of the tokens one by one; those of merged parts; and the float64 result.
static void check_scene(const st_kernels *k, const st_kernels *reference, const scene *s, bool exact) {
  size_t stride = s->n_q * (s->dim + 3) + 5, n = s->tokens * stride;
  float *q = st_malloc(n, sizeof *q), sinks[16];
  float *out = st_malloc(n + 32, sizeof *out), *other = st_malloc(n + 32, sizeof *other);
  random_activations(q, n, RANDOM), random_floats(sinks, 16, RANDOM);
  cache c = make_cache(reference, s);
  fill_guard(out, n + 32), fill_guard(other, n + 32);
  st_attend a = {.q = q,
                 .n_q = s->n_q,
                 .q_stride = s->dim + 3,
                 .n_tokens = s->tokens,
                 .token_stride = stride,
                 .head_dim = s->dim,
                 .k = c.memory.data + c.keys_bytes + c.values_bytes,
                 .v = c.memory.data + c.keys_bytes + c.values_bytes + c.keys_bytes,
                 .page_bytes = c.page_bytes,
                 .pages = c.pages,
                 .keys = s->k,
                 .values = s->v,
                 .n_keys = s->keys + 1,
                 .window = s->window,
                 .scale = 1.0f / sqrtf((float)s->dim),
                 .sinks = s->sinks ? sinks : NULL};
  run(k, &a, out + 16);
  run(reference, &a, other + 16);
  compare("attend", s->keys, out, other, n);
  run_parts(k, &a, other + 16);
  compare("attend, parts merged", s->keys, out, other, n);
  for (size_t t = 0; t < s->tokens; t++) {
    st_attend one = a;
    one.n_tokens = t % 2, one.q += t * stride, one.n_keys += t;
    run(k, &one, other + 16 + t * stride);
    for (size_t h = 0; exact && h < s->n_q; h++) check_query(&a, &c, t, h, out + 16 + t * stride + h * a.q_stride);
  }
  compare("attend, tokens one by one", s->tokens, out, other, n);
  free_cache(&c);
  st_free(q), st_free(out), st_free(other);
}

static setun_kv_type random_format(void) {
  return (setun_kv_type)random_below(FORMATS);
}

static void check_attends(const st_kernels *k, const st_kernels *reference, size_t round) {
  static const size_t dims[] = {16, 64, 100, 128, 7, 256, 80}, heads[] = {1, 3, 5, 4, 2, 8, 16};
  static const size_t keys[] = {0, 62, 63, 64, 69, 128, 199}, windows[] = {0, 3, 1, 33, 200, 16, 0};
  for (size_t i = 0; i < 7; i++) {
    scene s = {.tokens = i % 2 ? 1 : 1 + random_below(17),
               .n_q = heads[random_below(7)],
               .dim = dims[i],
               .keys = round ? random_below(i ? 70 : 1100) : keys[i],
               .window = random_below(2) ? windows[i] : 0,
               .k = random_format(),
               .v = random_format(),
               .sinks = random_below(4) == 0};
    check_scene(k, reference, &s, true);
  }
}

// A depth of 2,000 keys: the first round has all heads, numbers of queries and formats.
static void check_deep(const st_kernels *k, const st_kernels *reference, size_t round) {
  static const size_t dims[] = {64, 80, 96, 128, 256}, queries[] = {1, 7, 8}, windows[] = {0, 512, 700};
  bool scalar = !strcmp(k->name, reference->name);
  for (size_t i = 0; i < 15; i++) {
    if (round && i) return;
    size_t at = round ? random_below(15) : i;
    for (int f = 0; f < FORMATS; f++) {
      scene s = {.tokens = 1,
                 .n_q = queries[at % 3],
                 .dim = dims[at / 3],
                 .keys = 1999,
                 .k = (setun_kv_type)f,
                 .v = (setun_kv_type)f,
                 .window = round ? windows[random_below(3)] : 0,
                 .sinks = at % 2};
      if (round) s.keys += random_below(100), s.tokens += random_below(5), s.v = random_format();
      check_scene(k, reference, &s, scalar || round); // for the others comparing bits suffices
    }
  }
}

static void bench_format(const ceilings *b, setun_kv_type type) {
  enum { KEYS = 2000, HEADS = 4, DIM = 128, TOKENS = 8, SEEN = 256 };
  scene s = {.tokens = 1, .n_q = HEADS, .dim = DIM, .keys = KEYS - 1, .k = type, .v = type};
  static float q[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
  char what[64];
  cache c = make_cache(&b->k, &s);
  void *scratch = st_aligned_alloc(st_attend_scratch(type, TOKENS * HEADS, DIM));
  random_floats(q, TOKENS * HEADS * DIM, RANDOM);
  st_attend a = {.q = q,
                 .n_q = HEADS,
                 .q_stride = DIM,
                 .head_dim = DIM,
                 .k = c.memory.data + c.keys_bytes + c.values_bytes,
                 .v = c.memory.data + c.keys_bytes + c.values_bytes + c.keys_bytes,
                 .page_bytes = c.page_bytes,
                 .pages = c.pages,
                 .keys = type,
                 .values = type,
                 .n_keys = KEYS,
                 .scale = 0.1f};
  snprintf(what, sizeof what, "attend %s, 4 heads of 128, 2000 keys", st_kv_format_of(type)->name);
  BENCH(what, 2.0 * HEADS * KEYS * DIM, st_attend_run(&b->k, &a, scratch, out));
  a.n_tokens = TOKENS, a.token_stride = HEADS * DIM, a.n_keys = SEEN;
  snprintf(what, sizeof what, "attend %s, 8 tokens, 4 of 128, 256 keys", st_kv_format_of(type)->name);
  BENCH(what, 2.0 * TOKENS * HEADS * SEEN * DIM, st_attend_run(&b->k, &a, scratch, out));
  st_free(scratch);
  free_cache(&c);
}

static void bench(const ceilings *b) {
  for (int f = 0; f < FORMATS; f++) bench_format(b, (setun_kv_type)f);
}

const kernel_test test_attend = {"attend", check_attends, bench};
const kernel_test test_attend_deep = {"attend deep", check_deep, NULL};
