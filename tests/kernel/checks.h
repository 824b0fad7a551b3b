// The checks: products, input preparation, and the smaller functions.
#ifndef SETUN_TESTS_KERNEL_CHECKS_H
#define SETUN_TESTS_KERNEL_CHECKS_H

#include "matrices.h"
#include "rounds.h"

typedef struct {
  timed_rounds rounds;
  const char *isa, *only; // NULL: all
} options;

static int failures;
static uint64_t comparisons;
static const char *table_name;

#define FAIL(...)                                                                                                      \
  do {                                                                                                                 \
    if (failures++ < 20) {                                                                                             \
      printf("FAIL %s: ", table_name);                                                                                 \
      printf(__VA_ARGS__);                                                                                             \
      printf("\n");                                                                                                    \
    }                                                                                                                  \
  } while (0)

// Same bits, or both NaN.
static bool same(float a, float b) {
  return st_float_bits(a) == st_float_bits(b) || (a != a && b != b);
}

static const float guard_value = 12345.5f;
static void fill_guard(float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = guard_value;
}

static void random_floats(float *x, size_t n, mode how) {
  for (size_t i = 0; i < n; i++)
    x[i] = how == ZERO ? 0 : how == LARGEST ? -1e6f : how == SMALLEST ? 1e-30f : random_float();
  if (how == ONE_ELEMENT) {
    memset(x, 0, n * sizeof *x);
    x[random_below((uint32_t)n)] = 3;
  }
}

// Random ones have an outlier in about one of eight blocks of 32, as a model's do.
static void random_activations(float *x, size_t n, mode how) {
  random_floats(x, n, how);
  for (size_t i = 0; i < n && how == RANDOM; i++) x[i] *= random_below(256) ? 1 : 12;
}

static void prepare(const st_kernels *k, st_input *input, st_activation kind, const float *x, size_t tokens,
                    size_t columns) {
  *input = (st_input){.kind = kind, .tokens = tokens, .columns = columns};
  input->data = st_aligned_alloc(k->input_bytes(kind, tokens, columns));
  if (k->scratch_bytes) input->scratch = st_aligned_alloc(k->scratch_bytes);
  k->prepare(input, x, columns, NULL, 0, 0, tokens);
}

static inline void free_input(st_input *input) {
  st_free(input->data), st_free(input->scratch);
}

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

// What the activations mean after rounding, in float64.
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
// the largest weight's magnitude counts for all, and a factor covers what is left of either.
static void check_against_double(const matrix *w, st_activation kind, const float *x, size_t tokens, const float *out) {
  size_t columns = w->m.columns;
  bool minimums = st_coding_of(w->m.form).minimums, made_here = is_made_here(format_for(w->m.form, 64).id);
  double *a = st_malloc(columns, sizeof *a);
  for (size_t t = 0; t < tokens; t++) {
    rounded_activations(kind, x + t * columns, columns, a);
    for (size_t r = 0; r < w->m.rows; r++) {
      double sum = 0, magnitude = 0, largest = 0, activations = 0;
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
        FAIL("%s x %s, %zux%zu, token %zu of %zu, row %zu: %.9g, expected %.9g +- %.3g", st_form_name(w->m.form),
             activation_names[kind], w->m.rows, columns, t, tokens, r, (double)out[t * w->m.rows + r], sum, bound);
      }
    }
  }
  st_free(a);
}

// out is [tokens][rows] with guards on both sides.
static void product(const st_kernels *k, const matrix *w, st_activation kind, const float *x, size_t tokens,
                    float *guarded_out) {
  size_t n = tokens * w->m.rows;
  st_input input;
  fill_guard(guarded_out, n + 32);
  prepare(k, &input, kind, x, tokens, w->m.columns);
  size_t middle = w->m.rows / 2 / 16 * 16; // as two threads would
  k->matmul[w->m.form][kind](&w->m, &input, 0, middle, guarded_out + 16, w->m.rows);
  k->matmul[w->m.form][kind](&w->m, &input, middle, w->m.rows, guarded_out + 16, w->m.rows);
  for (size_t i = 0; i < 16; i++) {
    if (guarded_out[i] != guard_value || guarded_out[16 + n + i] != guard_value) FAIL("wrote outside of its output");
  }
  free_input(&input);
}

