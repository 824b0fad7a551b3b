// Random and extreme inputs, guarded memory, comparisons.
#define _DEFAULT_SOURCE
#include "common/harness.h"

#include "base/float16.h"
#include "base/memory.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const char *const mode_names[MODES] = {"random", "largest", "smallest", "zero", "one element"};
const char *const activation_names[ST_ACT_COUNT] = {"f32", "int8-token", "int8-block"};
st_random random_state;
int failures;
uint64_t comparisons;
const char *table_name;
const float guard_value = 12345.5f;

uint32_t random_below(uint32_t n) {
  return (uint32_t)(st_random_unit(&random_state) * n);
}

float random_float(void) {
  return (float)(st_random_unit(&random_state) * 2 - 1);
}

void random_floats(float *x, size_t n, mode how) {
  for (size_t i = 0; i < n; i++)
    x[i] = how == ZERO ? 0 : how == LARGEST ? -1e6f : how == SMALLEST ? 1e-30f : random_float();
  if (how == ONE_ELEMENT) {
    memset(x, 0, n * sizeof *x);
    x[random_below((uint32_t)n)] = 3;
  }
}

void random_activations(float *x, size_t n, mode how) {
  random_floats(x, n, how);
  for (size_t i = 0; i < n && how == RANDOM; i++) x[i] *= random_below(256) ? 1 : 12;
}

guarded guarded_alloc(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
  guarded g = {.length = body + page};
  void *p = mmap(NULL, g.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect((uint8_t *)p + body, page, PROT_NONE)) {
    perror("mmap");
    exit(1);
  }
  g.base = p;
  g.data = g.base + body - bytes;
  return g;
}

void guarded_free(guarded *g) {
  munmap(g->base, g->length);
}

void prepare(const st_kernels *k, st_input *input, st_activation kind, const float *x, size_t tokens, size_t columns) {
  *input = (st_input){.kind = kind, .tokens = tokens, .columns = columns};
  input->data = st_aligned_alloc(k->input_bytes(kind, tokens, columns));
  if (k->scratch_bytes) input->scratch = st_aligned_alloc(k->scratch_bytes);
  k->prepare(input, x, columns, NULL, 0, 0, tokens);
}

void free_input(st_input *input) {
  st_free(input->data), st_free(input->scratch);
}

bool same(float a, float b) {
  return st_float_bits(a) == st_float_bits(b) || (a != a && b != b);
}

void fill_guard(float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = guard_value;
}

void compare(const char *what, size_t size, const float *out, const float *expected, size_t n) {
  for (size_t i = 0; i < n + 32; i++) {
    comparisons++;
    if (same(out[i], expected[i])) continue;
    FAIL("%s of %zu: [%d] %.9g, scalar %.9g", what, size, (int)i - 16, (double)out[i], (double)expected[i]);
    return;
  }
}

void within(const char *what, size_t i, float value, double expected, double bound) {
  comparisons++;
  if (!(fabs((double)value - expected) <= bound)) {
    FAIL("%s [%zu]: %.9g, expected %.9g +- %.3g", what, i, (double)value, expected, bound);
  }
}

size_t next_size(size_t i, size_t round) {
  static const size_t ends[] = {1, 15, 16, 17, 31, 32, 33, 64, 67, 577, 640};
  if (!round) return i < sizeof ends / sizeof *ends ? ends[i] : 0;
  return i < 8 ? 1 + random_below(67) : i < 10 ? 1 + random_below(MAX_N) : 0;
}

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void print_small(const char *name, const char *what, double seconds, double elements) {
  printf("%-6s %-38s %9.2f us %7.2f G elements/s\n", name, what, seconds * 1e6, elements / seconds * 1e-9);
}
