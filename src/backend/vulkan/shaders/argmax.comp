// The index of the largest number of a row, the first of equal ones: workgroups take parts of it, and the one that ends
// last compares their results. A number that is none, or that is infinite, is found too: the answer is then INVALID.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

const uint INVALID = 0xFFFFFFFFu;

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Parts {
  uint ended; // workgroups; 0 before a dispatch and after it
  uint best;
  uint part[]; // of workgroups: the bits of the largest number, and its index
};

layout(push_constant) uniform Push {
  Floats x;
  Parts parts;
  uint width, each; // each: of a workgroup
};

shared uint ended_before;
shared uint first_index;

// The largest of the invocations' numbers, with its index.
void reduce(inout float value, inout uint index) {
  float most = workgroup_max(value);
  bool wrong = workgroup_max(index == INVALID ? 1.0 : 0.0) != 0;
  if (gl_LocalInvocationID.x == 0) first_index = INVALID;
  barrier();
  if (!wrong && value == most) atomicMin(first_index, index);
  barrier();
  value = most;
  index = first_index;
}

void main() {
  uint from = gl_WorkGroupID.x * each, end = min(from + each, width), index = from;
  float most = -3.4028235e38;
  for (uint i = from + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    float v = x.f[i];
    if (!(abs(v) <= 3.4028234e38)) index = INVALID;
    if (index != INVALID && (v > most || i == from + gl_LocalInvocationID.x)) {
      most = v;
      index = i;
    }
  }
  reduce(most, index);
  if (gl_LocalInvocationID.x == 0) {
    parts.part[2 * gl_WorkGroupID.x] = floatBitsToUint(most);
    parts.part[2 * gl_WorkGroupID.x + 1] = index;
  }
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) ended_before = atomicAdd(parts.ended, 1);
  barrier();
  if (ended_before + 1 != gl_NumWorkGroups.x) return;
  memoryBarrierBuffer();
  most = -3.4028235e38;
  index = parts.part[1];
  for (uint i = gl_LocalInvocationID.x; i < gl_NumWorkGroups.x; i += gl_WorkGroupSize.x) {
    float v = uintBitsToFloat(parts.part[2 * i]);
    if (parts.part[2 * i + 1] == INVALID) index = INVALID;
    if (index != INVALID && (v > most || i == gl_LocalInvocationID.x)) {
      most = v;
      index = parts.part[2 * i + 1];
    }
  }
  reduce(most, index);
  if (gl_LocalInvocationID.x == 0) {
    parts.ended = 0;
    parts.best = index;
  }
}
