// Operations on each number of some tokens. y of a workgroup is the token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "glu.glsl"

layout(constant_id = 1) const uint OPERATION = 0;
const uint ADD = 0, CLIP = 1, CLEAR = 2;

layout(push_constant) uniform Push {
  Floats x, y, dst;
  uint x_stride, y_stride, dst_stride, width;
  float value;
};

void main() {
  uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
  if (i >= width) return;
  float a = OPERATION == CLEAR ? 0 : x.f[token * x_stride + i];
  precise float result = 0;
  if (OPERATION == ADD) {
    precise float more = value * y.f[token * y_stride + i];
    result = a + more;
  } else if (OPERATION == CLIP) {
    result = a > value ? value : a < -value ? -value : a;
  } else if (OPERATION >= SILU) {
    result = gated(OPERATION, a, y.f[token * y_stride + i]);
  }
  dst.f[token * dst_stride + i] = result;
}
