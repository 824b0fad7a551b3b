// Value formats in their own bits: a row has the codes of all its blocks and then their heads, which are what else the
// blocks have (values.c). Eight columns at once; the numbers are the CPU's to the last bit, except that a device may
// take those for zero that are below the normal ones.
#define CODEC(id, number, first, bytes, bits) const uint id = number;
#define SHARED(id, number) const uint id = number;
#include "../codecs.def"

layout(constant_id = 3) const uint CODED = 0;      // the codec
layout(constant_id = 4) const uint BITS = 0;       // of a code
layout(constant_id = 5) const uint BLOCK = 0;      // columns; 0: the whole row
layout(constant_id = 6) const uint CODE_WORDS = 0; // of a block's codes
layout(constant_id = 7) const uint HEAD = 0;       // bytes of a block's head

#define UNIT 8

// Byte i from a word on, and the half-precision number that begins there.
uint byte_at(Words p, uint word, uint i) {
  return p.w[word + i / 4] >> (i % 4 * 8) & 255;
}
int signed_byte(uint byte) {
  return int(byte << 24) >> 24;
}
float half_at(Words p, uint word, uint i) {
  return float_of_half(byte_at(p, word, i) | byte_at(p, word, i + 1) << 8);
}

// ---- codes of columns [i, i + 8) of a block, whose codes begin at a word ------------------------------------------

// `mask` bits of eight bytes.
void take(Words p, uint word, uint shift, uint mask, out uint q[UNIT]) {
  uint low = p.w[word] >> shift, high = p.w[word + 1] >> shift;
  [[unroll]] for (uint j = 0; j < 4; j++) {
    q[j] = low >> 8 * j & mask;
    q[4 + j] = high >> 8 * j & mask;
  }
}

void join(Words p, uint word, uint shift, uint mask, uint by, inout uint q[UNIT]) {
  uint more[UNIT];
  take(p, word, shift, mask, more);
  [[unroll]] for (uint j = 0; j < UNIT; j++) q[j] |= more[j] << by;
}

// Consecutive codes in a string of bits.
void take_string(Words p, uint at, uint i, out uint q[UNIT]) {
  [[unroll]] for (uint j = 0; j < UNIT; j++) {
    uint bit = (i + j) * BITS, shift = bit % 32, word = at + bit / 32, v = p.w[word] >> shift;
    if (shift + BITS > 32) v |= p.w[word + 1] << (32 - shift);
    q[j] = v & (1u << BITS) - 1;
  }
}

// Of each four columns two have a code, where the metadata say.
void take_sparse(Words p, uint at, uint i, out uint q[UNIT]) {
  uint run = i / 32, quarter = i % 32 / 8;
  uint values = p.w[at + 2 * run + quarter / 2] >> quarter % 2 * 16, where = p.w[at + BLOCK / 16 + run] >> quarter * 8;
  [[unroll]] for (uint j = 0; j < UNIT; j++) {
    uint pair = values >> j / 4 * 8, nibble = where >> j / 4 * 4, column = j % 4;
    q[j] = (nibble >> 2 & 3) == column ? pair >> 4 & 15 : (nibble & 3) == column ? pair & 15 : 0;
  }
}

