// The matrices that share an input: a list in memory. Workgroups take runs of ROWS rows, of all matrices one after the
// other. With a gate there are two matrices, of which a workgroup takes the same rows: that of gates, whose outputs are
// the results, and that of what these are multiplied by.
#include "glu.glsl"
#define ROWS 8

layout(constant_id = 1) const uint TILE = 1; // tokens of a workgroup
layout(constant_id = 8) const uint GATE = 0; // 0: none

const uint BIAS = 1, SUM = 2;

struct Out {
  Words codes;
  Floats scales; // of rows, where the form has them
  Floats bias;
  SharedFloats dst; // at the first row and token
  SharedFloats sum; // to which products are added too, `factor` times; dst has them alone
  uint rows, dst_stride, sum_stride, first_group, flags;
  float factor;
  uint x_row, dst_row, tokens; // the first token's rows of x and dst; how many tokens there are
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Outs {
  Out o[];
};

// The matrix of a workgroup: the last one that begins at it or before. With `count` 0 the workgroups of each y have a
// matrix of their own, or two with a gate.
uint matrix_of(Outs outs, uint count, uint group) {
  uint i = 0;
  if (count == 0) return GATE != 0 ? 2 * gl_WorkGroupID.y : gl_WorkGroupID.y;
  while (GATE == 0 && i + 1 < count && outs.o[i + 1].first_group <= group) i++;
  return i;
}

float biased(Out o, uint row, float product) {
  precise float y = product;
  if ((o.flags & BIAS) != 0) y += o.bias.f[row];
  return y;
}

void put_out(Out o, uint row, uint token, float y) {
  o.dst.f[(o.dst_row + token) * o.dst_stride + row] = y;
  if ((o.flags & SUM) != 0) {
    uint at = token * o.sum_stride + row;
    precise float more = o.factor * y;
    precise float both = o.sum.f[at] + more;
    o.sum.f[at] = both;
  }
}

// A row's products with the tokens from `first` on, which multiply_row gives to all invocations of a subgroup.
void multiply_row(Out o, uint row, uint first, out float y[TILE]);

void put_row(Outs outs, uint index, uint row, uint first) {
  float y[TILE], gates[TILE];
  Out o = outs.o[index], m = o;
  for (uint part = GATE == 0 ? 1 : 0; part < 2; part++) { // of code that is compiled once
    multiply_row(m, row, first, y);
    if (part == 1) break;
    [[unroll]] for (uint t = 0; t < TILE; t++) gates[t] = y[t];
    m = outs.o[index + 1];
  }
  [[unroll]] for (uint t = 0; t < TILE; t++) {
    if (!subgroupElect() || first + t >= o.tokens) continue;
    put_out(m, row, first + t, y[t]);
    if (GATE != 0) put_out(o, row, first + t, gated(GATE, gates[t], y[t]));
  }
}
