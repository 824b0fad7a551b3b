// What x86's files put into a table, one function a file.
#ifndef SETUN_KERNEL_X86_X86_H
#define SETUN_KERNEL_X86_X86_H

#include "kernel/kernel.h"

void st_avx2_float(st_kernels *k);
void st_avx2_int8(st_kernels *k);
void st_avx512_float(st_kernels *k);
void st_avx512_int8(st_kernels *k);

#endif
