// NEON: products with int8 inputs, and the loops that measure ceilings.
#include "kernel/arm/lanes_neon.h"
#include "kernel/inits.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

void st_neon_int8(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
