// Int8 codes of a token with a scale, after RMSNorm where there is a norm. The results are the CPU's to the bit, see
// docs/kernels.md.
//
// A token's codes are `stride` words, four columns a word, zero after the last; then come three numbers: s, 1 / s, and
// the sum of the codes, an integer. The numbers may be those that other workgroups of the same dispatch have written.
struct Preparation {
  SharedFloats x;
  Floats norm; // used if normed is not 0
  Words codes;
  uint columns, stride, normed;
  float eps;
};

shared int prepared_sum;

float prepared_value(Preparation p, uint from, uint i, float r) {
  precise float v = p.x.f[from + i];
  if (p.normed != 0) {
    v *= r;
    v *= p.norm.f[i];
  }
  return v;
}

int prepared_code(float v) {
  return v >= -127.5 && v <= 127.5 ? int(roundEven(v)) : 0;
}

// The token's numbers begin at `from` of x, its codes at `to`.
void prepare_token(Preparation p, uint from, uint to) {
  float r = 1, most = 0;
  if (gl_LocalInvocationID.x == 0) prepared_sum = 0;
  if (p.normed != 0) r = inverse_rms(p.x, from, p.columns, p.eps);
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    float a = abs(prepared_value(p, from, i, r));
    most = a > most ? a : most;
  }
  most = workgroup_max(most);
  precise float s = 127.0 * exact_quotient(1.0, most > 1e-5 ? most : 1e-5);
  int mine = 0;
  for (uint word = gl_LocalInvocationID.x; word < p.stride; word += gl_WorkGroupSize.x) {
    uint packed = 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint i = 4 * word + j;
      precise float scaled = 0;
      if (i < p.columns) scaled = prepared_value(p, from, i, r) * s;
      int code = prepared_code(scaled);
      mine += code;
      packed |= (uint(code) & 255) << 8 * j;
    }
    p.codes.w[to + word] = packed;
  }
  atomicAdd(prepared_sum, mine);
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    uint end = to + p.stride;
    p.codes.w[end] = floatBitsToUint(s);
    p.codes.w[end + 1] = floatBitsToUint(s > 0 ? exact_quotient(1.0, s) : uintBitsToFloat(0x7F800000u));
    p.codes.w[end + 2] = uint(prepared_sum);
  }
}
