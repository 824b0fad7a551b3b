// AMX: what tiles of int8 reach, in G multiply-adds a second of all threads together. First four products a step whose
// operands are in registers, or loaded from each level of memory; then, for the matrices of BitNet 2B-4T, a product
// that does nothing but load, multiply and store, blocked as src/kernel/x86/rows_amx.c is (128 rows, passes of 128 to
// 256 tokens, pieces of the given columns), and the library's own product of the same shapes. usage: bench_tiles
// [tokens] [threads] [seconds]. Only on processors with AMX.
#define _GNU_SOURCE
#include "base/cpu.h"
#include "base/memory.h"
#include "kernel/x86/amx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEP_MACS = 4 * AMX_SUMS * AMX_DEPTH, PAIR = 2 * AMX_SIDE, THREADS_MOST = 64 };

typedef struct {
  size_t rows, columns, tokens, piece, pass;
  uint8_t *a, *b; // of `bytes` each for the loops without a shape
  size_t a_bytes;
  int32_t *sums;
  st_kernels kernels;
  st_matrix matrix;
  st_input input;
  float *out;
} work;

typedef uint64_t run(work *w); // returns the multiply-adds

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void step(const uint8_t *a0, const uint8_t *a1, const uint8_t *b0, const uint8_t *b1) {
  _tile_loadd(4, a0, AMX_DEPTH);
  _tile_loadd(6, b0, AMX_DEPTH);
  _tile_dpbsud(0, 4, 6);
  _tile_loadd(7, b1, AMX_DEPTH);
  _tile_dpbsud(1, 4, 7);
  _tile_loadd(5, a1, AMX_DEPTH);
  _tile_dpbsud(2, 5, 6);
  _tile_dpbsud(3, 5, 7);
}

static uint64_t registers(work *w) {
  return w->kernels.peak_int8(1u << 30);
}

// B is 16 KB, A goes through all of its bytes.
static uint64_t streamed(work *w) {
  enum { B = 8 };
  size_t steps = w->a_bytes / (2 * AMX_TILE);
  st_amx_configure(AMX_SIDE, AMX_DEPTH);
  st_amx_load_sums(NULL, true);
  for (size_t s = 0; s < steps; s++) {
    const uint8_t *a = w->a + 2 * s * AMX_TILE, *b = w->b + s % B * 2 * AMX_TILE;
    step(a, a + AMX_TILE, b, b + AMX_TILE);
  }
  st_amx_store_sums(w->sums);
  _tile_release();
  return steps * STEP_MACS;
}

// 128 rows and the tokens of a pass with one piece of the columns.
static void block(work *w, size_t token, size_t end, size_t column) {
  size_t steps = (w->columns - column < w->piece ? w->columns - column : w->piece) / AMX_DEPTH;
  for (size_t pair = 0; pair < 4; pair++) {
    const uint8_t *b = w->b + pair * PAIR * w->piece;
    for (size_t t = token; t < end; t += PAIR) {
      const uint8_t *a = w->a + t * w->columns + column * AMX_SIDE;
      int32_t *sums = w->sums + (pair * w->pass + t - token) * PAIR;
      st_amx_load_sums(sums, !column);
      for (size_t at = 0; at < steps * AMX_TILE; at += AMX_TILE) {
        step(a + at, a + AMX_SIDE * w->columns + at, b + at, b + AMX_SIDE * w->piece + at);
      }
      st_amx_store_sums(sums);
    }
  }
}

static uint64_t blocked(work *w) {
  st_amx_configure(AMX_SIDE, AMX_DEPTH);
  for (size_t token = 0; token < w->tokens; token += w->pass) {
    size_t end = w->tokens - token < w->pass ? w->tokens : token + w->pass;
    for (size_t row = 0; row < w->rows; row += 4 * PAIR) {
      for (size_t k = 0; k < w->columns; k += w->piece) block(w, token, end, k);
    }
  }
  _tile_release();
  return (uint64_t)w->rows * w->columns * w->tokens;
}

static uint64_t library(work *w) {
  w->kernels.matmul[w->matrix.form][ST_ACT_INT8_TOKEN](&w->matrix, &w->input, 0, w->rows, w->out, w->rows);
  return (uint64_t)w->rows * w->columns * w->tokens;
}

typedef struct {
  run *run;
  work *work;
  double seconds, rate;
  pthread_barrier_t *start;
} thread;

static void *measure(void *context) {
  thread *t = context;
  uint64_t done = 0;
  t->run(t->work);
  pthread_barrier_wait(t->start);
  double begin = now(), took;
  do {
    done += t->run(t->work);
    took = now() - begin;
  } while (took < t->seconds);
  t->rate = (double)done / took / 1e9;
  return NULL;
}

static double rate(run *how, work *works, int threads, double seconds) {
  pthread_t ids[THREADS_MOST];
  thread all[THREADS_MOST];
  pthread_barrier_t start;
  double sum = 0;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    all[i] = (thread){how, &works[i], seconds, 0, &start};
    if (pthread_create(&ids[i], NULL, measure, &all[i])) exit(1);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    sum += all[i].rate;
  }
  pthread_barrier_destroy(&start);
  return sum;
}

