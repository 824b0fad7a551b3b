// What gates do to numbers, see st_activation_fn.
const uint SILU = 3, RELU2 = 4, GELU_TANH = 5, GPT_OSS = 6, SIGMOID = 7, SILU_CLAMPED = 8;

float gate_of(uint operation, float g) {
  if (operation == RELU2) {
    float r = g > 0 ? g : (g != g ? g : 0);
    precise float square = r * r;
    return square;
  }
  if (operation == GELU_TANH) {
    precise float square = g * g;
    precise float u = g * fma(square, -0.071354814, -1.5957691);
    return g / (1.0 + exponential(u));
  }
  if (operation == GPT_OSS) return g / (1.0 + exponential(-1.702 * g));
  if (operation == SIGMOID) return 1.0 / (1.0 + exponential(-g));
  return g / (1.0 + exponential(-g));
}

float gated(uint operation, float g, float u) {
  if (operation == GPT_OSS || operation == SILU_CLAMPED) {
    g = 7.0 < g ? 7.0 : g;
    u = 7.0 < u ? 7.0 : u < -7.0 ? -7.0 : u;
  }
  precise float up = operation == GPT_OSS ? u + 1.0 : u;
  precise float product = gate_of(operation, g) * up;
  return product;
}
