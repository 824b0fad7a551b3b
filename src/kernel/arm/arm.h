// What ARM's files put into a table, one function a file.
#ifndef SETUN_KERNEL_ARM_ARM_H
#define SETUN_KERNEL_ARM_ARM_H

#include "kernel/kernel.h"

void st_neon_float(st_kernels *k);
void st_neon_int8(st_kernels *k);
void st_dotprod_int8(st_kernels *k);

#endif
