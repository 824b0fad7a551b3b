// Products in every form: checks and bench.
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float largest_of(const float *x, size_t n) {
  float most = 0;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
  return most;
}

// The largest value of a block without finer codes: 1.1 times the mean of all blocks' largest.
static float plain_limit(const float *x, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; i += 32) sum += largest_of(x + i, n - i < 32 ? n - i : 32);
  return sum * (1.1f / (float)((n + 31) / 32));
}

// The finer codes of a block.
static void add_second_plane(const float *x, size_t n, float most, double *out) {
  float s = 127.0f / most, d = most / 127.0f;
  for (size_t i = 0; i < n; i++) {
    float left = x[i] * s - rintf(x[i] * s);
    out[i] += (double)rintf(left * 254.0f) * (d / 254.0f);
  }
}

// The activations' values after rounding, in float64.
static void rounded_activations(st_activation kind, const float *x, size_t n, double *out) {
  float limit = plain_limit(x, n);
  for (size_t first = 0; first < n;) {
    size_t count = kind == ST_ACT_INT8_BLOCK && n - first > 32 ? 32 : n - first;
    float most = largest_of(x + first, count);
    for (size_t i = 0; i < count; i++) {
      float v = x[first + i];
      if (kind == ST_ACT_F32)
        out[first + i] = v;
      else if (kind == ST_ACT_INT8_TOKEN) {
        float s = 127.0f * (1.0f / fmaxf(most, 1e-5f));
        out[first + i] = (double)rintf(v * s) / s;
      } else
        out[first + i] = most > 0 ? (double)rintf(v * (127.0f / most)) * (most / 127.0f) : 0;
    }
    if (kind == ST_ACT_INT8_BLOCK && most > limit) add_second_plane(x + first, count, most, out + first);
    first += count;
  }
}

// Bound: each of the K products and sums is rounded a few times (scale times scale, fused sum, final scale), each by at
// most 2^-24 of the sum of magnitudes so far. Minimums are multiplied with rounded sums, and may cancel d * code: there
// the largest weight's magnitude counts for all, and a factor covers what is left of either. Those of 8-bit codes are
// 128 d larger than stored, which may cancel too.
static void check_against_double(const matrix *w, st_activation kind, const float *x, size_t tokens, const float *out) {
  size_t columns = w->m.columns;
  bool minimums = st_coding_of(w->m.form).minimums, made_here = is_made_here(format_for(w->m.form, 64).id);
  double *a = st_malloc(columns, sizeof *a);
  for (size_t t = 0; t < tokens; t++) {
    rounded_activations(kind, x + t * columns, columns, a);
    for (size_t r = 0; r < w->m.rows; r++) {
      double sum = 0, magnitude = 0, largest = (double)w->shift, activations = 0;
      for (size_t k = 0; k < columns; k++) {
        double weight = (double)w->dense[r * columns + k], p = weight * a[k];
        sum += p, magnitude += fabs(p);
        largest = fmax(largest, fabs(weight)), activations += fabs(a[k]);
      }
      if (minimums) magnitude = made_here ? 16 * magnitude : 16 * largest * activations;
      double bound = magnitude * ((double)columns + 8) * 0x1p-24 + 1e-37;
      double error = fabs(sum - (double)out[t * w->m.rows + r]);
      comparisons++;
      if (!(error <= bound)) {
        FAIL("%s x %s, %zux%zu, token %zu of %zu, row %zu: %.9g, expected %.9g +- %.3g", form_name(w->m.form),
             activation_names[kind], w->m.rows, columns, t, tokens, r, (double)out[t * w->m.rows + r], sum, bound);
      }
    }
  }
  st_free(a);
}

void product(const st_kernels *k, const matrix *w, st_activation kind, const float *x, size_t tokens,
             float *guarded_out) {
  size_t n = tokens * w->m.rows;
  st_input input;
  fill_guard(guarded_out, n + 32);
  prepare(k, &input, kind, x, tokens, w->m.columns);
  size_t middle = w->m.rows / 2 / 16 * 16; // as two threads would do it
  k->matmul[w->m.form][kind](&w->m, &input, 0, middle, guarded_out + 16, w->m.rows);
  k->matmul[w->m.form][kind](&w->m, &input, middle, w->m.rows, guarded_out + 16, w->m.rows);
  for (size_t i = 0; i < 16; i++) {
    if (guarded_out[i] != guard_value || guarded_out[16 + n + i] != guard_value) FAIL("wrote outside of its output");
  }
  free_input(&input);
}

// Whether a table's product is bit-identical to the scalar table's. Products in another order have tests of their own,
// such as amx_bf16.c.
static bool adds_alike(const st_kernels *k, st_form form, st_activation kind) {
  return kind != ST_ACT_F32 || !k->own_order[form];
}

