// The measurements of `bench --compare-isa` and `--compare-threads`: a model with each instruction set of this machine,
// or with several numbers of threads, in turns.
#ifndef SETUN_APP_BENCH_COMPARE_H
#define SETUN_APP_BENCH_COMPARE_H

#include "model.h"

enum { SPEEDS_MOST = 8, SPEED_NAME = 24 };

typedef struct compared_speed {
  char name[SPEED_NAME];
  int threads;              // 0: instruction sets are compared
  double *prefill, *decode; // [repeats] tokens per second, a run each
} compared_speed;

typedef struct comparison {
  compared_speed speeds[SPEEDS_MOST]; // in ascending order of preference, or of threads
  int n;
  int64_t repeats;
} comparison;

// The instruction sets of this machine except the portable one, which is far slower; or 1, 2, 4 threads and so on up to
// one for each processor. False: out of memory; freed with comparison_free in any case.
bool comparison_of_isas(int64_t repeats, comparison *c);
bool comparison_of_threads(int64_t repeats, comparison *c);
void comparison_free(comparison *c);
// Prints the medians, and each pair of which the later one is slower: by more than 5% in the median of the ratios of
// runs next to each other.
void print_comparison(const comparison *c, bool json);

#endif
