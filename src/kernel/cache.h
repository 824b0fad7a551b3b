// What stands in a page of the KV cache: ST_KEYS positions of one layer, and of these, for each KV head, a block of
// keys and a block of values. Which formats there are says cache_formats.def; docs/cache.md has a drawing.
//
// The keys of a block stand column by column, those of a column side by side, so that the scores of many keys are sums
// without a sum over lanes. Values are a row for each position.
#ifndef SETUN_KERNEL_CACHE_H
#define SETUN_KERNEL_CACHE_H

#include "kernel/kernel.h"

enum { ST_KEYS = 64 }; // positions of a page

// A row of cache_formats.def.
typedef struct st_kv_format {
  const char *name;
  uint32_t bits; // of a number
} st_kv_format;

// NULL: there is no such format.
const st_kv_format *st_kv_format_of(setun_kv_type type);

// Bytes of a block of keys or of values, a multiple of 64.
size_t st_kv_block_bytes(setun_kv_type type, size_t head_dim);
// Bytes of one position by itself, as it is saved: its numbers one after the other.
size_t st_kv_row_bytes(setun_kv_type type, size_t head_dim);

// Where a key or a value goes: position `at` of a block.
typedef struct st_kv_place {
  setun_kv_type type;
  bool keys; // otherwise values
  size_t head_dim, at;
  uint8_t *block;
} st_kv_place;

// Stores head_dim numbers; stores, and loads, a row of st_kv_row_bytes.
void st_kv_write(const st_kernels *k, const st_kv_place *place, const float *x);
void st_kv_store(const st_kv_place *place, const uint8_t *row);
void st_kv_load(const st_kv_place *place, uint8_t *row);

#endif
