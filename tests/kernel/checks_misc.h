// Checks of what is not a product: quantization, norms, RoPE, attention, gates, conversions. Included by checks.h.
#ifndef SETUN_TESTS_KERNEL_CHECKS_MISC_H
#define SETUN_TESTS_KERNEL_CHECKS_MISC_H

#include "checks.h"

// Compares two outputs of n floats between guards of 16, bit for bit.
static void compare(const char *what, size_t size, const float *out, const float *expected, size_t n) {
  for (size_t i = 0; i < n + 32; i++) {
    comparisons++;
    if (same(out[i], expected[i])) continue;
    FAIL("%s of %zu: [%d] %.9g, scalar %.9g", what, size, (int)i - 16, (double)out[i], (double)expected[i]);
    return;
  }
}

static void within(const char *what, size_t i, float value, double expected, double bound) {
  comparisons++;
  if (!(fabs((double)value - expected) <= bound)) {
    FAIL("%s [%zu]: %.9g, expected %.9g +- %.3g", what, i, (double)value, expected, bound);
  }
}

enum { MAX_N = 700 };
static float input_a[MAX_N + 32], input_b[MAX_N + 32], out_a[MAX_N + 32], out_b[MAX_N + 32];

static void check_quantize(const st_kernels *k, const st_kernels *reference, size_t n, mode how) {
  int8_t codes[MAX_N + 64], expected[MAX_N + 64];
  int32_t sum, expected_sum;
  random_floats(input_a, n, how);
  if (how == RANDOM && n > 3 && n % 5 == 0) input_a[n / 2] = n % 2 ? NAN : INFINITY;
  memset(codes, 77, sizeof codes), memset(expected, 77, sizeof expected);
  float s = k->quantize_token(input_a, n, codes + 32, &sum);
  float t = reference->quantize_token(input_a, n, expected + 32, &expected_sum);
  comparisons++;
  if (!same(s, t) || sum != expected_sum || memcmp(codes, expected, sizeof codes)) FAIL("quantize_token of %zu", n);
  float most = 0;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(input_a[i])); // fmaxf passes over NaN
  if (s != 127.0f * (1.0f / fmaxf(most, 1e-5f))) FAIL("quantize_token of %zu: s %.9g", n, (double)s);
  for (size_t i = 0; i < n; i++) {
    float v = rintf(input_a[i] * s);
    if (codes[32 + i] != (v == v ? (int)v : 0)) FAIL("quantize_token of %zu: [%zu] %d", n, i, codes[32 + i]);
  }
}

static void check_norm(const st_kernels *k, const st_kernels *reference, size_t n) {
  random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  k->rmsnorm(input_a, input_b, n, 1e-5f, out_a + 16);
  reference->rmsnorm(input_a, input_b, n, 1e-5f, out_b + 16);
  compare("rmsnorm", n, out_a, out_b, n);
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += (double)input_a[i] * input_a[i];
  for (size_t i = 0; i < n; i++) {
    double y = input_a[i] / sqrt(squares / (double)n + 1e-5) * input_b[i];
    within("rmsnorm", i, out_a[16 + i], y, fabs(y) * ((double)n / 16 + 16) * 0x1p-24);
  }
  // Fused with the preparation of an input, the product with a matrix of ones is the same as apart from it.
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    st_input fused, apart;
    prepare(k, &apart, (st_activation)kind, out_a + 16, 1, n);
    prepare(k, &fused, (st_activation)kind, input_a, 1, n);
    k->prepare(&fused, input_a, n, input_b, 1e-5f, 0, 1);
    comparisons++;
    size_t padded = (n + 31) / 32 * 32 * (kind == ST_ACT_F32 ? 4 : 1);
    if (memcmp(fused.data, apart.data, padded)) FAIL("prepare %s with a norm, %zu columns", activation_names[kind], n);
    free_input(&fused), free_input(&apart);
  }
}

static void check_rope(const st_kernels *k, const st_kernels *reference, size_t n, bool interleaved) {
  float cosine[MAX_N], sine[MAX_N];
  for (size_t i = 0; i < n / 2; i++) cosine[i] = cosf((float)i), sine[i] = sinf((float)i);
  random_floats(input_a, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  memcpy(out_a + 16, input_a, n * sizeof(float)), memcpy(out_b + 16, input_a, n * sizeof(float));
  k->rope(out_a + 16, cosine, sine, n, interleaved);
  reference->rope(out_b + 16, cosine, sine, n, interleaved);
  compare("rope", n, out_a, out_b, n);
  for (size_t i = 0; i < n / 2; i++) {
    size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + n / 2;
    double u = input_a[a], v = input_a[b];
    within("rope", a, out_a[16 + a], u * cosine[i] - v * sine[i], 4 * 0x1p-24);
    within("rope", b, out_a[16 + b], v * cosine[i] + u * sine[i], 4 * 0x1p-24);
  }
}

static double glu_in_double(st_glu kind, double g, double u) {
  switch (kind) {
  case ST_GLU_RELU2: return (g > 0 ? g * g : 0) * u;
  case ST_GLU_GELU_TANH: return g / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) * u;
  case ST_GLU_GPT_OSS: g = fmin(g, 7), u = fmax(-7, fmin(u, 7)); return (u + 1) * g / (1 + exp(-1.702 * g));
  default: return g / (1 + exp(-g)) * u;
  }
}

