// Int8 codes of tokens with a scale each, after RMSNorm where there is a norm: a workgroup a token. The results are the
// CPU's to the bit, see docs/kernels.md.
//
// A token's codes are `stride` words, four columns a word, zero after the last; then come three numbers: s, 1 / s, and
// the sum of the codes, an integer.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "rms.glsl"

layout(push_constant) uniform Push {
  Floats x, norm;
  Words codes;
  uint x_stride, columns, stride, normed;
  float eps;
};

shared int sum;

float value(uint from, uint i, float r) {
  precise float v = x.f[from + i];
  if (normed != 0) {
    v *= r;
    v *= norm.f[i];
  }
  return v;
}

int code_of(float v) {
  return v >= -127.5 && v <= 127.5 ? int(roundEven(v)) : 0;
}

void main() {
  uint token = gl_WorkGroupID.x, from = token * x_stride, to = token * (stride + 4);
  float r = 1, most = 0;
  if (gl_LocalInvocationID.x == 0) sum = 0;
  if (normed != 0) r = inverse_rms(x, from, columns, eps);
  for (uint i = gl_LocalInvocationID.x; i < columns; i += gl_WorkGroupSize.x) {
    float a = abs(value(from, i, r));
    most = a > most ? a : most;
  }
  most = workgroup_max(most);
  precise float s = 127.0 * exact_quotient(1.0, most > 1e-5 ? most : 1e-5);
  int mine = 0;
  for (uint word = gl_LocalInvocationID.x; word < stride; word += gl_WorkGroupSize.x) {
    uint packed = 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint i = 4 * word + j;
      precise float scaled = 0;
      if (i < columns) scaled = value(from, i, r) * s;
      int code = code_of(scaled);
      mine += code;
      packed |= (uint(code) & 255) << 8 * j;
    }
    codes.w[to + word] = packed;
  }
  atomicAdd(sum, mine);
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    codes.w[to + stride] = floatBitsToUint(s);
    codes.w[to + stride + 1] = floatBitsToUint(s > 0 ? exact_quotient(1.0, s) : uintBitsToFloat(0x7F800000u));
    codes.w[to + stride + 2] = uint(sum);
  }
}
