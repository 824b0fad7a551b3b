// Products of ternary weights with int8 tokens (prepare.glsl): a subgroup takes a row for TILE tokens; sums are exact.
// The workgroup that ends last may prepare the next product's input from the results of all: `tail`.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "dot.glsl"
#include "reduce.glsl"
#include "rms.glsl"
#include "prepare.glsl"
#include "outputs.glsl"

layout(constant_id = 2) const uint TAILED = 0; // of one token, in one dispatch

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Tail {
  Preparation preparation;
};
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Count {
  uint ended; // workgroups; 0 before a dispatch and after it
};

layout(push_constant) uniform Push {
  Words x;
  Outs outs;
  Tail tail;
  Count counter;
  uint count, group, x_stride, columns, row_words, block;
};

// a / s, rounded to the nearest where fma is one operation; `inverse` is 1 / s.
float quotient(float a, float s, float inverse) {
  precise float q = a * inverse;
  precise float rest = fma(-q, s, a);
  precise float better = fma(rest, inverse, q);
  return abs(better) <= 3.4e38 ? better : q * (s > 0 ? 1.0 : uintBitsToFloat(0x7FC00000u));
}

#if FORM == 4
#define PARTS 5
void codes_of(uint word, out uint part[PARTS]) {
  uint even = word & 0x00FF00FFu, odd = word >> 8 & 0x00FF00FFu;
  [[unroll]] for (uint p = 0; p < 5; p++) {
    even *= 3;
    odd *= 3;
    part[p] = (even >> 8 & 0x00FF00FFu) | (odd & 0xFF00FF00u);
    even &= 0x00FF00FFu;
    odd &= 0x00FF00FFu;
  }
}
#else
#define PARTS 4
void codes_of(uint word, out uint part[PARTS]) {
  [[unroll]] for (uint p = 0; p < 4; p++) part[p] = word >> 2 * p & 0x03030303u;
}
#endif

// Adds a word of codes to the sums of the tile's tokens.
void add_word(Out o, uint word, uint k, uint first, inout int sums[TILE]) {
  uint part[PARTS];
  codes_of(word, part);
  [[unroll]] for (uint t = 0; t < TILE; t++) {
    uint at = (o.x_row + min(first + t, o.tokens - 1)) * (x_stride + 4) + PARTS * k;
    [[unroll]] for (uint p = 0; p < PARTS; p++) sums[t] = dot_add(x.w[at + p], part[p], sums[t]);
  }
}

// `token`: a row of x.
float finished(Out o, uint row, uint token, float sum, float scale) {
  uint at = token * (x_stride + 4) + x_stride;
  precise float y = quotient(sum, uintBitsToFloat(x.w[at]), uintBitsToFloat(x.w[at + 1]));
  y *= scale;
  return biased(o, row, y);
}

#if FORM == 5 // a block of columns is one invocation's; -1 is code 0, so that the sum of its x is taken off
void multiply_row(Out o, uint row, uint first, out float y[TILE]) {
  uint base = row * row_words, blocks = (columns + block - 1) / block, each = block / 16;
  precise float totals[TILE];
  [[unroll]] for (uint t = 0; t < TILE; t++) totals[t] = 0;
  for (uint b = gl_SubgroupInvocationID; b < blocks; b += gl_SubgroupSize) {
    int sums[TILE], ones[TILE];
    [[unroll]] for (uint t = 0; t < TILE; t++) sums[t] = ones[t] = 0;
    for (uint k = b * each; k < (b + 1) * each; k++) {
      add_word(o, o.codes.w[base + k], k, first, sums);
      add_word(o, 0x55555555u, k, first, ones);
    }
    float d = uintBitsToFloat(o.codes.w[base + blocks * each + b]);
    [[unroll]] for (uint t = 0; t < TILE; t++) totals[t] = fma(d, float(sums[t] - ones[t]), totals[t]);
  }
  [[unroll]] for (uint t = 0; t < TILE; t++)
    y[t] = finished(o, row, o.x_row + min(first + t, o.tokens - 1), subgroupAdd(totals[t]), 1);
}
#else
void multiply_row(Out o, uint row, uint first, out float y[TILE]) {
  uint base = row * row_words;
  int sums[TILE];
  [[unroll]] for (uint t = 0; t < TILE; t++) sums[t] = 0;
  for (uint k = gl_SubgroupInvocationID; k < row_words; k += gl_SubgroupSize)
    add_word(o, o.codes.w[base + k], k, first, sums);
  [[unroll]] for (uint t = 0; t < TILE; t++) {
    uint token = o.x_row + min(first + t, o.tokens - 1);
    int sum = subgroupAdd(sums[t]) - int(x.w[token * (x_stride + 4) + x_stride + 2]);
    y[t] = finished(o, row, token, float(sum), o.scales.f[row]);
  }
}
#endif

shared uint ended_before;

void run_tail() {
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) ended_before = atomicAdd(counter.ended, 1);
  barrier();
  if (ended_before + 1 != gl_NumWorkGroups.x) return;
  memoryBarrierBuffer();
  if (gl_LocalInvocationID.x == 0) counter.ended = 0;
  prepare_token(tail.preparation, 0, 0);
}

void main() {
  uint group_index = group + gl_WorkGroupID.x, first = count == 0 ? 0 : gl_WorkGroupID.y * TILE;
  uint index = matrix_of(outs, count, group_index), row = (group_index - outs.o[index].first_group) * ROWS;
  uint end = min(row + ROWS, outs.o[index].rows);
  for (row += gl_SubgroupID; row < end; row += gl_NumSubgroups) put_row(outs, index, row, first);
  if (TAILED != 0) run_tail();
}
