// The product of one token with a matrix of each given form, larger than the caches, beside reading as many bytes: GB/s
// (1e9 bytes), the share of what reading reaches, and G weights a second. Rounds alternate, so that the machine's
// variations affect all equally; the medians are printed. Codes, places and zero points are random bytes, scales equal.
// usage: bench_forms [-t THREADS] [-m MIB] [-r ROUNDS] [-b BLOCK] [-i ISA] FORM... The forms are those of
// src/kernel/forms.def that take int8 activations by block, such as zp4 and s24i. See docs/quantization.md.
#define _GNU_SOURCE
#include "base/memory.h"
#include "base/pool.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 4096, FORMS_MOST = 8, ROUNDS_MOST = 64 };

typedef struct {
  const char *name;
  st_matrix w;
  size_t bytes;
  double seconds[ROUNDS_MOST];
} subject;

typedef struct {
  st_kernels k;
  st_pool *pool;
  st_input input;
  const st_matrix *w;
  const uint8_t *data;
  size_t bytes; // to read; 0: the product
  float *out;
  uint64_t read[64];
} bench;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const double *values, int n) {
  double sorted[ROUNDS_MOST];
  memcpy(sorted, values, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, by_value);
  return sorted[n / 2];
}

static void fail(const char *what) {
  fprintf(stderr, "bench_forms: %s\n", what);
  exit(1);
}

static st_form form_by_name(const char *name) {
  static const char *const names[] = {
#define FORM(id, text, ...) text,
#include "kernel/forms.def"
  };
  for (int i = 0; i < ST_FORM_COUNT; i++) {
    if (!strcmp(names[i], name) && st_form_takes((st_form)i, ST_ACT_INT8_BLOCK)) return (st_form)i;
  }
  fail("a form: expected one of src/kernel/forms.def that takes int8 activations by block");
  return ST_FORM_F32;
}

// Half-precision numbers of 0.01 wherever a form has them, and random bytes elsewhere.
static void fill(st_matrix *w, uint8_t *data) {
  const st_coding c = st_coding_of(w->form);
  size_t steps = w->columns / ST_STEP, each = c.head ? st_super_steps(w->form, w->block) : 1;
  size_t halves = (c.head ? c.head : c.front) / ST_SCALES * ST_GROUP;
  for (size_t group = 0; group < w->rows / ST_GROUP; group++) {
    uint8_t *p = data + group * w->group_bytes;
    for (size_t i = 0; i < w->group_bytes; i += 4) {
      uint32_t word = (uint32_t)random() << 1 ^ (uint32_t)random();
      memcpy(p + i, &word, 4);
    }
    for (size_t step = 0; step < steps; step += each, p += c.head + each * st_step_bytes(w->form)) {
      for (size_t i = 0; i < halves; i++) memcpy(p + 2 * i, &(uint16_t){0x211F}, 2);
    }
  }
}

static void make(subject *s, uint32_t block, size_t bytes) {
  s->w = (st_matrix){.form = form_by_name(s->name), .columns = COLUMNS, .block = block};
  s->w.group_bytes = st_form_group_bytes(s->w.form, COLUMNS, block);
  s->w.rows = bytes / s->w.group_bytes * ST_GROUP;
  s->bytes = s->w.rows / ST_GROUP * s->w.group_bytes;
  uint8_t *data = st_pages_alloc(s->bytes, true);
  if (!data) fail("out of memory");
  fill(&s->w, data);
  s->w.data = data;
}

static void work(void *context, int index, int count) {
  bench *b = context;
  size_t first, last;
  if (b->bytes) {
    st_pool_share(b->bytes / 64, 1, index, count, &first, &last);
    b->read[index] = b->k.read(b->data + 64 * first, 64 * (last - first));
    return;
  }
  st_input input = b->input;
  st_pool_share(b->w->rows, ST_GROUP, index, count, &first, &last);
  input.scratch = b->k.scratch_bytes ? st_pages_alloc(b->k.scratch_bytes, false) : NULL;
  b->k.matmul[b->w->form][ST_ACT_INT8_BLOCK](b->w, &input, first, last, b->out, b->w->rows);
  if (input.scratch) st_pages_free(input.scratch, b->k.scratch_bytes);
}

