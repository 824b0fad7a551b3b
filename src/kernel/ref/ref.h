// The scalar table's functions: plain C, one thing at a time, in the order that docs/kernels.md lays down.
#ifndef SETUN_KERNEL_REF_REF_H
#define SETUN_KERNEL_REF_REF_H

#include "kernel/kernel.h"

enum { ST_REF_TILE = 8 }; // tokens that are interleaved in the scalar table's inputs

size_t st_ref_input_bytes(st_activation kind, size_t tokens, size_t columns);
float st_ref_quantize_token(const float *x, size_t n, int8_t *codes, int32_t *sum);
size_t st_ref_prepare_unit(st_activation kind, size_t tokens);
void st_ref_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                    size_t last);
void st_ref_matmul_f32(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out, size_t stride);
void st_ref_matmul_token(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                         size_t stride);
void st_ref_matmul_block(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                         size_t stride);
void st_ref_row(const st_matrix *w, size_t row, float *out);
void st_ref_attend(const st_attend *a, const st_attend_part *part);
void st_ref_rmsnorm(const float *x, const float *weight, size_t n, float eps, float *out);
void st_ref_rope(float *x, const float *cosine, const float *sine, size_t n, bool interleaved);
void st_ref_convolve(const st_convolution *v, size_t n, float *out);
void st_ref_delta(const st_delta *d);
void st_ref_to_half(const float *x, size_t n, uint16_t *out);
void st_ref_glu(st_glu kind, const float *gate, const float *up, size_t n, float *out);
void st_ref_add(float *x, const float *y, float scale, size_t n);
void st_ref_hadamard(const float *x, const float *before, const float *after, size_t n, size_t block, float *out);
uint64_t st_ref_peak_int8(uint64_t n);
uint64_t st_ref_peak_float(uint64_t n);
uint64_t st_ref_read(const void *buffer, size_t bytes);

// Shared inside: the order of sums over 16 lanes, 1 / sqrt(mean(x^2) + eps), and e^x.
float st_ref_sum16(const float lanes[16]);
float st_ref_inverse_rms(const float *x, size_t n, float eps);
float st_ref_exp(float x);

#endif
