// Stores the keys and values of tokens: an invocation a word. y of a workgroup is the token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "cache.glsl"

layout(push_constant) uniform Push {
  Floats k, v;
  Words cache, places; // of tokens: first word of the page, and the position in it
  uint k_stride, v_stride, heads, head_dim, key_words, head_words;
};

uint word_of(Floats x, uint from, uint column, uint pairs) {
  if (pairs == 0) return floatBitsToUint(x.f[from + column]);
  uint low = half_of(x.f[from + 2 * column]);
  uint high = 2 * column + 1 < head_dim ? half_of(x.f[from + 2 * column + 1]) : 0;
  return low | high << 16;
}

void main() {
  uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y, n_keys = key_columns(head_dim),
       n_values = value_columns(head_dim), each = n_keys + n_values;
  uint head = i / each, column = i % each;
  if (head >= heads) return;
  uint base = places.w[2 * token] + head * head_words, at = places.w[2 * token + 1];
  if (column < n_keys) {
    cache.w[base + column * POSITIONS + at] = word_of(k, token * k_stride + head * head_dim, column, KEY_PAIRS);
  } else {
    column -= n_keys;
    cache.w[base + key_words + at * n_values + column] =
        word_of(v, token * v_stride + head * head_dim, column, VALUE_PAIRS);
  }
}
