// AVX2: inputs, norms, gates, attention and products in float32.
#include "kernel/x86/lanes_avx2.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/attend.h"
#include "kernel/lanes/input.h"
#include "kernel/lanes/matmul_float.h"
#include "kernel/lanes/recurrent.h"

void st_avx2_init(st_kernels *k) {
  k->quantize_token = lanes_quantize_token;
  k->prepare_unit = lanes_prepare_unit;
  k->prepare = lanes_prepare;
  k->rmsnorm = lanes_rmsnorm;
  k->rope = lanes_rope;
  k->attend = lanes_attend;
  k->convolve = lanes_convolve;
  k->delta = lanes_delta;
  k->to_half = lanes_to_half;
  k->glu = lanes_glu;
  k->add = lanes_add;
  k->hadamard = lanes_hadamard;
  lanes_fill_matmul_float(k);
  st_avx2_int8(k);
}