static void fill(uint8_t *p, size_t n, unsigned below) {
  uint32_t x = 1;
  for (size_t i = 0; i < n; i++) x = x * 1664525 + 1013904223, p[i] = (uint8_t)((x >> 16) % below);
}

static void *allocate(size_t bytes) {
  void *p = st_pages_alloc(bytes, true);
  if (!p) exit(1);
  return p;
}

static work new_work(const st_kernels *k, size_t tokens, size_t a_bytes) {
  work w = {.kernels = *k, .tokens = tokens, .a_bytes = a_bytes};
  w.a = allocate(a_bytes), fill(w.a, a_bytes, 251);
  w.b = allocate(1 << 20), fill(w.b, 1 << 20, 3);
  w.sums = allocate(1 << 20);
  return w;
}

static void set_shape(work *w, st_form form, size_t rows, size_t columns) {
  w->rows = rows, w->columns = columns, w->pass = columns > 4096 ? 128 : 256;
  w->matrix = (st_matrix){.form = form, .rows = rows, .columns = columns};
  w->matrix.group_bytes = st_form_group_bytes(form, columns, 0);
  size_t bytes = rows / ST_GROUP * w->matrix.group_bytes;
  uint8_t *data = allocate(bytes);
  fill(data, bytes, 243);
  w->matrix.data = data, w->matrix.scales = allocate(rows * sizeof(float));
  w->input = (st_input){.kind = ST_ACT_INT8_TOKEN, .tokens = w->tokens, .columns = columns};
  w->input.data = allocate(w->kernels.input_bytes(ST_ACT_INT8_TOKEN, w->tokens, columns));
  w->input.scratch = allocate(w->kernels.scratch_bytes);
  float *x = calloc(w->tokens * columns, sizeof *x);
  if (!x) exit(1);
  for (size_t i = 0; i < w->tokens * columns; i++) x[i] = (float)((int)w->a[i % w->a_bytes] - 125);
  w->kernels.prepare(&w->input, x, columns, NULL, 0, 0, w->tokens);
  w->out = allocate(w->tokens * rows * sizeof(float));
  free(x);
}

static void print_shapes(work *works, const st_kernels *k, size_t tokens, int threads, double seconds) {
  static const size_t shapes[][2] = {{2560, 2560}, {6912, 2560}, {2560, 6912}};
  static const size_t pieces[] = {512, 640, 1280};
  for (size_t s = 0; s < 3; s++) {
    double best = 0;
    printf("%zu x %zu, %zu tokens:", shapes[s][0], shapes[s][1], tokens);
    for (int i = 0; i < threads; i++) works[i] = new_work(k, tokens, tokens * shapes[s][1]);
    for (size_t p = 0; p < 3; p++) {
      for (int i = 0; i < threads; i++) {
        works[i].rows = shapes[s][0], works[i].columns = shapes[s][1], works[i].piece = pieces[p];
        works[i].pass = shapes[s][1] > 4096 ? 128 : 256;
      }
      double r = rate(blocked, works, threads, seconds);
      best = r > best ? r : best;
      printf("  alone, %zu columns a piece %.0f", pieces[p], r);
    }
    for (int form = 0; form < 2; form++) {
      for (int i = 0; i < threads; i++)
        set_shape(&works[i], form ? ST_FORM_T5 : ST_FORM_T16, shapes[s][0], shapes[s][1]);
      double r = rate(library, works, threads, seconds);
      printf("  %s %.0f (%.2f)", form ? "t5" : "t16", r, r / best);
    }
    printf("\n");
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    size_t bytes;
  } levels[] = {{"first level", 16 << 10}, {"second level", 512 << 10}, {"memory", 256 << 20}};
  static work works[THREADS_MOST];
  size_t tokens = argc > 1 ? strtoul(argv[1], NULL, 10) / PAIR * PAIR : 512;
  int threads = argc > 2 ? atoi(argv[2]) : 1;
  double seconds = argc > 3 ? atof(argv[3]) : 0.5;
  st_kernels k;
  setun_error err;
  if (!tokens || tokens > 4096 || threads < 1 || threads > THREADS_MOST || seconds <= 0) return 2;
  if (!st_cpu_detect().amx || st_kernels_get("amx", &k, &err) != SETUN_OK) {
    fprintf(stderr, "bench_tiles: this processor has no AMX\n");
    return 77;
  }
  printf("G multiply-adds/s, %d thread(s)\n", threads);
  for (int i = 0; i < threads; i++) works[i] = new_work(&k, tokens, 4096);
  printf("registers: %.0f\n", rate(registers, works, threads, seconds));
  for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
    for (int i = 0; i < threads; i++) works[i] = new_work(&k, tokens, levels[l].bytes);
    printf("activations from the %s: %.0f\n", levels[l].name, rate(streamed, works, threads, seconds));
  }
  print_shapes(works, &k, tokens, threads, seconds);
  return 0;
}
