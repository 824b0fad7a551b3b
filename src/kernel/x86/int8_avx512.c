// AVX512: products with int8 inputs, and the loops that measure ceilings.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

void st_avx512_token_t16(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                         size_t stride) {
  lanes_matmul_token_T16(w, input, first, last, out, stride);
}

void st_avx512_int8(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
