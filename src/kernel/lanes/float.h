// What the file of an instruction set has that computes in floats: inputs, norms, gates, attention, recurrent layers,
// and products in float32, in 16 lanes.
#ifndef SETUN_KERNEL_LANES_FLOAT_H
#define SETUN_KERNEL_LANES_FLOAT_H

#include "kernel/lanes/attend.h"
#include "kernel/lanes/input.h"
#include "kernel/lanes/matmul_float.h"
#include "kernel/lanes/recurrent.h"

static void lanes_fill_float(st_kernels *k) {
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
}

#endif
