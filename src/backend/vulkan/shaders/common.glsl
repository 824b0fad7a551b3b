// What all shaders share: addresses, numbers that are the CPU's to the last bit, and sums over a workgroup.
//
// The work of a shader is right for any number of invocations in a subgroup, from 4 to 128: what it is split by are
// gl_SubgroupID, gl_NumSubgroups and gl_SubgroupSize, and a workgroup is whole subgroups.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words {
  uint w[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats {
  float f[];
};
// What one workgroup of a dispatch writes and another reads.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats {
  float f[];
};

// ---- exact numbers ------------------------------------------------------------------------------------------------

// A device may round quotients and roots differently from the CPU, and codes of activations must be the same: these are
// rounded to the nearest, ties to even, for finite positive normal numbers with such results.

// a / b by long division.
float exact_quotient(float a, float b) {
  uint u = floatBitsToUint(a), v = floatBitsToUint(b);
  int exponent = int(u >> 23) - int(v >> 23) + 127;
  if (u >= 0x7F800000u || v > 0x7F800000u) return u >= 0x7F800000u ? a : b; // infinite, or not a number
  if (u < 0x800000u || v == 0x7F800000u) return 0;
  u = u & 0x7FFFFFu | 0x800000u;
  v = v & 0x7FFFFFu | 0x800000u;
  if (u < v) {
    u <<= 1;
    exponent--;
  }
  uint q = 1, rest = u - v;
  for (int i = 0; i < 23; i++) {
    rest <<= 1;
    q <<= 1;
    if (rest >= v) {
      rest -= v;
      q |= 1;
    }
  }
  q += uint(2 * rest > v || (2 * rest == v && (q & 1) == 1));
  if (exponent <= 0 || exponent >= 254) return exponent <= 0 ? 0 : uintBitsToFloat(0x7F800000u);
  return uintBitsToFloat((uint(exponent) << 23) + (q - 0x800000u));
}

// The square root, two binary digits at a time.
float exact_root(float a) {
  uint u = floatBitsToUint(a);
  if (u < 0x800000u || u >= 0x7F800000u) return u < 0x800000u ? 0 : a;
  int exponent = int(u >> 23) - 127;
  uint m = (u & 0x7FFFFFu | 0x800000u) << (exponent & 1), root = 0, rest = 0; // 24 or 25 bits
  for (int i = 0; i < 25; i++) { // pairs of the bits of m 2^25, from 49 and 48 on
    uint pair = i < 12 ? m >> (23 - 2 * i) & 3 : i == 12 ? m << 1 & 3 : 0;
    rest = rest << 2 | pair;
    uint step = root << 2 | 1;
    root <<= 1;
    if (rest >= step) {
      rest -= step;
      root |= 1;
    }
  }
  // 25 bits of root: the last decides, with the rest, how the others are rounded
  uint q = root >> 1;
  q += uint((root & 1) == 1 && (rest != 0 || (q & 1) == 1));
  return uintBitsToFloat(uint((exponent >> 1) + 127 << 23) + (q - 0x800000u));
}

// e^x as the CPU computes it, see docs/kernels.md.
float exponential(float x) {
  const float rounder = 12582912.0;
  x = max(x, -104.0);
  x = min(x, 89.0);
  precise float shifted = fma(x, uintBitsToFloat(0x3FB8AA3Bu), rounder);
  precise float n = shifted - rounder;
  precise float r = fma(n, -uintBitsToFloat(0x3F317200u), x);
  r = fma(n, -uintBitsToFloat(0x35BFBE8Eu), r);
  precise float p = fma(uintBitsToFloat(0x39500D01u), r, uintBitsToFloat(0x3AB60B61u));
  p = fma(p, r, uintBitsToFloat(0x3C088889u));
  p = fma(p, r, uintBitsToFloat(0x3D2AAAABu));
  p = fma(p, r, uintBitsToFloat(0x3E2AAAABu));
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  uint integer = floatBitsToUint(shifted) - 0x4B400000u;
  uint low = (integer >> 1) | (integer & 0x80000000u), high = integer - low;
  precise float scaled = p * uintBitsToFloat(low + 127 << 23);
  scaled *= uintBitsToFloat(high + 127 << 23);
  return scaled;
}

// ---- half precision -----------------------------------------------------------------------------------------------

// Rounded to the nearest, ties to even: packHalf2x16 may round otherwise.
uint half_of(float x) {
  uint u = floatBitsToUint(x), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return sign | 0x7E00u;
  if (a >= 0x477FF000u) return sign | 0x7C00u;
  if (a < 0x38800000u) { // a multiple of 2^-24, by shifting, since denormal numbers may be flushed
    uint e = a >> 23, m = a & 0x7FFFFFu | 0x800000u;
    if (e < 102) return sign;
    uint shift = 126 - e, q = m >> shift, rest = m & (1u << shift) - 1, middle = 1u << shift - 1;
    return sign | q + uint(rest > middle || (rest == middle && (q & 1) == 1));
  }
  return sign | (a + 0xFFFu + (a >> 13 & 1)) - 0x38000000u >> 13;
}

float float_of_half(uint h) {
  uint sign = (h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 0) return uintBitsToFloat(sign | floatBitsToUint(float(m) * uintBitsToFloat(0x33800000u)));
  return uintBitsToFloat(sign | (e == 31 ? 0x7F800000u : e + 112 << 23) | m << 13);
}
