// AVX512: products with int8 inputs, and the loops that measure ceilings.
#include "kernel/x86/lanes_avx512.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/matmul_int8.h"
#include "kernel/lanes/peak.h"

st_avx512_matmul *st_avx512_int8_matmul(st_form form, st_activation kind) {
  static st_avx512_matmul *const products[ST_FORM_COUNT][ST_ACT_COUNT] = {
#define TOKEN(id) [ST_FORM_##id][ST_ACT_INT8_TOKEN] = lanes_matmul_token_##id,
#define BLOCK(id) [ST_FORM_##id][ST_ACT_INT8_BLOCK] = lanes_matmul_block_##id,
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(TOKEN, id) ST_IF_BLOCK_##activations(BLOCK, id)
#include "kernel/forms.def"
#undef TOKEN
#undef BLOCK
  };
  return products[form][kind];
}

void st_avx512_int8(st_kernels *k) {
  k->peak_int8 = lanes_peak_int8;
  k->peak_float = lanes_peak_float;
  k->read = lanes_read;
  lanes_fill_matmul_int8(k);
}
