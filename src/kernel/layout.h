// Where things lie: the strides of a group in each form, and the arrays inside a prepared input. Shared by all tables.
#ifndef SETUN_KERNEL_LAYOUT_H
#define SETUN_KERNEL_LAYOUT_H

#include "kernel/kernel.h"

enum {
  ST_STEP = 32,            // columns are padded to this, and int8 activations by block share a scale over it
  ST_SCALES = 2 * ST_GROUP // bytes of the 16 half-precision scales of a block
};

static inline size_t st_round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Bytes of 32 columns of a group, without T16B's scales; F32 and its like included.
static inline size_t st_step_bytes(st_form form) {
  static const uint16_t bytes[ST_FORM_COUNT] = {
      [ST_FORM_F32] = 2048,           [ST_FORM_F16] = 1024,
      [ST_FORM_BF16] = 1024,          [ST_FORM_T16] = 128,
      [ST_FORM_T16B] = 128,           [ST_FORM_Q8] = ST_SCALES + 512,
      [ST_FORM_Q4] = ST_SCALES + 256, [ST_FORM_Q4M] = 2 * ST_SCALES + 256,
  };
  return bytes[form];
}

// A prepared input seen from inside. Tokens come in tiles of `width` (fewer in the last one); within a tile the tokens
// are interleaved every 4 codes (every value, for float32), so that the loops that take a tile read one stream:
//
//   codes of a tile of n tokens:   [padded / 4][n][4]      values: [padded][n]      block arrays: [blocks][n]
//
// Int8 activations by block have a second plane of codes for the few blocks in which one value dwarfs the others, which
// would otherwise lose most of their bits: what rounding to the first left, in steps 254 times finer. This brings the
// default mode several times nearer to float32; see docs/kernels.md. It is kept token by token, as a list of the blocks
// that have it, since a tile of tokens rarely shares one: entry i of token t stands at t * blocks + i, its 32 codes at
// t * padded + 32 * i.
typedef struct st_view {
  size_t padded, blocks;
  float *values;        // ST_ACT_F32
  int8_t *codes;        // the int8 kinds, and all below
  float *scale;         // [tokens] s of each token (ST_ACT_INT8_TOKEN)
  int32_t *sum;         // [tokens] sum of its codes
  int32_t *block_sum;   // sums of 32 codes
  float *block_scale;   // ST_ACT_INT8_BLOCK, and all below: absmax / 127 of the 32
  float *block_product; // what all 32 codes stand for, summed
  int8_t *rest;         // the second plane
  uint32_t *rest_count; // [tokens] blocks of each token that have it
  uint32_t *rest_block; // which blocks, in order
  float *rest_scale;    // block_scale / 254
  int32_t *rest_sum;    // sums of its codes
} st_view;

// Lays the arrays out from `base`; returns the bytes they take.
static inline size_t st_view_of(st_activation kind, size_t tokens, size_t columns, void *base, st_view *v) {
  v->padded = st_round_up(columns, ST_STEP);
  v->blocks = v->padded / ST_STEP;
  uint8_t *at = base;
  size_t used = 0;
  size_t token_array = st_round_up(tokens * 4, 64), block_array = st_round_up(tokens * v->blocks * 4, 64);
  v->values = (float *)(void *)at;
  v->codes = (int8_t *)at;
  used += st_round_up(tokens * v->padded * (kind == ST_ACT_F32 ? 4 : 1), 64);
  if (kind == ST_ACT_F32) return used;
  v->scale = (float *)(void *)(at + used), used += token_array;
  v->sum = (int32_t *)(void *)(at + used), used += token_array;
  v->block_sum = (int32_t *)(void *)(at + used), used += block_array;
  if (kind == ST_ACT_INT8_TOKEN) return used;
  v->block_scale = (float *)(void *)(at + used), used += block_array;
  v->block_product = (float *)(void *)(at + used), used += block_array;
  v->rest = (int8_t *)(at + used), used += st_round_up(tokens * v->padded, 64);
  v->rest_count = (uint32_t *)(void *)(at + used), used += token_array;
  v->rest_block = (uint32_t *)(void *)(at + used), used += block_array;
  v->rest_scale = (float *)(void *)(at + used), used += block_array;
  v->rest_sum = (int32_t *)(void *)(at + used), used += block_array;
  return used;
}

static inline st_view st_view_input(const st_input *input) {
  st_view v = {0};
  st_view_of(input->kind, input->tokens, input->columns, input->data, &v);
  return v;
}

// Tokens in the tile that starts at token `first`.
static inline size_t st_tile_tokens(size_t tokens, size_t first, size_t width) {
  return tokens - first < width ? tokens - first : width;
}

#endif
