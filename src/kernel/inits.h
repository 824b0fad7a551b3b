// What fills a table with the kernels of an instruction set or of an extension, one function a row of isas.def: it
// overwrites what it does better in the table of its base.
#ifndef SETUN_KERNEL_INITS_H
#define SETUN_KERNEL_INITS_H

#include "kernel/kernel.h"

#define ISA(name, ...) void st_##name##_init(st_kernels *k);
#define EXTENSION ISA
#include "kernel/isas.def"

#endif
