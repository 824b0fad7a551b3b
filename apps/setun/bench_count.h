// What `bench --count` prints: the work of a device for one token, counted.
#ifndef SETUN_APP_BENCH_COUNT_H
#define SETUN_APP_BENCH_COUNT_H

#include "model.h"

enum { COUNT_TOKENS = 3 }; // decoded, of which the last is counted
typedef struct count_work {
  uint32_t depth;         // tokens before
  const setun_token *ids; // [depth + COUNT_TOKENS]
  bool json;
} count_work;

// Decodes tokens after `depth` and prints what the last took. 0, or the exit status after a report.
int count_token(const char *name, const setun_model *model, const compute_options *compute, const count_work *work);

#endif
