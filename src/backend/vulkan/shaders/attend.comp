// Attention of a query over the pages that it sees: a workgroup of 64 or more invocations a token and head. Keys are
// taken a page at a time, with the softmax's maximum, sum and the sum of values carried along, so that results depend on
// nothing but the keys and where pages begin.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "cache.glsl"

layout(constant_id = 4) const uint WORDS = 1; // of values that an invocation adds up

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

shared float factors[POSITIONS];

const uint PER_WORD = VALUES == F32 ? 1 : VALUES == F16 ? 2 : VALUES == Q8 ? 4 : 8; // columns

float largest, total;
float sums[WORDS][8];

void load_query(Floats from, uint at) {
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) numbers[i] = from.f[at + i];
  barrier();
  if (KEYS >= Q8) rotate_numbers();
}

float number_score(uint base, uint at) {
  precise float s = 0;
  for (uint i = 0; i < low_words(KEYS); i++) {
    uint word = cache.w[base + i * POSITIONS + at];
    if (KEYS == F32) {
      s = fma(numbers[i], uintBitsToFloat(word), s);
    } else {
      s = fma(numbers[2 * i], float_of_half(word & 0xFFFFu), s);
      if (2 * i + 1 < HEAD_DIM) s = fma(numbers[2 * i + 1], float_of_half(word >> 16), s);
    }
  }
  return s;
}

float code_score(uint base, uint at) {
  uint n = columns_of_word(KEYS), bits = 32 / n;
  float d = float_of_half(cache.w[base + at] & 0xFFFFu);
  precise float s = 0;
  for (uint h = 0; h < PADDED / 16; h++) {
    uint high = cache.w[base + (1 + low_words(KEYS) + h) * POSITIONS + at];
    for (uint i = 0; i < 16 / n; i++) {
      uint low = cache.w[base + (1 + h * (16 / n) + i) * POSITIONS + at];
      for (uint j = 0; j < n; j++) {
        uint column = 16 * h + n * i + j;
        uint code = bitfieldExtract(low, int(j * bits), int(bits)) | (high >> 2 * (n * i + j) & 3) << bits;
        if (column < HEAD_DIM) s = fma(numbers[column], float(int(code) - int(middle_of(KEYS, true))), s);
      }
    }
  }
  s *= d;
  return s;
}

// Adds a word of values, `factor` times.
void add_word(uint word, float factor, uint c) {
  if (VALUES == F32) {
    sums[c][0] = fma(factor, uintBitsToFloat(word), sums[c][0]);
  } else if (VALUES == F16) {
    sums[c][0] = fma(factor, float_of_half(word & 0xFFFFu), sums[c][0]);
    sums[c][1] = fma(factor, float_of_half(word >> 16), sums[c][1]);
  } else {
    const int bits = int(32 / PER_WORD);
    [[unroll]] for (uint j = 0; j < PER_WORD; j++) {
      int code = int(bitfieldExtract(word, int(j) * bits, bits)) - int(middle_of(VALUES, false));
      sums[c][j] = fma(factor, float(code), sums[c][j]);
    }
  }
}

// Keys [first, last) of a page, for the query in `numbers`.
void add_page(uint base, uint first, uint last) {
  uint each = words_of(VALUES, false), skipped = words_before(VALUES), at = gl_LocalInvocationID.x,
       values = base + key_words;
  bool seen = at >= first && at < last;
  float score = -3.4e38, before = largest;
  if (seen) {
    precise float scaled = (KEYS >= Q8 ? code_score(base, at) : number_score(base, at)) * scale;
    score = scaled;
  }
  largest = max(largest, workgroup_max(score));
  float factor = seen ? exponential(score - largest) : 0, kept = exponential(before - largest);
  precise float scaled = factor;
  if (VALUES >= Q8 && seen) scaled *= float_of_half(cache.w[values + at * each] & 0xFFFFu);
  if (at < POSITIONS) factors[at] = scaled;
  precise float both = total * kept;
  both += workgroup_sum(factor);
  total = both;
  [[unroll]] for (uint c = 0; c < WORDS; c++) {
    uint word = at + c * gl_WorkGroupSize.x;
    for (uint j = 0; j < PER_WORD; j++) {
      precise float less = sums[c][j] * kept;
      sums[c][j] = less;
    }
    if (word >= low_words(VALUES)) continue;
    for (uint i = first; i < last; i++) add_word(cache.w[values + i * each + skipped + word], factors[i], c);
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

// The sums, divided, to `numbers`, and from there to `to` of dst.
void write_sums(float inverse, uint to) {
  barrier();
  [[unroll]] for (uint c = 0; c < WORDS; c++) {
    uint first = (gl_LocalInvocationID.x + c * gl_WorkGroupSize.x) * PER_WORD;
    for (uint j = 0; j < PER_WORD; j++) {
      precise float mean = sums[c][j] * inverse;
      if (first + j < HEAD_DIM) numbers[first + j] = mean;
    }
  }
  barrier();
  if (VALUES >= Q8) rotate_numbers(); // back
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) dst.f[to + i] = numbers[i];
}

void main() {
  uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, head_base = head / group * head_words;
  Token t = tokens.t[token];
  uint at = token * q_stride + head * HEAD_DIM;
  largest = -3.4e38;
  total = 0;
  [[unroll]] for (uint c = 0; c < WORDS; c++) {
    for (uint j = 0; j < 8; j++) sums[c][j] = 0;
  }
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
  write_sums(exact_quotient(1.0, all), token * dst_stride + head * HEAD_DIM);
}
