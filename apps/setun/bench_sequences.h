// The measurements of `bench --sequences`: a pass over one token of each of several sequences, compared with one
// sequence; a fork, and a request whose beginning is in the cache.
#ifndef SETUN_APP_BENCH_SEQUENCES_H
#define SETUN_APP_BENCH_SEQUENCES_H

#include "model.h"

enum { SEQUENCES_MOST = 1024 };

typedef struct sequences_work {
  uint32_t n;             // sequences
  uint32_t depth, passes; // tokens of each before the first pass, and timed passes
  int64_t repeats;
  const setun_token *ids; // [depth + passes], for every sequence
} sequences_work;

typedef struct sequences_result {
  double pass, single_pass; // median seconds of a pass: over all sequences, over one
  double fork, hit;         // seconds of a fork, and of the first logits of a request whose beginning is in the cache
  uint32_t found;           // tokens of that beginning
} sequences_result;

double median_of(double *values, int64_t n); // sorted by it
// The context's parameters, also for the memory plan.
setun_context_params sequences_context_params(const compute_options *compute, const sequences_work *work);
setun_status time_sequences(const setun_model *model, const compute_options *compute, const sequences_work *work,
                            sequences_result *result, setun_error *error);

#endif
