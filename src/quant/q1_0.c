// Q1_0: 128 weights in 18 bytes: f16 d, then one bit a weight from the least significant; w = d where it is set, else
// -d.
#include "quant/rows.h"

static void q1_0_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  for (int i = 0; i < 128; i++) out[i] = block[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

static const st_value_block q1_0 = {q1_0_decode, NULL, 1, {0}, NULL, false, NULL};
const st_format_ops st_ops_q1_0 = ST_VALUE_OPS_READ(&q1_0);