// Whether a table's product has the scalar table's bits. AMX's of BF16 weights with float32 inputs adds up in an order
// of its own: amx_bf16.c has it.
static bool adds_alike(const st_kernels *k, st_form form, st_activation kind) {
  return st_coding_of(form).number != ST_NUMBER_BF16 || kind != ST_ACT_F32 || strcmp(k->name, "amx");
}

static void check_product(const st_kernels *k, const st_kernels *reference, const matrix *w, st_activation kind,
                          mode how, size_t tokens) {
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
    FAIL("%s x %s, %zux%zu, %zu tokens, %s: token %zu row %zu: %.9g, scalar %.9g", st_form_name(w->m.form),
         activation_names[kind], rows, columns, tokens, mode_names[how], i / rows, i % rows, (double)out[16 + i],
         (double)expected[16 + i]);
    break;
  }
  size_t t = random_below((uint32_t)tokens); // alone, one token of the batch has the same bits
  product(k, w, kind, x + t * columns, 1, expected);
  for (size_t r = 0; r < rows; r++) {
    if (!same(out[16 + t * rows + r], expected[16 + r])) {
      FAIL("%s x %s: token %zu of %zu differs from itself alone", st_form_name(w->m.form), activation_names[kind], t,
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
      FAIL("row %zu of %s: column %d: %.9g, expected %.9g", r, st_form_name(w->m.form), (int)i - 16, (double)out[i],
           (double)expected);
      break;
    }
  }
  st_free(out);
}

static void check_shape(const st_kernels *k, const st_kernels *reference, st_form form, size_t rows, size_t columns,
                        uint32_t block, mode how, size_t tokens) {
  if (st_form_rows_taken(form) == ST_FORM_BLOCKS) columns = st_round_up(columns, format_for(form, block).block);
  matrix w = make_matrix(form, rows, columns, block, how);
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    if (k->matmul[form][kind]) check_product(k, reference, &w, (st_activation)kind, how, tokens);
    if (k->matmul[form][kind] && how != RANDOM) check_product(k, reference, &w, (st_activation)kind, RANDOM, tokens);
  }
  check_row(k, &w);
  free_matrix(&w);
}

// Shapes of products. What one check does grows with the rounds, so that the first is short on a slow machine.
typedef enum { NARROW, TAILS, EXTREMES, LONG_ROWS, SHAPES } shape_class;

// Sums of the longest rows, at their extremes: what a narrow accumulator might not hold.
static void check_long_rows(const st_kernels *k, const st_kernels *reference, st_form form, size_t round) {
  static const size_t columns[] = {6912, 3200, 2560, 4160}, rows[] = {16, 20, 100, 33}, tokens[] = {1, 9, 17, 40};
  uint32_t block = 128u << random_below(2);
  size_t i = random_below(4), t = tokens[random_below(4)];
  if (!round) check_shape(k, reference, form, 16, 6912, 256, LARGEST, 5);
  if (round) check_shape(k, reference, form, rows[i], columns[random_below(4)], block, (mode)random_below(MODES), t);
}

