// Which instruction sets this processor and this operating system can run.
#ifndef SETUN_BASE_CPU_H
#define SETUN_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum { ST_EAX, ST_EBX, ST_ECX, ST_EDX };

typedef struct st_cpu {
  bool avx2;   // with FMA, F16C, BMI2
  bool avx512; // F, BW, DQ, VL, with VNNI
  bool amx;    // int8 tiles, permitted by the system for this process
  bool neon, dotprod, i8mm;
  // x86-64: CPUID leaf 7, subleaves 0 and 1, where there is avx2, else zero: what instructions have a bit there whose
  // registers one of the flags above has the system save.
  uint32_t leaf7[2][4];
} st_cpu;

// Asks the processor each time; asks the system for AMX's tile state on the first call in a process that has it, so
// call it before starting threads.
st_cpu st_cpu_detect(void);

#endif
