// What loses information: formats of fewer bits for the layers' matrices, chosen by a recipe, each weight rounded to
// the nearest code, with the scales that minimize the squared error.
#ifndef SETUN_QUANTIZE_QUANTIZE_H
#define SETUN_QUANTIZE_QUANTIZE_H

#include "base/pool.h"
#include "convert/convert.h"

// Names of tensors in the target, with * and ?, and what becomes of those; the first that matches counts.
typedef struct st_recipe_line {
  char *pattern;
  const st_format *format; // NULL: they are kept
} st_recipe_line;

// Zero-initialize; freed with st_recipe_free.
typedef struct st_recipe {
  st_recipe_line *lines;
  size_t n, capacity;
} st_recipe;

// A format that matrices are quantized to; NULL: no such one has that name.
const st_format *st_scheme_by_name(const char *name);
bool st_format_is_scheme(const st_format *format);

// One format for all; or the lines "PATTERN = FORMAT" of a text file, # begins a comment, and "keep" is a format.
// Errors name the line.
setun_status st_recipe_single(const st_format *format, st_recipe *recipe, setun_error *err);
setun_status st_recipe_load(const char *path, st_recipe *recipe, setun_error *err);
void st_recipe_free(st_recipe *recipe);
// A matrix's format by its name; NULL: it is kept.
const st_format *st_recipe_format(const st_recipe *recipe, const char *name);

// A recipe at work: rows are shared by the threads of a pool.
typedef struct st_rounding {
  const st_recipe *recipe;                // must outlive it, like the next one
  const struct st_calibrated *calibrated; // NULL: nothing is
  st_pool *pool;
} st_rounding;

// Rounds each weight to the nearest code, but for matrices that were calibrated, whose codes are there.
st_quantizer st_rounding_quantizer(st_rounding *rounding);

#endif
