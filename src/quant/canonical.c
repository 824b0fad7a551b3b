// The canonical form of ternary weights: recognition, absmean quantization, and regrouping of scales.
#include "quant/canonical.h"

#include "base/float16.h"
#include "quant/rows.h"

#include <math.h>

void st_ternary_scan_begin(st_ternary_scan *scan, uint64_t columns) {
  *scan = (st_ternary_scan){.columns = columns};
  scan->fits[ST_GRAIN_128] = columns % 128 == 0;
  scan->fits[ST_GRAIN_256] = columns % 256 == 0;
  scan->fits[ST_GRAIN_ROW] = scan->fits[ST_GRAIN_TENSOR] = true;
}

// Merges a group's scale into a larger group's: false if both are set and differ.
static bool join(float *scale, float part) {
  if (*scale == 0) *scale = part;
  return part == 0 || *scale == part;
}

// The common magnitude of all nonzero weights, 0 if there are none, or -1 if they differ.
static float common_magnitude(const float *weights, uint64_t n) {
  float scale = 0;
  for (uint64_t i = 0; i < n; i++)
    if (weights[i] != 0 && !(fabsf(weights[i]) < INFINITY && join(&scale, fabsf(weights[i])))) return -1;
  return scale;
}

static void scan_row(st_ternary_scan *scan, const float *row) {
  float row_scale = 0, scale_256 = 0;
  for (uint64_t k = 0; k < scan->columns; k += 128) {
    uint64_t n = scan->columns - k < 128 ? scan->columns - k : 128;
    float scale = common_magnitude(row + k, n);
    if (scale < 0) {
      for (int g = 0; g <= ST_GRAIN_TENSOR; g++) scan->fits[g] = false;
      return;
    }
    if (k % 256 == 0) scale_256 = 0;
    if (!join(&scale_256, scale)) scan->fits[ST_GRAIN_256] = false;
    if (!join(&row_scale, scale)) scan->fits[ST_GRAIN_ROW] = scan->fits[ST_GRAIN_TENSOR] = false;
  }
  if (!join(&scan->scale, row_scale)) scan->fits[ST_GRAIN_TENSOR] = false;
}

bool st_ternary_scan_rows(st_ternary_scan *scan, const float *weights, uint64_t rows) {
  for (uint64_t r = 0; r < rows && st_ternary_scan_result(scan) != ST_GRAIN_NONE; r++)
    scan_row(scan, weights + r * scan->columns);
  return st_ternary_scan_result(scan) != ST_GRAIN_NONE;
}

st_grain st_ternary_scan_result(const st_ternary_scan *scan) {
  for (int g = ST_GRAIN_TENSOR; g > ST_GRAIN_NONE; g--)
    if (scan->fits[g]) return (st_grain)g;
  return ST_GRAIN_NONE;
}

bool st_ternary_split(const float *weights, size_t n, int8_t *trits, float *scale) {
  float magnitude = common_magnitude(weights, n);
  if (magnitude < 0) return false;
  for (size_t i = 0; i < n; i++) trits[i] = (int8_t)((weights[i] > 0) - (weights[i] < 0));
  *scale = magnitude;
  return true;
}

void st_absmean_add(st_absmean *mean, const float *weights, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)fabsf(weights[i]);
  mean->sum += sum;
  mean->count += n;
}

float st_absmean_result(const st_absmean *mean) {
  return mean->count ? (float)(mean->sum / (double)mean->count) : 0;
}

// Rounding to even and clipping map values beyond half to one, and half itself to zero.
void st_absmean_trits(const float *weights, size_t n, float mean, int8_t *trits) {
  float inverse = 1 / (mean > 1e-5f ? mean : 1e-5f);
  for (size_t i = 0; i < n; i++) {
    float x = weights[i] * inverse;
    trits[i] = (int8_t)((x > 0.5f) - (x < -0.5f));
  }
}

static bool keeps_half(const st_format *format) {
  const st_ternary_rows *rows = format->ops->rows;
  return rows && (format->scales == ST_SCALE_BLOCK || format->scales == ST_SCALE_ROW) &&
         rows->scale_type == ST_SCALE_F16;
}

float st_scale_rounded(const st_format *format, float scale) {
  return keeps_half(format) ? st_f32_from_f16(st_f16_from_f32(scale)) : scale;
}

// Bits are compared, so that -0 stays -0.
bool st_scale_fits(const st_format *format, float scale) {
  return isfinite(scale) && st_float_bits(st_scale_rounded(format, scale)) == st_float_bits(scale);
}

static bool all_zero(const int8_t *trits, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (trits[i]) return false;
  return true;
}

bool st_scales_merge(const float *scales, uint64_t groups, const int8_t *trits, uint64_t group, float *merged) {
  bool found = false;
  float scale = 0;
  for (uint64_t g = 0; g < groups; g++) {
    if (scales[g] == 0 && all_zero(trits + g * group, group)) continue;
    if (found && st_float_bits(scales[g]) != st_float_bits(scale)) return false;
    scale = scales[g];
    found = true;
  }
  *merged = scale;
  return true;
}
