// RMSNorm times weights, of pieces of tokens: a workgroup each.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rms.glsl"

layout(push_constant) uniform Push {
  SharedFloats x;
  Floats norm, dst;
  uint x_stride, dst_stride, width, tokens;
  float eps;
};

void main() {
  uint token = gl_WorkGroupID.y, from = token * x_stride + gl_WorkGroupID.x * width,
       to = token * dst_stride + gl_WorkGroupID.x * width;
  float r = inverse_rms(x, from, width, eps);
  for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
    precise float v = x.f[from + i] * r;
    v *= norm.f[i];
    dst.f[to + i] = v;
  }
}
