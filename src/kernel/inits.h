// The functions that fill a table with the kernels of an instruction set or of an extension, one for each row of
// isas.def: it replaces those kernels of its base that it has faster ones for. Where a set has products with float32
// and with int8 inputs, which are compiled apart, st_NAME_int8 is the other file's part, which st_NAME_init calls.
#ifndef SETUN_KERNEL_INITS_H
#define SETUN_KERNEL_INITS_H

#include "kernel/kernel.h"

#define ISA(name, ...) void st_##name##_init(st_kernels *k), st_##name##_int8(st_kernels * k);
#define EXTENSION ISA
#include "kernel/isas.def"

#endif