void take_codes(Words p, uint at, uint i, out uint q[UNIT]) {
  uint plane = i % 32 / 4;
  if (CODED == S24_I4 || CODED == S24_F4) {
    take_sparse(p, at, i, q);
  } else if (BITS != 0) {
    take_string(p, at, i, q);
  } else if (CODED == Q8_0 || CODED == INT8 || CODED == F8_E4M3 || CODED == F8_E5M2) {
    take(p, at + i / 4, 0, 255, q);
  } else if (CODED == NVFP4) {
    take(p, at + i / 16 * 2, i / 8 % 2 * 4, 15, q);
  } else if (CODED == Q2_K || CODED == Q3_K) {
    take(p, at + (CODED == Q3_K ? 8 : 0) + i / 128 * 8 + plane, i % 128 / 32 * 2, 3, q);
    if (CODED == Q3_K) join(p, at + plane, i / 32, 1, 2, q);
  } else if (CODED == Q4_K || CODED == Q5_K) {
    take(p, at + (CODED == Q5_K ? 8 : 0) + i / 64 * 8 + plane, i / 32 % 2 * 4, 15, q);
    if (CODED == Q5_K) join(p, at + plane, i / 32, 1, 4, q);
  } else if (CODED == Q6_K) {
    uint part = i % 128 / 32;
    take(p, at + i / 128 * 16 + part % 2 * 8 + plane, part / 2 * 4, 15, q);
    join(p, at + 32 + i / 128 * 8 + plane, part * 2, 3, 4, q);
  } else {
    bool five = CODED == Q5_0 || CODED == Q5_1;
    take(p, at + uint(five) + i / 32 * 4 + i % 16 / 4, i / 16 % 2 * 4, 15, q);
    [[unroll]] for (uint j = 0; five && j < UNIT; j++) q[j] |= (p.w[at] >> (i + j) & 1) << 4;
  }
}

// ---- what a code means --------------------------------------------------------------------------------------------

