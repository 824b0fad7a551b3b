// What the kernel tests share: random and extreme inputs, buffers that end at an unreadable page, matrices in every
// form, comparisons with junk around the outputs, and the list of what is checked and benchmarked.
#ifndef SETUN_TESTS_KERNEL_HARNESS_H
#define SETUN_TESTS_KERNEL_HARNESS_H

#include "base/random.h"
#include "form_names.h"
#include "kernel/kernel.h"
#include "rounds.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// ---- inputs -------------------------------------------------------------------------------------------------------

typedef enum { RANDOM, LARGEST, SMALLEST, ZERO, ONE_ELEMENT, MODES } mode;

extern const char *const mode_names[MODES];
extern const char *const activation_names[ST_ACT_COUNT];
extern st_random random_state;

uint32_t random_below(uint32_t n);
float random_float(void);
void random_floats(float *x, size_t n, mode how);
// Random ones have an outlier in about one of eight blocks of 32, as a model's do.
void random_activations(float *x, size_t n, mode how);

// Memory that ends where an unreadable page begins.
typedef struct {
  uint8_t *base, *data;
  size_t length;
} guarded;

guarded guarded_alloc(size_t bytes);
void guarded_free(guarded *g);

enum { MAX_N = 700 }; // of the sizes that next_size gives

// Prepares an input for a table, with its scratch; free_input frees both.
void prepare(const st_kernels *k, st_input *input, st_activation kind, const float *x, size_t tokens, size_t columns);
void free_input(st_input *input);

// ---- comparisons --------------------------------------------------------------------------------------------------

extern int failures;
extern uint64_t comparisons;
extern const char *table_name; // what is being checked

#define FAIL(...)                                                                                                      \
  do {                                                                                                                 \
    if (failures++ < 20) {                                                                                             \
      printf("FAIL %s: ", table_name);                                                                                 \
      printf(__VA_ARGS__);                                                                                             \
      printf("\n");                                                                                                    \
    }                                                                                                                  \
  } while (0)

// Same bits, or both NaN.
bool same(float a, float b);

// Outputs are filled with this: before, after and where they are to be written.
extern const float guard_value;
void fill_guard(float *x, size_t n);

// Compares two outputs of n floats between guards of 16, bit for bit.
void compare(const char *what, size_t size, const float *out, const float *expected, size_t n);
void within(const char *what, size_t i, float value, double expected, double bound);

// The sizes that are checked: first those around the ends of vectors, then random ones. The longest is longer than a
// block.
size_t next_size(size_t i, size_t round);

// ---- matrices -----------------------------------------------------------------------------------------------------

typedef struct {
  st_matrix m;
  guarded memory;
  float *dense;  // [rows][columns], the weights' values
  float *scales; // of T16
  float shift;   // the most that a minimum is larger in the kernels' order than stored (st_coding.minimums)
} matrix;

bool has_block(st_form form);
// A format that becomes the form, of `block` columns where the form leaves that open.
st_format format_for(st_form form, uint32_t block);
// Columns rounded up to what a form can have.
size_t whole_columns(st_form form, uint32_t block, size_t columns);
// Formats whose blocks are made and decoded here rather than by their own functions.
bool is_made_here(st_format_id id);
matrix make_matrix(st_form form, size_t rows, size_t columns, uint32_t block, mode how);
void free_matrix(matrix *w);

// ---- checks and benches -------------------------------------------------------------------------------------------

// The ceilings of a table, per second, and memory that is larger than any cache.
typedef struct {
  st_kernels k;
  double int8, floats, bytes;
  uint8_t *arena;
} ceilings;
enum { ARENA = 256 << 20 };

// This thread's own processor time, which other work on the machine disturbs less.
double now(void);
void print_small(const char *name, const char *what, double seconds, double elements);

// Calls something a thousand times and prints the best time of fifty calls.
#define BENCH(what, elements, call)                                                                                    \
  do {                                                                                                                 \
    double best = 1e9;                                                                                                 \
    for (int round = 0; round < 20; round++) {                                                                         \
      double t = now();                                                                                                \
      for (int i = 0; i < 50; i++) call;                                                                               \
      best = fmin(best, (now() - t) / 50);                                                                             \
    }                                                                                                                  \
    print_small(b->k.name, what, best, elements);                                                                      \
  } while (0)

// A kernel other than products: one round's checks against the scalar table and float64, and its speed.
typedef struct {
  const char *name;
  void (*check)(const st_kernels *k, const st_kernels *reference, size_t round);
  void (*bench)(const ceilings *b); // NULL: measured together with another
} kernel_test;
extern const kernel_test test_formats, test_quantize_token, test_rmsnorm, test_glu, test_add, test_rope, test_hadamard,
    test_attend, test_attend_deep, test_recurrent;

// Shapes of products. Checks grow with the rounds, so that the first is short on a slow machine.
typedef enum { NARROW, TAILS, EXTREMES, LONG_ROWS, SHAPES } shape_class;

void check_products(const st_kernels *k, const st_kernels *reference, st_form form, shape_class shape, size_t round);
// One product, of inputs of a kind, against the scalar table and float64.
void check_product(const st_kernels *k, const st_kernels *reference, const matrix *w, st_activation kind, mode how,
                   size_t tokens);
// out is [tokens][rows] with guards on both sides.
void product(const st_kernels *k, const matrix *w, st_activation kind, const float *x, size_t tokens,
             float *guarded_out);
// One product; copies of the matrix follow one another through the arena, as a model's matrices do. Best of several.
void bench_product(const ceilings *b, st_form form, st_activation kind, size_t rows, size_t columns, size_t tokens);

#endif
