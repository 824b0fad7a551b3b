// The canonical form of ternary weights, trits and scales, and conversions to it: floats that are already ternary are
// recognized exactly, latent floats are quantized as in BitNet training, and scales are regrouped between tensor, row
// and block only where this does not change them.
#ifndef SETUN_QUANT_CANONICAL_H
#define SETUN_QUANT_CANONICAL_H

#include "quant/quant.h"

// Which weights share a scale.
typedef enum st_grain {
  ST_GRAIN_NONE, // the weights are not trits times scales
  ST_GRAIN_128,  // 128 weights of a row
  ST_GRAIN_256,
  ST_GRAIN_ROW,
  ST_GRAIN_TENSOR
} st_grain;

// Recognizes trits times scales in a matrix of floats that arrives row by row.
typedef struct st_ternary_scan {
  uint64_t columns;
  bool fits[ST_GRAIN_TENSOR + 1]; // grains not excluded so far
  float scale;                    // magnitude of the nonzero weights of the matrix so far, 0 before the first
} st_ternary_scan;

void st_ternary_scan_begin(st_ternary_scan *scan, uint64_t columns);
// Adds `rows` rows of finite floats. False once the matrix is not ternary in any grain; further rows are then
// unnecessary.
bool st_ternary_scan_rows(st_ternary_scan *scan, const float *weights, uint64_t rows);
// The coarsest grain that fits.
st_grain st_ternary_scan_result(const st_ternary_scan *scan);

// Trits and the scale of `n` floats that share one; the scale is 0 when all are zero. False if the nonzero ones differ
// in magnitude (or are not finite); the output is then undefined.
bool st_ternary_split(const float *weights, size_t n, int8_t *trits, float *scale);

// The absmean quantization of latent weights: scale mean|W| of the whole matrix, trit = clip(round(W * (1 /
// max(mean, 1e-5))), -1, 1), ties to even, in float32 as torch computes it. The mean is summed in double and rounded
// once; torch sums in float32 in its own order, so that its mean may differ in the last places, and with it trits whose
// weights are that close to half the mean.
typedef struct st_absmean {
  double sum;
  uint64_t count;
} st_absmean;
void st_absmean_add(st_absmean *mean, const float *weights, size_t n);
float st_absmean_result(const st_absmean *mean); // 0 if n is 0
void st_absmean_trits(const float *weights, size_t n, float mean, int8_t *trits);

// Whether a format can hold a scale exactly: finite, and exact in half precision if it stores that.
bool st_scale_fits(const st_format *format, float scale);
// The nearest scale that it can hold; not finite if the scale is beyond half precision.
float st_scale_rounded(const st_format *format, float scale);

// The common scale of `groups` groups of `group` weights each, for a coarser grain. They must be equal as float32; a
// group of zeros with scale 0 (as quantizers write) matches any. False if they differ.
bool st_scales_merge(const float *scales, uint64_t groups, const int8_t *trits, uint64_t group, float *merged);

#endif
