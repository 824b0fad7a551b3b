// What `bench --count` prints: the work of a device for one token, counted.
#ifndef SETUN_APP_BENCH_COUNT_H
#define SETUN_APP_BENCH_COUNT_H

#include "model.h"

typedef struct count_work {
  uint32_t depth;         // tokens before
  const setun_token *ids; // [depth + 2]
  bool json;
} count_work;

// Decodes one token after `depth` and prints what that took. 0, or the exit status after a report.
int count_token(const char *name, const setun_model *model, const compute_options *compute, const count_work *work);

#endif
