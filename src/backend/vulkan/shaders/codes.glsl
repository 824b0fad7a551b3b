// Codes of the cache's `numbers`, which are the CPU's (docs/cache.md).
shared float candidate_errors[40];
shared float candidate_scales[5];

// The nearest integer, ties to even, of |x| below 2^22.
float nearest(float x) {
  precise float shifted = x + 12582912.0;
  precise float n = shifted - 12582912.0;
  return n;
}

float cache_code(float x, float inverse, float most) {
  precise float scaled = x * inverse;
  scaled = scaled < -most ? -most : scaled;
  return nearest(scaled > most - 1 ? most - 1 : scaled);
}

float inverse_of(float scale) {
  float inverse = exact_quotient(1.0, abs(scale));
  return scale < 0 ? -inverse : inverse;
}

// The squared error, in steps of `scale`, of every 8th number from `lane` on.
float error_of(float scale, float most, uint lane) {
  float inverse = inverse_of(scale);
  precise float sum = 0;
  for (uint i = lane; i < HEAD_DIM; i += 8) {
    precise float near = cache_code(numbers[i], inverse, most) * scale;
    precise float off = numbers[i] - near;
    precise float square = off * off;
    sum += square;
  }
  return sum;
}

// The finer of some steps: half precision, as a float.
float least_error(float extreme, float most) {
  const float beyond[5] = float[](1.0, 1.0625, 1.125, 1.25, 1.375);
  for (uint i = gl_LocalInvocationID.x; i < 5; i += gl_WorkGroupSize.x) {
    float step = exact_quotient(abs(extreme), most * beyond[i]);
    candidate_scales[i] = float_of_half(half_of(extreme > 0 ? -step : step));
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < 40; i += gl_WorkGroupSize.x) {
    float scale = candidate_scales[i / 8];
    candidate_errors[i] = scale == 0 ? 3.4e38 : error_of(scale, most, i % 8);
  }
  barrier();
  float best = candidate_scales[0], least = 3.4e38;
  for (uint i = 0; i < 5; i++) {
    float e[8];
    for (uint l = 0; l < 8; l++) e[l] = candidate_errors[8 * i + l];
    precise float even = (e[0] + e[4]) + (e[2] + e[6]), odd = (e[1] + e[5]) + (e[3] + e[7]);
    precise float error = even + odd;
    if (candidate_scales[i] == 0) break;
    if (error < least) {
      least = error;
      best = candidate_scales[i];
    }
  }
  return best;
}

// The scale of `numbers`: the one furthest from zero is the lowest code, or lies beyond it. Not a number where one of
// them is not finite.
float scale_of(uint format, bool keys) {
  float far = 0;
  int finite = 1;
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) {
    float a = abs(numbers[i]);
    if (!(a <= 3.4028234e38)) finite = 0;
    far = a > far ? a : far;
  }
  far = workgroup_max(far);
  bool all = workgroup_max(finite != 0 ? 0.0 : 1.0) == 0;
  float first = float(HEAD_DIM); // the first that is so far
  for (uint i = gl_LocalInvocationID.x; i < HEAD_DIM; i += gl_WorkGroupSize.x) {
    if (abs(numbers[i]) == far) first = min(first, float(i));
  }
  first = -workgroup_max(-first);
  float most = float(middle_of(format, keys));
  if (!all) return uintBitsToFloat(0x7FC00000u);
  float extreme = far == 0 ? 0 : numbers[min(uint(first), HEAD_DIM - 1)];
  precise float step = extreme * (-1.0 / most);
  float scale = float_of_half(half_of(step));
  if (!(abs(scale) <= 3.4028234e38)) return uintBitsToFloat(0x7FC00000u);
  if (format == Q8 || scale == 0) return scale;
  return least_error(extreme, most);
}