void check_product(const st_kernels *k, const st_kernels *reference, const matrix *w, st_activation kind, mode how,
                   size_t tokens) {
  size_t columns = w->m.columns, rows = w->m.rows, n = tokens * rows;
  float *x = st_malloc(tokens * columns, sizeof *x);
  float *out = st_malloc(n + 32, sizeof *out), *expected = st_malloc(n + 32, sizeof *expected);
  random_activations(x, tokens * columns, how);
  product(k, w, kind, x, tokens, out);
  if (how != SMALLEST || kind == ST_ACT_F32) check_against_double(w, kind, x, tokens, out + 16);
  product(reference, w, kind, x, tokens, expected);
  for (size_t i = 0; i < n && adds_alike(k, w->m.form, kind); i++) {
    comparisons++;
    if (same(out[16 + i], expected[16 + i])) continue;
    FAIL("%s x %s, %zux%zu, %zu tokens, %s: token %zu row %zu: %.9g, scalar %.9g", form_name(w->m.form),
         activation_names[kind], rows, columns, tokens, mode_names[how], i / rows, i % rows, (double)out[16 + i],
         (double)expected[16 + i]);
    break;
  }
  size_t t = random_below((uint32_t)tokens); // alone, one token of the batch has the same bits
  product(k, w, kind, x + t * columns, 1, expected);
  for (size_t r = 0; r < rows; r++) {
    if (!same(out[16 + t * rows + r], expected[16 + r])) {
      FAIL("%s x %s: token %zu of %zu differs from itself alone", form_name(w->m.form), activation_names[kind], t,
           tokens);
      break;
    }
  }
  st_free(x), st_free(out), st_free(expected);
}

static void check_row(const st_kernels *k, const matrix *w) {
  size_t r = random_below((uint32_t)w->m.rows), n = w->m.columns;
  float *out = st_malloc(n + 32, sizeof *out);
  fill_guard(out, n + 32);
  k->row[w->m.form](&w->m, r, out + 16);
  for (size_t i = 0; i < n + 32; i++) {
    float expected = i < 16 || i >= n + 16 ? guard_value : w->dense[r * n + i - 16];
    comparisons++;
    if (out[i] != expected) {
      FAIL("row %zu of %s: column %d: %.9g, expected %.9g", r, form_name(w->m.form), (int)i - 16, (double)out[i],
           (double)expected);
      break;
    }
  }
  st_free(out);
}

static void check_shape(const st_kernels *k, const st_kernels *reference, st_form form, size_t rows, size_t columns,
                        uint32_t block, mode how, size_t tokens) {
  columns = whole_columns(form, block, columns);
  matrix w = make_matrix(form, rows, columns, block, how);
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    if (k->matmul[form][kind]) check_product(k, reference, &w, (st_activation)kind, how, tokens);
    if (k->matmul[form][kind] && how != RANDOM) check_product(k, reference, &w, (st_activation)kind, RANDOM, tokens);
  }
  check_row(k, &w);
  free_matrix(&w);
}

// Sums of the longest rows with extreme values, which a narrow accumulator could not hold.
static void check_long_rows(const st_kernels *k, const st_kernels *reference, st_form form, size_t round) {
  static const size_t columns[] = {6912, 3200, 2560, 4160}, rows[] = {16, 20, 100, 33}, tokens[] = {1, 9, 17, 40};
  uint32_t block = 128u << random_below(2);
  size_t i = random_below(4), t = tokens[random_below(4)];
  if (!round) check_shape(k, reference, form, 16, 6912, 256, LARGEST, 5);
  if (!round) check_shape(k, reference, form, 16, 6912, 256, LARGEST, 1); // one token's sums may grow faster
  if (round) check_shape(k, reference, form, rows[i], columns[random_below(4)], block, (mode)random_below(MODES), t);
}

void check_products(const st_kernels *k, const st_kernels *reference, st_form form, shape_class shape, size_t round) {
  static const size_t tokens[] = {17, 1, 2, 3, 5, 7, 16, 33};
  uint32_t block = 64u << random_below(3);
  size_t n = tokens[round ? random_below(8) : 0], rows = 1 + random_below(50);
  switch (shape) {
  case NARROW:
    for (size_t i = 0; i < 4; i++)
      check_shape(k, reference, form, rows, 1 + random_below(67), block, RANDOM, tokens[(2 * i + round) % 8]);
    break;
  case TAILS:
    for (size_t i = 0; i < 4; i++)
      check_shape(k, reference, form, 1 + random_below(50), 96, block, (mode)random_below(MODES),
                  tokens[i + round % 5]);
    break;
  case EXTREMES:
    for (int how = 0; how < MODES; how++) {
      size_t i = random_below(round ? 8 : 2);
      check_shape(k, reference, form, 16 + 13 * i, 512 + 160 * i, block, (mode)how, n);
    }
    break;
  default: check_long_rows(k, reference, form, round);
  }
}

