// AVX512: inputs, norms, gates, attention and products in float32.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/float.h"

void st_avx512_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                       size_t last) {
  lanes_prepare(input, x, stride, norm, eps, first, last);
}

void st_avx512_init(st_kernels *k) {
  lanes_fill_float(k);
  st_avx512_int8(k);
}
