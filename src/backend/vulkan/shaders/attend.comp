// Attention of a query over the pages that it sees: a workgroup of 64 or more invocations a token and head. Keys are
// taken a page at a time, with the softmax's maximum, sum and the sum of values carried along, so that results depend on
// nothing but the keys and where pages begin.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "cache.glsl"

layout(constant_id = 3) const uint HEAD_DIM = 64;
layout(constant_id = 4) const uint COLUMNS = 1; // words of values that an invocation adds up

struct Token {
  uint pages;       // index of its first page in the list
  uint first, last; // keys that it sees, counted from there
  uint far;         // keys before it take queries of the previous period
  uint sinks;       // the first keys, which it sees too, with queries of their own; their pages are in the list before
  uint pad0, pad1, pad2;
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Tokens {
  Token t[];
};

layout(push_constant) uniform Push {
  Floats q, q_far, q_sink, dst;
  Words cache, pages; // pages: the first word of each
  Tokens tokens;
  Floats sinks;
  uint q_stride, dst_stride, group, key_words, head_words, has_sinks;
  float scale;
};

shared float query[HEAD_DIM], factors[POSITIONS];

const uint KEY_WORDS = KEY_PAIRS != 0 ? (HEAD_DIM + 1) / 2 : HEAD_DIM,
           VALUE_WORDS = VALUE_PAIRS != 0 ? (HEAD_DIM + 1) / 2 : HEAD_DIM;

float largest, total;
float sums[2 * COLUMNS];

void load_query(Floats from, uint at) {
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) query[i] = from.f[at + i];
  barrier();
}

float score_of(uint base, uint at) {
  precise float s = 0;
  for (uint i = 0; i < KEY_WORDS; i++) {
    uint word = cache.w[base + i * POSITIONS + at];
    if (KEY_PAIRS == 0) {
      s = fma(query[i], uintBitsToFloat(word), s);
    } else {
      s = fma(query[2 * i], float_of_half(word & 0xFFFFu), s);
      if (2 * i + 1 < HEAD_DIM) s = fma(query[2 * i + 1], float_of_half(word >> 16), s);
    }
  }
  s *= scale;
  return s;
}

// Keys [first, last) of a page, for the query in `query`.
void add_page(uint base, uint first, uint last) {
  uint at = gl_LocalInvocationID.x;
  bool seen = at >= first && at < last;
  float score = seen ? score_of(base, at) : -3.4e38, before = largest;
  largest = max(largest, workgroup_max(score));
  float factor = seen ? exponential(score - largest) : 0, kept = exponential(before - largest);
  if (at < POSITIONS) factors[at] = factor;
  precise float both = total * kept;
  both += workgroup_sum(factor);
  total = both;
  [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
    uint word = at + c * gl_WorkGroupSize.x;
    precise float low = sums[2 * c] * kept, high = sums[2 * c + 1] * kept;
    if (word < VALUE_WORDS) {
      for (uint i = first; i < last; i++) {
        uint value = cache.w[base + key_words + i * VALUE_WORDS + word];
        low = fma(factors[i], VALUE_PAIRS != 0 ? float_of_half(value & 0xFFFFu) : uintBitsToFloat(value), low);
        if (VALUE_PAIRS != 0) high = fma(factors[i], float_of_half(value >> 16), high);
      }
    }
    sums[2 * c] = low;
    sums[2 * c + 1] = high;
  }
  barrier();
}

// Keys [first, last), counted from the page at `page` of the list.
void add_keys(uint page, uint head_base, uint first, uint last) {
  for (uint p = first / POSITIONS; p * POSITIONS < last; p++) {
    uint from = p * POSITIONS, begin = max(first, from) - from, end = min(last, from + POSITIONS) - from;
    add_page(pages.w[page + p] + head_base, begin, end);
  }
}

void main() {
  uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, head_base = head / group * head_words;
  Token t = tokens.t[token];
  uint at = token * q_stride + head * HEAD_DIM;
  largest = -3.4e38;
  total = 0;
  [[unroll]] for (uint c = 0; c < 2 * COLUMNS; c++) sums[c] = 0;
  if (has_sinks != 0) largest = sinks.f[head];
  if (t.sinks != 0) {
    load_query(q_sink, at);
    add_keys(t.pages - (t.sinks + POSITIONS - 1) / POSITIONS, head_base, 0, t.sinks);
  }
  uint middle = clamp(t.far, t.first, t.last);
  if (t.first < middle) {
    load_query(q_far, at);
    add_keys(t.pages, head_base, t.first, middle);
  }
  if (middle < t.last) {
    load_query(q, at);
    add_keys(t.pages, head_base, middle, t.last);
  }
  precise float all = total;
  if (has_sinks != 0) all += exponential(sinks.f[head] - largest);
  float inverse = exact_quotient(1.0, all);
  [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
    uint word = gl_LocalInvocationID.x + c * gl_WorkGroupSize.x, column = VALUE_PAIRS != 0 ? 2 * word : word,
         to = token * dst_stride + head * HEAD_DIM + column;
    if (word >= VALUE_WORDS) continue;
    precise float low = sums[2 * c] * inverse, high = sums[2 * c + 1] * inverse;
    dst.f[to] = low;
    if (VALUE_PAIRS != 0 && column + 1 < HEAD_DIM) dst.f[to + 1] = high;
  }
}
