// What x86's files put into a table, one function a file.
#ifndef SETUN_KERNEL_X86_X86_H
#define SETUN_KERNEL_X86_X86_H

#include "kernel/layout.h"

void st_avx2_float(st_kernels *k);
void st_avx2_int8(st_kernels *k);
void st_avx512_float(st_kernels *k);
void st_avx512_int8(st_kernels *k);
void st_vbmi_trits(st_kernels *k);
void st_amx_int8(st_kernels *k);

// What AMX's files fall back to, and build on.
void st_avx512_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                       size_t last);

typedef void st_avx512_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                              size_t stride);
// The sums of the second planes of a chunk's tokens [first, last) with the group of rows that begins at `row`: 16
// floats a token, aligned to 64.
typedef void st_avx512_rest(const st_matrix *w, size_t row, const st_view *v, size_t tokens, size_t first, size_t last,
                            void *rest);
typedef struct {
  st_avx512_matmul *token, *block; // NULL: none
  st_avx512_rest *rest;
} st_avx512_products;

const st_avx512_products *st_avx512_products_of(st_form form);

#endif
