// Products of weights in a form with float32 tokens: a subgroup takes a row for TILE tokens. A token's sum does not
// depend on how many there are.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "outputs.glsl"

layout(push_constant) uniform Push {
  Floats x;
  Outs outs;
  Words tail, counter; // only of int8 products
  uint count, group, x_stride, columns, row_words, block;
};

void multiply_row(Out o, uint row, uint first, out float y[TILE]) {
  precise float sums[TILE];
  [[unroll]] for (uint t = 0; t < TILE; t++) sums[t] = 0;
  uint base = row * row_words, words = (columns + UNIT - 1) / UNIT;
  for (uint k = gl_SubgroupInvocationID; k < words; k += gl_SubgroupSize) {
    float w[UNIT];
    decode_at(o.codes, base, k, columns, block, w);
    [[unroll]] for (uint t = 0; t < TILE; t++) {
      uint at = (o.x_row + min(first + t, o.tokens - 1)) * x_stride;
      [[unroll]] for (uint i = 0; i < UNIT; i++) {
        uint column = k * UNIT + i; // the last word may be longer than the row: its weights there are zero
        if (UNIT > 1) column = min(column, columns - 1);
        sums[t] = fma(w[i], x.f[at + column], sums[t]);
      }
    }
  }
  [[unroll]] for (uint t = 0; t < TILE; t++) {
    precise float sum = subgroupAdd(sums[t]);
#if ROW_SCALES
    sum *= o.scales.f[row];
#endif
    y[t] = biased(o, row, sum);
  }
}

void main() {
  uint group_index = group + gl_WorkGroupID.x, first = count == 0 ? 0 : gl_WorkGroupID.y * TILE;
  uint index = matrix_of(outs, count, group_index), row = (group_index - outs.o[index].first_group) * ROWS;
  uint end = min(row + ROWS, outs.o[index].rows);
  for (row += gl_SubgroupID; row < end; row += gl_NumSubgroups) put_row(outs, index, row, first);
}
