// The matrices that share an input: a list in memory. Workgroups take runs of ROWS rows, of all matrices one after the
// other.
#define ROWS 8

const uint BIAS = 1, SUM = 2;

struct Out {
  Words codes;
  Floats scales; // of rows, where the form has them
  Floats bias;
  SharedFloats dst; // at the first row and token
  SharedFloats sum; // to which products are added too, `factor` times; dst has them alone
  uint rows, dst_stride, sum_stride, first_group, flags;
  float factor;
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Outs {
  Out o[];
};

// The matrix of a workgroup: the last one that begins at it or before.
uint matrix_of(Outs outs, uint count, uint group) {
  uint i = 0;
  while (i + 1 < count && outs.o[i + 1].first_group <= group) i++;
  return i;
}

void put_out(Out o, uint row, uint token, float product) {
  precise float y = product;
  if ((o.flags & BIAS) != 0) y += o.bias.f[row];
  o.dst.f[token * o.dst_stride + row] = y;
  if ((o.flags & SUM) != 0) {
    uint at = token * o.sum_stride + row;
    precise float more = o.factor * y;
    precise float both = o.sum.f[at] + more;
    o.sum.f[at] = both;
  }
}
