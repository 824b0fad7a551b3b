// How the processor rounds, and what it does with denormal numbers: modes of each thread, which the application may
// have changed, and which change results. Whatever computes runs in the default modes: rounding to nearest, denormals
// kept (neither FTZ nor DAZ), no traps.
#ifndef SETUN_BASE_FLOAT_MODES_H
#define SETUN_BASE_FLOAT_MODES_H

#include <stdint.h>

typedef struct st_float_modes {
  uint64_t control; // the processor's own register: MXCSR, FPCR
} st_float_modes;

// Sets the calling thread's default modes and returns those before; these come back with st_float_modes_restore, and
// with them the flags of exceptions that were raised.
st_float_modes st_float_modes_default(void);
void st_float_modes_restore(const st_float_modes *modes);

// At the beginning of a function that computes: default modes until it returns, and then those of its caller. Callbacks
// that it calls run in the default modes.
#define ST_DEFAULT_FLOAT_MODES                                                                                         \
  st_float_modes callers_modes __attribute__((cleanup(st_float_modes_restore), unused)) = st_float_modes_default()

#endif
