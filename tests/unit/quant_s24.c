// The 2:4 format against vectors that NumPy made from its definition (tests/quant/packed/sparse-24-seed): pruning and
// packing bit for bit, what blocks mean, products straight from the packed form in every table, and invalid metadata.
#define _DEFAULT_SOURCE
#include "base/bytes.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/s24.h"
#include "quant_data.h"

#include <math.h>

enum { TOKENS = 3, MOST = 160, RUN = ST_S24_RUN };

static vectors input, expected;

typedef struct {
  char name[64];
  st_s24_kind kind;
  size_t k, n, group;
  vector dense, values, metadata, scales, x, codes, pruned, weight, y;
} golden;

static uint32_t word(vector v, size_t row, size_t column) {
  return st_load_u32((const uint8_t *)v.data + 4 * (row * v.columns + column));
}

static golden golden_of(const char *key) {
  golden g = {.k = 0};
  snprintf(g.name, sizeof g.name, "%.*s", (int)(strlen(key) - strlen(".dense")), key);
  g.kind = strncmp(key, "fp4", 3) ? ST_S24_INT4 : ST_S24_FP4;
  g.dense = vectors_get(&input, g.name, "dense", 1);
  g.values = vectors_get(&input, g.name, "values", 1);
  g.metadata = vectors_get(&input, g.name, "metadata", 1);
  g.scales = vectors_get(&input, g.name, "scales", 1);
  g.x = vectors_get(&input, g.name, "x", 1);
  g.codes = vectors_get(&expected, g.name, "codes", 1);
  g.pruned = vectors_get(&expected, g.name, "pruned", 1);
  g.weight = vectors_get(&expected, g.name, "weight", 1);
  g.y = vectors_get(&expected, g.name, "y", 1);
  g.k = 8 * g.dense.rows, g.n = g.dense.columns;
  g.group = (size_t)strtoul(strrchr(g.name, 'g') + 1, NULL, 10);
  return g;
}

// Prunes, packs and unpacks 32 rows of a column.
static void check_run(const golden *g, size_t run, size_t column) {
  uint8_t codes[RUN], back[RUN];
  uint32_t values[2], metadata;
  for (size_t i = 0; i < RUN; i++) {
    codes[i] = word(g->dense, 4 * run + i / 8, column) >> i % 8 * 4 & 15;
    assert_int_equal(codes[i], ((const uint8_t *)g->codes.data)[(RUN * run + i) * g->n + column]);
  }
  st_s24_prune(g->kind, codes, values, &metadata);
  for (size_t i = 0; i < 2; i++) assert_int_equal(values[i], word(g->values, 2 * run + i, column));
  assert_int_equal(metadata, word(g->metadata, run, column));
  assert_int_equal(st_s24_invalid(metadata), -1);
  st_s24_unpack(values, metadata, back);
  for (size_t i = 0; i < RUN; i++) {
    assert_int_equal(back[i], ((const uint8_t *)g->pruned.data)[(RUN * run + i) * g->n + column]);
  }
}

// A column as a row of blocks of 32. Groups of 16 leave two of them: one with the weights of even groups, one with
// those of odd ones.
static void make_row(const golden *g, const st_format *f, size_t column, size_t half, uint8_t *out) {
  for (size_t run = 0; run < g->k / RUN; run++, out += f->block_bytes) {
    size_t group = run * RUN / g->group + half,
           kept = g->group < RUN ? 2 : 4; // bytes of each word that hold values
    for (size_t i = 0; i < 2; i++) {
      uint32_t values = word(g->values, 2 * run + i, column);
      st_store_u32(out + 4 * i, kept == 4 || i == half ? values : 0);
    }
    st_store_u32(out + 8, word(g->metadata, run, column));
    memcpy(out + 12, (const uint8_t *)g->scales.data + 2 * (group * g->n + column), 2);
  }
}

