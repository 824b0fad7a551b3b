// NEON: inputs, norms, gates, attention and products in float32.
#include "kernel/arm/lanes_neon.h"
#include "kernel/inits.h"

#include "kernel/lanes/float.h"

void st_neon_init(st_kernels *k) {
  lanes_fill_float(k);
  st_neon_int8(k);
}
