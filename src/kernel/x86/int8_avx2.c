// AVX2: products with int8 inputs.
#include "kernel/x86/lanes_avx2.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"

void st_avx2_int8(st_kernels *k) {
  lanes_fill_matmul_int8(k);
}