static void check_products(const st_kernels *k, const golden *g, const st_matrix *m, size_t halves) {
  float x[TOKENS * MOST], *out = calloc(TOKENS * g->n, sizeof *out), *part = malloc(TOKENS * g->n * sizeof *part);
  memcpy(x, g->x.data, g->x.bytes);
  st_input in = {.kind = ST_ACT_F32, .tokens = TOKENS, .columns = g->k};
  in.data = st_aligned_alloc(k->input_bytes(in.kind, TOKENS, g->k));
  k->prepare(&in, x, g->k, NULL, 0, 0, TOKENS);
  for (size_t half = 0; half < halves; half++) {
    k->matmul[m->form][ST_ACT_F32](&m[half], &in, 0, g->n, part, g->n);
    for (size_t i = 0; i < TOKENS * g->n; i++) out[i] += part[i];
  }
  for (size_t i = 0; i < TOKENS * g->n; i++) {
    double want, all = 0;
    memcpy(&want, (const uint8_t *)g->y.data + 8 * i, 8);
    for (size_t c = 0; c < g->k; c++) {
      float w = st_load_f32((const uint8_t *)g->weight.data + 4 * (c * g->n + i % g->n));
      all += fabs((double)w * (double)x[i / g->n * g->k + c]);
    }
    if (!(fabs((double)out[i] - want) <= (double)g->k * 0x1p-24 * all))
      fail_msg("%s: %s: y[%zu] is %.9g, expected %.9g", k->name, g->name, i, (double)out[i], want);
  }
  st_free(in.data);
  free(part);
  free(out);
}

static void check_tables(const golden *g, const st_matrix *m, size_t halves) {
  char tables[128], *state = NULL;
  snprintf(tables, sizeof tables, "%s", st_kernels_available());
  for (char *table = strtok_r(tables, " ", &state); table; table = strtok_r(NULL, " ", &state)) {
    st_kernels k;
    setun_error err;
    assert_int_equal(st_kernels_get(table, &k, &err), SETUN_OK);
    check_products(&k, g, m, halves);
  }
}

static void check_blocks(const golden *g) {
  const st_format *f = st_format_by_name(g->kind == ST_S24_FP4 ? "2:4-fp4-32" : "2:4-int4-32");
  size_t halves = g->group < RUN ? 2 : 1, row_bytes = g->k / RUN * f->block_bytes, groups = (g->n + 15) / 16;
  st_matrix m[2];
  uint8_t *rows = malloc(g->n * row_bytes);
  float *sum = calloc(g->n * g->k, sizeof *sum), *out = malloc(g->n * g->k * sizeof *out);
  for (size_t half = 0; half < halves; half++) {
    for (size_t n = 0; n < g->n; n++) make_row(g, f, n, half, rows + n * row_bytes);
    assert_int_equal(st_format_check_scales(f, f->block, rows, g->n * row_bytes), -1);
    st_strip all = {.count = g->n, .bytes = g->n * row_bytes};
    f->ops->decode(f, (st_shape){g->n, g->k}, &all, rows, out);
    for (size_t i = 0; i < g->n * g->k; i++) sum[i] += out[i];
    m[half] = (st_matrix){.form = st_form_of(f), .rows = g->n, .columns = g->k, .block = f->block};
    assert_true(m[half].form != ST_FORM_F32);
    m[half].group_bytes = st_form_group_bytes(m[half].form, g->k, f->block);
    uint8_t *data = st_aligned_alloc(groups * m[half].group_bytes);
    for (size_t at = 0; at < g->n; at += 16) {
      st_form_pack(m[half].form, f, g->k, f->block, rows + at * row_bytes, NULL, g->n - at < 16 ? g->n - at : 16,
                   data + at / 16 * m[half].group_bytes);
    }
    m[half].data = data;
  }
  for (size_t i = 0; i < g->n * g->k; i++) {
    float want = st_load_f32((const uint8_t *)g->weight.data + 4 * (i % g->k * g->n + i / g->k));
    if (sum[i] != want) fail_msg("%s: weight %zu is %g, expected %g", g->name, i, (double)sum[i], (double)want);
  }
  check_tables(g, m, halves);
  for (size_t half = 0; half < halves; half++) st_free((void *)(uintptr_t)m[half].data);
  free(out);
  free(sum);
  free(rows);
}

