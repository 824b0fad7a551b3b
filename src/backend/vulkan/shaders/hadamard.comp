// The Hadamard transform of a token's blocks, optionally after RMSNorm: a workgroup a token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rms.glsl"

layout(push_constant) uniform Push {
  SharedFloats x;
  Floats norm, before, after; // the last two with `factors`
  SharedFloats dst;           // may be x
  uint x_stride, dst_stride, width, block;
  uint factors; // bits: normed, before, after
  float eps, scale;
};

void main() {
  uint from = gl_WorkGroupID.x * x_stride, to = gl_WorkGroupID.x * dst_stride;
  float r = 1;
  if ((factors & 1) != 0) r = inverse_rms(x, from, width, eps);
  for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
    precise float v = x.f[from + i];
    if ((factors & 1) != 0) {
      v *= r;
      v *= norm.f[i];
    }
    if ((factors & 2) != 0) v *= before.f[i];
    dst.f[to + i] = v;
  }
  for (uint apart = block / 2; apart > 0; apart /= 2) {
    memoryBarrierBuffer();
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < width / 2; i += gl_WorkGroupSize.x) {
      uint at = to + i / apart * 2 * apart + i % apart;
      float a = dst.f[at], b = dst.f[at + apart];
      precise float sum = a + b, difference = a - b;
      dst.f[at] = sum;
      dst.f[at + apart] = difference;
    }
  }
  memoryBarrierBuffer();
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
    precise float v = dst.f[to + i] * scale;
    if ((factors & 4) != 0) v *= after.f[i];
    dst.f[to + i] = v;
  }
}