// Every value format that has a form of codes: a packed row reads as the format decodes it.
static void check_formats(const st_kernels *k, const st_kernels *reference, size_t round) {
  (void)reference, (void)round;
  enum { ROWS = 19, COLUMNS = 512 };
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *format = st_format_get((st_format_id)id);
    st_form form = st_form_of(format);
    if (st_form_rows_taken(form) != ST_FORM_BLOCKS) continue;
    bool whole = format->ops->row_head;
    uint32_t block = whole ? COLUMNS : format->block;
    size_t row_bytes = st_format_row_bytes(format, COLUMNS), group_bytes = st_form_group_bytes(form, COLUMNS, block);
    uint8_t *bytes = st_malloc(ROWS, row_bytes);
    guarded groups = guarded_alloc(2 * group_bytes);
    static float decoded[ROWS * COLUMNS], out[COLUMNS];
    for (size_t i = 0; i < ROWS * row_bytes; i++) bytes[i] = (uint8_t)random_below(256);
    for (size_t i = 1; i < ROWS * row_bytes && whole; i += row_bytes) bytes[i] &= 0xBF;
    for (size_t i = 0; i < ROWS * row_bytes && !whole; i += format->block_bytes) { // finite scales, and minimums
      for (uint32_t s = 0; s < format->ops->value->n_scales; s++)
        bytes[i + format->ops->value->scale_at[s] + 1] &= 0xBF;
    }
    st_strip strip = {.row = 0, .count = ROWS, .bytes = ROWS * row_bytes};
    format->ops->decode(format, (st_shape){ROWS, COLUMNS}, &strip, bytes, decoded);
    st_form_pack(form, format, COLUMNS, block, bytes, NULL, 16, groups.data);
    st_form_pack(form, format, COLUMNS, block, bytes + 16 * row_bytes, NULL, ROWS - 16, groups.data + group_bytes);
    st_matrix m = {.form = form,
                   .rows = ROWS,
                   .columns = COLUMNS,
                   .block = block,
                   .bfloat = format->ops->bfloat,
                   .group_bytes = group_bytes,
                   .data = groups.data};
    for (size_t r = 0; r < ROWS; r++) {
      k->row[form](&m, r, out);
      comparisons++;
      if (memcmp(out, decoded + r * COLUMNS, sizeof out))
        FAIL("%s: row %zu decodes differently packed", format->name, r);
    }
    guarded_free(&groups);
    st_free(bytes);
  }
}

const kernel_test test_formats = {"formats", check_formats, NULL};

void bench_product(const ceilings *b, st_form form, st_activation kind, size_t rows, size_t columns, size_t tokens) {
  if (!b->k.matmul[form][kind]) return;
  matrix w = make_matrix(form, rows, columns, 256, RANDOM);
  size_t bytes = rows / 16 * w.m.group_bytes, copies = tokens == 1 ? ARENA / bytes : 1;
  for (size_t i = 0; i < copies; i++) memcpy(b->arena + i * bytes, w.m.data, bytes);
  float *x = st_malloc(tokens * columns, sizeof *x), *out = st_malloc(tokens * rows, sizeof *out);
  random_activations(x, tokens * columns, RANDOM);
  st_input input;
  prepare(&b->k, &input, kind, x, tokens, columns);
  double best = 1e9;
  for (double start = now(); now() - start < 0.3;) {
    double t = now();
    for (size_t i = 0; i < copies; i++) {
      w.m.data = b->arena + i * bytes;
      b->k.matmul[form][kind](&w.m, &input, 0, rows, out, rows);
    }
    best = fmin(best, (now() - t) / (double)copies);
  }
  double macs = (double)rows * (double)columns * (double)tokens / best, moved = (double)bytes / best;
  double compute = macs / (kind == ST_ACT_F32 ? b->floats : b->int8), memory = moved / b->bytes;
  printf("%-6s %-4s x %-10s %5zux%-5zu %4zu tokens: %9.4f ms %7.1f GMAC/s %6.2f GB/s %5.1f%% of %s\n", b->k.name,
         form_name(form), activation_names[kind], rows, columns, tokens, best * 1e3, macs * 1e-9, moved * 1e-9,
         100 * fmax(compute, memory), compute > memory ? "multiply-adds" : "memory");
  st_free(x), st_free(out), free_input(&input);
  free_matrix(&w);
}