static double run(bench *b, const subject *s, bool read) {
  b->w = &s->w, b->data = s->w.data, b->bytes = read ? s->bytes : 0;
  double start = now();
  st_pool_run(b->pool, work, b);
  return now() - start;
}

int main(int argc, char **argv) {
  static subject subjects[FORMS_MOST];
  bench b = {0};
  int threads = st_default_threads(), rounds = 9, n = 0, option;
  size_t bytes = (size_t)256 << 20;
  uint32_t block = 128;
  const char *isa = NULL;
  while ((option = getopt(argc, argv, "t:m:r:b:i:")) != -1) {
    if (option == 't') threads = atoi(optarg);
    if (option == 'm') bytes = (size_t)atoi(optarg) << 20;
    if (option == 'r') rounds = atoi(optarg);
    if (option == 'b') block = (uint32_t)atoi(optarg);
    if (option == 'i') isa = optarg;
    if (option == '?') return 1;
  }
  if (rounds < 1 || rounds > ROUNDS_MOST || threads < 1 || threads > 64 || argc - optind > FORMS_MOST || argc == optind)
    fail("expected 1 to 64 rounds and threads, and 1 to 8 forms");
  if (st_kernels_get(isa, &b.k, NULL) != SETUN_OK || st_pool_new(NULL, threads, &b.pool, NULL) != SETUN_OK)
    fail("no such kernels, or no memory");
  size_t most = 0;
  for (; optind < argc; n++, optind++) {
    subjects[n].name = argv[optind];
    make(&subjects[n], block, bytes);
    if (subjects[n].w.rows > most) most = subjects[n].w.rows;
  }
  float x[COLUMNS];
  for (int i = 0; i < COLUMNS; i++) { // normal
    double u = ((double)random() + 1) / 2147483649.0, v = (double)random() / 2147483648.0;
    x[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
  b.input = (st_input){.kind = ST_ACT_INT8_BLOCK, .tokens = 1, .columns = COLUMNS};
  b.input.data = st_pages_alloc(b.k.input_bytes(ST_ACT_INT8_BLOCK, 1, COLUMNS), false);
  b.out = st_pages_alloc(most * sizeof *b.out, true);
  if (!b.input.data || !b.out) fail("out of memory");
  b.k.prepare(&b.input, x, COLUMNS, NULL, 0, 0, 1);
  double reads[ROUNDS_MOST];
  for (int i = -1; i < rounds; i++) { // the first one only warms up
    double seconds = run(&b, &subjects[0], true);
    if (i >= 0) reads[i] = seconds;
    for (int j = 0; j < n; j++) {
      seconds = run(&b, &subjects[j], false);
      if (i >= 0) subjects[j].seconds[i] = seconds;
    }
  }
  double ceiling = (double)subjects[0].bytes / median(reads, rounds) * 1e-9;
  printf("%s, %d threads, groups of %u: reading %.1f GB/s\n", b.k.name, threads, (unsigned)block, ceiling);
  for (int j = 0; j < n; j++) {
    double seconds = median(subjects[j].seconds, rounds), speed = (double)subjects[j].bytes / seconds * 1e-9;
    double weights = (double)subjects[j].w.rows * COLUMNS;
    printf("%-5s %.3f bits a weight, %5.1f GB/s, %5.1f%% of reading, %6.2f G weights/s\n", subjects[j].name,
           8 * (double)subjects[j].bytes / weights, speed, 100 * speed / ceiling, weights / seconds * 1e-9);
  }
  st_pool_free(b.pool);
  return 0;
}
