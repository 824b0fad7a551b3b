// What x86's files share.
#ifndef SETUN_KERNEL_X86_X86_H
#define SETUN_KERNEL_X86_X86_H

#include "kernel/inits.h"
#include "kernel/layout.h"

// What AMX's files build on.
void st_avx512_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                       size_t last);

typedef void st_avx512_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                              size_t stride);
// AVX-512's product of a form with an int8 input; NULL: none.
st_avx512_matmul *st_avx512_int8_matmul(st_form form, st_activation kind);
// The product of a form of five codes a byte with int8 tokens, of AVX-512 with VBMI.
st_avx512_matmul *st_vbmi_matmul(st_form form);
// Fills in the products of patterns.
void st_vbmi_patterns(st_kernels *k);

#endif
