// NEON with products of int8 matrices: products of two and four tokens with int8 inputs, and the loops that measure
// ceilings. Those of one and three tokens take dot products.
#include "kernel/arm/lanes_neon.h"
#include "kernel/inits.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

void st_i8mm_init(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
