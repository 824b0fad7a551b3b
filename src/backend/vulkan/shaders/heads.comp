// From products to what attention takes: queries and keys are rotated (RoPE), and keys and values are stored in the
// cache. x of a workgroup counts the heads of q, then those of k, then those of v; y is the token. Each part may be
// absent.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "cache.glsl"
#include "codes.glsl"

layout(constant_id = 4) const uint INTERLEAVED = 0;

layout(push_constant) uniform Push {
  Floats q, q_dst, k, v;
  Words cache;
  Floats table;
  Words positions; // of tokens, in the table
  Words places;    // of tokens: first word of the page, and the position in it
  uint q_stride, q_dst_stride, k_stride, v_stride, n_q, n_k, stores, n_rot, rotates_k, key_words, head_words;
};

void load_numbers(Floats from, uint at) {
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) numbers[i] = from.f[at + i];
  barrier();
}

// `numbers` rotated by the token's position, and written.
void rotate(uint token, Floats to, uint to_at) {
  uint half_rot = n_rot / 2, at = n_rot != 0 ? positions.w[token] * n_rot : 0;
  for (uint i = gl_LocalInvocationID.x; i < half_rot; i += gl_WorkGroupSize.x) {
    uint a = INTERLEAVED != 0 ? 2 * i : i, b = INTERLEAVED != 0 ? a + 1 : a + half_rot;
    float u = numbers[a], v = numbers[b], c = table.f[at + i], s = table.f[at + half_rot + i];
    precise float uc = u * c, vs = v * s, vc = v * c, us = u * s;
    precise float first = uc - vs, second = vc + us;
    numbers[a] = first;
    numbers[b] = second;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) to.f[to_at + i] = numbers[i];
}

uint code_word(uint format, bool keys, float scale, uint word) {
  float inverse = scale != 0 && scale == scale ? inverse_of(scale) : 0, middle = float(middle_of(format, keys));
  uint low = low_words(format), bits = format == Q8 ? 8 : 4;
  if (word == 0) return half_of(scale);
  bool high = word > low;
  uint n = high ? 16 : 32 / bits, first = (high ? word - 1 - low : word - 1) * n, packed = 0;
  for (uint j = 0; j < n; j++) {
    float code = inverse != 0 && first + j < HEAD_DIM ? cache_code(numbers[first + j], inverse, middle) : 0;
    uint stored = uint(int(code) + int(middle));
    packed |= (high ? stored >> bits : bitfieldExtract(stored, 0, int(bits))) << j * (high ? 2 : bits);
  }
  return packed;
}

uint word_of(uint format, bool keys, float scale, uint word) {
  if (format == F32) return floatBitsToUint(numbers[word]);
  if (format >= Q8) return code_word(format, keys, scale, word);
  uint low = half_of(numbers[2 * word]), high = 2 * word + 1 < HEAD_DIM ? half_of(numbers[2 * word + 1]) : 0;
  return low | high << 16;
}

// Stores `numbers` as words from `base` on, `step` apart.
void store(uint format, bool keys, uint base, uint step) {
  float scale = 1;
  if (format >= Q8) {
    rotate_numbers();
    scale = scale_of(format, keys);
  }
  for (uint i = gl_LocalInvocationID.x; i < words_of(format, keys); i += gl_WorkGroupSize.x)
    cache.w[base + i * step] = word_of(format, keys, scale, i);
}

void main() {
  uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
  if (head < n_q) {
    load_numbers(q, token * q_stride + head * HEAD_DIM);
    rotate(token, q_dst, token * q_dst_stride + head * HEAD_DIM);
    return;
  }
  head -= n_q;
  bool key = head < n_k;
  if (!key) head -= n_k;
  uint base = stores != 0 ? places.w[2 * token] + head * head_words : 0,
       at = stores != 0 ? places.w[2 * token + 1] : 0;
  if (key) {
    uint from = token * k_stride + head * HEAD_DIM;
    load_numbers(k, from);
    if (rotates_k != 0) rotate(token, k, from);
    if (stores != 0) store(KEYS, true, base + at, POSITIONS);
  } else {
    load_numbers(v, token * v_stride + head * HEAD_DIM);
    store(VALUES, false, base + key_words + at * words_of(VALUES, false), 1);
  }
}
