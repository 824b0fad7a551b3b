// Rotary position embedding. y of a workgroup is the token, x counts the pairs of all heads, and then what is copied.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint INTERLEAVED = 0;

layout(push_constant) uniform Push {
  Floats x, dst, table;
  Words positions; // of tokens, in the table
  uint x_stride, dst_stride, heads, head_dim, n_rot, rotates;
};

void main() {
  uint half_rot = n_rot / 2, each = head_dim - half_rot, i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
  uint head = i / each, element = i % each, from = token * x_stride + head * head_dim,
       to = token * dst_stride + head * head_dim;
  if (head >= heads) return;
  if (element >= half_rot) { // past the pairs
    dst.f[to + half_rot + element] = x.f[from + half_rot + element];
    return;
  }
  uint a = INTERLEAVED != 0 ? 2 * element : element, b = INTERLEAVED != 0 ? a + 1 : a + half_rot;
  float u = x.f[from + a], v = x.f[from + b];
  if (rotates != 0) {
    uint at = positions.w[token] * n_rot + element;
    float c = table.f[at], s = table.f[at + half_rot];
    precise float uc = u * c, vs = v * s, vc = v * c, us = u * s;
    precise float first = uc - vs, second = vc + us;
    u = first;
    v = second;
  }
  dst.f[to + a] = u;
  dst.f[to + b] = v;
}
