// What ARM's files share.
#ifndef SETUN_KERNEL_ARM_ARM_H
#define SETUN_KERNEL_ARM_ARM_H

#include "kernel/inits.h"

// The other file's part of what st_neon_init fills in.
void st_neon_int8(st_kernels *k);

#endif
