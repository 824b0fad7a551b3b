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
  size_t number;           // in the file
  bool matched;            // some matrix
} st_recipe_line;

// Zero-initialize; freed with st_recipe_free.
typedef struct st_recipe {
  st_recipe_line *lines;
  size_t n, capacity;
  char *path; // NULL: it is no file
} st_recipe;

// The names of schemes, an index each, NULL past the last: formats, and what quantization calls some of them.
const char *st_scheme_name(size_t index);

// The embedding's format in a preset, where no other is asked for: rows of 8-bit integers. NULL: the name is not a
// preset's.
const st_format *st_recipe_embedding(const char *name);
// One format for all, or a preset, by name; or the lines "PATTERN = FORMAT" of a text file, # begins a comment, and
// "keep" is a format. Errors name the line.
setun_status st_recipe_named(const char *name, st_recipe *recipe, setun_error *err);
setun_status st_recipe_load(const char *path, st_recipe *recipe, setun_error *err);
void st_recipe_free(st_recipe *recipe);
// A matrix's format by its name; NULL: it is kept.
const st_format *st_recipe_format(st_recipe *recipe, const char *name);
// "FILE: line N" of the line that a matrix's format is from; false: it is from no file.
bool st_recipe_origin(const st_recipe *recipe, const char *name, char *text, size_t size);
// After all matrices: an error for a line of a file that was no matrix's.
setun_status st_recipe_check(const st_recipe *recipe, setun_error *err);

// The state of a quantization by a recipe. The threads of the pool share the rows.
typedef struct st_rounding {
  st_recipe *recipe;                      // must outlive the rounding, like `calibrated`
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
