// The layout of a page of the KV cache: ST_KEYS positions of one layer, and of these, for each KV head, a block of
// keys and a block of values. cache_formats.def lists the formats; docs/cache.md has a drawing.
//
// Numbers: the keys of a block are stored column by column, those of a column adjacent, so that the scores of many keys
// are sums without a sum over lanes. Values are a row for each position.
//
// Codes: a block begins with the half-precision scales of its positions. Then come pieces of 64 bytes: 4 neighbouring
// numbers for each of 16 lanes, which are positions for keys and columns for values, since there is one sum for each.
// Byte 4l + j of a piece is lane l's number st_kv_order[j] of the 4, so that the even bytes of a lane are two
// neighbours, and the odd ones are the next two. Keys: for each 16 positions, for each ST_STEP columns, 8 pieces of 4
// columns; of 4 bits, pieces 2i and 2i + 1 share 64 bytes, the first in the low halves; then come the planes of the
// high 2 bits, in which 4 pieces share 64 bytes, the first in the lowest bits. Values: for each 16 columns, 16 pieces
// of 4 positions; of 4 bits, for each ST_STEP columns, with the first 16 in the low halves. So a byte belongs to one
// position.
#ifndef SETUN_KERNEL_CACHE_H
#define SETUN_KERNEL_CACHE_H

#include "kernel/layout.h"

enum {
  ST_KEYS = 64,                                   // positions of a page
  ST_KEY_PIECES = ST_STEP / 4,                    // of a step of keys
  ST_VALUE_PIECES = ST_KEYS / 4,                  // of 16 columns of values
  ST_VALUE_BYTES = ST_VALUE_PIECES * ST_GROUP * 4 // of these
};

// A row of cache_formats.def.
typedef struct st_kv_format {
  const char *name;
  uint32_t key_bits, value_bits; // of a number
  uint32_t code_bits;            // of queries and factors, where numbers are codes
  bool rotated;
} st_kv_format;

// NULL: the format is unknown.
const st_kv_format *st_kv_format_of(setun_kv_type type);

static inline bool st_kv_is_codes(setun_kv_type type) {
  return st_kv_format_of(type)->key_bits < 16;
}

// Bytes of a block of keys or of values, a multiple of 64.
size_t st_kv_block_bytes(setun_kv_type type, bool keys, size_t head_dim);
// Bytes of one position by itself, as it is saved: its numbers one after the other; of codes the scale, then for each
// ST_STEP columns the codes as they are, or their low 4 bits as columns c and c + 16 in a byte, and then the high 2
// bits of keys as columns c, c + 8, c + 16 and c + 24 in a byte.
size_t st_kv_row_bytes(setun_kv_type type, bool keys, size_t head_dim);

// For codes of that many bits: bytes of the scales of a block, of ST_STEP columns of 16 keys, and of the part of these
// before the high bits.
enum { ST_KV_SCALES = ST_KEYS * 2 };
static inline size_t st_kv_low_bytes(uint32_t bits) {
  return 64 * (bits < 8 ? 4 : 8);
}
static inline size_t st_kv_step_bytes(uint32_t bits) {
  return 64 * bits;
}
// The offset of a code from its value, in units of the scale.
static inline int st_kv_offset(uint32_t bits) {
  return 1 << (bits - 1);
}

// Multiplies each block of columns by an orthogonal matrix that is its own inverse, a Hadamard matrix of the largest
// power of two that divides head_dim: a large value in one column is spread over many. In place.
void st_kv_rotate(const st_kernels *k, float *x, size_t head_dim);

// The place of a key or a value: position `at` of a block.
typedef struct st_kv_place {
  setun_kv_type type;
  bool keys; // otherwise values
  size_t head_dim, at;
  uint8_t *block;
} st_kv_place;

// Stores head_dim numbers, which it may change. A number that is not finite makes its position NaN in formats of codes.
void st_kv_write(const st_kernels *k, const st_kv_place *place, float *x);
// Stores, and loads, a row of st_kv_row_bytes.
void st_kv_store(const st_kv_place *place, const uint8_t *row);
void st_kv_load(const st_kv_place *place, uint8_t *row);

// The place of a code in a block: its byte, or that of its low 4 bits, which begin at bit `shift`; and of keys the byte
// of its high 2 bits, which begin at `high_shift`.
typedef struct st_kv_code {
  size_t at, high;
  unsigned shift, high_shift;
} st_kv_code;
st_kv_code st_kv_code_of(setun_kv_type type, bool keys, size_t head_dim, size_t at, size_t column);
// Its value, in units of the scale.
int st_kv_get(uint32_t bits, const uint8_t *block, st_kv_code from);

#endif
