// Which instruction sets this processor and this operating system can run.
#ifndef SETUN_BASE_CPU_H
#define SETUN_BASE_CPU_H

#include <stdbool.h>

typedef struct st_cpu {
  bool avx2;        // with FMA, F16C, BMI2
  bool avx_vnni;    // beside avx2, whether or not there is avx512
  bool avx512;      // F, BW, DQ, VL, with VNNI
  bool avx512_vbmi; // beside avx512
  bool amx;         // int8 tiles, and the system lets this process use them
  bool amx_bf16;
  bool neon, dotprod;
} st_cpu;

// Asks the processor each time; asks the system for AMX's tile state on the first call in a process that has it, so
// call it before starting threads.
st_cpu st_cpu_detect(void);

#endif
