// What a word of a row holds: UNIT columns in a form, see st_vk_form. decode_at gives unit k of the row that begins at a
// word, with the scales that are not a row's.
#if FORM == 0 // float32
#define UNIT 1
void decode(uint word, out float w[UNIT]) {
  w[0] = uintBitsToFloat(word);
}
#elif FORM == 1 // half precision
#define UNIT 2
void decode(uint word, out float w[UNIT]) {
  w[0] = float_of_half(word & 0xFFFFu);
  w[1] = float_of_half(word >> 16);
}
#elif FORM == 2 // bfloat16
#define UNIT 2
void decode(uint word, out float w[UNIT]) {
  w[0] = uintBitsToFloat(word << 16);
  w[1] = uintBitsToFloat(word & 0xFFFF0000u);
}
#elif FORM == 3 || FORM == 5 // codes of two bits
#define UNIT 16
void decode(uint word, out float w[UNIT]) {
  [[unroll]] for (uint i = 0; i < UNIT; i++) w[i] = float(int(word >> (i % 4 * 8 + i / 4 * 2) & 3) - 1);
}
#elif FORM == 4 // five trits a byte
#define UNIT 20
void decode(uint word, out float w[UNIT]) {
  uint even = word & 0x00FF00FFu, odd = word >> 8 & 0x00FF00FFu;
  [[unroll]] for (uint p = 0; p < 5; p++) {
    even *= 3;
    odd *= 3;
    w[4 * p] = float(int(even >> 8 & 3) - 1);
    w[4 * p + 1] = float(int(odd >> 8 & 3) - 1);
    w[4 * p + 2] = float(int(even >> 24) - 1);
    w[4 * p + 3] = float(int(odd >> 24) - 1);
    even &= 0x00FF00FFu;
    odd &= 0x00FF00FFu;
  }
}
#endif
#define ROW_SCALES (FORM == 3 || FORM == 4)

#if FORM == 6
#include "values.glsl"
#else
void decode_at(Words p, uint base, uint k, uint columns, uint block, out float w[UNIT]) {
  decode(p.w[base + k], w);
#if FORM == 5
  uint scales = base + (columns + block - 1) / block * (block / UNIT);
  float d = uintBitsToFloat(p.w[scales + k * UNIT / block]);
  [[unroll]] for (uint i = 0; i < UNIT; i++) {
    precise float v = w[i] * d;
    w[i] = v;
  }
#endif
}
#endif
