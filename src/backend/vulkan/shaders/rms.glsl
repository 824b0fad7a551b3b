// 1 / sqrt(mean(x^2) + eps) in the CPU's order: element i is added in lane i mod 16, then lanes 8, 4, 2 and 1 apart.
shared float rms_lanes[16];

// Whether fma rounds once. A device may compute it as a product and a sum; `zero` keeps compilers from computing this.
bool fma_rounds_once(uint zero) {
  float x = uintBitsToFloat(0x3F800800u + zero), square = uintBitsToFloat(0x3F801000u); // 1 + 2^-12; less 2^-24
  precise float rest = fma(x, x, -square);
  return rest != 0;
}

// fma(x, x, sum), rounded once, for a sum that is not negative. The square is `high` plus `low` without error, and so
// are sums of two numbers with what rounding them loses; the last but one is rounded to odd, so that the last is right.
float add_square(float sum, float x) {
  precise float far = x * 4097.0, head = far - (far - x), tail = x - head, high = x * x;
  precise float low = ((head * head - high) + 2 * head * tail) + tail * tail;
  precise float a = sum + low, a_part = a - sum, a_rest = (sum - (a - a_part)) + (low - a_part);
  precise float b = high + a, b_part = b - high, b_rest = (high - (b - b_part)) + (a - b_part);
  precise float c = a_rest + b_rest, c_part = c - a_rest, c_rest = (a_rest - (c - c_part)) + (b_rest - c_part);
  if (c_rest != 0 && (floatBitsToUint(c) & 1) == 0)
    c = uintBitsToFloat(floatBitsToUint(c) + ((c_rest > 0) == (c > 0) ? 1 : -1));
  precise float result = b + c;
  precise float plain = sum + high;
  return plain < uintBitsToFloat(0x7F800000u) ? result : plain;
}

float inverse_rms(SharedFloats x, uint first, uint n, float eps) {
  uint lane = gl_LocalInvocationID.x;
  if (lane < 16) {
    const bool once = fma_rounds_once(uint(n == 0));
    precise float sum = 0;
    for (uint i = lane; i < n; i += 16) {
      float v = x.f[first + i];
      if (once)
        sum = fma(v, v, sum);
      else
        sum = add_square(sum, v);
    }
    rms_lanes[lane] = sum;
  }
  barrier();
  if (lane == 0) {
    float a[16];
    [[unroll]] for (int i = 0; i < 16; i++) a[i] = rms_lanes[i];
    [[unroll]] for (int apart = 8; apart > 0; apart /= 2) {
      [[unroll]] for (int i = 0; i < apart; i++) {
        precise float both = a[i] + a[i + apart];
        a[i] = both;
      }
    }
    precise float mean = exact_quotient(a[0], float(n)) + eps;
    rms_lanes[0] = exact_quotient(1.0, exact_root(mean));
  }
  barrier();
  return rms_lanes[0];
}
