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

// What products need besides the arrays of a st_run; `most` is the largest number of outputs of one call.
typedef struct st_products st_products;
setun_status st_products_new(const st_run *run, uint32_t most, st_products **products, setun_error *err);
void st_products_free(const st_run *run, st_products *products);

// The tokens [first, first + n) of x, normalized by `norm` first unless that is NULL, through each matrix and its
// adapters.
void st_multiply(st_run *run, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm,
                 const st_product *outs, int count);

#endif
