// Codes of tokens (prepare.glsl), of a gate's result where there is one, which is stored too: a workgroup a token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "glu.glsl"
#include "reduce.glsl"
#include "rms.glsl"
#include "prepare.glsl"

layout(constant_id = 1) const uint GATE = 0; // 0: none

layout(push_constant) uniform Push {
  Preparation preparation;
  Floats gate, up;
  uint x_stride, gate_stride, up_stride;
};

void main() {
  uint token = gl_WorkGroupID.x, from = token * x_stride;
  if (GATE != 0) {
    for (uint i = gl_LocalInvocationID.x; i < preparation.columns; i += gl_WorkGroupSize.x)
      preparation.x.f[from + i] = gated(GATE, gate.f[token * gate_stride + i], up.f[token * up_stride + i]);
    memoryBarrierBuffer();
    barrier();
  }
  prepare_token(preparation, from, token * (preparation.stride + 4));
}