static void check_products(const st_kernels *k, const st_kernels *reference, st_form form, shape_class shape,
                           size_t round) {
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
    size_t row_bytes = COLUMNS / format->block * format->block_bytes,
           group_bytes = st_form_group_bytes(form, COLUMNS, 32);
    uint8_t *bytes = st_malloc(ROWS, row_bytes);
    guarded groups = guarded_alloc(2 * group_bytes);
    static float decoded[ROWS * COLUMNS], out[COLUMNS];
    for (size_t i = 0; i < ROWS * row_bytes; i++) bytes[i] = (uint8_t)random_below(256);
    for (size_t i = 0; i < ROWS * row_bytes; i += format->block_bytes) { // finite scales, and minimums
      for (uint32_t s = 0; s < format->ops->value->n_scales; s++)
        bytes[i + format->ops->value->scale_at[s] + 1] &= 0xBF;
    }
    st_strip strip = {.row = 0, .count = ROWS, .bytes = ROWS * row_bytes};
    format->ops->decode(format, (st_shape){ROWS, COLUMNS}, &strip, bytes, decoded);
    st_form_pack(form, format, COLUMNS, 32, bytes, NULL, 16, groups.data);
    st_form_pack(form, format, COLUMNS, 32, bytes + 16 * row_bytes, NULL, ROWS - 16, groups.data + group_bytes);
    st_matrix m = {.form = form, .rows = ROWS, .columns = COLUMNS, .group_bytes = group_bytes, .data = groups.data};
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

#include "checks_misc.h"

// What a class of checks compares: products in one form, with every shape a class, or another function.
typedef struct {
  const char *name;
  void (*check)(const st_kernels *k, const st_kernels *reference, size_t round); // NULL: products in `form`
  st_form form;
} kernel_check;

enum { CHECKS_MOST = ST_FORM_COUNT + 16, TABLES_MOST = 16 };
static kernel_check checks[CHECKS_MOST];
static size_t n_checks;

typedef struct {
  st_kernels k;
  const char *name;
  uint64_t compared[CHECKS_MOST];
  int failures;
} checked_table;

static void list_checks(const options *o) {
  kernel_check all[CHECKS_MOST] = {{"formats", check_formats, 0}};
  size_t n = 1;
  for (size_t i = 0; i < sizeof misc_checks / sizeof *misc_checks; i++) {
    all[n++] = (kernel_check){misc_checks[i].name, misc_checks[i].check, 0};
  }
  for (int form = 0; form < ST_FORM_COUNT; form++)
    all[n++] = (kernel_check){st_form_name((st_form)form), NULL, (st_form)form};
  for (size_t i = 0; i < n; i++) {
    if (!o->only || !strcmp(o->only, all[i].name)) checks[n_checks++] = all[i];
  }
}

static void check_once(checked_table *t, const st_kernels *reference, size_t i, int shape, size_t round) {
  uint64_t before = comparisons;
  int failed = failures;
  table_name = t->name;
  if (checks[i].check)
    checks[i].check(&t->k, reference, round);
  else
    check_products(&t->k, reference, checks[i].form, (shape_class)shape, round);
  t->compared[i] += comparisons - before, t->failures += failures - failed;
}

// One check of every class; false: the time ended before.
static bool check_round(const timed_rounds *r, checked_table *tables, size_t n, const st_kernels *reference) {
  uint64_t class_index = 0;
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t i = 0; i < n_checks; i++, class_index++) {
      for (size_t t = 0; t < n; t++) { // the same inputs for every table
        if (!rounds_go_on(r)) return false;
        st_random_seed(&random_state, rounds_seed(r, class_index));
        if (!shape || !checks[i].check) check_once(&tables[t], reference, i, shape, (size_t)r->round);
      }
    }
  }
  return true;
}

static void print_coverage(const checked_table *tables, size_t n) {
  printf("%-14s", "comparisons");
  for (size_t t = 0; t < n; t++) printf(" %12s", tables[t].name);
  for (size_t i = 0; i < n_checks; i++) {
    printf("\n%-14s", checks[i].name);
    for (size_t t = 0; t < n; t++) printf(" %12llu", (unsigned long long)tables[t].compared[i]);
  }
  printf("\n");
}

// Each table that this processor runs; those that it does not are named as skipped.
static inline int run_checks(const options *o) {
  static checked_table tables[TABLES_MOST];
  st_kernels reference;
  setun_error err;
  size_t n = 0;
  timed_rounds r = o->rounds;
  if (st_kernels_get(st_isa_name(0), &reference, &err) != SETUN_OK) return printf("FAIL scalar: %s\n", err.message), 1;
  for (size_t i = 0; st_isa_name(i) && n < TABLES_MOST; i++) {
    const char *name = tables[n].name = st_isa_name(i);
    if (o->isa && strcmp(o->isa, name)) continue;
    if (st_kernels_get(name, &tables[n].k, &err) == SETUN_OK)
      n++;
    else
      printf("%-8s skipped: %s\n", name, err.message);
  }
  list_checks(o);
  if (!n || !n_checks) return printf("nothing to check\n"), 77;
  while (check_round(&r, tables, n, &reference)) r.round++;
  print_coverage(tables, n);
  for (size_t t = 0; t < n; t++) printf("%-8s %s\n", tables[t].name, tables[t].failures ? "FAILED" : "ok");
  rounds_print(&r);
  return failures != 0;
}

#endif
