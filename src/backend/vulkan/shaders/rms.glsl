// 1 / sqrt(mean(x^2) + eps) in the CPU's order: element i is added in lane i mod 16, then lanes 8, 4, 2 and 1 apart.
shared float rms_lanes[16];

float inverse_rms(SharedFloats x, uint first, uint n, float eps) {
  uint lane = gl_LocalInvocationID.x;
  if (lane < 16) {
    precise float sum = 0;
    for (uint i = lane; i < n; i += 16) {
      float v = x.f[first + i];
      sum = fma(v, v, sum);
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
