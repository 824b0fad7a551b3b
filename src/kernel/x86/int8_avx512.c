// AVX512: products with int8 inputs, and the loops that measure ceilings.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

const st_avx512_products *st_avx512_products_of(st_form form) {
#define PRODUCTS(name) [ST_FORM_##name].block = lanes_matmul_block_##name, [ST_FORM_##name].rest = lanes_rest_##name,
  static const st_avx512_products products[ST_FORM_COUNT] = {
      LANES_BLOCK_FORMS(PRODUCTS)[ST_FORM_T16].token = lanes_matmul_token_T16,
      [ST_FORM_T16B].token = lanes_matmul_token_T16B,
  };
#undef PRODUCTS
  return &products[form];
}

void st_avx512_int8(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
