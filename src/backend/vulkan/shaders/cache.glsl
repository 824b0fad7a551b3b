// The cache: a page has, for each KV head, the keys of 64 positions and then the values. Words of keys are stored column
// by column, so that the invocations of 64 positions read neighbours; those of values position by position.
//
// A word is one column of F32, or two of F16. Of Q8 and Q4 a position begins with a word of its scale, half precision;
// then come codes plus half their range, 4 columns a word of Q8 and 8 of Q4, the first in the lowest bits; and then,
// of keys alone, their high 2 bits, 16 columns a word. Columns are padded to a multiple of 32.
const uint POSITIONS = 64;
const uint F16 = 0, F32 = 1, Q8 = 2, Q4 = 3; // as setun_kv_type

layout(constant_id = 1) const uint KEYS = F16;
layout(constant_id = 2) const uint VALUES = F16;
layout(constant_id = 3) const uint HEAD_DIM = 64;

const uint PADDED = (HEAD_DIM + 31) / 32 * 32;

uint columns_of_word(uint format) {
  return format == F32 ? 1 : format == F16 ? 2 : format == Q8 ? 4 : 8;
}
// Words of low bits of a position, which begin at words_before.
uint low_words(uint format) {
  return format < Q8 ? (HEAD_DIM + columns_of_word(format) - 1) / columns_of_word(format)
                     : PADDED / columns_of_word(format);
}
uint words_before(uint format) {
  return format < Q8 ? 0 : 1;
}
uint words_of(uint format, bool keys) {
  return words_before(format) + low_words(format) + (format >= Q8 && keys ? PADDED / 16 : 0);
}
// Half the range of codes.
uint middle_of(uint format, bool keys) {
  return (format == Q8 ? 128 : 8) * (keys ? 4 : 1);
}

// ---- rotation -----------------------------------------------------------------------------------------------------

shared float numbers[HEAD_DIM]; // a query, a key or a value

// `numbers` in blocks of a power of two, each times a Hadamard matrix, in the CPU's order. Each use is a barrier.
void rotate_numbers() {
  const uint block = HEAD_DIM & (~HEAD_DIM + 1);
  for (uint apart = block / 2; apart > 0; apart /= 2) {
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM / 2; i += gl_WorkGroupSize.x) {
      uint at = i / apart * 2 * apart + i % apart;
      precise float a = numbers[at], b = numbers[at + apart], sum = a + b, difference = a - b;
      numbers[at] = sum;
      numbers[at + apart] = difference;
    }
  }
  barrier();
  float scale = exact_quotient(1.0, exact_root(float(block)));
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) {
    precise float scaled = numbers[i] * scale;
    numbers[i] = scaled;
  }
  barrier();
}
