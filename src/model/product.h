// Products of activations with a model's matrices, adapters included.
#ifndef SETUN_MODEL_PRODUCT_H
#define SETUN_MODEL_PRODUCT_H

#include "model/forward.h"

// One output: dst[row + t] = linear(x[first + t]).
typedef struct st_product {
  const st_linear *linear;
  st_array *dst;
  uint32_t row;
} st_product;

// What products need in addition to the arrays of an st_run; `most` is the largest number of outputs in one call.
typedef struct st_products st_products;
setun_status st_products_new(const st_run *run, uint32_t most, st_products **products, setun_error *err);
void st_products_free(const st_run *run, st_products *products);

// Multiplies the tokens [first, first + n) of x, first normalized by `norm` unless NULL, by each matrix and its
// adapters.
void st_multiply(st_run *run, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                 const st_product *outs, int count);

#endif
