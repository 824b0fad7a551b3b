// Every function of every table that this processor runs, against the scalar table bit for bit and against float64
// sums computed here; then, with --bench, how fast each is.
//
//   kernel_kernels [--seed N|random] [--seconds S] [--isa NAME] [--only NAME] [--bench]
#include "common/harness.h"

#include "base/memory.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const kernel_test *const kernel_tests[] = {&test_formats,     &test_quantize_token, &test_rmsnorm,  &test_glu,
                                                  &test_add,         &test_rope,           &test_hadamard, &test_attend,
                                                  &test_attend_deep, &test_recurrent};
enum { KERNEL_TESTS = sizeof kernel_tests / sizeof *kernel_tests };

typedef struct {
  timed_rounds rounds;
  const char *isa, *only; // NULL: all
} options;

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
  kernel_check all[CHECKS_MOST];
  size_t n = 0;
  for (size_t i = 0; i < KERNEL_TESTS; i++) {
    all[n++] = (kernel_check){kernel_tests[i]->name, kernel_tests[i]->check, 0};
  }
  for (int form = 0; form < ST_FORM_COUNT; form++)
    all[n++] = (kernel_check){form_name((st_form)form), NULL, (st_form)form};
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

// Each table that this processor can run; the others are named as skipped.
static int run_checks(const options *o) {
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

// ---- benches ------------------------------------------------------------------------------------------------------

static void measure_ceilings(ceilings *b) {
  b->int8 = b->floats = b->bytes = 0;
  for (int i = 0; i < 5; i++) {
    double t = now(), n = (double)b->k.peak_int8(1u << 30);
    b->int8 = fmax(b->int8, n / (now() - t));
    t = now(), n = (double)b->k.peak_float(1u << 28);
    b->floats = fmax(b->floats, n / (now() - t));
    t = now(), b->k.read(b->arena, ARENA);
    b->bytes = fmax(b->bytes, ARENA / (now() - t));
  }
  printf("%s, 1 thread: int8 %.0f GMAC/s, float32 %.0f GMAC/s from registers, read %.1f GB/s\n", b->k.name,
         b->int8 / 1e9, b->floats / 1e9, b->bytes / 1e9);
}

static void bench_table(ceilings *b, const options *o) {
  static const size_t shapes[][2] = {{2560, 2560}, {640, 2560}, {6912, 2560}, {2560, 6912}};
  static const size_t tokens[] = {2, 4, 8, 16, 32, 128, 512};
  measure_ceilings(b);
  for (int i = 0; i < ST_FORM_COUNT * ST_ACT_COUNT; i++) {
    st_form form = (st_form)(i / ST_ACT_COUNT);
    st_activation kind = (st_activation)(i % ST_ACT_COUNT);
    if (!st_form_takes(form, kind) || (o->only && strcmp(o->only, form_name(form)))) continue;
    for (size_t s = 0; s < 4; s++) bench_product(b, form, kind, shapes[s][0], shapes[s][1], 1);
    for (size_t t = 0; t < 7; t++) bench_product(b, form, kind, 2560, 2560, tokens[t]);
  }
  for (size_t i = 0; i < KERNEL_TESTS; i++) {
    const kernel_test *test = kernel_tests[i];
    if (test->bench && (!o->only || !strcmp(o->only, test->name))) test->bench(b);
  }
}

static int run_bench(const options *o) {
  ceilings b = {.arena = st_pages_alloc(ARENA, true)};
  if (!b.arena) return fprintf(stderr, "no memory for the arena\n"), 1;
  st_random_seed(&random_state, o->rounds.seed);
  for (size_t i = 0; i < ARENA; i += 8) {
    uint64_t u = st_random_u64(&random_state);
    memcpy(b.arena + i, &u, 8);
  }
  for (size_t i = 1; st_isa_name(i); i++) { // the scalar table would take minutes
    setun_error err;
    if ((o->isa && strcmp(o->isa, st_isa_name(i))) || st_kernels_get(st_isa_name(i), &b.k, &err) != SETUN_OK) continue;
    bench_table(&b, o);
  }
  st_pages_free(b.arena, ARENA);
  return 0;
}

int main(int argc, char **argv) {
  options o = {.rounds = rounds_begin()};
  bool bench = false;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (rounds_option(&o.rounds, argc, argv, &i)) continue;
    if (!strcmp(argv[i], "--bench"))
      bench = true;
    else if (!strcmp(argv[i], "--isa") && value)
      o.isa = value, i++;
    else if (!strcmp(argv[i], "--only") && value)
      o.only = value, i++;
    else
      return fprintf(stderr, "usage: %s [--seed N|random] [--seconds S] [--isa NAME] [--only NAME] [--bench]\n",
                     argv[0]),
             2;
  }
  return bench ? run_bench(&o) : run_checks(&o);
}
