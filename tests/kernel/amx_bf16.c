// AMX's products of BF16 with its tile instructions emulated: the same source, on any processor with AVX-512, against
// the order of additions that docs/kernels.md lays down, computed here, and against float64.
#include "base/cpu.h"
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <float.h>

#if defined(__x86_64__)
static int check_emulated(timed_rounds r);
#endif

// Before TILES_BEGIN, so that a processor without AVX-512 gets here.
int main(int argc, char **argv) {
  timed_rounds r = rounds_of_arguments(argc, argv);
  table_name = "amx bf16 (emulated)";
#if defined(__x86_64__)
  if (st_cpu_detect().avx512) return check_emulated(r);
#else
  (void)r;
#endif
  printf("amx bf16 (emulated) skipped: this processor has no AVX-512\n");
  return 77;
}

#if defined(__x86_64__)
#include "common/tiles.h"

TILES_BEGIN
#include "kernel/x86/floats_amxbf16.c"
TILES_END

static st_kernels table;
static st_form bf16;

static bool is_bf16(st_form form) {
  return st_form_is(form, ST_KIND_FLOATS) && st_coding_of(form).number == ST_NUMBER_BF16;
}

// The sum over the columns of a plane: 32 at a time, whose even and odd ones are added up apart.
static float plane_sum(const float *weights, const float *plane, size_t columns) {
  float sum = 0;
  for (size_t first = 0; first < columns; first += 32) {
    float part[2] = {0, 0};
    for (size_t i = first; i < columns && i < first + 32; i++) {
      part[i % 2] = fmaf(plane[i], weights[i], part[i % 2]);
    }
    sum += part[0] + part[1];
  }
  return sum;
}

// A float's first 8 bits of mantissa, what is left of it, and so on. Exact for numbers that are far from subnormal.
static void split(float x, float planes[3]) {
  for (int p = 0; p < 3; p++) {
    int exponent;
    float mantissa = frexpf(x, &exponent);
    planes[p] = ldexpf(truncf(mantissa * 256), exponent - 8);
    x -= planes[p];
  }
}

static void check_order(const matrix *w, const float *x, size_t tokens, const float *out) {
  size_t columns = w->m.columns;
  float *planes[3];
  for (int p = 0; p < 3; p++) planes[p] = st_malloc(columns, sizeof(float));
  for (size_t t = 0; t < tokens; t++) {
    for (size_t i = 0; i < columns; i++) {
      float three[3];
      split(x[t * columns + i], three);
      for (int p = 0; p < 3; p++) planes[p][i] = three[p];
    }
    for (size_t r = 0; r < w->m.rows; r++) {
      float sums[3];
      for (int p = 0; p < 3; p++) sums[p] = plane_sum(w->dense + r * columns, planes[p], columns);
      float expected = sums[2] + sums[1] + sums[0], got = out[t * w->m.rows + r];
      comparisons++;
      if (same(got, expected)) continue;
      FAIL("%zux%zu, token %zu of %zu, row %zu: %.9g, expected %.9g", w->m.rows, columns, t, tokens, r, (double)got,
           (double)expected);
      break;
    }
  }
  for (int p = 0; p < 3; p++) st_free(planes[p]);
}

// Three products for each step, group of rows and tile of tokens; those of more than 16 tokens come in fours.
static size_t expected_products(const st_matrix *w, size_t tokens, size_t first, size_t last) {
  size_t groups = (last - first + 15) / 16, tiles = (tokens + 15) / 16, steps = (w->columns + 31) / 32;
  if (tokens > 16) groups = st_round_up(groups, 2), tiles = st_round_up(tiles, 2);
  return 3 * groups * tiles * steps;
}

static void counted_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                           size_t stride) {
  size_t before = tile_products, expected = expected_products(w, input->tokens, first, last);
  bf16_matmul(w, input, first, last, out, stride);
  if (tile_products - before != expected)
    FAIL("%zu tokens: %zu products of tiles, expected %zu", input->tokens, tile_products - before, expected);
  if (tiles_configured()) FAIL("tiles are not released");
}

static void check(const st_kernels *reference, size_t rows, size_t columns, size_t tokens, mode weights, mode how) {
  matrix w = make_matrix(bf16, rows, columns, 0, weights);
  float *x = st_malloc(tokens * columns, sizeof *x), *out = st_malloc(tokens * rows + 32, sizeof *out);
  check_product(&table, reference, &w, ST_ACT_F32, how, tokens); // against float64, and tokens alone
  random_activations(x, tokens * columns, how);
  product(&table, &w, ST_ACT_F32, x, tokens, out);
  if (how != SMALLEST && weights != SMALLEST) check_order(&w, x, tokens, out + 16);
  st_free(x), st_free(out);
  free_matrix(&w);
}

// An input that is prepared in parts, from the last to the first, gives the same.
static void check_parts(size_t tokens) {
  enum { ROWS = 33, COLUMNS = 100 };
  matrix w = make_matrix(bf16, ROWS, COLUMNS, 0, RANDOM);
  size_t unit = table.prepare_unit(ST_ACT_F32, tokens), bytes = table.input_bytes(ST_ACT_F32, tokens, COLUMNS);
  float *x = st_malloc(tokens * COLUMNS, sizeof *x), *out = st_malloc(tokens * ROWS, sizeof *out);
  guarded data = guarded_alloc(bytes);
  void *scratch = st_aligned_alloc(table.scratch_bytes);
  st_input input = {.scratch = scratch, .kind = ST_ACT_F32, .tokens = tokens, .columns = COLUMNS, .data = data.data};
  memset(data.data, 0x5A, bytes);
  random_activations(x, tokens * COLUMNS, RANDOM);
  for (size_t first = st_round_up(tokens, unit); first; first -= unit) {
    table.prepare(&input, x, COLUMNS, NULL, 0, first - unit, first < tokens ? first : tokens);
  }
  table.matmul[bf16][ST_ACT_F32](&w.m, &input, 0, ROWS, out, ROWS);
  check_order(&w, x, tokens, out);
  guarded_free(&data);
  st_free(scratch);
  st_free(x), st_free(out);
  free_matrix(&w);
}

