// The scalar table.
#include "kernel/inits.h"
#include "kernel/ref/ref.h"

void st_scalar_init(st_kernels *t) {
  *t = (st_kernels){
      .quantize_token = st_ref_quantize_token,
      .input_bytes = st_ref_input_bytes,
      .prepare_unit = st_ref_prepare_unit,
      .prepare = st_ref_prepare,
      .rmsnorm = st_ref_rmsnorm,
      .rope = st_ref_rope,
      .attend = st_ref_attend,
      .convolve = st_ref_convolve,
      .delta = st_ref_delta,
      .to_half = st_ref_to_half,
      .glu = st_ref_glu,
      .add = st_ref_add,
      .hadamard = st_ref_hadamard,
      .peak_int8 = st_ref_peak_int8,
      .peak_float = st_ref_peak_float,
      .read = st_ref_read,
  };
  for (int form = 0; form < ST_FORM_COUNT; form++) {
    t->row[form] = st_ref_row;
    if (st_form_takes((st_form)form, ST_ACT_F32)) t->matmul[form][ST_ACT_F32] = st_ref_matmul_f32;
    if (st_form_takes((st_form)form, ST_ACT_INT8_TOKEN)) t->matmul[form][ST_ACT_INT8_TOKEN] = st_ref_matmul_token;
    if (st_form_takes((st_form)form, ST_ACT_INT8_BLOCK)) t->matmul[form][ST_ACT_INT8_BLOCK] = st_ref_matmul_block;
  }
}
