// A thread's floating-point modes (rounding, denormals), which the application may have changed and which affect
// results. Computations run in the default modes: rounding to nearest, denormals kept (neither FTZ nor DAZ), no traps.
#ifndef SETUN_BASE_FLOAT_MODES_H
#define SETUN_BASE_FLOAT_MODES_H

#include <stdint.h>

typedef struct st_float_modes {
  uint64_t control; // the processor's own register: MXCSR, FPCR
} st_float_modes;

// Sets the default modes for the calling thread and returns the previous ones; st_float_modes_restore restores these,
// including the exception flags.
st_float_modes st_float_modes_default(void);
void st_float_modes_restore(const st_float_modes *modes);

// For the beginning of a function that computes: default modes until it returns, then the caller's modes again. Its
// callbacks run in the default modes.
#define ST_DEFAULT_FLOAT_MODES                                                                                         \
  st_float_modes callers_modes __attribute__((cleanup(st_float_modes_restore), unused)) = st_float_modes_default()

#endif
