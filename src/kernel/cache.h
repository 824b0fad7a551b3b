// The layout of a page of the KV cache: ST_KEYS positions of one layer, and of these, for each KV head, a block of
// keys and a block of values. Which formats there are says cache_formats.def; docs/cache.md has a drawing.
//
// Numbers: the keys of a block stand column by column, those of a column side by side, so that the scores of many keys
// are sums without a sum over lanes. Values are a row for each position.
//
// Codes: keys are four groups of a matrix (kernel.h) whose rows are the positions. Values are a row of codes for each
// position, columns padded to ST_STEP, and behind them the scales, those of ST_STEP columns of all positions side by
// side. Codes of 4 bits, less 8, stand as in st_kv_values_at.
#ifndef SETUN_KERNEL_CACHE_H
#define SETUN_KERNEL_CACHE_H

#include "kernel/kernel.h"

enum { ST_KEYS = 64 }; // positions of a page

// A row of cache_formats.def.
typedef struct st_kv_format {
  const char *name;
  uint32_t bits; // of a number
  st_form form;  // ST_FORM_COUNT: numbers, not codes
  bool rotated;
} st_kv_format;

// NULL: there is no such format.
const st_kv_format *st_kv_format_of(setun_kv_type type);

// Bytes of a block of keys or of values, a multiple of 64.
size_t st_kv_block_bytes(setun_kv_type type, bool keys, size_t head_dim);
// Bytes of one position by itself, as it is saved: its numbers one after the other; of codes, for each ST_STEP columns,
// the scale and the codes, those of 4 bits as columns c and c + 16 in a byte.
size_t st_kv_row_bytes(setun_kv_type type, size_t head_dim);

// The keys of 16 positions of a block from a multiple of them on.
size_t st_kv_group_bytes(setun_kv_type type, size_t head_dim);

// In a block of values that are codes: bytes to the code of a column, which for codes of 4 bits are the low ones of a
// byte where column % 32 < 16 and the high ones of the same byte for 16 columns on; and to the scale of ST_STEP
// columns.
static inline size_t st_kv_code_at(uint32_t bits, size_t head_dim, size_t at, size_t column) {
  size_t steps = (head_dim + 31) / 32, in = column % 32;
  return (at * steps + column / 32) * 4 * bits + (bits == 4 ? in % 16 : in);
}
static inline size_t st_kv_scale_at(uint32_t bits, size_t head_dim, size_t at, size_t column) {
  size_t steps = (head_dim + 31) / 32;
  return ST_KEYS * steps * 4 * bits + (column / 32 * ST_KEYS + at) * 2;
}

// Multiplies each block of columns by an orthogonal matrix that is its own inverse, a Hadamard matrix of the largest
// power of two that divides head_dim: what was large in one column is shared among many. In place.
void st_kv_rotate(float *x, size_t head_dim);

// Where a key or a value goes: position `at` of a block.
typedef struct st_kv_place {
  setun_kv_type type;
  bool keys; // otherwise values
  size_t head_dim, at;
  uint8_t *block;
} st_kv_place;

// Stores head_dim numbers, which it may change. What is not finite makes its block NaN where numbers are codes.
void st_kv_write(const st_kernels *k, const st_kv_place *place, float *x);
// Stores, and loads, a row of st_kv_row_bytes.
void st_kv_store(const st_kv_place *place, const uint8_t *row);
void st_kv_load(const st_kv_place *place, uint8_t *row);

#endif
