// Rows of a matrix, times a factor: a workgroup a token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"

layout(push_constant) uniform Push {
  Words codes;
  Floats scales;
  Words ids;
  Floats dst;
  uint dst_stride, columns, row_words, block;
  float scale;
};

void main() {
  uint row = ids.w[gl_WorkGroupID.x], base = row * row_words, to = gl_WorkGroupID.x * dst_stride;
  for (uint k = gl_LocalInvocationID.x; k < (columns + UNIT - 1) / UNIT; k += gl_WorkGroupSize.x) {
    float w[UNIT];
    decode_at(codes, base, k, columns, block, w);
    float d = 1;
#if ROW_SCALES
    d = scales.f[row];
#endif
    [[unroll]] for (uint i = 0; i < UNIT; i++) {
      precise float v = w[i] * d;
      v *= scale;
      if (k * UNIT + i < columns) dst.f[to + k * UNIT + i] = v;
    }
  }
}
