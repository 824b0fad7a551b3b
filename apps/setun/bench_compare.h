// The measurements of `bench --compare-isa`: a model with each instruction set of this machine, in turns.
#ifndef SETUN_APP_BENCH_COMPARE_H
#define SETUN_APP_BENCH_COMPARE_H

#include "model.h"

enum { ISAS_MOST = 8, ISA_NAME = 16 };

typedef struct isa_speed {
  char name[ISA_NAME];
  double *prefill, *decode; // [repeats] tokens per second, a run each
} isa_speed;

typedef struct isa_comparison {
  isa_speed speeds[ISAS_MOST]; // in rising order of preference
  int n;
  int64_t repeats;
} isa_comparison;

// The instruction sets of this machine but for scalar, which is no choice for speed. False: out of memory; freed with
// isa_comparison_free in any case.
bool isa_comparison_new(int64_t repeats, isa_comparison *c);
void isa_comparison_free(isa_comparison *c);
// Prints the medians, and each pair of which the later set is slower: by more than 5% in the median of the ratios of
// runs next to each other.
void print_isa_comparison(const isa_comparison *c, bool json);

#endif
