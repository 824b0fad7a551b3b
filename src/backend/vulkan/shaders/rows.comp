// Rows that are copied from listed tokens, rows that are added to them, columns that are copied, or all in another
// order, which is listed, and outputs of experts that are added up.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint OPERATION = 0;
const uint GATHER = 0, SCATTER_ADD = 1, COLUMNS = 2, REORDER = 3, CHOSEN = 4;

layout(push_constant) uniform Push {
  Floats x, dst;
  Words tokens;
  Floats weights;
  Floats sum; // to which results of CHOSEN are added, `factor` times, if `summed` is not 0
  uint x_stride, dst_stride, width, count;
  uint from, from_step, to, to_step, pieces; // of columns; CHOSEN: see there
  uint sum_stride, summed;
  float factor;
};

void main() {
  uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= width) return;
  if (OPERATION == GATHER) {
    dst.f[row * dst_stride + i] = x.f[tokens.w[row] * x_stride + i];
  } else if (OPERATION == SCATTER_ADD) { // a token may be listed twice: its column is one invocation's
    for (uint j = 0; j < count; j++) {
      uint at = tokens.w[j] * dst_stride + i;
      precise float more = weights.f[j] * x.f[j * x_stride + i];
      precise float both = dst.f[at] + more;
      dst.f[at] = both;
    }
  } else if (OPERATION == REORDER) {
    dst.f[row * dst_stride + i] = x.f[row * x_stride + tokens.w[i]];
  } else if (OPERATION == CHOSEN) { // weights are choices, from_step a token's; from: their rows are listed
    precise float all = to != 0 ? 0.0 : dst.f[row * dst_stride + i]; // to: alone
    for (uint j = 0; j < count; j++) {
      uint choice = row * count + j, at = from != 0 ? tokens.w[choice] : choice;
      precise float more = weights.f[row * from_step + 2 * j + 1] * x.f[at * x_stride + i];
      all += more;
    }
    dst.f[row * dst_stride + i] = all;
    if (summed != 0) {
      precise float more = factor * all;
      precise float both = sum.f[row * sum_stride + i] + more;
      sum.f[row * sum_stride + i] = both;
    }
  } else {
    uint piece = i / count, column = i % count;
    dst.f[row * dst_stride + to + piece * to_step + column] =
        x.f[row * x_stride + from + piece * from_step + column];
  }
}
