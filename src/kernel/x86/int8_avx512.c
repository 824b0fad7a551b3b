// AVX512: products with int8 inputs.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"

void st_avx512_int8(st_kernels *k) {
  lanes_fill_matmul_int8(k);
}
