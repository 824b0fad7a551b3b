// The system's monotonic clock.
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

double st_clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
