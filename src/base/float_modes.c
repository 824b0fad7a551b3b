// Rounding and denormals: the control register of each kind of processor.
#include "base/float_modes.h"

#if defined(__x86_64__)

#include <immintrin.h>

// All exceptions masked; everything else is 0: round to nearest, no FTZ, no DAZ. The x87 unit is not used.
enum { MXCSR_DEFAULT = 0x1f80 };

st_float_modes st_float_modes_default(void) {
  st_float_modes before = {_mm_getcsr()};
  _mm_setcsr(MXCSR_DEFAULT);
  return before;
}

void st_float_modes_restore(const st_float_modes *modes) {
  _mm_setcsr((unsigned)modes->control);
}

#elif defined(__aarch64__)

// Round to nearest, no flushing (FZ, FIZ, FZ16), no alternative half precision (AHP), no traps.
st_float_modes st_float_modes_default(void) {
  st_float_modes before;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(before.control));
  if (before.control) __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)0));
  return before;
}

void st_float_modes_restore(const st_float_modes *modes) {
  if (modes->control) __asm__ __volatile__("msr fpcr, %0" : : "r"(modes->control));
}

#else

#include <fenv.h>

// Portable C controls only the rounding.
st_float_modes st_float_modes_default(void) {
  st_float_modes before = {(uint64_t)fegetround()};
  fesetround(FE_TONEAREST);
  return before;
}

void st_float_modes_restore(const st_float_modes *modes) {
  fesetround((int)modes->control);
}

#endif
