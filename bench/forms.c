// The product of one token with a matrix of each given form, larger than the caches, beside reading as many bytes: GB/s
// (1e9 bytes), the share of what reading reaches, and G weights a second. Rounds alternate, so that the machine's
// variations affect all equally; the medians are printed. Codes, places and zero points are random bytes, scales equal.
// usage: bench_forms [-t THREADS] [-m MIB] [-r ROUNDS] [-b BLOCK] [-i ISA] FORM... The forms are those of
// src/kernel/forms.def that take int8 activations by block, such as zp4 and s24i. See docs/quantization.md.
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"
#include "form_names.h"
#include "kernel/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 4096, FORMS_MOST = 8, ROUNDS_MOST = 64, THREADS_MOST = 64, MIB_MOST = 1 << 20 };

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
  uint64_t read[THREADS_MOST];
  void *scratch[THREADS_MOST];
} bench;

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

// A decimal number from 1 to `most`.
static size_t number(char option, const char *text, size_t most) {
  char *end;
  unsigned long n = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
  if (n && !*end && n <= most) return n;
  fprintf(stderr, "bench_forms: -%c: expected a number from 1 to %zu, found %s\n", option, most, text);
  exit(1);
}

static st_form form_by_name(const char *name) {
  for (int i = 0; i < ST_FORM_COUNT; i++) {
    if (!strcmp(form_name((st_form)i), name) && st_form_takes((st_form)i, ST_ACT_INT8_BLOCK)) return (st_form)i;
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
  input.scratch = b->scratch[index];
  b->k.matmul[b->w->form][ST_ACT_INT8_BLOCK](b->w, &input, first, last, b->out, b->w->rows);
}

static double run(bench *b, const subject *s, bool read) {
  b->w = &s->w, b->data = s->w.data, b->bytes = read ? s->bytes : 0;
  double start = st_clock_seconds();
  st_pool_run(b->pool, work, b);
  return st_clock_seconds() - start;
}

static void make_input(bench *b) {
  float x[COLUMNS];
  for (int i = 0; i < COLUMNS; i++) { // normal
    double u = ((double)random() + 1) / 2147483649.0, v = (double)random() / 2147483648.0;
    x[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
  b->input = (st_input){.kind = ST_ACT_INT8_BLOCK, .tokens = 1, .columns = COLUMNS};
  b->input.data = st_pages_alloc(b->k.input_bytes(ST_ACT_INT8_BLOCK, 1, COLUMNS), false);
  if (!b->input.data) fail("out of memory");
  b->k.prepare(&b->input, x, COLUMNS, NULL, 0, 0, 1);
}

// The measured rounds of all subjects, and of reading the first one's bytes.
static void measure(bench *b, subject *subjects, int n, int rounds, double *reads) {
  for (int i = -1; i < rounds; i++) { // the first one only warms up
    double seconds = run(b, &subjects[0], true);
    if (i >= 0) reads[i] = seconds;
    for (int j = 0; j < n; j++) {
      seconds = run(b, &subjects[j], false);
      if (i >= 0) subjects[j].seconds[i] = seconds;
    }
  }
}

static void print(const subject *s, int rounds, double ceiling) {
  double seconds = median(s->seconds, rounds), speed = (double)s->bytes / seconds * 1e-9;
  double weights = (double)s->w.rows * COLUMNS;
  printf("%-5s %.3f bits a weight, %5.1f GB/s, %5.1f%% of reading, %6.2f G weights/s\n", s->name,
         8 * (double)s->bytes / weights, speed, 100 * speed / ceiling, weights / seconds * 1e-9);
}

int main(int argc, char **argv) {
  static subject subjects[FORMS_MOST];
  bench b = {0};
  int threads = st_default_threads(), rounds = 9, option;
  size_t bytes = (size_t)256 << 20, most = 0;
  uint32_t block = 128;
  const char *isa = NULL;
  setun_error error = {SETUN_OK, ""};
  while ((option = getopt(argc, argv, "t:m:r:b:i:")) != -1) {
    if (option == 't') threads = (int)number('t', optarg, THREADS_MOST);
    if (option == 'm') bytes = number('m', optarg, MIB_MOST) << 20;
    if (option == 'r') rounds = (int)number('r', optarg, ROUNDS_MOST);
    if (option == 'b') block = (uint32_t)number('b', optarg, COLUMNS);
    if (option == 'i') isa = optarg;
    if (option == '?') return 1;
  }
  int n = argc - optind;
  if (n < 1 || n > FORMS_MOST) fail("expected 1 to 8 forms");
  if (block % ST_STEP || COLUMNS % block) fail("-b: expected a multiple of 32 that divides 4096");
  if (threads > THREADS_MOST) threads = THREADS_MOST;
  if (st_kernels_get(isa, &b.k, &error) != SETUN_OK || st_pool_new(NULL, threads, &b.pool, &error) != SETUN_OK)
    fail(error.message);
  for (int i = 0; i < threads && b.k.scratch_bytes; i++) {
    if (!(b.scratch[i] = st_pages_alloc(b.k.scratch_bytes, false))) fail("out of memory");
  }
  for (int i = 0; i < n; i++) {
    subjects[i].name = argv[optind + i];
    make(&subjects[i], block, bytes);
    if (subjects[i].w.rows > most) most = subjects[i].w.rows;
  }
  make_input(&b);
  b.out = st_pages_alloc(most * sizeof *b.out, true);
  if (!b.out) fail("out of memory");
  double reads[ROUNDS_MOST];
  measure(&b, subjects, n, rounds, reads);
  double ceiling = (double)subjects[0].bytes / median(reads, rounds) * 1e-9;
  printf("%s, %d threads, groups of %u: reading %.1f GB/s\n", b.k.name, threads, (unsigned)block, ceiling);
  for (int j = 0; j < n; j++) print(&subjects[j], rounds, ceiling);
  st_pool_free(b.pool);
  return 0;
}
