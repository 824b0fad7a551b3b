// Operations on each number of some tokens. y of a workgroup is the token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint OPERATION = 0;
const uint ADD = 0, CLIP = 1, CLEAR = 2, SILU = 3, RELU2 = 4, GELU_TANH = 5, GPT_OSS = 6, SIGMOID = 7, SILU_CLAMPED = 8;

layout(push_constant) uniform Push {
  Floats x, y, dst;
  uint x_stride, y_stride, dst_stride, width;
  float value;
};

float gate_of(float g) {
  if (OPERATION == RELU2) {
    float r = g > 0 ? g : (g != g ? g : 0);
    precise float square = r * r;
    return square;
  }
  if (OPERATION == GELU_TANH) {
    precise float square = g * g;
    precise float u = g * fma(square, -0.071354814, -1.5957691);
    return g / (1.0 + exponential(u));
  }
  if (OPERATION == GPT_OSS) return g / (1.0 + exponential(-1.702 * g));
  if (OPERATION == SIGMOID) return 1.0 / (1.0 + exponential(-g));
  return g / (1.0 + exponential(-g));
}

float gated(float g, float u) {
  if (OPERATION == GPT_OSS || OPERATION == SILU_CLAMPED) {
    g = 7.0 < g ? 7.0 : g;
    u = 7.0 < u ? 7.0 : u < -7.0 ? -7.0 : u;
  }
  precise float up = OPERATION == GPT_OSS ? u + 1.0 : u;
  precise float product = gate_of(g) * up;
  return product;
}

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
    result = gated(a, y.f[token * y_stride + i]);
  }
  dst.f[token * dst_stride + i] = result;
}