const int IQ4_VALUES[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

// Twice an E2M1 number.
float e2m1(uint q) {
  uint m = q & 7;
  float v = float(m < 4 ? m : (2 + (m & 1)) << m / 2 - 1);
  return (q & 8) != 0 ? -v : v;
}

float e4m3(uint q) {
  uint sign = (q & 0x80) << 24, exponent = q >> 3 & 15, m = q & 7;
  if ((q & 0x7F) == 0x7F) return uintBitsToFloat(sign | 0x7FC00000u);
  float v = exponent != 0 ? uintBitsToFloat(exponent + 120 << 23 | m << 20) : float(m) * uintBitsToFloat(0x3B000000u);
  return uintBitsToFloat(floatBitsToUint(v) | sign);
}

float value_of(uint q) {
  if (CODED == Q4_0) return float(int(q) - 8);
  if (CODED == Q5_0) return float(int(q) - 16);
  if (CODED == Q3_K) return float(int(q) - 4);
  if (CODED == Q6_K) return float(int(q) - 32);
  if (CODED == IQ4_NL || CODED == IQ4_XS) return float(IQ4_VALUES[q]);
  if (CODED == MXFP4 || CODED == NVFP4 || CODED == S24_F4) return e2m1(q);
  if (CODED == S24_I4) return float(int(q << 28) >> 28);
  if (CODED == Q2_0C) return float(2 * int(q) - 3);
  if (CODED == Q1_0) return float(2 * int(q) - 1);
  if (CODED == F8_E4M3) return e4m3(q);
  if (CODED == F8_E5M2) return float_of_half(q << 8);
  if (CODED == Q8_0 || CODED == INT8 || (CODED == ZP && BITS == 8)) return float(signed_byte(q));
  if ((CODED == AFFINE || CODED == AFFINE_BF16) && BITS == 8) return float(int(q) - 128);
  return float(q);
}

// ---- scales of columns [i, i + 8) of a block whose head begins at byte h: weight = value * d + m ------------------

// Scale and minimum of Q4_K and Q5_K in their twelve bytes.
uvec2 scale_and_minimum(Words p, uint head, uint h, uint sub) {
  uint a = byte_at(p, head, h + sub % 4), b = byte_at(p, head, h + 4 + sub % 4);
  if (sub < 4) return uvec2(a & 63, b & 63);
  uint low = byte_at(p, head, h + 4 + sub);
  return uvec2(low & 15 | a >> 6 << 4, low >> 4 | b >> 6 << 4);
}

void k_scales(Words p, uint head, uint h, uint i, out float d, out float m) {
  m = 0;
  if (CODED == Q2_K) {
    uint s = byte_at(p, head, h + i / 16);
    precise float scale = half_at(p, head, h + 16) * float(s & 15), minimum = half_at(p, head, h + 18) * float(s >> 4);
    d = scale, m = -minimum;
  } else if (CODED == Q3_K) {
    uint sub = i / 16, low = byte_at(p, head, h + sub % 8) >> sub / 8 * 4 & 15;
    uint high = byte_at(p, head, h + 8 + sub % 4) >> sub / 4 * 2 & 3;
    precise float scale = half_at(p, head, h + 12) * float(int(low | high << 4) - 32);
    d = scale;
  } else if (CODED == Q6_K) {
    precise float scale = half_at(p, head, h + 16) * float(signed_byte(byte_at(p, head, h + i / 16)));
    d = scale;
  } else {
    uvec2 s = scale_and_minimum(p, head, h + 4, i / 32);
    precise float scale = half_at(p, head, h) * float(s.x), minimum = half_at(p, head, h + 2) * float(s.y);
    d = scale, m = -minimum;
  }
}

// Half of E4M3 numbers without a sign and of powers of two.
float half_of_e4m3(uint e) {
  uint exponent = e >> 3 & 15, m = e & 7;
  if (e == 0x7F) return 0;
  return exponent == 0 ? float(m) * uintBitsToFloat(0x3A800000u) : uintBitsToFloat(exponent + 119 << 23 | m << 20);
}
float half_of_e8m0(uint e) {
  return uintBitsToFloat(e < 2 ? 0x200000u << e : e - 1 << 23);
}

void affine_scales(Words p, uint head, uint h, out float d, out float m) {
  if (CODED == AFFINE) {
    d = half_at(p, head, h), m = half_at(p, head, h + 2);
  } else {
    uint word = p.w[head + h / 4];
    d = uintBitsToFloat(word << 16), m = uintBitsToFloat(word & 0xFFFF0000u);
  }
  precise float more = 128 * d, both = m + more;
  if (BITS == 8) m = both;
}

void take_scales(Words p, uint head, uint h, uint i, out float d, out float m) {
  m = 0;
  if (CODED == Q2_K || CODED == Q3_K || CODED == Q4_K || CODED == Q5_K || CODED == Q6_K) {
    k_scales(p, head, h, i, d, m);
  } else if (CODED == AFFINE || CODED == AFFINE_BF16) {
    affine_scales(p, head, h, d, m);
  } else if (CODED == IQ4_XS) {
    uint sub = i / 32, low = byte_at(p, head, h + 4 + sub / 2) >> sub % 2 * 4 & 15;
    uint high = byte_at(p, head, h + 2 + sub / 4) >> sub % 4 * 2 & 3;
    precise float scale = half_at(p, head, h) * float(int(low | high << 4) - 32);
    d = scale;
  } else if (CODED == MXFP4) {
    d = half_of_e8m0(byte_at(p, head, h));
  } else if (CODED == NVFP4) {
    d = half_of_e4m3(byte_at(p, head, h + i / 16));
  } else if (CODED == F8_E4M3 || CODED == F8_E5M2) {
    d = 1;
  } else {
    d = half_at(p, head, h);
    if (CODED == Q4_1 || CODED == Q5_1) m = half_at(p, head, h + 2);
    if (CODED == ZP) m = d * float(-signed_byte(byte_at(p, head, h + 2)));
    if (CODED == S24_F4) d *= 0.5;
  }
}

// Unit k of a row; columns after its end are zero where it has such.
void decode_at(Words p, uint base, uint k, uint columns, uint block, out float w[UNIT]) {
  uint column = k * UNIT, blocks = BLOCK == 0 ? 1 : columns / BLOCK, b = BLOCK == 0 ? 0 : column / BLOCK;
  uint words = BLOCK == 0 ? (columns + 7) / 8 * 2 : CODE_WORDS, i = column - b * BLOCK, q[UNIT];
  float d, m;
  take_codes(p, base + b * words, i, q);
  take_scales(p, base + blocks * words, b * HEAD, i, d, m);
  [[unroll]] for (uint j = 0; j < UNIT; j++) {
    precise float v = value_of(q[j]) * d;
    v += m;
    w[j] = v;
  }
}
