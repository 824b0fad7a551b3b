// The COUNT largest numbers of a row, largest first, the first of equal ones: each workgroup finds those of its part,
// and the one that ends last those of all parts. A number that is none, or that is infinite, is found too.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint COUNT = 1;

const uint NONE = 0xFFFFFFFFu;

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Lists {
  uint ended; // workgroups; 0 before a dispatch and after it
  uint wrong; // workgroups that found a number that is not finite; the same
  uint was_wrong;
  uint list[]; // COUNT bits of numbers and indices, then the same of each workgroup; index NONE: there is no other
};

layout(push_constant) uniform Push {
  Floats x;
  Lists lists;
  uint width, each; // each: of a workgroup
};

shared uint ended_before;
shared uint first_index;

// Number i of those that are compared: of the row, or of the lists.
void candidate(bool listed, uint i, out float value, out uint index) {
  if (listed) {
    value = uintBitsToFloat(lists.list[2 * (COUNT + i)]);
    index = lists.list[2 * (COUNT + i) + 1];
  } else {
    value = x.f[i];
    index = i;
  }
}

bool before(float value, uint index, float other, uint other_index) {
  return value > other || (value == other && index < other_index);
}

// The best of the invocation's numbers after the last one that was chosen; index NONE: there is no other.
void find(bool listed, uint from, uint end, float last, uint last_index, out float best, out uint best_index) {
  best = -3.4028235e38;
  best_index = NONE;
  for (uint i = from + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    float value;
    uint index;
    candidate(listed, i, value, index);
    if (index == NONE || !before(last, last_index, value, index)) continue;
    if (best_index == NONE || before(value, index, best, best_index)) {
      best = value;
      best_index = index;
    }
  }
}

// Writes the COUNT best of [from, end) to list entries from `to` on.
void choose(bool listed, uint from, uint end, uint to) {
  float mine;
  uint my_index;
  find(listed, from, end, uintBitsToFloat(0x7F800000u), 0, mine, my_index);
  for (uint k = 0; k < COUNT; k++) {
    float most = workgroup_max(mine);
    if (gl_LocalInvocationID.x == 0) first_index = NONE;
    barrier();
    if (my_index != NONE && mine == most) atomicMin(first_index, my_index);
    barrier();
    uint index = first_index;
    if (gl_LocalInvocationID.x == 0) {
      lists.list[2 * (to + k)] = floatBitsToUint(most);
      lists.list[2 * (to + k) + 1] = index;
    }
    if (my_index != NONE && my_index == index) find(listed, from, end, most, index, mine, my_index);
    barrier();
  }
}

void main() {
  uint from = gl_WorkGroupID.x * each, end = min(from + each, width);
  float off = 0;
  for (uint i = from + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    if (!(abs(x.f[i]) <= 3.4028234e38)) off = 1;
  }
  bool finite = workgroup_max(off) == 0;
  if (!finite && gl_LocalInvocationID.x == 0) atomicAdd(lists.wrong, 1);
  if (finite) choose(false, from, end, COUNT * (1 + gl_WorkGroupID.x));
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) ended_before = atomicAdd(lists.ended, 1);
  barrier();
  if (ended_before + 1 != gl_NumWorkGroups.x) return;
  memoryBarrierBuffer();
  bool wrong = lists.wrong != 0;
  barrier();
  if (!wrong) choose(true, 0, COUNT * gl_NumWorkGroups.x, 0);
  if (gl_LocalInvocationID.x == 0) {
    lists.was_wrong = wrong ? 1 : 0;
    lists.wrong = 0;
    lists.ended = 0;
  }
}