static void check_glu(const st_kernels *k, const st_kernels *reference, size_t n) {
  for (int kind = ST_GLU_SILU; kind <= ST_GLU_GPT_OSS; kind++) {
    random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
    for (size_t i = 0; i < n; i++) input_a[i] *= (float)(1 << i % 8), input_b[i] *= 10;
    fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
    k->glu((st_glu)kind, input_a, input_b, n, out_a + 16);
    reference->glu((st_glu)kind, input_a, input_b, n, out_b + 16);
    compare("glu", n, out_a, out_b, n);
    for (size_t i = 0; i < n; i++) {
      // The exponential's argument is rounded: its result is off by as many parts in 2^24 as the argument is large.
      double y = glu_in_double((st_glu)kind, input_a[i], input_b[i]), z = fabs((double)input_a[i]);
      if (kind == ST_GLU_GELU_TANH) z = 1.6 * (z + 0.045 * z * z * z);
      if (fabs(y) > 1e-30) within("glu", i, out_a[16 + i], y, fabs(y) * (3 * z + 12) * 0x1p-24);
    }
    memcpy(out_b + 16, input_a, n * sizeof(float)); // in place
    k->glu((st_glu)kind, out_b + 16, input_b, n, out_b + 16);
    compare("glu in place", n, out_a, out_b, n);
    const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-40f, -200, 200, 88.5f, -88.5f, -103.9f};
    size_t m = sizeof odd / sizeof *odd;
    for (size_t i = 0; i < m; i++) input_b[i] = 1;
    fill_guard(out_a, m + 32), fill_guard(out_b, m + 32);
    k->glu((st_glu)kind, odd, input_b, m, out_a + 16);
    reference->glu((st_glu)kind, odd, input_b, m, out_b + 16);
    compare("glu of odd values", m, out_a, out_b, m);
  }
}

static void check_add_and_half(const st_kernels *k, const st_kernels *reference, size_t n) {
  random_floats(input_a, n, RANDOM), random_floats(input_b, n, RANDOM);
  fill_guard(out_a, n + 32), fill_guard(out_b, n + 32);
  memcpy(out_a + 16, input_a, n * sizeof(float)), memcpy(out_b + 16, input_a, n * sizeof(float));
  k->add(out_a + 16, input_b, 0.7f, n);
  reference->add(out_b + 16, input_b, 0.7f, n);
  compare("add", n, out_a, out_b, n);
  uint16_t half[MAX_N + 64], expected[MAX_N + 64];
  for (size_t i = 0; i < n; i++) input_a[i] = ldexpf(input_a[i], (int)random_below(44) - 26);
  memset(half, 99, sizeof half), memset(expected, 99, sizeof expected);
  k->to_half(input_a, n, half + 32);
  for (size_t i = 0; i < n; i++) expected[32 + i] = st_f16_from_f32(input_a[i]);
  comparisons++;
  if (memcmp(half, expected, sizeof half)) FAIL("to_half of %zu", n);
}

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

// What is checked for sizes: those around the ends of vectors first, then any. The longest is longer than a block.
static size_t next_size(size_t i, size_t round) {
  static const size_t ends[] = {1, 15, 16, 17, 31, 32, 33, 64, 67, 577, 640};
  if (!round) return i < sizeof ends / sizeof *ends ? ends[i] : 0;
  return i < 8 ? 1 + random_below(67) : i < 10 ? 1 + random_below(MAX_N) : 0;
}

static void check_quantizes(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) {
    for (int how = 0; how < MODES; how++) check_quantize(k, reference, n, (mode)how);
  }
}

static void check_norms(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_norm(k, reference, n);
}

static void check_glus(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_glu(k, reference, n);
}

static void check_adds(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) check_add_and_half(k, reference, n);
}

static void check_ropes(const st_kernels *k, const st_kernels *reference, size_t round) {
  for (size_t i = 0, n; (n = next_size(i, round)); i++) {
    if (2 * n > MAX_N) continue;
    check_rope(k, reference, 2 * n, true);
    check_rope(k, reference, 2 * n, false);
  }
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

static const struct {
  const char *name;
  void (*check)(const st_kernels *k, const st_kernels *reference, size_t round);
} misc_checks[] = {
    {"quantize_token", check_quantizes},
    {"rmsnorm", check_norms},
    {"glu", check_glus},
    {"add, to_half", check_adds},
    {"rope", check_ropes},
    {"attend", check_attends},
    {"attend tokens", check_attends_tokens},
};

#endif
