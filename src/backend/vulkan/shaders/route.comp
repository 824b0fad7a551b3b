// A router's choice for a token, a workgroup each: the largest scores, the first of equal ones before the others, and
// their weights, by ascending index.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint EXPERTS = 1;
layout(constant_id = 2) const uint USED = 1;
const uint ALL = 0, CHOSEN = 1, SIGMOID = 2, NONE = 0xFFFFFFFFu;

layout(push_constant) uniform Push {
  Floats logits, chosen;
  uint logits_stride, chosen_stride, router, renormalize; // router: an st_router
};

shared float scores[EXPERTS];
shared uint keys[EXPERTS]; // in the order of scores; 0: taken
shared uint found[USED];
shared float weights[USED]; // by ascending index
shared uint reduced_keys[32];

float smallest() {
  return uintBitsToFloat(0xFF800000u);
}

bool is_no_number(float x) {
  return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

// In the order of numbers, both zeros alike; what is not a number is smallest.
uint key_of(float x) {
  uint u = x == 0 ? 0 : floatBitsToUint(is_no_number(x) ? smallest() : x);
  return u ^ ((u >> 31) == 1 ? 0xFFFFFFFFu : 0x80000000u);
}

uint workgroup_least(uint x, bool largest) {
  x = largest ? subgroupMax(x) : subgroupMin(x);
  barrier();
  if (subgroupElect()) reduced_keys[gl_SubgroupID] = x;
  barrier();
  x = reduced_keys[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) {
    uint other = reduced_keys[i];
    x = largest ? max(x, other) : min(x, other);
  }
  return x;
}

// e^(x - most), and what is not a number stays so.
float power(float x, float most) {
  return is_no_number(x) ? x : exponential(x - most);
}

void softmax_of_all(uint local) {
  float most = smallest(), sum = 0;
  for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) most = scores[i] > most ? scores[i] : most;
  most = workgroup_max(most);
  for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) sum += scores[i] = power(scores[i], most);
  sum = workgroup_sum(sum);
  for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) scores[i] /= sum;
}

// The weight of the chosen expert with that place.
float weight_of(uint place) {
  float most = smallest(), sum = 0;
  if (router == SIGMOID) return 1.0 / (1.0 + exponential(-weights[place]));
  if (router == ALL && renormalize == 0) return weights[place];
  for (uint i = 0; i < USED && router == CHOSEN; i++) most = weights[i] > most ? weights[i] : most;
  for (uint i = 0; i < USED; i++) sum += router == CHOSEN ? power(weights[i], most) : weights[i];
  return (router == CHOSEN ? power(weights[place], most) : weights[place]) / sum;
}

void main() {
  uint local = gl_LocalInvocationID.x, token = gl_WorkGroupID.x;
  for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) scores[i] = logits.f[token * logits_stride + i];
  if (router == ALL) softmax_of_all(local);
  for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) keys[i] = key_of(scores[i]);
  for (uint j = 0; j < USED; j++) { // an invocation's numbers are its own
    uint mine = 0, at = NONE;
    for (uint i = local; i < EXPERTS; i += gl_WorkGroupSize.x) {
      if (keys[i] > mine) {
        mine = keys[i];
        at = i;
      }
    }
    uint most = workgroup_least(mine, true), first = workgroup_least(mine == most ? at : NONE, false);
    if (at == first) {
      keys[at] = 0;
      found[j] = at;
    }
  }
  barrier();
  for (uint j = local; j < USED; j += gl_WorkGroupSize.x) {
    uint place = 0;
    for (uint i = 0; i < USED; i++) place += uint(found[i] < found[j]);
    float score = scores[found[j]];
    weights[place] = is_no_number(score) ? smallest() : score;
    chosen.f[token * chosen_stride + 2 * place] = float(found[j]);
  }
  barrier();
  for (uint j = local; j < USED; j += gl_WorkGroupSize.x) chosen.f[token * chosen_stride + 2 * j + 1] = weight_of(j);
}
