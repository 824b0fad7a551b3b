// The matrices that share an input: a list in memory. Workgroups take runs of ROWS rows, of all matrices one after the
// other.
#define ROWS 8

struct Out {
  Words codes;
  Floats scales; // of rows, where the form has them
  Floats bias;
  Floats dst; // at the first row and token
  uint rows, dst_stride, first_group, has_bias;
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
