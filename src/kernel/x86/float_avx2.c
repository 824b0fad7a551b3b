// AVX2: inputs, norms, gates, attention and products in float32.
#include "kernel/x86/lanes_avx2.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/float.h"

void st_avx2_init(st_kernels *k) {
  lanes_fill_float(k);
  st_avx2_int8(k);
}
