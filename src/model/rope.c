// Rotary position embedding: frequencies with the published scalings (linear, llama3, YaRN, LongRoPE), and their
// tables.
#include "model/rope.h"

#include "base/memory.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

// Llama 3.1: long wavelengths are stretched by the factor, short ones kept, with a ramp in between.
static float llama3(const st_rope_params *p, float frequency) {
  double original = p->original_max_position_embeddings ? p->original_max_position_embeddings : 8192;
  double low = p->low_freq_factor ? p->low_freq_factor : 1, high = p->high_freq_factor ? p->high_freq_factor : 4;
  double wavelength = 2 * pi / frequency;
  if (wavelength < original / high) return frequency;
  if (wavelength > original / low) return frequency / p->factor;
  double smooth = (original / wavelength - low) / (high - low);
  return (float)((1 - smooth) * frequency / p->factor + smooth * frequency);
}

// The pair that makes `rotations` turns within the original context (YaRN, section 3.2).
static double yarn_pair(const st_rope_params *p, uint32_t n_rot, double original, double rotations) {
  return n_rot * log(original / (rotations * 2 * pi)) / (2 * log(p->theta));
}

// YaRN: fast pairs extrapolate, slow ones interpolate, with a linear ramp in between.
static void yarn(const st_rope_params *p, uint32_t n_rot, double original, float *frequencies) {
  double low = yarn_pair(p, n_rot, original, p->beta_fast), high = yarn_pair(p, n_rot, original, p->beta_slow);
  if (p->truncate) low = floor(low), high = ceil(high);
  if (low < 0) low = 0;
  if (high > n_rot - 1) high = n_rot - 1;
  if (low == high) high += 0.001;
  for (uint32_t i = 0; i < n_rot / 2; i++) {
    double ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    if (p->extrapolation != 1) ramp = 1 - (1 - ramp) * p->extrapolation;
    frequencies[i] = (float)(frequencies[i] / p->factor * ramp + frequencies[i] * (1 - ramp));
  }
}

// The factor for cosines and sines: the attention temperature correction of YaRN and LongRoPE.
static float magnitude(const st_rope_params *p, double original, uint32_t n_ctx_train) {
  if (p->attention_factor) return p->attention_factor;
  if (p->scaling == ST_ROPE_YARN) return p->factor > 1 ? (float)(0.1 * log(p->factor) + 1) : 1;
  if (p->scaling != ST_ROPE_LONG) return 1;
  double factor = n_ctx_train / original;
  return factor > 1 ? (float)sqrt(1 + log(factor) / log(original)) : 1;
}

static void frequencies(const st_rope_params *p, uint32_t n_rot, uint32_t n_ctx, double original, const float *divisors,
                        float *out) {
  const float *factors = n_ctx > original ? p->long_factor : p->short_factor;
  for (uint32_t i = 0; i < n_rot / 2; i++) {
    float f = 1.0f / powf(p->theta, (float)(2 * i) / (float)n_rot);
    if (p->scaling == ST_ROPE_LINEAR) f /= p->factor;
    if (p->scaling == ST_ROPE_LLAMA3) f = llama3(p, f);
    if (p->scaling == ST_ROPE_LONG && factors) f /= factors[i];
    out[i] = divisors ? f / divisors[i] : f;
  }
  if (p->scaling == ST_ROPE_YARN) yarn(p, n_rot, original, out);
}

float *st_rope_table(const st_rope_params *p, uint32_t n_rot, uint32_t rows, uint32_t n_ctx, uint32_t n_ctx_train,
                     const float *divisors) {
  uint32_t half = n_rot / 2;
  double original = p->original_max_position_embeddings ? p->original_max_position_embeddings : n_ctx_train;
  float *table = st_malloc((size_t)rows * n_rot, sizeof *table), *f = st_malloc(half, sizeof *f);
  if (table && f) {
    frequencies(p, n_rot, n_ctx, original, divisors, f);
    float scale = magnitude(p, original, n_ctx_train);
    for (uint32_t position = 0; position < rows; position++) {
      float *cosine = table + (size_t)position * n_rot, *sine = cosine + half;
      for (uint32_t i = 0; i < half; i++) {
        float angle = (float)position * f[i];
        cosine[i] = cosf(angle) * scale;
        sine[i] = sinf(angle) * scale;
      }
    }
  } else {
    st_free(table);
    table = NULL;
  }
  st_free(f);
  return table;
}

setun_status st_rope_check_divisors(const char *name, const float *divisors, size_t n, setun_error *err) {
  const float least = 1e-6f; // the limit of scaling factors: angles stay within float32
  for (size_t i = 0; i < n; i++) {
    if (divisors[i] >= least && isfinite(divisors[i])) continue;
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected finite positive divisors of frequencies, at least %g, found %g at index %zu", name,
                   (double)least, (double)divisors[i], i);
  }
  return SETUN_OK;
}
