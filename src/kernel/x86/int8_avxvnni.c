// AVX-VNNI: products with int8 inputs on processors that have the instruction in AVX2's width, such as many without
// AVX-512.
#include "kernel/x86/lanes_avx2.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

void st_avxvnni_init(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
