// sum + the products of four signed bytes and four unsigned ones: one instruction where the device has it.
#ifdef DOTS
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4452)
int signed_by_unsigned(int a, uint b, spirv_literal int format);

int dot_add(uint x, uint codes, int sum) {
  return sum + signed_by_unsigned(int(x), codes, 0);
}
#else
int dot_add(uint x, uint codes, int sum) {
  int a = int(x);
  [[unroll]] for (int j = 0; j < 4; j++) sum += bitfieldExtract(a, 8 * j, 8) * int(codes >> 8 * j & 255);
  return sum;
}
#endif
