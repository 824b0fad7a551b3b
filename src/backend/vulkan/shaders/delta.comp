// The gated delta rule: a workgroup takes columns of a value head's state through all tokens of a run, an invocation
// one column. Each token's query and key are normalized first.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "recurrent.glsl"
#include "reduce.glsl"
#include "rms.glsl"

layout(constant_id = 1) const uint KEY_DIM = 1;

layout(push_constant) uniform Push {
  SharedFloats mixed; // queries and keys of all key heads, then values
  Floats alpha, beta, rate, bias, dst;
  Runs runs;
  uint mixed_stride, alpha_stride, beta_stride, dst_stride, value_dim, key_heads;
  uint heads_each; // value heads that share a key head, 0: value head h takes h % key_heads
  float eps;
};

shared float query[KEY_DIM], key[KEY_DIM];

// ln(1 + e^x): beside x or 0, a number of at most ln 2, by the series of the inverse hyperbolic tangent.
float softplus(float x) {
  float e = exponential(-abs(x)), z = e / (2 + e), s = z * z, sum = 1.0 / 13;
  sum = fma(sum, s, 1.0 / 11);
  sum = fma(sum, s, 1.0 / 9);
  sum = fma(sum, s, 1.0 / 7);
  sum = fma(sum, s, 1.0 / 5);
  sum = fma(sum, s, 1.0 / 3);
  sum = fma(sum, s, 1.0);
  return max(x, 0.0) + 2 * z * sum;
}

// The vector at `from`, divided by its length, times a factor.
void normalize_query(uint from, float factor) {
  float r = inverse_rms(mixed, from, KEY_DIM, eps);
  for (uint i = gl_LocalInvocationID.x; i < KEY_DIM; i += gl_WorkGroupSize.x) query[i] = mixed.f[from + i] * r * factor;
}
void normalize_key(uint from, float factor) {
  float r = inverse_rms(mixed, from, KEY_DIM, eps);
  for (uint i = gl_LocalInvocationID.x; i < KEY_DIM; i += gl_WorkGroupSize.x) key[i] = mixed.f[from + i] * r * factor;
}

void main() {
  uint pieces = (value_dim + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
  uint head = gl_WorkGroupID.x / pieces, column = gl_WorkGroupID.x % pieces * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  uint shared_head = heads_each == 0 ? head % key_heads : head / heads_each;
  uint at = head * KEY_DIM * value_dim + column, values = 2 * key_heads * KEY_DIM + head * value_dim + column;
  Run run = runs.r[gl_WorkGroupID.y];
  for (uint t = run.first; t < run.first + run.n; t++) {
    uint q_at = t * mixed_stride + shared_head * KEY_DIM;
    normalize_query(q_at, 1.0 / float(KEY_DIM));
    barrier(); // what inverse_rms shares
    normalize_key(q_at + key_heads * KEY_DIM, 1.0 / sqrt(float(KEY_DIM)));
    barrier();
    float own = 0;
    for (uint i = gl_LocalInvocationID.x; i < KEY_DIM; i += gl_WorkGroupSize.x) own = fma(key[i], query[i], own);
    float both = workgroup_sum(own);
    float decay = exponential(-rate.f[head] * softplus(alpha.f[t * alpha_stride + head] + bias.f[head]));
    float write = 1 / (1 + exponential(-beta.f[t * beta_stride + head])), old = 0, seen = 0;
    bool fresh = t == run.first && run.fresh != 0;
    if (column < value_dim) {
      for (uint i = 0; i < KEY_DIM && !fresh; i++) {
        uint cell = at + i * value_dim;
        float s = t == run.first ? run.from.f[cell] : run.to.f[cell];
        old = fma(s, key[i], old);
        seen = fma(s, query[i], seen);
      }
      float change = write * (mixed.f[t * mixed_stride + values] - decay * old);
      for (uint i = 0; i < KEY_DIM; i++) {
        uint cell = at + i * value_dim;
        float s = 0;
        if (!fresh) s = t == run.first ? run.from.f[cell] : run.to.f[cell];
        run.to.f[cell] = fma(key[i], change, decay * s);
      }
      dst.f[t * dst_stride + head * value_dim + column] = fma(both, change, decay * seen);
    }
    barrier(); // the next token's query and key
  }
}