// Where the scalar table's result is finite, nearly the same, except for three sums that may be subnormal; otherwise
// the same.
static bool like_scalar(float got, float scalar, float bound) {
  return isfinite(scalar) ? fabsf(got - scalar) <= fabsf(scalar) * bound + 3 * FLT_MIN : same(got, scalar);
}

// The largest numbers, infinities, NaN and small ones in one token, against the scalar table: no sum becomes infinite
// or NaN that is not there, and other tokens are unaffected.
static void check_extremes(const st_kernels *reference, size_t tokens) {
  const float values[] = {FLT_MAX,         -FLT_MAX, INFINITY,         -INFINITY,  NAN, st_float_from_bits(0x7F800001),
                          0x1.FFFFFEp126f, -0.0f,    0x1.FFFFFEp-112f, FLT_MIN / 8};
  enum { ROWS = 40, COLUMNS = 600, MOST = 33 };           // a second piece of columns
  matrix w = make_matrix(bf16, ROWS, COLUMNS, 0, RANDOM); // weights in -1..1
  float *x = st_calloc(MOST * COLUMNS, sizeof *x), *out = st_malloc(MOST * ROWS + 32, sizeof *out),
        *expected = st_malloc(MOST * ROWS + 32, sizeof *expected);
  for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
    size_t t = tokens / 2, at = v % 2 ? 17 : 590;
    for (size_t i = 0; i < tokens; i++) x[i * COLUMNS + 3] = i == t ? 0 : 0.5f;
    x[t * COLUMNS + at] = values[v];
    product(&table, &w, ST_ACT_F32, x, tokens, out);
    product(reference, &w, ST_ACT_F32, x, tokens, expected);
    x[t * COLUMNS + at] = 0;
    for (size_t i = 0; i < tokens * ROWS; i++) {
      comparisons++;
      bool subnormal = i / ROWS == t && fabsf(values[v]) < FLT_MIN;
      if (subnormal ? fabsf(out[16 + i]) < FLT_MIN : like_scalar(out[16 + i], expected[16 + i], 0x1p-15f)) continue;
      FAIL("an activation of %g, token %zu of %zu: %.9g, scalar %.9g", (double)values[v], i / ROWS, tokens,
           (double)out[16 + i], (double)expected[16 + i]);
    }
  }
  st_free(x), st_free(out), st_free(expected);
  free_matrix(&w);
}

// The listed shapes, one a round, and some random ones; the first round has every extreme.
static void check_shapes(const st_kernels *reference, size_t round) {
  static const size_t shapes[][3] = {{16, 32, 1},   {50, 96, 33},   {33, 1, 16},  {100, 1024, 32}, {48, 1056, 48},
                                     {40, 2560, 5}, {17, 67, 100},  {5, 96, 64},  {18, 352, 130},  {20, 320, 15},
                                     {31, 544, 25}, {1, 1120, 129}, {33, 512, 2}, {16, 288, 31},   {70, 160, 260}};
  const size_t *s = shapes[round % (sizeof shapes / sizeof *shapes)];
  check(reference, s[0], s[1], s[2], RANDOM, RANDOM);
  if (round) check(reference, s[0], s[1], s[2], (mode)random_below(MODES), (mode)(1 + random_below(MODES - 1)));
  for (int how = 0; how < MODES && !round; how++) check(reference, 19, 1056, 18, (mode)how, (mode)how);
  for (size_t i = 0; i < 4; i++)
    check(reference, 1 + random_below(40), 1 + random_below(130), 1 + random_below(50), RANDOM, RANDOM);
  for (size_t i = 0; i < 3; i++) check_parts(1 + random_below(70));
}

// Forms without a product of their own use the same input.
static void check_other_forms(const st_kernels *reference) {
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    if (!st_form_takes((st_form)form, ST_ACT_F32)) continue;
    matrix w = make_matrix((st_form)form, 35, 256, 64, RANDOM);
    if (!is_bf16((st_form)form)) check_product(&table, reference, &w, ST_ACT_F32, RANDOM, 37);
    free_matrix(&w);
  }
}

static int check_emulated(timed_rounds r) {
  st_kernels reference;
  setun_error err;
  if (st_kernels_get("avx512", &table, &err) != SETUN_OK || st_kernels_get("scalar", &reference, &err) != SETUN_OK)
    return 1;
  st_amxbf16_init(&table);
  table.scratch_bytes = AMX_SCRATCH;
  table.name = "amx";
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    if (is_bf16((st_form)form)) bf16 = (st_form)form;
  }
  table.matmul[bf16][ST_ACT_F32] = counted_matmul;
  for (; rounds_go_on(&r); r.round++) {
    st_random_seed(&random_state, rounds_seed(&r, 0));
    check_shapes(&reference, (size_t)r.round);
    check_extremes(&reference, r.round % 3 * 16 + 1);
    check_other_forms(&reference);
  }
  printf("amx bf16 (emulated) %s: %llu comparisons, %zu products of tiles\n", failures ? "FAILED" : "ok",
         (unsigned long long)comparisons, tile_products);
  rounds_print(&r);
  return failures != 0;
}
#endif
