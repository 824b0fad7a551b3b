// Q2_0C ("2-bit SEQ" of Tencent's files): 512 weights in 130 bytes: f16 d, then four consecutive weights a byte, the
// first in bits 0-1; w = (2 code - 3) * d, so that codes are -3, -1, 1, 3 times d. Source: llama.cpp's pull request
// 19357, whose quantizer takes d = (largest - smallest) / 6 of a row and whose decoder multiplies -3, -1, 1, 3 by d.
// The training's -1.5, -0.5, 0.5, 1.5 times a scale are the same values: its scale is twice d.
#include "quant/rows.h"

enum { WEIGHTS = 512 };

const int8_t st_seq_values[16] = {-3, -1, 1, 3};

static void q2_0c_decode(const uint8_t *block, float *out) {
  float d = st_load_f16(block);
  for (int i = 0; i < WEIGHTS; i++) out[i] = (float)st_seq_values[block[2 + i / 4] >> 2 * (i % 4) & 3] * d;
}

static void q2_0c_parts(const uint8_t *block, st_block_parts *out) {
  for (int i = 0; i < WEIGHTS; i++) out->codes[i] = block[2 + i / 4] >> 2 * (i % 4) & 3;
}

static const st_value_block q2_0c = {q2_0c_decode, NULL, 1, {0}, q2_0c_parts, false, NULL};
const st_format_ops st_ops_q2_0c = ST_VALUE_OPS_READ(&q2_0c);
