// Scales with the least error: the sum of the squared errors of the codes, each times its weight's importance. For the
// encoders of quantized blocks.
#ifndef SETUN_QUANT_FIT_H
#define SETUN_QUANT_FIT_H

#include <stdint.h>

enum { ST_FIT_SUBS = 16 };

// x[i] = d * q[i] with q from low (below 0) to high: d, the scale near which the nearest codes q have the least error.
// `w`: [n] importances, at least 0, NULL: all equal.
float st_fit_scale(const float *x, const float *w, int n, int low, int high);
// The nearest codes to x / d, stored as code - low where `offset`, and their error.
float st_fit_codes(const float *x, const float *w, int n, float d, int low, int high, int8_t *q);

// x[i] = d * q[i] + m with q from 0 to `most`; with `negative` m is at most 0.
typedef struct st_affine {
  float d, m;
} st_affine;
st_affine st_fit_affine(const float *x, const float *w, int n, int most, int negative);
// The nearest codes, and their error.
float st_fit_affine_codes(const float *x, const float *w, int n, st_affine a, int most, uint8_t *q);

// A block whose `subs` sub-blocks of `n` weights have small integers s and m, from 0 to `integers`:
// x = d * s * q - dmin * m * 1 with q from 0 to `most`. d and dmin are rounded to half precision.
typedef struct st_super {
  uint16_t d, dmin;
  uint8_t s[ST_FIT_SUBS], m[ST_FIT_SUBS];
  uint8_t q[256];
} st_super;
void st_fit_super(const float *x, const float *w, int subs, int n, int most, int integers, st_super *out);

// x[i] = d * (q[i] - zero) with q and zero from 0 to `most`; `symmetric`: zero is the middle. d in half precision.
uint16_t st_fit_zero_point(const float *x, const float *w, int n, int most, int symmetric, int *zero);

// The bits of the codes of a format of integers with zero points.
struct st_format;
unsigned st_zp_bits(const struct st_format *format);

// Rows of a format of blocks, each by its `fit`, or by `encode` where it has none. `importance`: [columns], NULL: none.
void st_fit_rows(const struct st_format *format, uint64_t rows, uint64_t columns, const float *in,
                 const float *importance, void *out);

#endif
