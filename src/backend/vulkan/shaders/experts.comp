// From some tokens' choices to the products that carry them out, in one workgroup: tokens are put in the order of their
// experts, a row for each expert of each token; a list has records of products (outputs.glsl), of up to TILE rows with
// one expert each. A gate and its factor follow each other.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint TILE = 1;
const uint MOST_EXPERTS = 1024; // ST_MAX_EXPERTS

// The words of `Out`; and of an expert's matrices in the table, each like the first of `Out`.
const uint OUT = 20, DST = 6, ROWS = 10, DST_STRIDE = 11, FIRST_GROUP = 13, FLAGS = 14, X_ROW = 16, DST_ROW = 17,
           TOKENS = 18;
const uint EXPERT = 24, MATRIX = 8, GATE = 0, UP = 1, DOWN = 2;

layout(push_constant) uniform Push {
  Words table;
  Floats chosen;
  Words order;        // [rows] the token of each row, and [tokens * used] the row of each choice
  Words inner, outer; // records of gates and factors, and of the others
  uvec2 gate, up, dst;
  uint gate_stride, up_stride, dst_stride, chosen_stride, tokens, used, n_expert, most; // most: pieces of a list
};

shared uint count[MOST_EXPERTS], start[MOST_EXPERTS], pieces[MOST_EXPERTS];
shared uint sums[32];

uint expert_of(uint choice) {
  return min(uint(chosen.f[choice / used * chosen_stride + 2 * (choice % used)]), n_expert - 1);
}

// The sum of x over the invocations before this one; `all`: over all.
uint sum_before(uint x, out uint all) {
  uint before = subgroupExclusiveAdd(x), mine = subgroupAdd(x);
  barrier();
  if (subgroupElect()) sums[gl_SubgroupID] = mine;
  barrier();
  all = 0;
  for (uint i = 0; i < gl_NumSubgroups; i++) {
    before += i < gl_SubgroupID ? sums[i] : 0;
    all += sums[i];
  }
  return before;
}

void put(Words list, uint index, uint expert, uint matrix, uvec2 to, uint stride, uint x_row, uint row, uint n) {
  uint at = index * OUT, from = expert * EXPERT + matrix * MATRIX;
  for (uint i = 0; i < DST; i++) list.w[at + i] = table.w[from + i]; // addresses of codes, scales and biases
  list.w[at + DST] = to.x;
  list.w[at + DST + 1] = to.y;
  list.w[at + ROWS] = table.w[from + DST];
  list.w[at + DST_STRIDE] = stride;
  list.w[at + FIRST_GROUP] = 0;
  list.w[at + FLAGS] = table.w[from + DST + 1];
  list.w[at + X_ROW] = x_row;
  list.w[at + DST_ROW] = row;
  list.w[at + TOKENS] = n;
}

void main() {
  uint local = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x, choices = tokens * used;
  for (uint e = local; e < n_expert; e += step) count[e] = 0;
  barrier();
  for (uint i = local; i < choices; i += step) atomicAdd(count[expert_of(i)], 1);
  barrier();
  // each invocation adds up some consecutive experts
  uint each = (n_expert + step - 1) / step, end = min((local + 1) * each, n_expert), rows = 0, mine = 0, all;
  for (uint e = local * each; e < end; e++) {
    rows += count[e];
    mine += (count[e] + TILE - 1) / TILE;
  }
  uint row = sum_before(rows, all), piece = sum_before(mine, all);
  for (uint e = local * each; e < end; e++) {
    start[e] = row;
    pieces[e] = piece;
    row += count[e];
    piece += (count[e] + TILE - 1) / TILE;
  }
  barrier();
  for (uint e = local; e < n_expert; e += step) {
    for (uint k = 0; k < count[e]; k += TILE) {
      uint at = pieces[e] + k / TILE, to = start[e] + k, n = min(TILE, count[e] - k), x_row = tokens > 1 ? to : 0;
      put(inner, 2 * at, e, GATE, gate, gate_stride, x_row, to, n);
      put(inner, 2 * at + 1, e, UP, up, up_stride, x_row, to, n);
      put(outer, at, e, DOWN, dst, dst_stride, to, to, n);
    }
  }
  for (uint i = all + local; i < most; i += step)
    inner.w[2 * i * OUT + ROWS] = inner.w[(2 * i + 1) * OUT + ROWS] = outer.w[i * OUT + ROWS] = 0;
  barrier();
  for (uint i = local; i < choices; i += step) {
    uint to = atomicAdd(start[expert_of(i)], 1);
    order.w[to] = i / used;
    order.w[choices + i] = to;
  }
}
