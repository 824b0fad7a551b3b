// GPTQ: a matrix's rows are quantized column by column, and the following columns are changed to compensate for the
// error of each, so that the product with the calibration's inputs changes least (Frantar et al., arXiv:2210.17323).
// Columns are ordered by the size of their inputs, the largest first; scales are chosen before, from the original
// weights, with the squares of the inputs as importances. For 2:4 formats the columns stay in order, and of each four
// the two whose removal changes the product least become zero (SparseGPT, arXiv:2301.00774).
#ifndef SETUN_QUANTIZE_COMPENSATE_H
#define SETUN_QUANTIZE_COMPENSATE_H

#include "base/pool.h"
#include "quant/quant.h"
#include "quantize/lapack.h"

// Sums of inputs' products, over all tokens: the upper triangle of [n][n], row by row.
typedef struct st_hessian {
  uint32_t n;
  uint64_t tokens;
  float *sums;
} st_hessian;
setun_status st_hessian_new(st_hessian *h, uint32_t n, setun_error *err);
void st_hessian_free(st_hessian *h);
// `tokens` inputs [tokens][n].
void st_hessian_add(st_hessian *h, const st_lapack *lapack, const float *inputs, uint32_t tokens);

// Shared by the matrices with the same input.
typedef struct st_compensation {
  uint32_t n;
  uint32_t *order;   // [n] the columns, in the order in which they are quantized
  float *importance; // [n] mean square of each input
  float *factor;     // [n][n] the upper Cholesky factor of the inverse, columns in that order
} st_compensation;

// `ordered`: columns by the size of their inputs. Errors: a sum that is not finite; an inverse that does not
// exist. `h` is unchanged. Freed with st_compensation_free, also after a failure.
setun_status st_compensation_new(const st_hessian *h, const st_lapack *lapack, bool ordered, st_compensation *c,
                                 setun_error *err);
void st_compensation_free(st_compensation *c);

// Whether codes of a format are compensated with the columns in the order of their inputs.
bool st_is_ordered(const st_format *format);

// Quantizes one row of a zpB-G: integers from 0 to `most` by the scales and zero points of its groups.
typedef struct st_group_scales {
  const float *d;  // [n / group]
  const int *zero; // [n / group]
  uint32_t group;
  int most;
} st_group_scales;
void st_compensate_row(const st_compensation *c, const st_group_scales *s, const float *row, float *work,
                       uint8_t *codes);

// Bytes of a row of codes: the format's own, or, for ternary formats, the scales of its groups as float32 and then a
// trit a byte, since they are packed only when all rows are known.
uint64_t st_codes_bytes(const st_format *format, uint64_t columns);

// Rows of a matrix of finite floats [rows][n], as codes. Without a factor (only `n` is set) they are rounded. Formats
// that are not compensated are rounded, with the inputs' squares as importances.
setun_status st_compensate(const st_compensation *c, const st_format *format, uint64_t rows, const float *weights,
                           st_pool *pool, uint8_t *bytes, setun_error *err);

#endif