static void test_golden(void **state) {
  (void)state;
  int seen = 0;
  const char *key;
  json_t *value;
  json_object_foreach(input.header, key, value) {
    size_t n = strlen(key);
    if (n < 6 || strcmp(key + n - 6, ".dense")) continue;
    golden g = golden_of(key);
    for (size_t i = 0; i < g.k / RUN * g.n; i++) check_run(&g, i / g.n, i % g.n);
    if (g.group <= RUN) check_blocks(&g); // groups of 64 in 160 rows are not whole blocks
    seen++;
  }
  assert_int_equal(seen, 37);
}

// Each word has one nibble that is not pos1 << 2 | pos0 with pos0 < pos1.
static void test_invalid(void **state) {
  (void)state;
  vector v = vectors_get(&input, "invalid", "metadata", 1);
  const st_format *f = st_format_by_name("2:4-int4-32");
  uint8_t block[14] = {0};
  assert_int_equal(v.rows, 10);
  for (size_t i = 0; i < v.rows; i++) {
    uint32_t metadata = word(v, i, 0);
    int bad = st_s24_invalid(metadata);
    if (bad < 0) fail_msg("%08x: expected an invalid nibble", (unsigned)metadata);
    st_store_u32(block + 8, metadata);
    assert_int_equal(st_format_check_scales(f, f->block, block, sizeof block), 8 + bad / 2);
  }
}

// The best two of four, by a second definition: the pair with the largest sum, of equal pairs the first.
static void test_choice(void **state) {
  (void)state;
  static const unsigned nibbles[6] = {4, 8, 12, 9, 13, 14};
  for (int i = 0; i < 256; i++) {
    float m[4] = {(float)(i & 3), (float)(i >> 2 & 3), (float)(i >> 4 & 3), (float)(i >> 6)}, best = -1;
    unsigned want = 0;
    for (int p = 0; p < 6; p++) {
      float sum = m[nibbles[p] & 3] + m[nibbles[p] >> 2];
      if (sum > best) best = sum, want = nibbles[p];
    }
    assert_int_equal(st_s24_choose(m), want);
  }
}

// Encoding keeps two of four, and recovers the codes and scale of weights that were made from some.
static void test_encode(void **state) {
  (void)state;
  vectors data;
  vectors_open(&data, "values.safetensors");
  static const char *const names[] = {"2:4-int4-32", "2:4-int4-64", "2:4-int4-128",
                                      "2:4-fp4-32",  "2:4-fp4-64",  "2:4-fp4-128"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const st_format *f = st_format_by_name(names[i]);
    vector values = vectors_get(&data, names[i], "values", 1);
    float in[128], out[128];
    uint8_t block[50];
    st_strip one = {.count = 1, .bytes = f->block_bytes};
    for (size_t row = 0; row < values.rows; row++) {
      memcpy(in, (const uint8_t *)values.data + 4 * f->block * row, 4 * f->block);
      f->ops->encode(f, (st_shape){1, f->block}, &one, in, block);
      assert_int_equal(st_format_check_scales(f, f->block, block, f->block_bytes), -1);
      f->ops->decode(f, (st_shape){1, f->block}, &one, block, out);
      double lost = 0, all = 0;
      for (size_t j = 0; j < f->block; j++) lost += pow((double)(in[j] - out[j]), 2), all += pow((double)in[j], 2);
      if (lost > 1e-5 * all) fail_msg("%s: row %zu: lost %g of %g", names[i], row, lost, all);
    }
  }
  vectors_close(&data);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_invalid),
                                     cmocka_unit_test(test_choice), cmocka_unit_test(test_encode)};
  vectors_open(&input, "packed/sparse-24-seed/input.safetensors");
  vectors_open(&expected, "packed/sparse-24-seed/expected.safetensors");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vectors_close(&input);
  vectors_close(&expected);
  return failed;
}
