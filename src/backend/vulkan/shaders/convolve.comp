// The causal convolution of a recurrent layer, with SiLU: an invocation takes a channel of a run of tokens.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "glu.glsl"
#include "recurrent.glsl"

layout(constant_id = 1) const uint TAPS = 4;

layout(push_constant) uniform Push {
  Floats x, taps, dst;
  Runs runs;
  uint x_stride, dst_stride, channels, inputs; // inputs: where a state has the last ones
};

void main() {
  uint c = gl_GlobalInvocationID.x;
  if (c >= channels) return;
  Run run = runs.r[gl_WorkGroupID.y];
  float seen[TAPS]; // the last inputs, the token's own at the end
  [[unroll]] for (uint i = 0; i + 1 < TAPS; i++) {
    seen[i + 1] = 0;
    if (run.fresh == 0) seen[i + 1] = run.from.f[inputs + i * channels + c];
  }
  for (uint t = run.first; t < run.first + run.n; t++) {
    [[unroll]] for (uint i = 0; i + 1 < TAPS; i++) seen[i] = seen[i + 1];
    seen[TAPS - 1] = x.f[t * x_stride + c];
    precise float sum = seen[0] * taps.f[c];
    [[unroll]] for (uint i = 1; i < TAPS; i++) sum = fma(seen[i], taps.f[i * channels + c], sum);
    dst.f[t * dst_stride + c] = gate_of(SILU, sum);
  }
  [[unroll]] for (uint i = 0; i + 1 < TAPS; i++) run.to.f[inputs + i * channels + c] = seen[i + 1];
}
