// Lossy quantization: formats of fewer bits for the layers' matrices, chosen by a recipe. Each weight is rounded to the
// nearest code, with the scales that minimize the squared error.
#ifndef SETUN_QUANTIZE_QUANTIZE_H
#define SETUN_QUANTIZE_QUANTIZE_H

#include "base/pool.h"
#include "convert/convert.h"
#include "quantize/ternary.h"

// A pattern, with * and ?, for names of tensors in the target, and their format. The first line that matches is used.
typedef struct st_recipe_line {
  char *pattern;
  const st_format *format; // NULL: they are kept
} st_recipe_line;

// Zero-initialize; freed with st_recipe_free.
typedef struct st_recipe {
  st_recipe_line *lines;
  size_t n, capacity;
} st_recipe;

// The format of that name, if matrices can be quantized to it; otherwise NULL.
const st_format *st_scheme_by_name(const char *name);
// The names of schemes, an index each, NULL past the last: formats, and what quantization calls some of them.
const char *st_scheme_name(size_t index);

// One format for all; or the lines "PATTERN = FORMAT" of a text file, # begins a comment, and "keep" is a format.
// Errors name the line.
setun_status st_recipe_single(const st_format *format, st_recipe *recipe, setun_error *err);
setun_status st_recipe_load(const char *path, st_recipe *recipe, setun_error *err);
void st_recipe_free(st_recipe *recipe);
// A matrix's format by its name; NULL: it is kept.
const st_format *st_recipe_format(const st_recipe *recipe, const char *name);

// The state of a quantization by a recipe. The threads of the pool share the rows.
typedef struct st_rounding {
  const st_recipe *recipe;                // must outlive the rounding, like `calibrated`
  const struct st_calibrated *calibrated; // NULL: no matrix is
  st_pool *pool;
  bool force; // also floats that ternary weights are far from
  const st_log *log;
  st_ternary_loss loss; // of the matrices that are rounded
} st_rounding;

// Rounds each weight to the nearest code, except in calibrated matrices, whose codes are used. Ternary formats get the
// scales of least squared error.
st_quantizer st_rounding_quantizer(st_rounding *rounding);

#endif
